"""The first process of a box: it holds the box together, reaps orphans, and forks a child for each request.

It is a fork of the zygote, so the box's own files are needed for nothing. Once it has assembled the root it gives
up everything that root inside does not have, for itself and for all that will ever run in the box: capabilities,
new privileges, system calls. It is closed to the others inside: not dumpable, no descriptor but its control
socket, no signal it listens to. When it ends, however it ends, the kernel ends everything else in the box.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from . import command, kernel, processes, wire, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from .messages import BoxRequest, ExecRequest, KillRequest
    from .root import Root

_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41


class Rules(NamedTuple):
    """What every process of a box is held to."""

    capabilities: int
    seccomp: bytes
    any_user: bool


class Init:
    def __init__(self, control: socket.socket, *, any_user: bool) -> None:
        self._control = control
        self._any_user = any_user
        self._keepers: set[int] = set()
        self._stopped: set[int] = set()

    def serve(self) -> NoReturn:
        """Answer requests until the host lets go of the control socket, then end the box."""
        wake = command.watch_children()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        wire.send(self._control, {"ok": True})
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if wake in ready:
                command.clear(wake)
                self._keepers -= processes.reap().keys()
            if self._control.fileno() in ready:
                request, descriptors = wire.receive(self._control)
                if request is None:
                    os._exit(0)
                self._answer(request, descriptors)

    def _answer(self, request: wire.Message, descriptors: list[int]) -> None:
        reply = socket.socket(fileno=descriptors.pop(0))
        try:
            with work.errors_to(reply):
                match request["op"]:
                    case "ping":
                        wire.send(reply, {"ok": True})
                    case "kill":
                        self._kill(cast("KillRequest", request))
                        wire.send(reply, {"ok": True})
                    case "freeze":
                        self._stopped = processes.freeze()
                        wire.send(reply, {"ok": True})
                    case "thaw":
                        processes.thaw(self._stopped)
                        wire.send(reply, {"ok": True})
                    case "exec":
                        run = cast("ExecRequest", request)
                        self._keepers.add(
                            self._fork(lambda: command.keep(run, reply, descriptors, any_user=self._any_user), reply)
                        )
                    case _ if not work.do_small(request, reply, descriptors, any_user=self._any_user):
                        self._fork(lambda: work.do(request, reply, descriptors, any_user=self._any_user), reply)
        finally:
            wire.close_all(descriptors)
            reply.close()

    def _fork(self, job: Callable[[], None], reply: socket.socket) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            self._control.close()
            with work.errors_to(reply):
                job()
        finally:
            os._exit(0)

    def _kill(self, request: KillRequest) -> None:
        """A keeper goes with its command: else it would take along what it adopted, when it is let go."""
        keep = frozenset(request["keep"])
        self._keepers -= processes.reap().keys()
        processes.end_all(keep | {keeper for keeper in self._keepers if command.leader(keeper) in keep})
        self._keepers -= processes.reap().keys()


def begin(request: BoxRequest, control: socket.socket, root: Root, rules: Rules) -> NoReturn:
    """Become the first process of a new box, in namespaces that were just made."""
    root.assemble()
    control = _only(control)
    if request["own_network"]:
        _raise_loopback()
    socket.sethostname(request["hostname"])
    kernel.limit_capabilities(rules.capabilities)
    kernel.no_new_privileges()
    kernel.load_filter(rules.seccomp)
    kernel.hide_memory()
    Init(control, any_user=rules.any_user).serve()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP_RUNNING))


def _only(control: socket.socket) -> socket.socket:
    """Close every descriptor but the standard ones and this one."""
    os.dup2(control.detach(), 3, inheritable=False)
    os.closerange(4, 1 << 20)
    return socket.socket(fileno=3)
