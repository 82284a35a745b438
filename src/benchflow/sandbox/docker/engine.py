"""The engine: where it listens, which one it is, and every call to it.

One `Engine` holds one pool of connections, bound to the event loop that first used it. Calls that make, start, stop
or copy are the engine's hard work and pass through `slots`: past a few of them more in flight only queue inside the
engine, so they queue here, in order and cancellable. Agents' streams and questions about state are never held up.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiodocker
import aiohttp
from yarl import URL

from benchflow.errors import SandboxError, SandboxGone, SandboxUnavailable
from benchflow.sandbox.docker import wire
from benchflow.sandbox.docker.sockets import BACKEND, candidates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

SLOTS_PER_CORE = 2
"""Calls that make, start, stop or copy which are in flight at once, per processor."""

CALL_TIMEOUT = 300.0
"""Seconds the engine may take to answer one call, other than a build or a pull."""

ANSWER_TIMEOUT = 10.0
"""Seconds an engine may take to say who it is when it is looked for."""

NO_ENGINE_HINT = "install and start Docker or Podman, or set DOCKER_HOST=unix:///path/of/the.sock; then: bench doctor"

type Json = dict[str, Any]


async def connect() -> Engine:
    """The first engine that answers. Raises SandboxUnavailable, saying what was tried."""
    tried = []
    for url in candidates():
        engine = Engine(url)
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                await engine.identify()
        except (aiodocker.DockerError, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            await engine.close()
            reason = str(error) or f"no answer within {ANSWER_TIMEOUT:g} s"
            tried.append(f"{url}: {reason}")
        except BaseException:
            await engine.close()
            raise
        else:
            return engine
    message = "; ".join(tried) or "no engine's socket was found"
    raise SandboxUnavailable(message, backend=BACKEND, phase="connect", hint=NO_ENGINE_HINT)


@dataclass(frozen=True, slots=True)
class PathStat:
    """What the engine says of a path in a container. `link` is where a symbolic link ends, inside."""

    size: int
    is_folder: bool
    is_link: bool
    is_file: bool
    link: str


@dataclass(slots=True)
class Engine:
    """One engine. Errors of its calls come out as SandboxError, with the sandbox and the phase they were for."""

    url: str
    docker: aiodocker.Docker = field(init=False)
    slots: asyncio.Semaphore = field(init=False)
    info: Json = field(default_factory=dict)
    version: str = ""
    podman: bool = False

    def __post_init__(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=wire.CONNECT_TIMEOUT)
        self.docker = aiodocker.Docker(url=self.url, timeout=timeout)
        self.slots = asyncio.Semaphore(SLOTS_PER_CORE * (os.cpu_count() or 1))

    async def identify(self) -> None:
        """Agree on the version of the API and learn which engine this is."""
        version = await self.docker.version()
        self.version = str(version["Version"])
        self.podman = any("podman" in str(part.get("Name", "")).lower() for part in version.get("Components") or ())
        self.info = dict(await self.docker.system.info())

    @property
    def local(self) -> bool:
        """Whether the engine's files and, as far as rights go, its processes are this machine's."""
        return self.url.startswith("unix://") and self.info.get("KernelVersion") == os.uname().release

    @asynccontextmanager
    async def slot(self, sandbox: str, phase: str) -> AsyncIterator[None]:
        """For the engine's hard work: waits for its turn, then as `call`."""
        async with self.slots, self.call(sandbox, phase):
            yield

    @asynccontextmanager
    async def call(self, sandbox: str, phase: str) -> AsyncIterator[None]:
        """Turns errors inside into ours and bounds the time."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                yield
        except aiodocker.DockerError as error:
            raise translate(error, sandbox, phase) from error
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                message = f"no answer from the engine within {CALL_TIMEOUT:g} s"
            else:
                message = f"the engine at {self.url} cannot be reached: {str(error) or type(error).__name__}"
            raise SandboxError(message, backend=BACKEND, sandbox=sandbox, phase=phase) from error

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, params: Mapping[str, str], data: object = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A call that streams, in either direction. Raises DockerError for an answer that is an error."""
        query = "&".join(f"{key}={quote(os.fsencode(value), safe='')}" for key, value in params.items())
        url = URL(f"{self.docker.docker_host}/{self.docker.api_version}/{path}?{query}", encoded=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=wire.CONNECT_TIMEOUT)
        headers = {"Content-Type": "application/x-tar"}
        async with self.docker.session.request(method, url, data=data, headers=headers, timeout=timeout) as response:
            if response.status >= 400:
                raise aiodocker.DockerError(response.status, _error_text(await response.read()))
            yield response

    async def hijack(self, exec_id: str) -> wire.Wire:
        """Start an exec and take its streams. Raises wire.Refused and OSError."""
        path = f"/{self.docker.api_version}/exec/{exec_id}/start"
        return await wire.hijack(self.url, path, {"Detach": False, "Tty": False})

    async def create_exec(
        self, container: str, argv: Sequence[str], *, user: str, env: Sequence[str], cwd: str, stdin: bool
    ) -> str:
        """Make an exec, to be started by `hijack`; its id. Raises DockerError."""
        created = await self.docker.containers.container(container).exec(
            list(argv), stdin=stdin, user=user, environment=list(env), workdir=cwd
        )
        return created.id

    async def inspect_exec(self, exec_id: str) -> Json | None:
        """What the engine knows of an exec; None if it is gone with its container. Raises DockerError."""
        try:
            return await self.docker.containers.exec(exec_id).inspect()
        except aiodocker.DockerError as error:
            if error.status in {404, 409}:
                return None
            raise

    async def runs(self, container: str) -> bool:
        """Whether a container is there and running. Raises DockerError."""
        try:
            found = await self.docker.containers.container(container).show()
        except aiodocker.DockerError as error:
            if error.status == 404:
                return False
            raise
        return bool(found["State"]["Running"])

    async def stat(self, container: str, path: str) -> PathStat | None:
        """What is at `path` in a container, if anything. Raises DockerError; ProcessLookupError if it is gone."""
        try:
            async with self.request("HEAD", f"containers/{container}/archive", params={"path": path}) as response:
                return _path_stat(response.headers.get("X-Docker-Container-Path-Stat", ""))
        except aiodocker.DockerError as error:
            if error.status != 404:
                raise
            if not await self.runs(container):
                raise ProcessLookupError("the container is gone") from None
            return None

    async def close(self) -> None:
        await self.docker.close()


