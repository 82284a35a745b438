"""A local sandbox without network, over the host's own root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.sandbox.base import HostRoot, Network, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.sandbox.base import Sandbox


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    spec = SandboxSpec(image=HostRoot(), workdir="/app", network=Network("no-network"))
    try:
        async with get_backend("local").create(spec) as sandbox:
            yield sandbox
    finally:
        await close_backends()
