"""The whole contract once more with everything done through the engine's API, as for users other than root."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.sandbox.base import ImageRef
from benchflow.sandbox.docker.backend import DockerBackend
from benchflow.sandbox.docker.home import NEAR_SETTING
from benchflow.testing.sandbox_contract import SandboxContract

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.sandbox.base import Backend, Capabilities, ImageSource
    from benchflow.testing.contract.world import World

BASE_IMAGE = "debian:bookworm-slim"


@pytest.mark.needs("docker")
class TestThroughTheApi(SandboxContract):
    cancel_points = 6

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(NEAR_SETTING, "0")
            backend = DockerBackend()
            yield backend
            await backend.close()

    @pytest.fixture(scope="class")
    @classmethod
    def capabilities(cls, world: World) -> Capabilities:
        """Listening is not declared, because it depends on the image; with this one it works."""
        assert not world.capabilities.listen
        return replace(world.capabilities, listen=True)

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls) -> ImageSource:
        return ImageRef(BASE_IMAGE)

    @pytest.fixture(scope="class")
    @classmethod
    def base_name(cls) -> str | None:
        return BASE_IMAGE