def translate(error: aiodocker.DockerError, sandbox: str, phase: str) -> SandboxError:
    """Our error for one of the engine's."""
    text = error.message.strip()
    lost = ("no such container", "is not running", "no container with name or id", "container state improper")
    if error.status in {404, 409, 500} and any(words in text.lower() for words in lost):
        return SandboxGone(f"the container is gone: {text}", backend=BACKEND, sandbox=sandbox, phase=phase)
    if error.status == 900:
        return SandboxError(text, backend=BACKEND, sandbox=sandbox, phase=phase)
    return SandboxError(f"{text} (status {error.status})", backend=BACKEND, sandbox=sandbox, phase=phase)


def _error_text(body: bytes) -> str:
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["message"])
    return body.decode("utf-8", "replace")


_GO_FOLDER, _GO_LINK, _GO_SPECIAL = 1 << 31, 1 << 27, 1 << 19 | 1 << 21 | 1 << 24 | 1 << 25 | 1 << 26


def _path_stat(header: str) -> PathStat:
    try:
        found: Json = json.loads(base64.b64decode(header))
    except (ValueError, binascii.Error):
        raise aiodocker.DockerError(500, "the engine's description of a path cannot be read") from None
    mode = int(found.get("mode", 0))
    return PathStat(
        size=int(found.get("size", 0)),
        is_folder=bool(mode & _GO_FOLDER),
        is_link=bool(mode & _GO_LINK),
        is_file=not mode & (_GO_FOLDER | _GO_LINK | _GO_SPECIAL),
        link=str(found.get("linkTarget") or ""),
    )


async def in_thread(chunks: Iterable[bytes], batch: int = 1 << 20) -> AsyncIterator[bytes]:
    """The bytes of a blocking iterable, fetched in another thread, about `batch` at a time."""
    source = iter(chunks)

    def fetch() -> bytes:
        return b"".join(_up_to(source, batch))

    while data := await asyncio.to_thread(fetch):
        yield data


def _up_to(source: Iterator[bytes], batch: int) -> Iterator[bytes]:
    size = 0
    for chunk in source:
        size += len(chunk)
        yield chunk
        if size >= batch:
            return
