"""Keeps a process from talking to anybody but the hosts it was told of.

LiteLLM fetches things by itself: price lists, telemetry, and every image that a request names by its URL. A request
comes from an agent, which must not make this machine fetch anything.
"""

from __future__ import annotations

import socket
import sys
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


class Fence:
    """Once `raised`, it stays for the life of the process: connections go to allowed hosts only, or to Unix sockets."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._addresses: set[str] = set()
        for proxy in urllib.request.getproxies().values():
            self.allow(proxy)

    def allow(self, url: str) -> None:
        """Let connections to the host of a URL pass."""
        if host := urlsplit(url).hostname:
            self._hosts.add(host)

    def raise_(self) -> None:
        socket.getaddrinfo = self._looked_up(socket.getaddrinfo)
        sys.addaudithook(self._check)

    def _looked_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Names are looked up for allowed hosts only, and their addresses remembered."""

        def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else host
            if name is not None and name not in self._hosts:
                raise PermissionError(f"connections to {name} are not allowed")
            found = original(host, *args, **kwargs)
            self._addresses |= {entry[4][0] for entry in found}
            return found

        return getaddrinfo

    def _check(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto"):
            return
        address = args[1]
        if isinstance(address, tuple) and address[0] not in self._addresses | self._hosts:
            raise PermissionError(f"connections to {address[0]} are not allowed")
