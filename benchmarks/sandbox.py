"""How fast sandboxes are, against floors measured in the same run.

    python benchmarks/sandbox.py                       every section, small
    python benchmarks/sandbox.py lifecycle --n 96      one section, longer

Sections:
  lifecycle  create+start+put+exec+exec+get+stop through the Docker backend, against the plain calls of aiodocker
  local      the same sequence with limits on, local against Docker
  rollouts   start, 20 files, 20 exchanges with a shell, a verifier on a fork, reward, stop: how many a minute
  fork       fork of a workspace with 1 GB in 10,000 files
  growth     many in a row: time, memory and descriptors stay flat

Next to wall time stands the processor time of everything involved per item: this process, its children, the
daemons, their shims and the containers. It is read off control groups of version 1 where they can be used, else off
the whole machine's clock, which only means something on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import statistics
import tarfile
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiodocker

from benchflow.sandbox.base import ImageRef, Limits, Network, RootFolder, SandboxSpec
from benchflow.sandbox.registry import close_backends, get_backend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from benchflow.sandbox.base import Backend, Sandbox

IMAGE = "debian:bookworm-slim"
FILES = {f"dir{n % 4}/file{n}": b"x" * 1000 for n in range(20)}
MAKE_MEGABYTE = "head -c 1000000 /dev/zero > /bench/out"
LIMITS = Limits(cpus=1, memory_mb=512, pids=256)
EXCHANGES = 20
CPU_GROWTH, RSS_GROWTH = 1.3, 2.0
"""What still counts as flat: processor time by so much, memory by so many megabytes."""
FORK_FILES = 10_000
FORK_SCRIPT = r"""mkdir "/bench"; chdir "/bench"; my $b = "x" x 107374;
for my $d (0..99) { mkdir $d; for (0..99) { open F, ">", "$d/$_"; print F $b; close F } }"""


# -- measuring -----------------------------------------------------------------------------------------------


class Clock:
    """Processor seconds of everything involved, so far."""

    group = Path(f"/sys/fs/cgroup/cpuacct/benchflow-benchmark-{os.getpid()}")
    engines = ("docker", "libpod_parent")
    """Where container engines put their containers, below the same root."""

    def __init__(self, *, daemons: bool) -> None:
        """Without `daemons`, what container engines do meanwhile is none of ours."""
        self._moved: list[tuple[int, Path]] = []
        self._groups = [self.group, *(self.group.parent / name for name in self.engines if daemons)]
        self.name = "whole machine"
        with suppress(OSError):
            self.group.mkdir(exist_ok=True)
            for pid in [os.getpid(), *(_daemons() if daemons else [])]:
                self._move(pid)
            self.name = "all involved"

    def _move(self, pid: int) -> None:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        old = next(line.split(":", 2)[2] for line in lines if "cpuacct" in line.split(":")[1].split(","))
        (self.group / "cgroup.procs").write_text(str(pid))
        self._moved.append((pid, self.group.parent / old.lstrip("/")))

    def seconds(self) -> float:
        if self.name == "whole machine":
            fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
            return (sum(map(int, fields[:3])) + sum(map(int, fields[5:8]))) / os.sysconf("SC_CLK_TCK")
        return sum(int((group / "cpuacct.usage").read_text()) for group in self._groups if group.is_dir()) / 1e9

    def close(self) -> None:
        """Put everything back where it was."""
        for pid, old in self._moved:
            with suppress(OSError):
                (old / "cgroup.procs").write_text(str(pid))
        with suppress(OSError):
            for late in (self.group / "cgroup.procs").read_text().split():
                (self.group.parent / "cgroup.procs").write_text(late)
            self.group.rmdir()


def _daemons() -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "comm").read_text().strip() in {"dockerd", "containerd"}:
                found.append(int(folder.name))
    return found


@dataclass(slots=True)
class Measure:
    """What one variant took."""

    name: str
    width: int
    walls: list[float] = field(default_factory=list)
    elapsed: float = 0.0
    cpu: float = 0.0

    @property
    def per_minute(self) -> float:
        return 60 * len(self.walls) / self.elapsed

    @property
    def cpu_ms(self) -> float:
        return 1000 * self.cpu / len(self.walls)

    @contextmanager
    def running(self, clock: Clock) -> Iterator[None]:
        start, cpu = time.monotonic(), clock.seconds()
        yield
        self.elapsed += time.monotonic() - start
        self.cpu += clock.seconds() - cpu


async def repeat(measure: Measure, clock: Clock, count: int, item: Callable[[], Awaitable[object]]) -> None:
    """Run `item` `count` times, `measure.width` at once."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            start = time.monotonic()
            await item()
            measure.walls.append(time.monotonic() - start)

    with measure.running(clock):
        async with asyncio.TaskGroup() as group:
            for _ in range(min(measure.width, count)):
                group.create_task(worker())


