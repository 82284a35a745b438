"""How the host and the processes behind the wall talk: JSON in sequenced packets, with descriptors beside it.

A message is one JSON object. A long one travels in an anonymous file whose descriptor comes first, because a
packet is bounded. Strings may hold lone surrogates, so bytes that are not UTF-8 (names, arguments) survive.
"""

from __future__ import annotations

import json
import os
import socket
from array import array
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INLINE_LIMIT = 32 * 1024
MAX_DESCRIPTORS = 128
_ROOM = socket.CMSG_LEN(MAX_DESCRIPTORS * array("i").itemsize)

type Message = dict[str, Any]
"""Any: a message is checked by whoever handles its operation, against the TypedDict of that operation."""


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
    """Send a message; the receiver gets its own copies of the descriptors. Raises OSError when nobody is there."""
    data = json.dumps(message).encode()
    if len(data) <= INLINE_LIMIT:
        socket.send_fds(sock, [data], descriptors)
        return
    body = memory_file(data)
    try:
        socket.send_fds(sock, [b"m"], [body, *descriptors])
    finally:
        os.close(body)


def receive(sock: socket.socket) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors, which now belong to the caller; None at the end.

    A peer that vanished with unread messages in its queue is an end too. Raises BlockingIOError on a
    non-blocking socket with nothing to read.
    """
    try:
        # `socket.recv_fds` would drop the flag, and the descriptors would pass to every program started from here.
        data, beside, _, _ = sock.recvmsg(INLINE_LIMIT, _ROOM, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None, []
    descriptors = array("i")
    for _, _, raw in beside:
        descriptors.frombytes(raw[: len(raw) - len(raw) % descriptors.itemsize])
    if not data:
        return None, []
    if data == b"m":
        body = descriptors.pop(0)
        try:
            data = os.pread(body, os.fstat(body).st_size, 0)
        finally:
            os.close(body)
    message: Message = json.loads(data)
    return message, list(descriptors)


def memory_file(data: bytes) -> int:
    """A descriptor of an anonymous file that holds `data`, positioned at its start."""
    descriptor = os.memfd_create("benchflow", os.MFD_CLOEXEC)
    view = memoryview(data)
    offset = 0
    while offset < len(view):
        offset += os.pwrite(descriptor, view[offset:], offset)
    return descriptor


def close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
