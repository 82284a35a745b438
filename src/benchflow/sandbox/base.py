"""The sandbox protocol: what every backend promises, and the plain data that crosses it.

A `Backend` knows one way of making sandboxes on one machine; a `Sandbox` is one isolated Linux file system
with processes in it. Everything above this module is written against these protocols alone, and every
backend passes the same contract suite (`benchflow.testing.sandbox_contract`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType

NetworkMode = Literal["public", "no-network", "allowlist"]

OUTPUT_LIMIT = 4 * 1024 * 1024
"""Bytes of each of stdout and stderr that `exec` keeps by default: the head and the tail, with the middle counted."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are found in an image that does not say."""

BUILD_TIMEOUT = 600.0
"""Seconds an image may take to build or pull, unless the task says otherwise."""

STOP_TIMEOUT = 30.0
"""Seconds `stop` may take before it is reported as failed; what is left is then found by `reap`."""

PIDS_LIMIT = 4096
"""Processes and threads a sandbox may have, unless the spec says otherwise."""


# -- what a sandbox is made from -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BuildContext:
    """A folder with a Dockerfile. The image is keyed by the content of what the build can see."""

    path: Path
    dockerfile: str = "Dockerfile"


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image by name, used if present and pulled if not."""

    name: str


@dataclass(frozen=True, slots=True)
class RootFolder:
    """An unpacked root file system on this machine; used read-only."""

    path: Path


@dataclass(frozen=True, slots=True)
class HostRoot:
    """The host's own root, read-only, with everything private masked. Only backends that say `host_root` take it."""


ImageSource = BuildContext | ImageRef | RootFolder | HostRoot


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder or file that the sandbox sees at `target`. Read-only unless said otherwise."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """What the sandbox may reach. `no-network` leaves loopback only."""

    mode: NetworkMode = "public"
    allowed_hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds; `None` leaves a resource unbounded. A backend that cannot enforce one says so beforehand."""

    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    pids: int | None = PIDS_LIMIT
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose sandbox this is. Written on everything that outlives a process, so that leftovers can be told apart."""

    job: str = ""
    rollout: str = ""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Everything a backend needs to make one sandbox. The same spec gives the same sandbox.

    `workdir` overrides the image's own; `env` is laid over the image's. `log` receives the output of an image
    build, line by line, as it happens.
    """

    image: ImageSource
    name: str = "sandbox"
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    network: Network = field(default_factory=Network)
    limits: Limits = field(default_factory=Limits)
    mounts: tuple[Mount, ...] = ()
    owner: Owner = field(default_factory=Owner)
    build_timeout: float = BUILD_TIMEOUT
    log: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do here and now. Declared, never guessed: a task that needs more is refused beforehand."""

    fork: bool = False
    mounts: bool = False
    host_root: bool = False
    listen: bool = False
    network: frozenset[NetworkMode] = frozenset({"public"})
    limits: frozenset[Literal["cpus", "memory", "storage", "pids"]] = frozenset()
    users: bool = True
    """Processes can run as any user. False where only one uid is mapped: then everything is root inside."""
    gpus: bool = False
    changes: bool = False
    """What differs from the image can be told from outside, and put back."""
    restrain: bool = False
    """Processes that already run can be kept from making symbolic links."""


# -- what comes out ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How one command ended.

    `exit_code` is the shell's: 128 + n for a signal n. `timed_out` is true only when we killed it for its time.
    `stdout` and `stderr` hold what was kept; `dropped` counts the bytes that were not (see `OUTPUT_LIMIT`).
    """

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    dropped: int = 0
    duration: float = 0.0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """One sandbox as seen from outside, for `bench sandbox list` and for reaping."""

    backend: str
    id: str
    job: str
    rollout: str
    owner_pid: int
    owner_alive: bool
    created: float
    state: str


@dataclass(frozen=True, slots=True)
class FileData:
    """A file to put, given by content instead of by path."""

    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Change:
    """One path that is not as the image has it. `mode` and the owner are those of now; of a deleted one, the image's.

    `touched` is what was written or re-owned with the same content, as far as that was looked at. A folder that
    merely holds changes is none itself. `link` is where a symbolic link points.
    """

    path: str
    kind: Literal["added", "modified", "touched", "deleted"]
    type: Literal["file", "folder", "link", "other"] = "file"
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    link: str = ""


# -- the protocols -------------------------------------------------------------------------------------------


