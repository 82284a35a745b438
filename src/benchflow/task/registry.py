"""Datasets by name: a `registry.json` that says where tasks are, or a `dataset.toml` that says what they must be.

A registry lists datasets, `name` or `name@version`, whose tasks are folders beside it or in git repositories at pinned
commits. A manifest describes one dataset whose tasks lie beside it, each with its digest. Every digest that is written
down is checked against the content that was found, before anything runs.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import tomllib
from typing import TYPE_CHECKING, Annotated, NamedTuple

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from benchflow.errors import ConfigError, TaskError
from benchflow.task.digest import PREFIX, dataset_digest, file_sha256, task_digest
from benchflow.task.fetch import FETCH_TIMEOUT, fetch_many
from benchflow.task.load import read_task
from benchflow.task.source import find_tasks, select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

REGISTRY, MANIFEST = "registry.json", "dataset.toml"
_SHOWN = 10

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class RegistryTask(BaseModel):
    """A task in a registry: a folder of a repository, or without `git_url` one relative to the registry's file."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None
    digest: Digest | None = None


class RegistryDataset(BaseModel):
    name: str
    version: str
    description: str = ""
    tasks: list[RegistryTask]


class ManifestHead(BaseModel):
    name: str
    version: str | None = None


class ManifestTask(BaseModel):
    name: str
    digest: Digest


class ManifestFile(BaseModel):
    path: str = Field(pattern=r"^[^/\\]+$")
    digest: Digest | None = None


class Manifest(BaseModel):
    """`dataset.toml`."""

    dataset: ManifestHead
    tasks: list[ManifestTask] = []
    files: list[ManifestFile] = []

    @property
    def digest(self) -> str:
        """What `name@sha256:...` refers to."""
        return dataset_digest(
            [task.digest for task in self.tasks], [(one.path, one.digest or "") for one in self.files]
        )


class DatasetTask(NamedTuple):
    """A task of a dataset on this machine. `digest` was checked; `url` and `commit` say where it was fetched from."""

    name: str
    folder: Path
    digest: str | None = None
    url: str | None = None
    commit: str | None = None


async def resolve_dataset(
    file: Path,
    ref: str | None = None,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    cache: Path | None = None,
    timeout: float = FETCH_TIMEOUT,
) -> list[DatasetTask]:
    """The tasks of the dataset `ref` (`name` or `name@version`; None: the only one) in `file`, in its order.

    `file` is a registry, a manifest, or a folder with one of them. Only tasks that pass the filters (see `select`) are
    fetched. Raises ConfigError when the file or the reference is wrong, TaskError when content is not what it promises.
    """
    file = _locate(file)
    if file.suffix == ".toml":
        return await asyncio.to_thread(_from_manifest, file, ref, include, exclude)
    dataset = choose(read_registry(file), ref, file)
    kept = set(select([task.name for task in dataset.tasks], include, exclude))
    tasks = [task for task in dataset.tasks if task.name in kept]
    return await _from_registry(file, tasks, cache, timeout)


def read_registry(file: Path) -> list[RegistryDataset]:
    """What a registry lists. Raises ConfigError naming every entry that is wrong."""
    try:
        return TypeAdapter(list[RegistryDataset]).validate_python(json.loads(_read(file)))
    except ValidationError as error:
        raise _invalid(file, error) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not JSON: {error}") from error


def read_manifest(file: Path) -> Manifest:
    """A `dataset.toml`. Raises ConfigError naming every key that is wrong."""
    try:
        return Manifest.model_validate(tomllib.loads(_read(file)))
    except ValidationError as error:
        raise _invalid(file, error) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from error


def choose(datasets: Sequence[RegistryDataset], ref: str | None, file: Path) -> RegistryDataset:
    """The dataset that `ref` means; without a version the one called `head`, else the highest, else the last by name.

    Raises ConfigError with what there is instead.
    """
    names = sorted({dataset.name for dataset in datasets})
    if not names:
        raise ConfigError(f"{file}: lists no dataset", hint="add one: {name, version, tasks: [{name, path}]}")
    if ref is None and len(names) != 1:
        raise ConfigError(f"{file}: which dataset?", hint=f"name one of {_some(names)}")
    name, _, version = (ref or names[0]).partition("@")
    versions = {dataset.version: dataset for dataset in datasets if dataset.name == name}
    if not versions:
        close = difflib.get_close_matches(name, names, n=3)
        raise ConfigError(f"{file}: has no dataset {name}", hint=f"name one of {_some(close or names)}")
    if version and version not in versions:
        raise ConfigError(f"{file}: {name} has no version {version}", hint=f"there is {_some(sorted(versions))}")
    return versions[version or max(versions, key=_rank)]


def _rank(version: str) -> tuple[bool, bool, Version, str]:
    try:
        return version == "head", True, Version(version), version
    except InvalidVersion:
        return version == "head", False, Version("0"), version


# -- a registry ----------------------------------------------------------------------------------------------


