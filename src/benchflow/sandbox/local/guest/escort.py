"""The program that gives a box a network, held by a process that ends it with the box, whatever became of the host."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from . import command, kernel, processes, programs, wire

if TYPE_CHECKING:
    import socket

    from .messages import NetworkRequest


def connect(request: NetworkRequest, reply: socket.socket, descriptors: list[int]) -> None:
    """Start the program, say when the network is there, and end the program with the box."""
    first, namespace = descriptors
    kernel.adopt_orphans()
    os.set_inheritable(namespace, True)
    programs.run([word.replace("{}", str(namespace)) for word in request["argv"]])
    os.close(namespace)
    wire.send(reply, {"ok": True})
    wake = command.watch_children()
    while True:
        ready, _, _ = select.select([first, wake], [], [])
        if first in ready:
            break
        command.clear(wake)
        processes.reap()
    processes.end_children()
