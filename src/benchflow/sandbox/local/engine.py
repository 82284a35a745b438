"""The engine: starts boxes from stacked layers and forks them. One helper process does what needs the kernel.

A fork shares what the original had written until then. The kernel does not allow a lower layer to change, so that
layer is frozen first, in one of two ways:
- Nobody but the first process runs (the agent was killed, say): the original is given a fresh writable layer over
  all it had, and the fork another. Milliseconds, whatever has been written. Open files and mappings would stay on
  the former root, which is why nobody may have any.
- Something runs: it is brought to a halt, what was written since the last fork is copied for the new one, and it
  goes on. The cost is that of the copy. This way is also taken once `MAX_FROZEN` layers have piled up.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxUnavailable, SandboxUnsupported
from benchflow.sandbox.base import Change
from benchflow.sandbox.local import network
from benchflow.sandbox.local.box import Box
from benchflow.sandbox.local.cgroups import PREFIX
from benchflow.sandbox.local.guest import wire
from benchflow.sandbox.local.helper import BACKEND, Helper
from benchflow.sandbox.local.life import Busy
from benchflow.sandbox.local.means import Means, Storage
from benchflow.sandbox.local.network_pool import NO_WAY_OUT, BoxNetwork, NetworkPool
from benchflow.sandbox.local.spec import BoxSpec, new_id, slug
from benchflow.sandbox.local.state import Process, Record, State, default_root, end, started
from benchflow.sandbox.local.talk import Talk
from benchflow.sandbox.local.uppers import Exchange, Stack, Upper
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from benchflow.sandbox.base import Network
    from benchflow.sandbox.local.guest.messages import BoxRequest, ChangesRequest, ShippedRequest, StageRequest

__all__ = ["Box", "BoxSpec", "Engine", "Storage"]

START_TIMEOUT = 60.0
"""Seconds that a box may take to start, once its image is there."""

MAX_FROZEN = 64
"""Layers frozen by forks that a box may stand on. The kernel allows 500, with the image's."""

DEFAULT_TMPFS_MB = 4096
"""Size of a box's writable layer in memory when no limit says otherwise."""


