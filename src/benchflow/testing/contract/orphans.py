"""An owner that was killed: what it left is told apart by its label, and removed without touching anything else."""

from __future__ import annotations

import asyncio
import pickle
import sys
from typing import TYPE_CHECKING

from benchflow.sandbox.base import Owner, SandboxSpec
from benchflow.testing.contract.world import TOKEN, bounded, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Sandbox, SandboxInfo
    from benchflow.testing.contract.world import World

OWNER_PROGRAM = """
import asyncio, importlib, pickle, sys
from pathlib import Path

async def own():
    home, spec = pickle.loads(Path(sys.argv[1]).read_bytes())
    module, _, name = home.partition(":")
    backend = getattr(importlib.import_module(module), name)()
    await backend.check()
    sandbox = backend.create(spec)
    await sandbox.start()
    await sandbox.exec("sleep 100000 >/dev/null 2>&1 &")
    print(sandbox.id, flush=True)
    await asyncio.sleep(100000)

asyncio.run(own())
"""


TRIES = 5
"""Orphans that are made at most: whoever else uses the backend now, such as a job that begins, reaps them too."""


@bounded
class OrphanContract:
    async def test_what_a_killed_owner_left_is_reaped(
        self, world: World, box: Sandbox, backend_home: str, tmp_path: Path
    ) -> None:
        spec = SandboxSpec(world.image, env={TOKEN: world.token}, owner=Owner(world.token, "orphan"))
        plan = tmp_path / "plan"
        plan.write_bytes(pickle.dumps((backend_home, spec)))
        for _ in range(TRIES):
            name = await _orphan(world, plan)
            if await _info(world, name) is None or await _is_doomed_and_spared(world, name):
                break
            assert await _info(world, name) is None
        else:
            raise AssertionError(f"{TRIES} orphans were gone although they had to be spared")
        await world.backend.reap()
        assert await _info(world, name) is None
        assert (await box.exec(["true"])).ok


async def _orphan(world: World, plan: Path) -> str:
    """A sandbox whose owner was killed, which is seen to be so; it may be gone with that owner."""
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER_PROGRAM, str(plan), stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    name = (await owner.stdout.readline()).decode().strip()
    assert name
    world.record.ids.add(name)
    info = await _info(world, name)
    assert info is not None
    assert (info.owner_pid, info.owner_alive) == (owner.pid, True)
    assert name not in {other.id for other in await world.backend.reap(dry_run=True)}

    owner.kill()
    await owner.wait()

    async def orphaned() -> bool:
        found = await _info(world, name)
        return found is None or not found.owner_alive

    await wait_until(orphaned, f"{name} is without an owner")
    return name


async def _is_doomed_and_spared(world: World, name: str) -> bool:
    """Whether an orphan is to be reaped, but not by who asks for older ones, and is still there after that."""
    doomed = name in {other.id for other in await world.backend.reap(dry_run=True)}
    old = name in {other.id for other in await world.backend.reap(older_than=10_000_000)}
    return doomed and not old and await _info(world, name) is not None


async def _info(world: World, name: str) -> SandboxInfo | None:
    return next((info for info in await world.backend.list() if info.id == name), None)
