"""The program that gives boxes a network, held by a process that ends it with the host, however that ended."""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

from . import command, kernel, processes, programs, wire

if TYPE_CHECKING:
    import socket

    from .messages import NetworkRequest

SETTLE_PATIENCE = 0.05
"""Seconds that the program gets to see to what the new network's kernel has sent at once."""


def connect(request: NetworkRequest, reply: socket.socket, namespace: int) -> None:
    """Start the program, say when the network is there, and end the program when the host lets go of the reply."""
    kernel.adopt_orphans()
    os.set_inheritable(namespace, True)
    try:
        programs.run([word.replace("{}", str(namespace)) for word in request["argv"]], leash=reply.fileno())
    except OSError:
        processes.end_children()
        raise
    os.close(namespace)
    pids = processes.children()
    _let_settle(pids)
    wire.send(reply, {"ok": True, "pids": list(pids)})
    wake = command.watch_children()
    while processes.has_children():
        ready, _, _ = select.select([reply.fileno(), wake], [], [])
        if reply.fileno() in ready:
            break
        command.clear(wake)
        processes.reap()
    processes.end_children()


def _let_settle(pids: set[int]) -> None:
    """Wait until the program waits. One that does not costs no more than that its network serves one box only."""
    deadline = time.monotonic() + SETTLE_PATIENCE
    while not all(processes.asleep(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.0005)
