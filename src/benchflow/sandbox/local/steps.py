"""Carrying out one step of a build in a box whose changes become the layer.

Everything happens inside a box on the layers below: links of the image are followed there and nowhere else, names of
users are those of the image, and nothing is asked of the image beyond what its own RUN lines need.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from benchflow.errors import SandboxBuildError, SandboxError
from benchflow.sandbox.base import Network
from benchflow.sandbox.local.copying import placed
from benchflow.sandbox.local.plan import CopyStep, RunStep
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchflow.sandbox.dockerignore import ContextFile
    from benchflow.sandbox.local.engine import Box, Engine
    from benchflow.sandbox.local.plan import Step, WorkdirStep
    from benchflow.sandbox.local.spec import BoxSpec

OUTPUT_LINES = 200
"""Lines of a failing step's output that its error carries."""

DRAIN_TIMEOUT = 2.0
"""Seconds to wait for the rest of a command's output when the command has ended but something keeps it open."""

CHUNK = 64 * 1024

type Log = Callable[[str], None]


async def carry_out(step: Step, where: str, spec: BoxSpec, *, engine: Engine, log: Log) -> None:
    """Make the layer of one step in the folder `spec.upper`, in a box as `spec` says.

    Raises SandboxBuildError, with the step's output, when it fails.
    """
    place = f"{where}:{step.instruction.line}"
    network = Network("public" if isinstance(step, RunStep) else "no-network")
    try:
        box = await engine.start_box(replace(spec, network=network))
        try:
            if isinstance(step, RunStep):
                await _run(step, place, box, log)
            elif isinstance(step, CopyStep):
                assert spec.upper is not None, "a step is there to fill it"
                await _copy(step, box, spec.upper.parent / "stage")
            else:
                await _workdir(step, box)
        finally:
            await finished(box.stop())
    except SandboxBuildError:
        raise
    except (SandboxError, OSError) as error:
        raise SandboxBuildError(f"{place}: {error}", backend="local", step=step.instruction.text) from error


async def _run(step: RunStep, place: str, box: Box, log: Log) -> None:
    lines: deque[str] = deque(maxlen=OUTPUT_LINES)

    def note(line: str) -> None:
        lines.append(line)
        log(line)

    user = step.user or None
    async with await box.open(step.argv, user=user, env=step.env, cwd=step.workdir) as stream:
        await stream.close_stdin()
        readers = [asyncio.create_task(read_lines(reader, note)) for reader in (stream.stdout, stream.stderr)]
        try:
            code = await stream.wait()
            await asyncio.wait(readers, timeout=DRAIN_TIMEOUT)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    if code != 0:
        message = f"{place}: the command ended with exit code {code}"
        raise SandboxBuildError(message, backend="local", step=step.instruction.text, output="\n".join(lines))


async def read_lines(reader: asyncio.StreamReader, note: Log) -> None:
    """Pass on what is read line by line; a line that is overwritten by carriage returns shows as it ended."""
    pending = b""
    while chunk := await reader.read(CHUNK):
        *whole, pending = (pending + chunk).split(b"\n")
        for line in whole:
            note(_text(line))
    if pending:
        note(_text(pending))


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


async def _workdir(step: WorkdirStep, box: Box) -> None:
    if not await _is_folder(box, step.path):
        await box.put({}, step.path, owner=step.user or None)


async def _copy(step: CopyStep, box: Box, stage: Path) -> None:
    """Lay the files out in `stage` as they are to lie in the destination folder, and put all of it at once."""
    target = step.target.rstrip("/") or "/"
    if step.target.endswith("/") or step.sources[0].folder or await _is_folder(box, target):
        home, files = target, placed(step.sources)
    else:
        home, files = posixpath.dirname(target), placed(step.sources, posixpath.basename(target))
    try:
        await asyncio.to_thread(_lay_out, stage, files, step.mode)
        await box.put(stage, home, owner=_owner(step.chown))
    finally:
        await asyncio.to_thread(shutil.rmtree, stage, ignore_errors=True)


def _owner(chown: str) -> str | None:
    """A number without a group means the group of the same number; a name means the group it has in the image."""
    return f"{chown}:{chown}" if chown.isdigit() else chown or None


def _lay_out(stage: Path, files: list[ContextFile], mode: int | None) -> None:
    stage.mkdir()
    for file in files:
        place = stage / file.name
        if file.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            _lay_file(file, place, mode)
    for file in reversed(files):
        if file.kind == "folder":
            (stage / file.name).chmod(file.mode if mode is None else mode)


def _lay_file(file: ContextFile, place: Path, mode: int | None) -> None:
    if file.kind == "link":
        place.symlink_to(file.target)
        return
    if mode is None:
        try:
            os.link(file.path, place, follow_symlinks=False)
        except OSError:  # another file system, or somebody else's file
            pass
        else:
            return
    shutil.copy2(file.path, place, follow_symlinks=False)
    if mode is not None:
        place.chmod(mode)


async def _is_folder(box: Box, path: str) -> bool:
    """Whether there is a folder at `path`, through links. Needs nothing of the image: a missing program ends with
    127 where it can be looked for, and with 126 where the folder to start it in is missing."""
    result = await box.exec(["/benchflow/no/such/program"], cwd=path)
    return result.exit_code == 127