class Stream(Protocol):
    """A process inside the sandbox with its three standard streams, alive until it exits or is killed.

    `stdout` and `stderr` are read concurrently by whoever opened the stream; reading is what gives the process
    room to write, so memory stays flat. A line may be of any length: use `read` or raise the limit, never assume.
    """

    @property
    def stdout(self) -> asyncio.StreamReader: ...

    @property
    def stderr(self) -> asyncio.StreamReader: ...

    async def write(self, data: bytes) -> None:
        """Write all of `data` to stdin, waiting while the process does not read.

        Raises BrokenPipeError when the process has closed its stdin or is gone.
        """
        ...

    async def close_stdin(self) -> None:
        """Half-close: the process sees the end of its input while its output goes on. Idempotent."""
        ...

    async def wait(self) -> int:
        """The exit code, 128 + n for a signal n. Does not wait for children that keep the output open.

        Raises SandboxGone when the sandbox died with it.
        """
        ...

    async def signal(self, number: int) -> None:
        """Send a signal to the process itself, not to what it started. Does nothing after its exit."""
        ...

    async def kill(self) -> None:
        """Kill the process and everything it started, and release the stream. Idempotent, also after exit."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Calls `kill`."""
        ...


class Listener(Protocol):
    """A listening socket on 127.0.0.1 inside the sandbox whose connections are accepted on the host."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Stop accepting and drop open connections. Idempotent; stopping the sandbox does it too."""
        ...


type ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@runtime_checkable
class Sandbox(Protocol):
    """One isolated Linux file system with processes in it.

    Guarantees, whatever the backend:
    - `stop` leaves nothing behind, however it is reached; a process killed before it could call `stop` leaves
      only what is labelled as its own, which `Backend.reap` then removes.
    - The host's files, environment and processes are out of reach from inside, except what the spec mounts.
    - Methods raise `SandboxError` (with backend, sandbox and phase) when the sandbox fails, and never for what a
      command inside does: that is an exit code. `SandboxGone` means it will not work again.
    """

    @property
    def id(self) -> str:
        """Unique on this machine."""
        ...

    @property
    def backend(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def workdir(self) -> str:
        """Where commands start by default: the spec's, else the image's, else `/`. Known once started."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The image's environment with the spec's laid over it: what commands start with. Known once started."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results must know about this sandbox, such as a base image that was stood in for."""
        ...

    async def start(self) -> None:
        """Make the image available (building it if needed) and start. On any failure nothing is left.

        Raises SandboxBuildError, SandboxUnavailable, SandboxUnsupported or SandboxError.
        """
        ...

    async def stop(self) -> None:
        """Kill every process and remove everything. Idempotent, and safe while other calls run.

        Those other calls end with SandboxGone.
        """
        ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> ExecResult:
        """Run a command to its end. A string goes to `sh -c`, a sequence is run as it is.

        Never loses output up to the limit, keeps the head and the tail beyond it, returns when the command itself
        ends even if a background child keeps the pipe, and kills the whole tree of the command at `timeout`.
        A command that cannot be started exits 127 (not found) or 126 (not executable) with the reason on stderr;
        an unknown user or a missing cwd exits 126 likewise. `user` is a name or a uid; None is the image's.
        HOME is the user's, from /etc/passwd, unless `env` says otherwise; nothing else is inherited: no descriptors,
        no signal mask. When the call is cancelled, the whole tree of the command is killed.
        """
        ...

    async def open(
        self,
        command: str | Sequence[str],
        *,
        user: str | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Stream:
        """Start a command and talk to it. See `exec` for the arguments and `Stream` for the rest."""
        ...

    async def put(
        self,
        source: Path | Mapping[str, FileData | bytes],
        target: str,
        *,
        owner: str | int | None = None,
    ) -> None:
        """Copy a host file or folder, or given contents, to `target` inside; missing parents are made, files replaced.

        A folder's content goes into `target`; a file becomes `target`; a mapping's keys are relative to `target`.
        Modes and symlinks are kept. `owner` (name or uid) owns everything that was put; None means root.
        A symlink at or under `target` that leads elsewhere inside is followed inside, never on the host.
        """
        ...

    async def get(self, path: str, target: Path) -> None:
        """Copy a file or folder out to `target` on the host: a file becomes `target`, a folder's content goes into it.

        Nothing is ever written outside `target`: links that would leave it, devices, sockets and pipes are left
        out. Owners and setuid bits are dropped. Raises FileNotFoundError when `path` does not exist.
        """
        ...

    async def read(self, path: str, *, limit: int = OUTPUT_LIMIT) -> bytes:
        """The content of a regular file, at most `limit` bytes of it, following no symlink at its last component.

        Raises FileNotFoundError; raises SandboxError when it is not a regular file or is longer than `limit`.
        """
        ...

    async def fork(self, *, name: str | None = None, network: Network | None = None) -> Sandbox:
        """A new, started sandbox with the same files and none of the processes; copy-on-write.

        The original goes on untouched and neither sees the other's later writes. Mounts are kept, listeners are not.
        """
        ...

    async def changes(self, *, unread: str = "", read: Sequence[str] = ()) -> Sequence[Change]:
        """What differs from the image, by path; a fork is compared with the image of its original.

        Told from outside: nothing inside runs, so nothing inside can hide a change. Content decides whether a file was
        modified, except below `unread`, where one of the same size only counts as touched, unless it has or lies below
        one of the names in `read`. Mounts are left out.
        Raises SandboxUnsupported without the capability `changes`, SandboxError when there are too many to judge.
        """
        ...

    async def shipped(self, paths: Sequence[str]) -> frozenset[str]:
        """Which of `paths` the image has, by these very names: no link is followed. Like `changes`."""
        ...

    async def restore(self, paths: Sequence[str]) -> None:
        """Make `paths` what the image has there, folders with all that is in them; what it lacks is removed.

        Nothing inside runs, and a link at a path is replaced, never followed. What is put back belongs to root.
        """
        ...

    async def kill_processes(self, *, keep: Sequence[int] = ()) -> None:
        """Kill every process inside except the first one and those in `keep` (pids as seen inside)."""
        ...

    def restrained(self) -> AbstractAsyncContextManager[None]:
        """Within, the processes of plain users stand still. From then on neither they nor what they start can make a
        symbolic link, however long they live; one that cannot be held to that is killed.

        What others start as the same user later on is not meant.
        Raises SandboxUnsupported without the capability `restrain`.
        """
        ...

    async def listen(self, handler: ConnectionHandler, *, port: int = 0) -> Listener:
        """Serve connections made inside to 127.0.0.1:`port` (0: any free one) with `handler` on the host.

        Works without any network. The handler gets the connection as a stream pair, as `asyncio.start_server`'s does.
        """
        ...

    async def __aenter__(self) -> Self:
        """Calls `start`."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Calls `stop`, to its end even when cancelled."""
        ...


class Backend(Protocol):
    """One way of making sandboxes on this machine. Cheap to construct; connects on first use; reusable and shared.

    A third party registers one through the entry point group `benchflow.sandboxes`: name -> callable without
    arguments that returns a Backend.
    """

    @property
    def name(self) -> str: ...

    async def check(self) -> Capabilities:
        """What this backend can do here. Raises SandboxUnavailable, with the fix, when it cannot work at all."""
        ...

    async def prepare(
        self, image: ImageSource, *, timeout: float = BUILD_TIMEOUT, log: Callable[[str], None] | None = None
    ) -> None:
        """Build or pull an image now, once however many ask, so that later starts are fast.

        Raises SandboxBuildError with the failing step, also when `timeout` seconds are over.
        """
        ...

    def create(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox that is not started yet. Raises SandboxUnsupported when the spec asks for what this lacks."""
        ...

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox of ours on this machine, also those of other processes, also dead ones."""
        ...

    async def reap(
        self, *, everything: bool = False, older_than: float = 0.0, dry_run: bool = False
    ) -> Sequence[SandboxInfo]:
        """Remove what dead owners left (with `everything`, also what live owners have) and say what it was.

        Only sandboxes that carry our label are touched, and only those made at least `older_than` seconds ago.
        """
        ...

    async def disk_use(self) -> Mapping[str, int]:
        """Bytes held by this backend's images and caches, by a name that means something to a user."""
        ...

    async def prune(
        self, *, older_than: float = 0.0, dry_run: bool = False, only: ImageSource | None = None
    ) -> Sequence[str]:
        """Remove images and caches that no sandbox uses and that were last used `older_than` seconds ago or earlier.

        With `only`, none but that image, and only if it was built here and shares nothing that would go with it.
        """
        ...

    async def close(self) -> None:
        """Release connections and helper processes. Sandboxes that still run are stopped."""
        ...