def show(title: str, measures: Sequence[Measure], clock: Clock) -> None:
    """A table; ratios are against the first row of the same width."""
    print(f"\n{title}\n  cpu: {clock.name}")
    print(f"  {'':<22}{'wide':>5}{'n':>6}{'p50 ms':>9}{'p95 ms':>9}{'/min':>8}{'cpu ms':>8}{'cpu x':>7}{'rate x':>8}")
    for each in measures:
        floor = next(other for other in measures if other.width == each.width)
        walls = sorted(each.walls)
        print(
            f"  {each.name:<22}{each.width:>5}{len(walls):>6}{1000 * statistics.median(walls):>9.0f}"
            f"{1000 * walls[int(0.95 * (len(walls) - 1))]:>9.0f}{each.per_minute:>8.0f}{each.cpu_ms:>8.0f}"
            f"{each.cpu_ms / floor.cpu_ms:>7.2f}{each.per_minute / floor.per_minute:>8.2f}"
        )


# -- what is measured ----------------------------------------------------------------------------------------


async def bare_lifecycle(docker: aiodocker.Docker, folder: Path) -> None:
    """The floor: the plain calls, as anybody would write them."""
    container = await docker.containers.create(
        {"Image": IMAGE, "Cmd": ["sleep", "infinity"], "HostConfig": {"NetworkMode": "none", "Init": True}}
    )
    try:
        await container.start()
        await container.put_archive("/", _tar("bench", FILES))  # type: ignore[no-untyped-call]
        for command in (MAKE_MEGABYTE, "cat /bench/dir0/file0"):
            execution = await container.exec(["sh", "-c", command])
            async with execution.start() as stream:
                while await stream.read_out():
                    pass
            assert (await execution.inspect())["ExitCode"] == 0
        archive = await container.get_archive("/bench/out")
        archive.extractall(folder, filter="data")
    finally:
        await container.kill()
        await container.delete(force=True)


