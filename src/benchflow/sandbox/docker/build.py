"""Building and pulling images through the engine: what is sent, what its answers mean, and what a failure says."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from typing import TYPE_CHECKING

import aiodocker
import aiohttp

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.archive import Item, pack
from benchflow.sandbox.docker.engine import in_thread
from benchflow.sandbox.docker.sockets import BACKEND
from benchflow.sandbox.dockerignore import context_files, read_inside

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from benchflow.sandbox.base import BuildContext
    from benchflow.sandbox.docker.engine import Engine, Json
    from benchflow.sandbox.docker.flight import Log

OUTPUT_LINES = 200
"""Lines of a build's output that an error carries."""

BUILDKIT_HINT = (
    "the engine's API builds without BuildKit: remove what needs it (RUN --mount, COPY --link, <<heredocs), or build "
    "the image yourself with `docker buildx build` and name it as docker_image in task.toml"
)

_STEP = re.compile(r"^step (\d+/\d+) ?: ?(.*)", re.IGNORECASE)
_NEEDS_BUILDKIT = re.compile(
    r"requires buildkit|unknown flag: ?(mount|link|network|security|checksum|exclude)", re.IGNORECASE
)
_BUILDKIT_SYNTAX = re.compile(
    r"^\s*(RUN\s+(--\w+\S*\s+)*--(mount|network|security)=|(COPY|ADD)\s+(--\w+\S*\s+)*--(link|checksum|exclude)\b"
    r"|(RUN|COPY|ADD)\b.*<<-?['\"]?\w+)",
    re.MULTILINE | re.IGNORECASE,
)


class Progress:
    """What a build has said so far: whole lines to the log, the step it is at, the end of its output."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._partial = ""
        self._lines: deque[str] = deque(maxlen=OUTPUT_LINES)
        self.step = ""

    @property
    def output(self) -> str:
        return "\n".join(self._lines)

    def event(self, event: Json) -> None:
        """Take one message of the engine's. Raises BuildFailed for an error."""
        if error := event.get("error") or (event.get("errorDetail") or {}).get("message"):
            self.end()
            raise BuildFailed(str(error).strip())
        if text := event.get("stream"):
            *lines, self._partial = (self._partial + str(text)).split("\n")
            for line in lines:
                self._say(line)
        elif (status := event.get("status")) and not event.get("progressDetail"):
            self._say(" ".join(part for part in (str(event.get("id") or ""), str(status)) if part))

    def end(self) -> None:
        if self._partial:
            self._say(self._partial)
        self._partial = ""

    def _say(self, line: str) -> None:
        line = line.rstrip("\r")
        if match := _STEP.match(line):
            self.step = f"{match[1]} {match[2]}"
        if line:
            self._lines.append(line)
            self._log(line)


class BuildFailed(Exception):
    """The engine's reason why a build or a pull failed."""


async def build(
    engine: Engine, context: BuildContext, tag: str, labels: Mapping[str, str], log: Log, timeout: float
) -> None:
    """Build an image and tag it. Raises SandboxBuildError with the failing step, also when the time is over."""
    items, dockerfile = await asyncio.to_thread(_items, context)
    params = {
        "t": tag,
        "dockerfile": context.dockerfile,
        "rm": "true",
        "forcerm": "true",
        "labels": json.dumps(dict(labels)),
    }
    progress = Progress(log)
    try:
        async with asyncio.timeout(timeout):
            async with engine.request("POST", "build", params=params, data=in_thread(pack(items))) as response:
                async for event in _events(response):
                    progress.event(event)
            progress.end()
    except TimeoutError:
        raise SandboxBuildError(
            f"{context.path} was not built within {timeout:g} s",
            backend=BACKEND,
            step=progress.step,
            output=progress.output,
            hint="give it more time with [environment] build_timeout_sec in task.toml",
        ) from None
    except (BuildFailed, aiodocker.DockerError, aiohttp.ClientError, OSError) as error:
        reason = _reason(error)
        raise SandboxBuildError(
            f"{context.path / context.dockerfile} does not build: {reason}",
            backend=BACKEND,
            step=progress.step,
            output=progress.output,
            hint=_hint(reason, dockerfile),
        ) from error


def _items(context: BuildContext) -> tuple[list[Item], str]:
    """What is sent to the engine, and the text of the Dockerfile.

    The files are already those that the ignore file leaves. A Dockerfile that is ignored must be sent all the same;
    an ignore file sent with it makes the engine take both away before anything is copied.
    """
    listed = context_files(context.path, context.dockerfile)
    items = [Item(file.name, file.kind, file.mode, file.path, file.target) for file in listed]
    names = {item.name for item in items}
    text = read_inside(context.path, context.dockerfile)
    if context.dockerfile not in names:
        items.append(Item(context.dockerfile, "file", 0o644, text))
        if ".dockerignore" not in names:
            ignored = f"{context.dockerfile}\n.dockerignore\n".encode()
            items.append(Item(".dockerignore", "file", 0o644, ignored))
    return items, text.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    text = error.message if isinstance(error, aiodocker.DockerError) else str(error)
    return text.strip() or type(error).__name__


def _hint(reason: str, dockerfile: str) -> str | None:
    if _NEEDS_BUILDKIT.search(reason) or _BUILDKIT_SYNTAX.search(dockerfile):
        return BUILDKIT_HINT
    return None


async def pull(engine: Engine, name: str, log: Log, timeout: float) -> None:
    """Pull an image. Raises SandboxBuildError."""
    progress = Progress(log)
    try:
        async with asyncio.timeout(timeout):
            async for event in engine.docker.images.pull(name, stream=True):
                progress.event(event)
    except TimeoutError:
        raise SandboxBuildError(
            f"the image {name} was not pulled within {timeout:g} s", backend=BACKEND, output=progress.output
        ) from None
    except (BuildFailed, aiodocker.DockerError, aiohttp.ClientError, OSError) as error:
        reason = _reason(error)
        raise SandboxBuildError(
            f"the image {name} is not here and cannot be pulled: {reason}",
            backend=BACKEND,
            hint=f"check the name and the network, log in with `docker login` and pull it: docker pull {name}",
        ) from error


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """The messages in an answer, one JSON object to a line of any length."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
    if rest.strip():
        yield json.loads(rest)
