"""LiteLLM as the gateway's translator: starts its process when it is first needed, and ends it with the gateway.

Keys travel in requests over a Unix socket in a folder of ours alone, never on a command line or in an environment.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from benchflow.errors import ModelError
from benchflow.gateway.litellm_bridge.server import READY, UPSTREAM
from benchflow.gateway.upstream import HttpUpstream, open_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.agent.spec import Dialect
    from benchflow.gateway.account import Account
    from benchflow.gateway.upstream import Upstream

START_TIMEOUT = 180.0
"""Seconds that the process may take until it answers: LiteLLM is slow to load."""

END_TIMEOUT = 5.0
"""Seconds that it may take to end by itself."""

_PASSED = ("PATH", "HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
           "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")  # fmt: skip
"""Variables that the process gets. No key is among them."""

_SETTINGS = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "ANTHROPIC_MESSAGES_MAX_DETACHED_STREAM_DRAINS": "0",
}
"""Variables by which LiteLLM is told to fetch no prices, and to ask on for nobody who has left."""

_PREFIXES: Mapping[Dialect, str] = {
    "anthropic": "anthropic",
    "gemini": "gemini",
    "openai-responses": "openai",
    "openai-chat": "custom_openai",
}
"""LiteLLM's name for a provider of each dialect."""


def _upstream(account: Account) -> dict[str, object]:
    """What the process is told of a provider, beside its key."""
    if not account.litellm:
        theirs = account.dialects[0]
        base = f"{account.base_url}/v1beta" if theirs == "gemini" else account.base_url
        return {"prefix": _PREFIXES[theirs], "base_url": base}
    parameters = {name: value.get_secret_value() for name, value in account.parameters.items()}
    hosts = _token_hosts(parameters.get("vertex_credentials", ""))
    return {"prefix": account.litellm, "base_url": account.base_url, "parameters": parameters, "hosts": hosts}


def _token_hosts(file: str) -> list[str]:
    """Where a service account of Google's gets its tokens from; nowhere, when the file does not say."""
    try:
        return [str(json.loads(Path(file).read_bytes())["token_uri"])] if file else []
    except (OSError, ValueError, LookupError, TypeError):
        return []


class LiteLLMTranslator:
    """A `Translator`. One for a gateway; starts nothing until somebody needs it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None

    def missing(self, account: Account) -> str:
        """Why this account cannot be asked in another dialect than its own; nothing when it can."""
        if not all(importlib.util.find_spec(name) for name in ("litellm", "mcp")):
            return "install benchflow[litellm], which translates"
        known = account.base_url and (account.dialects or account.litellm)
        return "" if known else "the account does not say where its provider is"

    async def upstream(self, account: Account) -> Upstream:
        """Who answers requests of any dialect on this account. Raises ModelError when the process does not start."""
        async with self._lock:
            if self._process is None or self._process.returncode is not None:
                await self._end()
                await self._start()
        assert self._session is not None
        here = replace(account, base_url="http://translator")
        return HttpUpstream(here, self._session, extra=[(UPSTREAM, json.dumps(_upstream(account)))])

    async def close(self) -> None:
        """End the process. Idempotent."""
        async with self._lock:
            await self._end()

    async def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="benchflow-")
        folder = Path(self._folder.name)
        path = folder / "translator"
        env = {name: os.environ[name] for name in _PASSED if name in os.environ}
        with (folder / "errors").open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-m", "benchflow.gateway.litellm_bridge.server", str(path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
                cwd=folder, env={**env, **_SETTINGS},
            )  # fmt: skip
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT):
                said = await self._process.stdout.readline()
        except BaseException as error:
            await self._end()
            if isinstance(error, TimeoutError):
                raise ModelError(f"the translator does not answer after {START_TIMEOUT:g} s") from None
            raise
        if said != READY:
            words = (folder / "errors").read_text(errors="replace").strip().splitlines()[-1:]
            await self._end()
            raise ModelError(f"the translator does not start: {' '.join(words)}")
        self._session = open_session(aiohttp.UnixConnector(str(path), limit=0))

    async def _end(self) -> None:
        session, self._session = self._session, None
        if session:
            await session.close()
        process, self._process = self._process, None
        if process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                async with asyncio.timeout(END_TIMEOUT):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._folder:
            self._folder.cleanup()
            self._folder = None
