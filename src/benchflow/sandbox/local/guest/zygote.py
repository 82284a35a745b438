"""The zygote: one small, single-threaded process per engine, of which every box is a fork.

It lives in a mount namespace of its own (and, without root, in a user namespace of its own), where the host's
folders are visible and where every tmpfs and overlay is mounted: so no mount ever appears on the host, and all of
them are gone when the last of these processes is. It dies with its engine: the control socket ends, and the
kernel kills it with its parent. Boxes then see their own control sockets end.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, NoReturn, cast

from . import (
    cgroups,
    clean,
    command,
    difference,
    escort,
    hostmount,
    init,
    kernel,
    layers,
    processes,
    programs,
    restrain,
    root,
    wire,
    work,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .messages import (
        BoxRequest,
        ChangesRequest,
        HelloRequest,
        NetworkRequest,
        ShippedRequest,
        StackRequest,
        StageRequest,
        TreeRequest,
        UnpackRequest,
    )

_NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP


def main(here: str, descriptor: str, parent: str, identity: str) -> NoReturn:
    """Serve the engine at the other end of the socket until it is gone.

    `here` is the folder of these modules, `parent` the engine's process. `identity` says which uids there are: "root"
    has the host's; "single" and "ranges" mean a user namespace of our own, and begin again there.
    """
    os.set_inheritable(int(descriptor), False)
    control = socket.socket(fileno=int(descriptor))
    with work.errors_to(control):
        _reset_signals()
        os.umask(0o022)
        if identity in ("single", "ranges"):
            _enter_user_namespace(identity, control)
            _begin_again(here, control, parent, identity)
        request, descriptors = wire.receive(control)
        if request is None:
            os._exit(0)
        hello = cast("HelloRequest", request)
        seccomp = os.pread(descriptors[0], os.fstat(descriptors[0]).st_size, 0)
        wire.close_all(descriptors)
        rules = init.Rules(hello["capabilities"], seccomp, any_user=hello["any_user"])
        os.unshare(kernel.CLONE_NEWNS)
        kernel.set_propagation(kernel.MS_SLAVE)
        hostmount.let_containers_go()
        kernel.rename_process("benchflow")
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != int(parent):
            os._exit(0)
        seal()
        Zygote(control, rules, user_namespace=identity != "root").serve()
    os._exit(1)


def seal() -> None:
    """Nothing is imported from now on: in a box, the paths of modules lead into files that the box controls."""
    sys.path.clear()
    sys.meta_path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    gc.collect()
    gc.freeze()
    gc.disable()


def _reset_signals() -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _enter_user_namespace(identity: str, control: socket.socket) -> None:
    """Become root of a world of our own."""
    uid, gid = os.getuid(), os.getgid()
    os.unshare(kernel.CLONE_NEWUSER)
    if identity == "single":
        cgroups.write("/proc/self/setgroups", "deny")
        cgroups.write("/proc/self/uid_map", f"0 {uid} 1")
        cgroups.write("/proc/self/gid_map", f"0 {gid} 1")
    else:
        wire.send(control, {"unshared": True})
        wire.receive(control)
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _begin_again(here: str, control: socket.socket, parent: str, identity: str) -> NoReturn:
    """Memory belongs to the user namespace in which its program was started: only then is it ours to look after."""
    os.set_inheritable(control.fileno(), True)
    program = "import sys; sys.path.append(sys.argv[1]); from guest.zygote import main; main(*sys.argv[1:])"
    words = ["-I", "-S", "-E", "-c", program, here, str(control.fileno()), parent, f"mapped-{identity}"]
    os.execve(sys.executable, [sys.executable, *words], {})  # noqa: S606 - ourselves


class Zygote:
    def __init__(self, control: socket.socket, rules: init.Rules, *, user_namespace: bool) -> None:
        self._control = control
        self._rules = rules
        self._user_namespace = user_namespace
        self._space = "user" if user_namespace else "trusted"
        self._home = _own_processes()
        self._cleaner, far = wire.pair()
        if os.fork() == 0:
            self._control.close()
            self._cleaner.close()
            clean.serve(far)
        far.close()

    def serve(self) -> NoReturn:
        kernel.adopt_orphans()
        wake = command.watch_children()
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(wake, select.POLLIN)
        wire.send(self._control, {"ok": True})
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if wake in ready:
                command.clear(wake)
                processes.reap()
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
                    case "tree":
                        _send_mount(reply, _tree(cast("TreeRequest", request)))
                    case "box":
                        box = cast("BoxRequest", request)
                        hostmount.prepare(box["stack"]["layers"])
                        self._fork_first(lambda: self._box(box, reply, descriptors), reply)
                    case "network":
                        join = cast("NetworkRequest", request)
                        self._fork(lambda: escort.connect(join, reply, descriptors[0]), reply)
                    case "changes":
                        self._fork(lambda: _changes(cast("ChangesRequest", request), reply, self._space), reply)
                    case "shipped":
                        self._fork(lambda: _shipped(cast("ShippedRequest", request), reply, self._space), reply)
                    case "restrain":
                        self._fork(lambda: _restrain(reply, descriptors[0]), reply)
                    case "stage":
                        self._fork(lambda: _stage(cast("StageRequest", request), reply, self._space), reply)
                    case "unpack":
                        self._fork(lambda: _unpack(cast("UnpackRequest", request), reply), reply)
                    case "clean":
                        wire.send(self._cleaner, request, [reply.fileno()])
                    case unknown:
                        raise ValueError(f"unknown operation {unknown!r}")
        finally:
            wire.close_all(descriptors)
            reply.close()

    def _fork(self, job: Callable[[], None], reply: socket.socket) -> None:
        if os.fork():
            return
        try:
            signal.set_wakeup_fd(-1)
            self._control.close()
            self._cleaner.close()
            with work.errors_to(reply):
                job()
        finally:
            os._exit(0)

    def _fork_first(self, job: Callable[[], None], reply: socket.socket) -> None:
        """Fork the first process of a new process namespace."""
        if self._home is None:
            self._fork(lambda: _fork_inside(job), reply)
            return
        os.unshare(kernel.CLONE_NEWPID)
        try:
            self._fork(job, reply)
        finally:
            os.setns(self._home, kernel.CLONE_NEWPID)

    def _box(self, request: BoxRequest, control: socket.socket, given: list[int]) -> None:
        """Prepare what needs the host's paths, enter new namespaces, and become their first process."""
        if request["exchange"] and not self._exchange(request["exchange"], control, given.pop(0)):
            return
        overlay = layers.stack(request["stack"], user_namespace=self._user_namespace)
        mounts = [_tree({"path": item["source"], "writable": item["writable"]}) for item in request["mounts"]]
        cgroups.enter(request["cgroups"])
        for network in given:
            os.setns(network, kernel.CLONE_NEWNET)
        make_network = request["own_network"] and not given
        os.unshare(_NAMESPACES | (kernel.CLONE_NEWNET if make_network else 0))
        handles = [os.pidfd_open(os.getpid()), *(_network() if make_network else ())]
        wire.send(control, {"pid": 1}, handles)
        wire.close_all(handles)
        frame = root.Root(request, overlay, mounts, user_namespace=self._user_namespace)
        init.begin(request, control, frame, self._rules)

    def _exchange(self, request: StackRequest, reply: socket.socket, first: int) -> bool:
        """Give a box a fresh upper folder over all it had, unless others than its first process run."""
        home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        overlay = layers.stack(request, user_namespace=self._user_namespace)
        os.setns(first, kernel.CLONE_NEWNS)
        idle = processes.only_the_first()
        if idle:
            try:
                root.exchange(overlay)
            except OSError:
                # Half moved, it is of no use to anybody.
                signal.pidfd_send_signal(first, signal.SIGKILL)
                raise
        os.setns(home, kernel.CLONE_NEWNS)
        os.close(home)
        wire.send(reply, {"busy": not idle})
        return idle