async def _from_registry(
    file: Path, tasks: Sequence[RegistryTask], cache: Path | None, timeout: float
) -> list[DatasetTask]:
    """Every task where it is or where it was fetched to; one clone for all that share a repository and a commit."""
    places: dict[int, DatasetTask] = {}
    remote: dict[tuple[str, str | None], list[int]] = {}
    for index, task in enumerate(tasks):
        if task.git_url is None:
            places[index] = DatasetTask(task.name, _local(file, task), task.digest)
        else:
            remote.setdefault((task.git_url, task.git_commit_id), []).append(index)
    for (url, commit), indexes in remote.items():
        paths = [tasks[index].path for index in indexes]
        fetched = await fetch_many(url, paths, commit, cache=cache, timeout=timeout)
        for index, source in zip(indexes, fetched, strict=True):
            task = tasks[index]
            places[index] = DatasetTask(task.name, source.folder, task.digest, source.url, source.commit)
    found = [places[index] for index in range(len(tasks))]
    await asyncio.to_thread(_verify, file, found)
    return found


def _local(file: Path, task: RegistryTask) -> Path:
    folder = file.parent / task.path
    if not folder.is_dir():
        raise ConfigError(
            f"{file}: task {task.name}: there is no folder {folder}", hint="paths are relative to the file"
        )
    return folder


# -- a manifest ----------------------------------------------------------------------------------------------


def _from_manifest(file: Path, ref: str | None, include: Sequence[str], exclude: Sequence[str]) -> list[DatasetTask]:
    manifest = read_manifest(file)
    _check_reference(file, manifest, ref)
    for one in manifest.files:
        if one.digest and (found := PREFIX + file_sha256(file.parent / one.path)) != one.digest:
            raise TaskError(f"{file.parent / one.path}: {file.name} promises {one.digest}, found {found}")
    kept = set(select([task.name for task in manifest.tasks], include, exclude))
    wanted = [task for task in manifest.tasks if task.name in kept]
    folders = _folders(file, [task.name for task in wanted])
    tasks = [DatasetTask(task.name, folders[task.name], task.digest) for task in wanted]
    _verify(file, tasks)
    return tasks


def _check_reference(file: Path, manifest: Manifest, ref: str | None) -> None:
    name, _, version = (ref or manifest.dataset.name).partition("@")
    known = [one for one in (manifest.dataset.version, manifest.digest) if one]
    if name != manifest.dataset.name or (version and version not in known):
        there = [f"{manifest.dataset.name}@{one}" for one in known]
        raise ConfigError(f"{file}: is not {ref}", hint=f"it is {' and '.join(there)}")


def _folders(file: Path, names: Sequence[str]) -> dict[str, Path]:
    """Where each named task lies: in a folder of that name beside the manifest or in `tasks/`, or one that says so."""
    places = [place for place in (file.parent, file.parent / "tasks") if place.is_dir()]
    beside = {task.name: task for place in places for task in _tasks(place)}
    by_folder = {name: beside[short] for name in names if (short := name.rpartition("/")[2]) in beside}
    if len(set(by_folder.values())) == len(set(names)):
        return by_folder
    declared = {task.name: folder for folder in beside.values() if (task := read_task(folder)[0])}
    found = by_folder | {name: declared[name] for name in names if name in declared}
    if missing := [name for name in names if name not in found]:
        raise ConfigError(f"{file}: no folder here for {_some(missing)}", hint="put the tasks beside it or in tasks/")
    return found


def _tasks(place: Path) -> list[Path]:
    try:
        return find_tasks(place)
    except ConfigError:
        return []


# -- both ----------------------------------------------------------------------------------------------------


def _verify(file: Path, tasks: Iterable[DatasetTask]) -> None:
    wrong = [
        f"  {task.name} ({task.folder}): expected {task.digest}, found {found}"
        for task in tasks
        if task.digest and (found := task_digest(task.folder)) != task.digest
    ]
    if wrong:
        lines = "\n".join(wrong[:_SHOWN])
        fix = "restore the tasks, or write the new digests if the change is meant (bench tasks digest)"
        raise TaskError(f"{file}: {len(wrong)} of its tasks are not what it promises:\n{lines}", hint=fix)


def _locate(file: Path) -> Path:
    if file.is_dir():
        for name in (MANIFEST, REGISTRY):
            if (file / name).is_file():
                return file / name
        raise ConfigError(f"{file}: has neither {MANIFEST} nor {REGISTRY}")
    if file.suffix not in (".toml", ".json"):
        raise ConfigError(f"{file}: is no registry", hint=f"name a {REGISTRY} or a {MANIFEST}")
    return file


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


def _invalid(file: Path, error: ValidationError) -> ConfigError:
    lines = []
    for detail in error.errors(include_url=False, include_context=False)[:_SHOWN]:
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"])
        lines.append(f"  {key.removeprefix('.') or 'the file'}: {detail['msg']}")
    return ConfigError(f"{file}: {error.error_count()} wrong entries:\n" + "\n".join(lines))


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "") or "none"
