"""What the tests of the contract share: one backend, one long-lived sandbox, and a record of everything made.

A sandbox is made through `World.create` (or `World.adopt` for a fork), so that whatever it could leave behind can be
recognised afterwards by its id or by the token in its environment.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from benchflow.sandbox.base import Capabilities, Limits, Mount, Network, Owner, SandboxSpec
from benchflow.testing.leaks import SETTLE_STEP, Footprint, footprint, leaks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypedDict

    from benchflow.sandbox.base import Backend, ImageSource, Sandbox

    class SpecOptions(TypedDict, total=False):
        image: ImageSource
        name: str
        env: Mapping[str, str]
        workdir: str | None
        network: Network
        limits: Limits
        mounts: tuple[Mount, ...]


TEST_TIMEOUT = 180.0
"""Seconds after which a test of the contract is given up as hanging. No promise is about speed."""

GONE_TIMEOUT = 60.0
"""Seconds that a killed process gets to disappear, and one that was started to appear."""

SETTLED_LOOKS = 3
"""How many looks in a row must find the same before a new sandbox counts as having started all that it consists of."""

TOKEN = "BENCHFLOW_CONTRACT"
"""Variable in the environment of every process of our sandboxes, by which they are told from everybody else's."""

_numbers = itertools.count(100_000_000 + secrets.randbelow(100_000_000))


@dataclass(frozen=True, slots=True)
class Record:
    """By what everything that was made is recognised: a token in its environment, and the ids of sandboxes."""

    token: str = field(default_factory=lambda: f"contract-{secrets.token_hex(8)}")
    ids: set[str] = field(default_factory=set)

    async def footprint(self) -> Footprint:
        return await asyncio.to_thread(footprint, self.token, self.ids.copy())


@dataclass(slots=True)
class World:
    """One backend under test and everything that was made with it."""

    backend: Backend
    image: ImageSource
    capabilities: Capabilities
    record: Record
    extras: Callable[[Record], Awaitable[frozenset[str]]]
    _box: Sandbox | None = None
    _start: tuple[Footprint, frozenset[str]] | None = None

    @property
    def token(self) -> str:
        return self.record.token

    def create(self, **options: Unpack[SpecOptions]) -> Sandbox:
        """A sandbox that is not started, without network unless told otherwise."""
        return self.adopt(self.backend.create(self.spec(**options)))

    def spec(self, **options: Unpack[SpecOptions]) -> SandboxSpec:
        options.setdefault("image", self.image)
        options.setdefault("name", "contract")
        if "no-network" in self.capabilities.network:
            options.setdefault("network", Network("no-network"))
        options["env"] = {**options.get("env", {}), TOKEN: self.token}
        return SandboxSpec(**options, owner=Owner(job=self.token, rollout="contract"))

    def adopt(self, sandbox: Sandbox) -> Sandbox:
        self.record.ids.add(sandbox.id)
        return sandbox

    async def box(self) -> Sandbox:
        """The sandbox that tests share, started when it is first wanted."""
        if self._box is None:
            box = self.create()
            await box.start()
            self._box = box
        return self._box

    async def drop_box(self) -> None:
        box, self._box, self._start = self._box, None, None
        if box is not None:
            await box.stop()

    async def note_start(self) -> None:
        """Remember what there is, unless it is known from the end of the test before.

        What keeps a sandbox alive may still be starting when the sandbox can be used already.
        """
        if self._start is not None:
            return
        now, alike = await self._snapshot(), 1
        while alike < SETTLED_LOOKS:
            await asyncio.sleep(SETTLE_STEP)
            before, now = now, await self._snapshot()
            alike = alike + 1 if before[0].processes == now[0].processes else 1
        self._start = now

    async def leaks_since_start(self) -> list[str]:
        """What is there now and was not then, as texts. Without any, now is the start of the next test."""
        assert self._start is not None
        (before, known), (after, names) = self._start, await self._snapshot()
        found = sorted(names - known) + leaks(before, after, pooled=True)
        if not found:
            self._start = after, names
        return found

    async def _snapshot(self) -> tuple[Footprint, frozenset[str]]:
        """What there is now: on the machine, and by name in the backend's own books."""
        listed = frozenset(f"sandbox {name}" for name in await self.note_ids()) | await self.extras(self.record)
        return await self.record.footprint(), listed

    async def note_ids(self) -> frozenset[str]:
        """The ids of our sandboxes that the backend lists now; they are remembered."""
        listed = frozenset(info.id for info in await self.backend.list() if info.job == self.token)
        self.record.ids.update(listed)
        return listed


def unique() -> int:
    """A number nobody else uses: `sleep <unique>` is a process that can be recognised."""
    return next(_numbers)


async def commands(box: Sandbox) -> list[str]:
    """The command lines of all live processes inside, as the sandbox's root sees them."""
    result = await box.exec(
        [
            "perl",
            "-e",
            r'$/ = undef; for (glob "/proc/[0-9]*/cmdline") { open F, $_ or next; $_ = <F>; print; print "\n" }',
        ],
        user=0,
    )
    assert result.ok, result
    return [line.replace("\0", " ").strip() for line in result.text.splitlines() if line.strip("\0 ")]


async def runs(box: Sandbox, number: int) -> bool:
    """Whether `sleep <number>` runs inside."""
    return f"sleep {number}" in await commands(box)


async def wait_until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(GONE_TIMEOUT):
            while not await condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not so within {GONE_TIMEOUT:g} s: {what}") from None


async def wait_gone(box: Sandbox, *numbers: int) -> None:
    """Until none of the `sleep <number>` runs inside any more."""

    async def gone() -> bool:
        listed = await commands(box)
        return not any(f"sleep {number}" in listed for number in numbers)

    await wait_until(gone, f"sleep {numbers} has ended")


async def wait_runs(box: Sandbox, *numbers: int) -> None:
    """Until every `sleep <number>` runs inside."""

    async def present() -> bool:
        listed = await commands(box)
        return all(f"sleep {number}" in listed for number in numbers)

    await wait_until(present, f"sleep {numbers} runs")


async def fresh_folder(box: Sandbox) -> str:
    """A new, empty folder inside that every user may write."""
    folder = f"/contract/{unique()}"
    result = await box.exec(f"mkdir -p {folder} && chmod 777 {folder}", user=0)
    assert result.ok, result
    return folder


async def shell(box: Sandbox, script: str, *, user: str | int | None = 0) -> str:
    """What a script prints; it must succeed."""
    result = await box.exec(script, user=user)
    assert result.ok, result
    return result.text


def bounded[T](cls: type[T]) -> type[T]:
    """Class decorator: no test may hang, and a test that failed makes the shared sandbox suspect."""
    for name, method in vars(cls).copy().items():
        if name.startswith("test_") and inspect.iscoroutinefunction(method):
            setattr(cls, name, _bound(method))
    return cls


def _bound(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(method)
    async def test(self: object, **fixtures: Any) -> None:
        try:
            async with asyncio.timeout(TEST_TIMEOUT):
                await method(self, **fixtures)
        except BaseException:
            type(self).suspect = True  # type: ignore[attr-defined]
            raise

    return test
