"""The folders that jobs leave: found, read and locked. Reading is lazy and looks only at what it must.

    jobs/<job>/job.json summary.json events.jsonl <task>__<id>/result.json ...

`result.json` exists if and only if its rollout ended, so that a folder without one was interrupted. Only one process
at a time works on a job's folder; readers need no lock, because every document is replaced in one step.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.job.lock import FILE, read_lock
from benchflow.job.row import row_of, settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.job.lock import JobLock
    from benchflow.job.row import Row

LOCK = ".lock"
RESULT = "result.json"
SUMMARY = "summary.json"

_WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""The kernel's `struct flock`: an exclusive lock on all of a file, owned by the open file and not by the process."""


def read_rows(job_dir: Path) -> Iterator[Row]:
    """Every rollout of a job that ended, in no order. A result that is not one is passed over (see `unreadable`)."""
    for folder in _rollouts(job_dir):
        row = _read(folder)
        if isinstance(row, tuple):
            continue
        if row is not None:
            yield row


def unended(job_dir: Path) -> list[Path]:
    """The folders of rollouts that have no result: those that run, and those that were killed."""
    return [Path(folder) for folder in _rollouts(job_dir) if not (Path(folder) / RESULT).exists()]


def unreadable(job_dir: Path) -> list[str]:
    """What is wrong with each result.json that cannot be understood."""
    found = (_read(folder) for folder in _rollouts(job_dir))
    return [problem[0] for problem in found if isinstance(problem, tuple)]


def _rollouts(job_dir: Path) -> Iterator[str]:
    try:
        with os.scandir(job_dir) as entries:
            yield from (entry.path for entry in entries if "__" in entry.name and entry.is_dir())
    except OSError as error:
        raise ConfigError(f"{job_dir}: cannot be read: {error.strerror}") from None


def _read(folder: str) -> Row | tuple[str] | None:
    """The row of a rollout's folder, None when it has not ended, or what is wrong with it."""
    path = f"{folder}/{RESULT}"
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of a Path's, ten thousand times
            return row_of(json.loads(file.readall()), Path(folder))
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        return (f"{path}: {type(error).__name__}: {error}",)


def settled(job_dir: Path, lock: JobLock | None = None) -> list[Row]:
    """The rollouts that count: the last try of each, unless it was cancelled, and only what the job still asks for."""
    found = {key: row for key, row in settle(read_rows(job_dir)).items() if not row.cancelled}
    lock = lock or read_lock(job_dir)
    if lock is None:
        return list(found.values())
    return [found[key] for key in lock.keys if key in found]


def job_folders(path: Path) -> list[Path]:
    """The job that `path` is, or those in it, oldest first by name. Raises ConfigError when there is none."""
    if is_job(path):
        return [path]
    try:
        with os.scandir(path) as entries:
            found = sorted(Path(entry.path) for entry in entries if entry.name[0] != "." and entry.is_dir())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    jobs = [folder for folder in found if is_job(folder)]
    if not jobs:
        raise ConfigError(f"{path}: no results here", hint="name a job's folder or the folder that jobs are in")
    return jobs


def is_job(path: Path) -> bool:
    """Whether a folder is a job's: it says so, or has a rollout in it."""
    if (path / FILE).exists():
        return True
    try:
        return any((Path(folder) / "config.json").exists() for folder in _rollouts(path))
    except ConfigError:
        return False


def new_job_name(jobs_dir: Path) -> str:
    """A name that no job here has: the time, with a number if there is one from this second. Makes its folder.

    Raises ConfigError when it cannot be made.
    """
    base = datetime.now().strftime("%Y-%m-%d__%H-%M-%S")  # noqa: DTZ005 - for the user's eyes
    name, number = base, 1
    try:
        jobs_dir.mkdir(parents=True, exist_ok=True)
        while not _made(jobs_dir / name):
            number += 1
            name = f"{base}-{number}"
    except OSError as error:
        raise _unwritable(jobs_dir, error) from None
    return name


def _made(folder: Path) -> bool:
    """Make a folder; whether it was us who did."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


@contextmanager
def held(job_dir: Path) -> Iterator[None]:
    """Hold a job's folder, making it if it is not there. Raises ConfigError when another process has it.

    The kernel lets go of it when the holder ends, however it ends. Programs that the holder starts do not hold it.
    """
    try:
        job_dir.mkdir(parents=True, exist_ok=True)
        fd = os.open(job_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unwritable(job_dir, error) from None
    try:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except (BlockingIOError, PermissionError):
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            raise ConfigError(
                f"{job_dir}: another process ({owner or 'unknown'}) is working on this job",
                hint="wait until it ends, or choose another --job-name",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _unwritable(job_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{job_dir}: cannot be written: {error.strerror}", hint="choose another --jobs-dir")


def is_held(job_dir: Path) -> bool:
    """Whether a process works on a job's folder now. Asking takes nothing, so that it is in nobody's way."""
    try:
        fd = os.open(job_dir / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _WHOLE_FILE)
    finally:
        os.close(fd)
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)
