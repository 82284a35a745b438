"""The program that gives boxes a network, held by a process that ends it with the host, however that ended."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from . import command, kernel, processes, programs, wire

if TYPE_CHECKING:
    import socket

    from .messages import NetworkRequest


def connect(request: NetworkRequest, reply: socket.socket, namespace: int) -> None:
    """Start the program, say when the network is there, and end the program when the host lets go of the reply."""
    kernel.adopt_orphans()
    os.set_inheritable(namespace, True)
    programs.run([word.replace("{}", str(namespace)) for word in request["argv"]])
    os.close(namespace)
    wire.send(reply, {"ok": True})
    wake = command.watch_children()
    while processes.has_children():
        ready, _, _ = select.select([reply.fileno(), wake], [], [])
        if reply.fileno() in ready:
            break
        command.clear(wake)
        processes.reap()
    processes.end_children()
