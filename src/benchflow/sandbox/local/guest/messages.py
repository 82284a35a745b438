"""The requests that cross the wall, as plain JSON objects with descriptors beside them.

Every request to the zygote or to a first process has `op` and carries a reply socket as its first descriptor;
what else it carries stands with it here. The last reply is `{"ok": true}` plus what the operation adds, or
`{"error": text, "errno": number}`; a reply socket that ends without one means that the process behind it died.
"""

from __future__ import annotations

from typing import TypedDict

HANDED_OVER = 4 << 20
"""Files of up to so many bytes are handed to the host as they are, to be read there."""

FEW = 16
"""So many files of a folder are handed over together."""


class HelloRequest(TypedDict):
    """The first message to the zygote. Descriptor: the compiled seccomp filter.

    A zygote that is to have ranges of uids sends `{"unshared"}` before, and waits for any message: they are mapped by
    then.
    """

    capabilities: int
    any_user: bool


class StackRequest(TypedDict):
    """Layers and a writable folder over them.

    `home` is the folder of `upper`, `work` and `empty` (a lower for a box without layers); with `tmpfs_bytes` a
    tmpfs of that size is mounted there first, less what is used of the ones in `charged`. A folder in `copy` becomes
    the content of `upper`.
    """

    layers: list[str]
    home: str
    upper: str
    work: str
    empty: str
    tmpfs_bytes: int
    charged: list[str]
    copy: str


class MountRequest(TypedDict):
    source: str
    target: str
    writable: bool


class CgroupRequest(TypedDict):
    """A control group to make, and what to write into its files."""

    path: str
    settings: dict[str, str]


class BoxRequest(TypedDict):
    """`box`, to the zygote: start one. The reply socket stays, as the control socket of the box. With `own_network` it
    may bring the namespace of one, else one is made.

    `exchange` makes it a fork: the box whose first process comes as a pidfd, before the network, is given that stack
    over all it had. The first reply then is `{"busy"}`, true when that box has other processes, and nothing was done.

    Replies: `{"pid"}` with a pidfd of the first process, and, if a network was made, its namespace and the texts that
    tell what was done in it, then the last reply once it serves.
    """

    stack: StackRequest
    cgroups: list[CgroupRequest]
    own_network: bool
    mounts: list[MountRequest]
    hostname: str
    files: dict[str, str]
    """Small files laid over the image's, such as /etc/hosts: path -> content."""
    folders: list[str]
    """Folders made if they are missing."""
    exchange: StackRequest | None


class TreeRequest(TypedDict):
    """`tree`, to the zygote: a detached copy of a host folder, read-only or not. Reply: its descriptor."""

    path: str
    writable: bool


class NetworkRequest(TypedDict):
    """`network`, to the zygote: give a network namespace a way out. Descriptor: the namespace.

    `argv` starts a program that puts itself into the background once the network is there; `{}` in it becomes the
    number of the namespace's descriptor. Reply: its `pids`. The reply socket stays open for as long as the program
    runs, which is ended with the other end of it.
    """

    argv: list[str]


class CleanRequest(TypedDict):
    """`clean`, to the zygote: remove control groups and trees, also from under their mounts. Absent ones are fine."""

    cgroups: list[str]
    trees: list[str]


class ExecRequest(TypedDict):
    """`exec`, to a first process: run a command. Descriptors: stdin, stdout, stderr.

    The reply socket is the command's leash. The reply `{"exit": code}` says that the command itself has ended. The
    message `{"signal": number}` sends a signal to the command itself, as long as it runs. The message
    `{"release"}`, after that, lets what it started live on; it may bring read ends of pipes that somebody still
    holds, to be drained until they close. Any other message, and the end of the socket, kills the whole tree; when
    that is gone the other end closes too.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    user: str


class PutRequest(TypedDict):
    """`put`, to a first process: copy in. Descriptor: a detached tree, a regular file, or all `files` in a row."""

    kind: str
    """`tree`, `file` or `data`."""
    target: str
    owner: str
    mode: int
    """For a file."""
    files: list[tuple[str, int, int]]
    """For data: path relative to the target, mode, size."""


class GetRequest(TypedDict):
    """`get`, to a first process: copy out. The reply `{"kind": "open", "mode"}` brings the file itself, for the host
    to copy up to `HANDED_OVER` bytes of it; `{"kind": "few", "files"}` brings all files of a folder, with the name,
    mode and time of each. Else it first replies `{"kind": "file" | "tree", "mode"}`; the host answers with a descriptor
    of a file to fill or of a detached, writable tree."""

    path: str
    new: bool
    """Whether there is nothing yet where the copy goes."""


class ReadRequest(TypedDict):
    """`read`, to a first process. Reply: a file with the content, which may have grown since then."""

    path: str
    limit: int


class ChangesRequest(TypedDict):
    """`changes`, to the zygote: what layers make different from those below; see `difference`. Reply: `rows`."""

    changed: list[str]
    base: list[str]
    unread: str
    read: list[str]


class RestrainRequest(TypedDict):
    """`restrain`, to the zygote: see `restrain`. Descriptor: a pidfd of the box's first process. The processes are
    bound when the reply comes, and held until the other end of the reply socket closes."""


class ShippedRequest(TypedDict):
    """`shipped`, to the zygote: which `paths` layers have. Reply: those `paths`."""

    base: list[str]
    paths: list[str]


class StageRequest(TypedDict):
    """`stage`, to the zygote: copy what layers have at `paths` below a folder, which is made."""

    base: list[str]
    paths: list[str]
    folder: str


class EraseRequest(TypedDict):
    """`erase`, to a first process: remove files, links and trees. Absent ones are fine."""

    paths: list[str]


class UnpackRequest(TypedDict):
    """`unpack`, to the zygote: extract a tar into a folder."""

    archive: str
    folder: str


class ListenRequest(TypedDict):
    """`listen`, to a first process. Reply: `port`, and a descriptor of the listening socket."""

    port: int


class KillRequest(TypedDict):
    """`kill`, to a first process: end all others but `keep`."""

    keep: list[int]
