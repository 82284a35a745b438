"""The requests that a child of the first process answers: all that touches the files of a box."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from . import files, get, put, users, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .messages import GetRequest, ListenRequest, PutRequest, ReadRequest

BACKLOG = 128


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
