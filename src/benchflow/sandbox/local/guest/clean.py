"""Removing what boxes left: their mounts, what they wrote, their control groups. Absent things are fine.

A process of its own does it, beside the zygote and in the same mount namespace: removing waits for the disk, and nobody
who starts a box should wait with it.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, NoReturn, cast

from . import cgroups, hostmount, kernel, processes, trees, wire, work

if TYPE_CHECKING:
    from .messages import CleanRequest


def serve(requests: socket.socket) -> NoReturn:
    """Answer requests, each of which brings the socket of its reply, until nobody is left who could ask."""
    while True:
        request, descriptors = wire.receive(requests)
        if request is None:
            os._exit(0)
        with socket.socket(fileno=descriptors[0]) as reply, work.errors_to(reply):
            left = cast("CleanRequest", request)
            if not at_once(left, reply) and os.fork() == 0:
                _end_after(left, reply)
        processes.reap()


def _end_after(request: CleanRequest, reply: socket.socket) -> NoReturn:
    try:
        with work.errors_to(reply):
            patiently(request, reply)
    finally:
        os._exit(0)


def at_once(request: CleanRequest, reply: socket.socket) -> bool:
    """Remove what takes no noticeable time to remove, and reply if that was all; whether it was. Raises OSError."""
    for tree in request["trees"]:
        hostmount.release(tree)
        try:
            kernel.unmount(tree)
        except OSError:
            continue
    gone = [trees.remove_quickly(tree) for tree in request["trees"]]
    gone += [cgroups.remove_now(group) for group in request["cgroups"]]
    if all(gone):
        wire.send(reply, {"ok": True})
    return all(gone)


def patiently(request: CleanRequest, reply: socket.socket) -> None:
    """Remove the rest, in a process of its own. Raises OSError."""
    for group in request["cgroups"]:
        cgroups.remove(group)
    for tree in request["trees"]:
        trees.remove(tree)
    wire.send(reply, {"ok": True})