def _tar(root: str, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


async def lifecycle(backend: Backend, spec: SandboxSpec, folder: Path) -> None:
    async with backend.create(spec) as sandbox:
        await sandbox.put(FILES, "/bench")
        assert (await sandbox.exec(MAKE_MEGABYTE)).ok
        assert (await sandbox.exec("cat /bench/dir0/file0")).ok
        await sandbox.get("/bench/out", folder / sandbox.id)
    (folder / sandbox.id).unlink()


async def rollout(backend: Backend, spec: SandboxSpec) -> None:
    """A whole rollout without a model: everything but the thinking."""
    async with backend.create(spec) as sandbox:
        await sandbox.put(FILES, "/bench")
        async with await sandbox.open(["sh"]) as agent:
            for number in range(EXCHANGES):
                await agent.write(b"echo %d >> /bench/log; echo %d\n" % (number, number))
                await agent.stdout.readuntil(b"\n")
        async with await sandbox.fork() as fork:
            await fork.put({"test.sh": b"test $(wc -l < /bench/log) = 20 && echo 1 > /reward"}, "/tests")
            assert (await fork.exec(["sh", "/tests/test.sh"], user=0)).ok
            assert await fork.read("/reward") == b"1\n"


# -- sections ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """The options of a run."""

    clock: Clock
    n: int
    widths: tuple[int, ...]
    backends: tuple[str, ...]
    rootfs: Path | None
    folder: Path

    def spec(self, backend: Backend, limits: Limits | None = None) -> SandboxSpec:
        image = RootFolder(self.rootfs) if backend.name == "local" and self.rootfs else ImageRef(IMAGE)
        return SandboxSpec(image, network=Network("no-network"), limits=limits or Limits())

    def count(self, width: int) -> int:
        return max(self.n, 2 * width) if width > 1 else self.n

    async def lifecycle(self) -> None:
        backend = get_backend("docker")
        measures = []
        async with aiodocker.Docker() as docker:
            for width in self.widths:
                bare, ours = Measure("bare aiodocker", width), Measure("docker backend", width)
                # In alternation, so that a busy moment of the machine falls on both.
                for _ in range(2):
                    half = self.count(width) // 2
                    await repeat(bare, self.clock, half, lambda: bare_lifecycle(docker, self.folder))
                    await repeat(ours, self.clock, half, lambda: lifecycle(backend, self.spec(backend), self.folder))
                measures += [bare, ours]
        show("lifecycle: create+start+put+exec+exec+get+stop (mark at 32 wide: cpu x <= 0.8)", measures, self.clock)

    async def local(self) -> None:
        await self._compare("local: the same sequence with limits (mark: rate x >= 10)", self._limited)

    async def rollouts(self) -> None:
        await self._compare("rollouts (mark at 32 wide: local >= 1000 a minute, docker >= 300)", self._rollout)

    async def _limited(self, backend: Backend) -> None:
        await lifecycle(backend, self.spec(backend, LIMITS), self.folder)

    async def _rollout(self, backend: Backend) -> None:
        await rollout(backend, self.spec(backend, LIMITS))

    async def _compare(self, title: str, item: Callable[[Backend], Awaitable[None]]) -> None:
        measures = []
        for width in self.widths:
            for name in self.backends:
                backend = get_backend(name)
                await item(backend)
                measure = Measure(name, width)
                await repeat(
                    measure, self.clock, (5 if name == "local" else 1) * self.count(width), partial(item, backend)
                )
                measures.append(measure)
        show(title, measures, self.clock)

    async def fork(self) -> None:
        measures = []
        for name in self.backends:
            backend = get_backend(name)
            async with backend.create(self.spec(backend)) as sandbox:
                assert (await sandbox.exec(["perl", "-e", FORK_SCRIPT])).ok
                measure = Measure(f"{name} fork", 1)
                for _ in range(5):
                    forked: list[Sandbox] = []

                    async def item(box: Sandbox = sandbox, kept: list[Sandbox] = forked) -> None:
                        kept.append(await box.fork())

                    await repeat(measure, self.clock, 1, item)
                    assert (await forked[0].exec(f"test $(find /bench -type f | wc -l) = {FORK_FILES}")).ok
                    await forked[0].stop()
                measures.append(measure)
        show("fork of 1 GB in 10,000 files (mark: local p50 < 100 ms)", measures, self.clock)

    async def growth(self) -> None:
        """Rows are tenths of the run; flat means that the last is like the second."""
        for name in self.backends:
            backend = get_backend(name)
            print(f"\ngrowth: {self.n} {name} sandboxes in a row (mark: flat)\n  cpu: {self.clock.name}")
            print(f"  {'made':>6}{'p50 ms':>9}{'cpu ms':>9}{'RSS MB':>9}{'open':>7}")
            tenths = []
            for tenth in range(10):
                measure = Measure(name, 1)
                await repeat(measure, self.clock, max(1, self.n // 10), partial(self._limited, backend))
                tenths.append(Tenth(measure.cpu_ms, _resident(), _open_descriptors()))
                made = (tenth + 1) * max(1, self.n // 10)
                print(
                    f"  {made:>6}{1000 * statistics.median(measure.walls):>9.1f}{measure.cpu_ms:>9.1f}"
                    f"{tenths[-1].resident:>9.1f}{tenths[-1].descriptors:>7}"
                )
            print(f"  {verdict(tenths)}")


class Tenth(NamedTuple):
    """A tenth of a run of many sandboxes."""

    cpu_ms: float
    resident: float
    descriptors: int


def verdict(tenths: Sequence[Tenth]) -> str:
    """Whether the last tenth is like the second one, the first being spent on warming up."""
    early, late = tenths[1], tenths[-1]
    grown = [
        text
        for text, is_grown in (
            (f"time grew {late.cpu_ms / early.cpu_ms:.2f} times", late.cpu_ms > CPU_GROWTH * early.cpu_ms),
            (f"memory grew by {late.resident - early.resident:.1f} MB", late.resident > early.resident + RSS_GROWTH),
            (f"descriptors grew by {late.descriptors - early.descriptors}", late.descriptors > early.descriptors),
        )
        if is_grown
    ]
    return f"NOT flat: {', '.join(grown)}" if grown else "flat"


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only counted


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


SECTIONS = ("lifecycle", "local", "rollouts", "fork", "growth")


async def run(sections: Sequence[str], bench: Bench) -> None:
    try:
        for section in sections:
            await getattr(bench, section)()
    finally:
        await close_backends()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of: {', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--n", type=int, default=16, help="items per variant; sandboxes in a row for growth")
    parser.add_argument("--widths", default="1,32", help="how many at once, separated by commas")
    parser.add_argument("--backends", default="docker,local", help="which to compare, the floor first")
    parser.add_argument("--rootfs", type=Path, help="an unpacked root file system for local, instead of the image")
    options = parser.parse_args()
    if unknown := set(options.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    widths = tuple(int(width) for width in options.widths.split(","))
    backends = tuple(options.backends.split(","))
    sections = options.sections or SECTIONS
    clock = Clock(daemons="docker" in backends or "lifecycle" in sections)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(clock, options.n, widths, backends, options.rootfs, Path(folder))
            asyncio.run(run(sections, bench))
    finally:
        clock.close()


if __name__ == "__main__":
    main()
