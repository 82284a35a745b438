"""The services a task may have beside its agent. Data: a name, the command in the image, the port it listens on.

A service is named as `gmail`, or as `gmail:9101` to have it on another port. What is not in the table is refused with
the nearest name that is.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REVIEWER = "benchflow-reviewer"


@dataclass(frozen=True, slots=True)
class Service:
    """One sidecar. `command` is a program of the image, None for what is served from the host.

    `database` is where its SQLite state lies in the sandbox; a file of that name in the task's environment folder is
    its first content.
    """

    name: str
    port: int
    description: str
    command: str | None = None
    database: str = ""

    @property
    def database_file(self) -> str:
        return self.database.rpartition("/")[2]


def _claw(name: str, port: int, description: str) -> Service:
    return Service(name, port, description, f"claw-{name}", f"/data/{name}.db")


SERVICES: Mapping[str, Service] = {
    service.name: service
    for service in (
        _claw("gmail", 9001, "mock Gmail REST API"),
        _claw("slack", 9002, "mock Slack API"),
        _claw("gcal", 9003, "mock Google Calendar API"),
        _claw("gdoc", 9004, "mock Google Docs API"),
        _claw("gdrive", 9005, "mock Google Drive API"),
        Service(REVIEWER, 8100, "MCP server with review_code and get_review_status, asked for by the agent"),
    )
}


def find_services(wanted: Iterable[str | Service]) -> tuple[Service, ...]:
    """The services that are meant, each once. Raises ConfigError for an unknown name, a bad port or a port twice."""
    found = {one.name: one for one in (_find(name) for name in wanted)}
    ports: dict[int, str] = {}
    for one in found.values():
        if ports.setdefault(one.port, one.name) != one.name:
            raise ConfigError(f"services: {ports[one.port]} and {one.name} would share port {one.port}")
    return tuple(found.values())


def detect_services(dockerfile: str) -> tuple[Service, ...]:
    """The services whose command a Dockerfile names outside of comments."""
    text = "\n".join(line for line in dockerfile.splitlines() if not line.lstrip().startswith("#"))
    return tuple(
        service
        for service in SERVICES.values()
        if service.command and re.search(rf"(?<![\w-]){re.escape(service.command)}(?![\w-])", text)
    )


def _find(wanted: str | Service) -> Service:
    if isinstance(wanted, Service):
        return wanted
    if not isinstance(wanted, str):
        raise ConfigError(f"services: {wanted!r} is not the name of a service")
    name, _, port = wanted.partition(":")
    if name not in SERVICES:
        near = difflib.get_close_matches(name, SERVICES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(SERVICES)}"
        raise ConfigError(f"services: there is no service {name!r}", hint=hint)
    if not port:
        return SERVICES[name]
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"services: {wanted!r} does not end in a port from 1 to 65535")
    return replace(SERVICES[name], port=int(port))
