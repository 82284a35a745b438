"""The contract suite: what every sandbox backend promises, as tests that anybody can run on their own.

    from benchflow.testing.sandbox_contract import SandboxContract

    class TestMine(SandboxContract):
        @pytest_asyncio.fixture(scope="class", loop_scope="class")
        @classmethod
        async def backend(cls):
            backend = MyBackend()
            yield backend
            await backend.close()

        @pytest.fixture(scope="class")
        @classmethod
        def image(cls):
            return ImageRef("debian:bookworm-slim")

The image needs what the smallest Debian has: sh, coreutils, findutils, setsid, mount and perl. Everything a backend
declares in its capabilities is tested; what it declares to lack must be refused. After each test nothing may be left:
no sandbox, process, mount, control group, folder or descriptor. No test is about speed: time is bounded only so that
a promise not to hang can fail. Needs pytest, pytest-asyncio and hypothesis.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pytest
import pytest_asyncio

pytest.register_assert_rewrite("benchflow.testing.contract")

from benchflow.sandbox.base import BuildContext, ImageRef  # noqa: E402
from benchflow.testing.contract.builds import BuildContract  # noqa: E402
from benchflow.testing.contract.changes import ChangeContract  # noqa: E402
from benchflow.testing.contract.execs import ExecContract  # noqa: E402
from benchflow.testing.contract.files import FileContract  # noqa: E402
from benchflow.testing.contract.forks import ForkContract  # noqa: E402
from benchflow.testing.contract.hostile import HostileContract  # noqa: E402
from benchflow.testing.contract.isolation import IsolationContract  # noqa: E402
from benchflow.testing.contract.lifecycle import LifecycleContract  # noqa: E402
from benchflow.testing.contract.limits import LimitContract  # noqa: E402
from benchflow.testing.contract.network import NetworkContract  # noqa: E402
from benchflow.testing.contract.orphans import OrphanContract  # noqa: E402
from benchflow.testing.contract.restraint import RestraintContract  # noqa: E402
from benchflow.testing.contract.streams import StreamContract  # noqa: E402
from benchflow.testing.contract.world import Record, World  # noqa: E402
from benchflow.testing.leaks import leaks, settled  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.sandbox.base import Backend, Capabilities, ImageSource, Sandbox

__all__ = ["SandboxContract"]

SHOWN = 20
"""How many leaks are listed in the message of a failure."""


class SandboxContract(
    OrphanContract,
    BuildContract,
    LimitContract,
    IsolationContract,
    NetworkContract,
    ChangeContract,
    ForkContract,
    LifecycleContract,
    HostileContract,
    RestraintContract,
    FileContract,
    StreamContract,
    ExecContract,
):
    """Subclass it as `Test...`, and override the fixtures `backend` and `image` (see the module).

    Also meant to be overridden where the defaults do not fit: `base_name` (what a Dockerfile can build on),
    `broken_image` (an image that cannot be had), `backend_home` (where a fresh process finds the backend), `extras`
    (anything else that could be left behind).
    """

    pytestmark = pytest.mark.asyncio(loop_scope="class")
    suspect: ClassVar[bool] = False

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def backend(cls) -> AsyncIterator[Backend]:
        pytest.fail("override the `backend` fixture", pytrace=False)
        yield  # type: ignore[unreachable] # makes it the generator that an override is

    @pytest.fixture(scope="class")
    @classmethod
    def image(cls) -> ImageSource:
        pytest.fail("override the `image` fixture", pytrace=False)

    @pytest.fixture(scope="class")
    @classmethod
    def base_name(cls) -> str | None:
        """The name of such an image for the FROM line of a Dockerfile; None leaves the tests of builds out."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def broken_image(cls) -> ImageSource:
        return ImageRef("benchflow.invalid/no-such-image:none")

    @pytest.fixture(scope="class")
    @classmethod
    def backend_home(cls, backend: Backend) -> str:
        """`module:callable`: what makes such a backend in another process, without arguments."""
        return f"{type(backend).__module__}:{type(backend).__qualname__}"

    @classmethod
    async def extras(cls, backend: Backend, record: Record) -> frozenset[str]:
        """Names of other things that sandboxes of this backend could leave, such as images of forks."""
        return frozenset()

    @pytest_asyncio.fixture(scope="class", loop_scope="class", autouse=True)
    @classmethod
    async def record(cls) -> AsyncIterator[Record]:
        """Set up before the backend and looked at after it was closed: then not even a pooled connection is left."""
        record = Record()
        before = await record.footprint()
        yield record

        async def left() -> list[str]:
            return leaks(before, await record.footprint(), pooled=False)

        if found := await settled(left):
            pytest.fail("left behind by a closed backend:\n  " + "\n  ".join(found[:SHOWN]), pytrace=False)

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def world(
        cls,
        record: Record,
        backend: Backend,
        image: ImageSource,
        base_name: str | None,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> AsyncIterator[World]:
        world = World(backend, image, await backend.check(), record, partial(cls.extras, backend))
        if base_name:
            # What a backend holds from its first build on is its own, and not a leak of the test that builds first.
            folder = tmp_path_factory.mktemp("first-build")
            (folder / "Dockerfile").write_text(f"FROM {base_name}\nENV BF_FIRST=1\n")
            await backend.prepare(BuildContext(folder))
        yield world
        await world.drop_box()
        assert not await world.note_ids()

    @pytest.fixture(scope="class")
    @classmethod
    def capabilities(cls, world: World) -> Capabilities:
        return world.capabilities

    @pytest_asyncio.fixture(loop_scope="class")
    async def box(self, world: World) -> Sandbox:
        """The sandbox that the tests share: started once, replaced after a test that failed."""
        return await world.box()

    @pytest_asyncio.fixture(autouse=True, loop_scope="class")
    async def no_leaks(self, world: World) -> AsyncIterator[None]:
        if type(self).suspect:
            type(self).suspect = False
            await world.drop_box()
        await world.box()
        await world.note_start()
        yield
        if type(self).suspect:
            return
        if found := await settled(world.leaks_since_start):
            type(self).suspect = True
            pytest.fail("left behind:\n  " + "\n  ".join(found[:SHOWN]), pytrace=False)
