"""Where an engine may listen. Apart from the engine, so that looking whether there is one loads no client for it."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import SandboxUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

BACKEND = "docker"


def candidates(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Where an engine may listen, best first: DOCKER_HOST alone if it is set, else the sockets that exist.

    Raises SandboxUnavailable for a DOCKER_HOST of a kind that is not supported.
    """
    if host := environ.get("DOCKER_HOST"):
        return [_parse_host(host, environ)]
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    home = Path(environ.get("HOME") or "/")
    sockets = (
        Path("/var/run/docker.sock"),
        runtime / "docker.sock",
        home / ".docker/run/docker.sock",
        home / ".docker/desktop/docker.sock",
        Path("/run/podman/podman.sock"),
        runtime / "podman/podman.sock",
    )
    return [f"unix://{path}" for path in sockets if _is_socket(path)]


def _parse_host(host: str, environ: Mapping[str, str]) -> str:
    if match := re.fullmatch(r"unix://(/.+)", host):
        return f"unix://{match[1]}"
    if match := re.fullmatch(r"(?:tcp|http)://(\[[0-9a-fA-F:]+\]|[^/:]+)(?::(\d+))?/?", host):
        if environ.get("DOCKER_TLS_VERIFY"):
            raise SandboxUnavailable(
                f"DOCKER_HOST is {host} with DOCKER_TLS_VERIFY, and TLS is not supported",
                backend=BACKEND,
                phase="connect",
                hint="forward its socket: ssh -L /tmp/engine.sock:/var/run/docker.sock HOST; set DOCKER_HOST to it",
            )
        return f"http://{match[1]}:{match[2] or 2375}"
    raise SandboxUnavailable(
        f"DOCKER_HOST is {host}, which is neither unix:///path nor tcp://host:port",
        backend=BACKEND,
        phase="connect",
        hint="set DOCKER_HOST=unix:///var/run/docker.sock, or unset it",
    )


def _is_socket(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISSOCK(path.stat().st_mode)
    return False
