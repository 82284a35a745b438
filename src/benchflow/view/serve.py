"""Serves one rollout's page on loopback, rendered anew for each request so that a running rollout can be watched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from benchflow.errors import ConfigError
from benchflow.view.load import page_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def serve(folder: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted. Raises ConfigError when the port is taken."""
    try:
        asyncio.run(_serve(folder, port, announce))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", hint="choose another with --port") from None


async def _serve(folder: Path, port: int, announce: Callable[[str], None]) -> None:
    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=await asyncio.to_thread(page_of, folder), content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        announce(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
