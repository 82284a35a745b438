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


@bounded
class OrphanContract:
    async def test_what_a_killed_owner_left_is_reaped(
        self, world: World, box: Sandbox, backend_home: str, tmp_path: Path
    ) -> None:
        spec = SandboxSpec(world.image, env={TOKEN: world.token}, owner=Owner(world.token, "orphan"))
        plan = tmp_path / "plan"
        plan.write_bytes(pickle.dumps((backend_home, spec)))
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
        if await _info(world, name) is not None:
            assert name in {other.id for other in await world.backend.reap(dry_run=True)}
            assert name not in {other.id for other in await world.backend.reap(older_than=10_000_000)}
            assert await _info(world, name) is not None
        await world.backend.reap()
        assert await _info(world, name) is None
        assert (await box.exec(["true"])).ok


async def _info(world: World, name: str) -> SandboxInfo | None:
    return next((info for info in await world.backend.list() if info.id == name), None)