ENGINES_OWN = {"/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
"""What is mounted in every box, and may have been made in its layer to be mounted on."""


class Engine:
    """Starts boxes. Belongs to one event loop; the helper process starts on first use and dies with this one."""

    def __init__(self, *, storage: Storage = "disk", root: Path | None = None) -> None:
        self.state = State(root or default_root())
        self._storage = storage
        self._starting = asyncio.Lock()
        self._helper: Helper | None = None
        self.means = Means.here()
        self._boxes: set[Box] = set()
        self._networks = NetworkPool()

    async def flavor(self) -> str:
        """`root`, or the user and the ids mapped for it. Layers made under one flavor are of no use to another, so
        caches of layers are kept apart by it."""
        return self.means.identity.flavor

    async def start_box(self, spec: BoxSpec) -> Box:
        """A new box. On any failure nothing is left. Raises SandboxUnavailable, SandboxError."""
        upper = Upper.given(spec.upper) if spec.upper is not None else self._upper()
        tmpfs = 0
        if self._storage == "tmpfs":
            tmpfs = (spec.limits.storage_mb or DEFAULT_TMPFS_MB) << 20
        return await self._start(self._named(spec), Stack(upper, [], spec.layers, tmpfs))

    async def fork_box(self, box: Box, *, name: str, network: Network | None = None) -> Box:
        """A new box with the files of another and none of its processes; see the module for how.

        Raises SandboxGone, SandboxError, and SandboxUnsupported for a box with a given `upper`.
        """
        if box.stack.current.kept:
            raise SandboxUnsupported(
                "it writes a layer that was given to it", backend=BACKEND, sandbox=box.id, phase="fork"
            )
        spec = self._named(replace(box.spec, name=name, id="", hostname="", network=network or box.spec.network))
        async with box.control.gate.hold():
            if box.ended:
                raise box.control.gone("fork")
            try:
                return await self._fork(box, spec)
            except SandboxError as error:
                if box.ended:
                    raise box.control.gone("fork") from error
                raise

    async def _fork(self, box: Box, spec: BoxSpec) -> Box:
        if not box.control.gate.passing and len(box.stack.frozen) < MAX_FROZEN:
            with suppress(Busy):
                return await self._start(spec, box.stack.branch(self._upper(), over_current=True), original=box)
        async with box.halted():
            return await self._start(spec, box.stack.branch(self._upper()), copy=box.stack.current)

    def _upper(self) -> Upper:
        return Upper.new(self.state.new_home())

    async def changes(self, box: Box, unread: str, read: Sequence[str]) -> list[Change]:
        """See `Sandbox.changes`."""
        request: ChangesRequest = {
            "changed": box.stack.changed,
            "base": _base(box),
            "unread": unread.rstrip("/"),
            "read": list(read),
        }
        answer, _ = await (await self._ready()).call("changes", {**request})
        mounted = {mount.target.rstrip("/") for mount in box.spec.mounts} | ENGINES_OWN
        return [Change(*row) for row in answer["rows"] if row[0] not in mounted]

    async def shipped(self, box: Box, paths: Sequence[str]) -> frozenset[str]:
        """See `Sandbox.shipped`."""
        request: ShippedRequest = {"base": _base(box), "paths": list(paths)}
        answer, _ = await (await self._ready()).call("shipped", {**request})
        return frozenset(answer["paths"])

    @asynccontextmanager
    async def restrained(self, box: Box) -> AsyncIterator[None]:
        """See `Sandbox.restrained`."""
        first = box.life.handle()
        try:
            reply = await (await self._ready()).ask("restrain", {}, [first])
        finally:
            wire.close_all([first])
        talk = Talk(reply, box.control, "restrain")
        try:
            await talk.answer()
            yield
        finally:
            await finished(talk.end())

    async def restore(self, box: Box, paths: Sequence[str]) -> None:
        """See `Sandbox.restore`."""
        if not paths:
            return
        helper, home = await self._ready(), self.state.new_home()
        request: StageRequest = {"base": _base(box), "paths": list(paths), "folder": str(home)}
        try:
            await helper.call("stage", {**request})
            await box.erase(paths)
            await box.put(home, "/")
        finally:
            await finished(self._remove(helper, [home]))

    async def unpack(self, archive: Path, folder: Path) -> None:
        """Extract a tar (plain or compressed) into a folder, which then is a layer: modes, links, devices as far as
        they can be made, owners by number. Raises SandboxError."""
        await (await self._ready()).call("unpack", {"archive": str(archive), "folder": str(folder)})

    async def remove(self, *paths: Path) -> None:
        """Remove trees that boxes made (an unprivileged user may not own what is in them). Absent ones are fine."""
        await self._remove(await self._ready(), paths)

    async def clear(self, records: Sequence[Record]) -> None:
        """Remove what boxes left whose owner is dead, and boxes of ours or others' that are to go all the same."""
        own = {box.id: box for box in self._boxes}
        helper = await self._ready()
        for record in records:
            if record.id in own:
                await own[record.id].stop()
            else:
                await self._clear(helper, record)

    async def _clear(self, helper: Helper, record: Record) -> None:
        await asyncio.to_thread(end, record)
        await helper.call("clean", {"cgroups": record.cgroups, "trees": []})
        self.state.remove(record.id)

    async def sweep(self, *, older_than: float = 0.0) -> None:
        """Remove what nobody has on record: layers and control groups whose owner is dead."""
        await self._sweep(await self._ready(), older_than)

    async def _sweep(self, helper: Helper, older_than: float = 0.0) -> None:
        homes = [str(path) for path in self.state.stray_homes(older_than)]
        groups = [str(path) for path in self.means.cgroups.groups() if _is_stray(path.name)]
        if homes or groups:
            await helper.call("clean", {"cgroups": groups, "trees": homes})

    async def forget_networks(self) -> None:
        """Let go of what is kept for boxes to come."""
        await finished(self._networks.close())

    async def close(self) -> None:
        """Stop every box and the helper."""
        for box in self._boxes.copy():
            await box.stop()
        async with self._starting:
            await self.forget_networks()
            if self._helper is not None:
                helper, self._helper = self._helper, None
                await finished(helper.close())

    # -- inside ----------------------------------------------------------------------------------------------

    async def _ready(self) -> Helper:
        async with self._starting:
            if self._helper is not None and self._helper.alive:
                return self._helper
            if self._helper is not None:
                await self.forget_networks()
                await self._helper.close()
            try:
                self.state.prepare()
            except OSError as error:
                raise SandboxUnavailable(f"cannot keep boxes: {error}", backend=BACKEND) from error
            self._helper = helper = await Helper.start(self.means.identity)
            # What cannot be removed now must not keep anybody from starting; `reap` will say what is wrong.
            with suppress(SandboxError, OSError):
                for record in self.state.records():
                    if not record.owner.alive:
                        await self._clear(helper, record)
                await self._sweep(helper)
            return helper

    def _named(self, spec: BoxSpec) -> BoxSpec:
        return replace(spec, id=spec.id or new_id(spec.name), hostname=spec.hostname or slug(spec.name))

    async def _start(
        self, spec: BoxSpec, stack: Stack, *, copy: Upper | None = None, original: Box | None = None
    ) -> Box:
        """A box that serves. With an `original`, that one is given a fresh layer first. Raises SandboxError, Busy."""
        means = self.means
        own_network = spec.network.mode == "no-network" or not means.no_network
        groups = means.cgroups.plan(f"{self.state.owner.tag}-{spec.id}", spec.limits)
        exchange = Exchange(original.stack, self._upper()) if original is not None else None
        request: BoxRequest = {
            "stack": stack.request(copy=copy),
            "cgroups": groups,
            "own_network": own_network,
            "mounts": [{"source": str(m.source), "target": m.target, "writable": m.writable} for m in spec.mounts],
            "hostname": spec.hostname,
            "files": network.box_files(spec.network, spec.hostname, own=own_network),
            "folders": list(spec.folders),
            "exchange": exchange.request() if exchange else None,
        }
        program = self._way_out(spec.network)
        handles, kept = [], None
        try:
            helper = await self._ready()
            kept = await self._networks.take(program) if own_network else None
            if original is not None:
                handles.append(original.life.handle())
            channel = await helper.ask("box", {**request}, [*handles, *([kept.namespace] if kept else [])])
        except BaseException:
            if kept is not None:
                await finished(kept.close())
            # The original of a fork may have ended meanwhile and left these to it.
            if left := [home for home in stack.release() if home.exists()]:
                await finished(self.remove(*left))
            raise
        finally:
            wire.close_all(handles)
        freezer = groups[0]["path"] if means.cgroups.freezes else None
        paths = tuple(group["path"] for group in groups)

        async def clean(box: Box) -> None:
            if original and exchange and exchange.done is None:
                # Nobody knows which layer it writes.
                await original.life.end()
            await self._clean(box, paths, exchange.left if exchange else [])

        box = Box(spec, stack, channel, helper=helper, freezer=freezer, clean=clean, exchange=exchange)
        box.network = kept
        if not own_network:
            box.notes = (f"the network is the host's own, its loopback included: {means.no_network}",)
        self._boxes.add(box)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                await box.life.begin()
                if own_network and kept is None:
                    box.network = BoxNetwork(box.life.take_network(), program)
                    await box.network.connect(helper)
            self._record(box, paths)
        except TimeoutError:
            await box.stop()
            raise SandboxError(
                f"not up after {START_TIMEOUT:g} s", backend=BACKEND, sandbox=spec.id, phase="start"
            ) from None
        except BaseException:
            await box.stop()
            raise
        return box

    async def _clean(self, box: Box, groups: Sequence[str], trees: Sequence[Path]) -> None:
        """Remove what a box leaves behind it, and these trees."""
        self._boxes.discard(box)
        if box.network is not None:
            await self._networks.give_back(box.network)
        everything = [str(path) for path in (*box.stack.release(), *trees)]
        await (await self._ready()).call("clean", {"cgroups": groups, "trees": everything})
        self.state.remove(box.id)

    def _way_out(self, wanted: Network) -> tuple[str, ...]:
        """The program that gives a network namespace of its own what a box is to reach."""
        if wanted.mode == "no-network":
            return NO_WAY_OUT
        return tuple(network.pasta_command(network.host_resolvers()))

    def _record(self, box: Box, groups: tuple[str, ...]) -> None:
        first = box.life.first
        assert first is not None
        process = Process(first.pid, started(first.pid) or 0)
        owner = box.spec.owner
        self.state.write(Record(box.id, owner.job, owner.rollout, time.time(), self.state.owner, process, groups))

    async def _remove(self, helper: Helper, paths: Sequence[Path]) -> None:
        if paths:
            await helper.call("clean", {"cgroups": [], "trees": [str(path) for path in paths]})


def _base(box: Box) -> list[str]:
    return [str(layer) for layer in box.stack.image]


def _is_stray(group: str) -> bool:
    owner = Process.from_tag(group.removeprefix(PREFIX))
    return owner is not None and not owner.alive
