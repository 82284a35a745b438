"""The requests that touch the files of a box.

A child of the first process answers them, which can be killed, and which a hostile box can at worst keep busy. Only
what is small, and waits for nothing that a box controls, is answered by the first process itself: a fork costs many
times as much.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from . import erase, files, get, messages, put, users, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .messages import EraseRequest, GetRequest, ListenRequest, PutRequest, ReadRequest

BACKLOG = 128

SMALL_FILES, SMALL_BYTES = 64, 1 << 20
"""So many files with so many bytes in all are put by the first process itself."""


@contextmanager
def errors_to(reply: socket.socket) -> Iterator[None]:
    """Send whatever goes wrong as the reply, as far as somebody is still there to read it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - this is the boundary: the other side decides what it means
        number = error.errno if isinstance(error, OSError) and error.errno else 0
        try:
            wire.send(reply, {"error": str(error) or repr(error), "errno": number})
        except OSError:
            return


def do_small(request: wire.Message, reply: socket.socket, descriptors: list[int], *, any_user: bool) -> bool:
    """Answer a request that takes no noticeable time, in the first process; whether it was one. Raises what goes
    wrong."""
    match request["op"]:
        case "put" if request["kind"] == "data" and len(request["files"]) <= SMALL_FILES:
            if sum(size for _, _, size in request["files"]) > SMALL_BYTES:
                return False
            _put(cast("PutRequest", request), descriptors[0], any_user=any_user)
            wire.send(reply, {"ok": True})
            return True
        case "get":
            path = os.path.realpath(request["path"])
            if os.path.isdir(path):
                return bool(request["new"]) and _hand_over_few(path, reply)
            return _hand_over(path, reply, messages.HANDED_OVER)
        case "read":
            return _hand_over(request["path"], reply, min(request["limit"], messages.HANDED_OVER))
        case _:
            return False


def _hand_over(path: str, reply: socket.socket, limit: int) -> bool:
    """Let the host itself read a file of up to `limit` bytes: opening it is all that takes the paths of the box."""
    source = files.open_own(path)
    if source is None:
        return False
    try:
        info = os.fstat(source)
        if info.st_size > limit:
            return False
        wire.send(reply, {"ok": True, "kind": "open", "mode": info.st_mode & 0o777}, [source])
    finally:
        os.close(source)
    return True


def _hand_over_few(path: str, reply: socket.socket) -> bool:
    """Let the host itself read the files of a folder that has a few small ones, and nothing else."""
    opened: list[int] = []
    folder = os.open(path, files.OPEN_FOLDER)
    try:
        if not files.is_own(folder):
            return False
        rows = get.few(folder, messages.FEW, messages.HANDED_OVER, opened)
        if rows is None:
            return False
        wire.send(reply, {"ok": True, "kind": "few", "files": rows}, opened)
    finally:
        wire.close_all([folder, *opened])
    return True


def do(request: wire.Message, reply: socket.socket, descriptors: list[int], *, any_user: bool) -> None:
    """Answer one request in a process of its own. Raises what goes wrong."""
    os.umask(0)
    if request["op"] != "get":
        _end_with(reply)
    match request["op"]:
        case "put":
            _put(cast("PutRequest", request), descriptors[0], any_user=any_user)
            wire.send(reply, {"ok": True})
        case "get":
            _get(cast("GetRequest", request), reply)
            wire.send(reply, {"ok": True})
        case "erase":
            for path in cast("EraseRequest", request)["paths"]:
                erase.erase(path)
            wire.send(reply, {"ok": True})
        case "read":
            _read(cast("ReadRequest", request), reply)
        case "listen":
            _listen(cast("ListenRequest", request), reply)
        case unknown:
            raise ValueError(f"unknown operation {unknown!r}")


def _end_with(reply: socket.socket) -> None:
    """From now on this process ends when the host lets go of the reply socket, wherever it is in its work."""
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(reply, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(reply, fcntl.F_SETFL, fcntl.fcntl(reply, fcntl.F_GETFL) | os.O_ASYNC)
    try:
        reply.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    os._exit(1)


def _put(request: PutRequest, source: int, *, any_user: bool) -> None:
    account = users.lookup(request["owner"], any_user=any_user)
    owner = put.Owner(account.uid, account.gid)
    match request["kind"]:
        case "tree":
            handle = os.open(".", files.OPEN_FOLDER, dir_fd=source)
            put.put_tree(handle, request["target"], owner)
        case "file":
            put.put_file(source, request["target"], request["mode"], owner)
        case _:
            put.put_data(source, request["target"], request["files"], owner)


def _get(request: GetRequest, reply: socket.socket) -> None:
    path = os.path.realpath(request["path"])
    info = os.stat(path)
    if stat.S_ISDIR(info.st_mode):
        source = os.open(path, files.OPEN_FOLDER)
        wire.send(reply, {"kind": "tree"})
        _, descriptors = wire.receive(reply)
        _end_with(reply)
        get.Exporter(os.open(".", files.OPEN_FOLDER, dir_fd=descriptors[0])).export(source)
    else:
        source = files.open_regular(path)
        wire.send(reply, {"kind": "file", "mode": info.st_mode & 0o777})
        _, descriptors = wire.receive(reply)
        _end_with(reply)
        files.copy_data(source, descriptors[0])


def _read(request: ReadRequest, reply: socket.socket) -> None:
    content = wire.memory_file(files.read_bounded(request["path"], request["limit"]))
    wire.send(reply, {"ok": True}, [content])


def _listen(request: ListenRequest, reply: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", request["port"]))
        sock.listen(BACKLOG)
        wire.send(reply, {"ok": True, "port": sock.getsockname()[1]}, [sock.fileno()])
