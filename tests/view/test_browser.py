"""The page in a real browser: nothing of what an agent wrote acts, and all of it can be read."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.view.sample import two_roles

from benchflow.view.folder import page_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser

pytestmark = pytest.mark.needs("browser")

PATIENCE = 180_000.0
"""Milliseconds that the browser may take to start on a busy machine."""

HOSTILE = (
    "<script>window.owned = 1; alert(1)</script><img src=x onerror='window.owned = 2'>"
    '"\'><svg onload=window.owned=3></svg><a href="javascript:window.owned=4" id=trap>link</a>'
    "</pre></details></style></title><iframe src=https://example.com></iframe><base href=//example.com>"
    "[x](javascript:window.owned=5)\x1b]0;owned\x07\x1b[2J\u202e"
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    # Chromium's own sandbox does not work for root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=arguments, timeout=PATIENCE
        )
        yield browser
        await browser.close()


async def test_nothing_acts_and_everything_can_be_read(tmp_path: Path, browser: Browser) -> None:
    for name, evil in (("evil", HOSTILE), ("fair", "")):
        (tmp_path / f"{name}.html").write_text(page_of(two_roles(tmp_path / name, evil)), encoding="utf-8")

    # Without the page's own prohibition, so that escaping is shown to hold alone.
    context = await browser.new_context(bypass_csp=True)
    page = await context.new_page()
    asked: list[str] = []
    dialogs: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    await page.goto((tmp_path / "evil.html").as_uri())
    await page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert await page.evaluate("window.owned === undefined")
    assert (len(asked), dialogs) == (1, [])
    assert await page.locator("script, img, svg, iframe, base, #trap, a:not([href^='#'])").count() == 0
    assert await page.get_by_text("window.owned = 1; alert(1)").first.is_visible()

    for width in (400, 1200):
        narrow = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme="dark")
        await narrow.goto((tmp_path / "evil.html").as_uri())
        assert await narrow.evaluate("document.documentElement.scrollWidth") <= width
        await narrow.close()

    page = await browser.new_page()
    await page.goto((tmp_path / "fair.html").as_uri())
    assert await page.get_by_role("heading", name="round 1 of review").is_visible()
    colours = await page.evaluate(
        "[...document.querySelectorAll('.roles .role')].map(one => [one.innerText, getComputedStyle(one).color])"
    )
    assert [name for name, _ in colours] == ["coder", "reviewer"]
    assert colours[0][1] != colours[1][1]
    inner = page.get_by_text("said in the inner branch")
    assert not await inner.is_visible()
    await page.get_by_role("link", name="branch 1.1").click()
    await inner.wait_for(state="visible")
    await page.get_by_text("make all").click()
    assert await page.get_by_text("built", exact=True).is_visible()
