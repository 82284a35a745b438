"""Serves a rollout's or a job's pages on loopback, rendered anew for each request so that what runs can be watched."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from benchflow.errors import ConfigError
from benchflow.view.folder import ROLLOUT, page_of, rollout_page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def serve(folder: Path, port: int, announce: Callable[[str], None]) -> None:
    """Serve until interrupted. Raises ConfigError when the port is taken."""
    try:
        asyncio.run(_serve(folder, port, announce))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", hint="choose another with --port") from None


def make_app(folder: Path) -> web.Application:
    """The pages of a folder: its own, and for a job those of its rollouts."""

    async def page(_request: web.Request) -> web.Response:
        return await _answer(lambda: page_of(folder, served=True))

    async def rollout(request: web.Request) -> web.Response:
        return await _answer(lambda: rollout_page(folder, request.match_info["name"]))

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get(f"/{ROLLOUT}{{name}}", rollout)
    return app


async def _answer(make: Callable[[], str]) -> web.Response:
    try:
        return web.Response(text=await asyncio.to_thread(make), content_type="text/html")
    except ConfigError as error:
        return web.Response(text=str(error), status=404)


async def _serve(folder: Path, port: int, announce: Callable[[str], None]) -> None:
    runner = web.AppRunner(make_app(folder))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        announce(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