def _own_processes() -> int | None:
    """The process namespace of this process, if it may come back to it: in a user namespace it may not."""
    handle = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.setns(handle, kernel.CLONE_NEWPID)
    except OSError:
        os.close(handle)
        return None
    return handle


def _network() -> list[int]:
    """Our network namespace, and the texts that tell what was done in it."""
    texts = [f"/proc/self/net/{name}" for name in ("dev", "snmp", "snmp6", "netstat", "sockstat", "ip6_flowlabel")]
    names = ["/proc/self/ns/net", *(name for name in texts if os.path.exists(name))]
    return [os.open(name, os.O_RDONLY | os.O_CLOEXEC) for name in names]


def _fork_inside(job: Callable[[], None]) -> None:
    os.unshare(kernel.CLONE_NEWPID)
    if os.fork() == 0:
        job()


def _send_mount(reply: socket.socket, mount: int) -> None:
    try:
        wire.send(reply, {"ok": True}, [mount])
    finally:
        os.close(mount)


def _tree(request: TreeRequest) -> int:
    attributes = kernel.ATTR_NOSUID | kernel.ATTR_NODEV | (0 if request["writable"] else kernel.ATTR_RDONLY)
    return kernel.clone_tree(request["path"], attributes=attributes)


def _unpack(request: UnpackRequest, reply: socket.socket) -> None:
    program = "import sys; sys.path.append(sys.argv[1]); from guest.unpack import main; main(*sys.argv[2:])"
    here = os.path.dirname(os.path.dirname(__file__))
    programs.run([sys.executable, "-I", "-S", "-c", program, here, request["archive"], request["folder"]])
    wire.send(reply, {"ok": True})


def _restrain(reply: socket.socket, first: int) -> None:
    """Hold and bind the processes of a box, from within its own numbers, until the host lets go of the reply."""
    os.setns(first, kernel.CLONE_NEWNS | kernel.CLONE_NEWPID)
    if inside := os.fork():
        os.waitpid(inside, 0)
        return
    with (
        work.errors_to(reply),
        restrain.restrained(lambda: processes.others(frozenset()), lambda pid: os.kill(pid, signal.SIGKILL)),
    ):
        wire.send(reply, {"ok": True})
        reply.recv(1)
    os._exit(0)


def _changes(request: ChangesRequest, reply: socket.socket, space: str) -> None:
    rows = difference.differences(request["changed"], request["base"], request["unread"], request["read"], space)
    wire.send(reply, {"ok": True, "rows": rows})


def _shipped(request: ShippedRequest, reply: socket.socket, space: str) -> None:
    wire.send(reply, {"ok": True, "paths": difference.present(request["base"], request["paths"], space)})


def _stage(request: StageRequest, reply: socket.socket, space: str) -> None:
    os.mkdir(request["folder"], 0o755)
    difference.stage(request["base"], request["paths"], request["folder"], space)
    wire.send(reply, {"ok": True})
