"""Running a command: a keeper that holds the whole tree together, and the last steps before the program starts.

The keeper adopts every orphan of the command's, so at any time the tree of the command is what is below the
keeper, daemons included; that is what a time-out ends. When the command itself has ended the keeper says so, and
then either ends what is left or leaves it to the first process of the box, as it is told.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import kernel, processes, programs, users, wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .messages import ExecRequest

NOT_STARTED, NOT_FOUND = 126, 127
KEEPER = "keeper"
"""A keeper is named so in process lists, with the pid of its command behind it."""

OPEN_FILES = 65536
OOM_SCORE = b"500"
"""Raises the odds that the kernel, short of memory, ends a command before the processes that hold the box."""


def keep(request: ExecRequest, leash: socket.socket, stdio: list[int], *, any_user: bool) -> None:
    """Run the command to its end, or to the end of the leash; see ExecRequest. Called in a process of its own."""
    wake = watch_children()
    kernel.adopt_orphans()
    try:
        leader = _start(request, stdio, any_user=any_user)
    except Exception as error:  # noqa: BLE001 - whatever it is, the command reports it as a shell would
        _complain(error, request, stdio[2])
        wire.close_all(stdio)
        wire.send(leash, {"exit": _failure(error, request)})
        return
    wire.close_all(stdio)
    kernel.name_process(f"{KEEPER} {leader}")
    killed, code = _await_leader(leader, leash, wake)
    wire.send(leash, {"exit": code})
    if not killed:
        _let_go(leash, wake)


def leader(keeper: int) -> int:
    """The pid of the command that a keeper keeps; 0 when it has none yet or is gone."""
    try:
        with open(f"/proc/{keeper}/comm") as file:
            return int(file.read().removeprefix(f"{KEEPER} "))
    except (OSError, ValueError):
        return 0


def watch_children() -> int:
    """A descriptor that becomes readable when a child ends."""
    wake, trip = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(trip, warn_on_full_buffer=False)
    return wake


def clear(wake: int) -> None:
    try:
        os.read(wake, 4096)
    except BlockingIOError:
        return


def _await_leader(leader: int, leash: socket.socket, wake: int) -> tuple[bool, int]:
    """Whether the tree had to be ended, and the exit code of the command."""
    killed = False
    while True:
        ended = processes.reap()
        if leader in ended:
            return killed, ended[leader]
        if not _leash_moved(leash, wake):
            continue
        message, _ = wire.receive(leash)
        if message is not None and "signal" in message:
            processes.signal_each({leader}, message["signal"])
        else:
            killed = True
            processes.end_tree()


def _leash_moved(leash: socket.socket, wake: int) -> bool:
    """Wait for a child to end or for the host to say something; whether it was the latter."""
    ready, _, _ = select.select([leash.fileno(), wake], [], [])
    if wake in ready:
        clear(wake)
    return leash.fileno() in ready


def _let_go(leash: socket.socket, wake: int) -> None:
    message: wire.Message | None = {"signal": 0}
    pipes: list[int] = []
    while message is not None and "signal" in message:
        while not _leash_moved(leash, wake):
            processes.reap()
        message, pipes = wire.receive(leash)
    if message is None or "release" not in message:
        processes.end_tree()
        return
    leash.close()
    _drain(set(pipes), wake)


def _drain(pipes: set[int], wake: int) -> None:
    """Read and forget what is written to pipes until they close, so that nobody dies of writing to them."""
    while pipes:
        ready, _, _ = select.select([*pipes, wake], [], [])
        if wake in ready:
            clear(wake)
            processes.reap()
        for pipe in pipes.intersection(ready):
            if not os.read(pipe, 1 << 16):
                os.close(pipe)
                pipes.discard(pipe)


def _start(request: ExecRequest, stdio: list[int], *, any_user: bool) -> int:
    """Start the command and return its pid. Raises OSError, UnknownUser, ValueError for an argument that cannot be."""
    account = users.lookup(request["user"], any_user=any_user)
    env = {"PATH": programs.PATH, "HOME": account.home, **request["env"]}
    _own_pipes(account, stdio)
    _lower_limits()
    if any_user:
        os.setgroups(account.groups)
    with _first_to_go():
        if account.uid or account.gid:
            return _fork(request, env, stdio, account)
        return _spawn(request, env, stdio)


def _spawn(request: ExecRequest, env: dict[str, str], stdio: list[int]) -> int:
    """Start it as who we are: that spares the kernel a copy of this process."""
    argv = request["argv"]
    os.chdir(request["cwd"])
    try:
        for program in _candidates(argv[0], env["PATH"]):
            try:
                return kernel.spawn(program, argv, env, stdio)
            except PermissionError as error:
                refused = error
        raise refused
    finally:
        os.chdir("/")


def _candidates(program: str, path: str) -> list[str]:
    """Where a program may be. Raises FileNotFoundError when it is nowhere."""
    if "/" in program:
        return [program]
    places = [f"{folder or '.'}/{program}" for folder in path.split(":")]
    found = [place for place in places if os.path.exists(place)]
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


def _fork(request: ExecRequest, env: dict[str, str], stdio: list[int], account: users.Account) -> int:
    """Start it as somebody else. What goes wrong there is said on its stderr and by its exit code."""
    if pid := os.fork():
        return pid
    code = NOT_STARTED
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        for place, descriptor in enumerate(stdio):
            os.dup2(descriptor, place)
        os.closerange(3, 1 << 20)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
        os.chdir(request["cwd"])
        os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 - running a program is what this is for
    except BaseException as error:  # noqa: BLE001 - a forked child must not return into its parent's code
        code = _failure(error, request)
        _complain(error, request, 2)
    finally:
        os._exit(code)


def _failure(error: BaseException, request: ExecRequest) -> int:
    missing = isinstance(error, FileNotFoundError) and error.filename != request["cwd"]
    return NOT_FOUND if missing else NOT_STARTED


def _complain(error: BaseException, request: ExecRequest, stderr: int) -> None:
    what = f"cannot run {request['argv'][0]!r}" if request["argv"] else "empty command"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    name = f": {error.filename!r}" if isinstance(error, OSError) and error.filename else ""
    try:
        os.write(stderr, f"{what}: {reason}{name}\n".encode(errors="replace"))
    except OSError:
        return


def _own_pipes(account: users.Account, stdio: list[int]) -> None:
    """Let the command open /dev/stdout and its like again, whoever it runs as."""
    for pipe in stdio:
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            try:
                os.fchown(pipe, account.uid, account.gid)
            except OSError:
                return


def _lower_limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))


@contextmanager
def _first_to_go() -> Iterator[None]:
    """What is started within goes before this process does, when the kernel is short of memory."""
    handle = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        before = os.read(handle, 16)
        os.write(handle, OOM_SCORE)
        yield
        os.write(handle, before)
    finally:
        os.close(handle)
