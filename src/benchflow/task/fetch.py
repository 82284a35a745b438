"""Tasks from a git repository: just the folders that are asked for, at one commit, in a cache.

The cache holds plain files, `<repository>/<commit>/<key>/<path in the repository>`, and is keyed by content that never
changes, so an entry is either absent or complete and right for ever. A clone is blobless, shallow and sparse; it is
made aside under a lock between processes and published by rename. A full commit hash that is in the cache needs no
network and no git.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchflow.errors import ConfigError
from benchflow.locks import locked
from benchflow.task.clone import clone, default_path, near
from benchflow.task.git import run_git
from benchflow.task.repo import is_commit, parse_repo, tree_splits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from benchflow.task.repo import Repo

FETCH_TIMEOUT = 600.0
"""Seconds that fetching one source may take, waiting for another process that fetches the same included."""


class FetchedSource(NamedTuple):
    """A folder of a repository on this machine, and where exactly it came from. `url` carries no credential."""

    folder: Path
    url: str
    commit: str


async def fetch(
    repo: str,
    path: str | None = None,
    ref: str | None = None,
    *,
    cache: Path | None = None,
    timeout: float = FETCH_TIMEOUT,
) -> FetchedSource:
    """The folder `path` of `repo` at `ref` (its default branch when None), fetched unless it is in the cache.

    See `repo` for what names a repository. Without `path` it is `tasks/` where there is one, else the whole repository.
    Raises ConfigError, with git's own words, when it cannot be had; the cache is then as it was.
    """
    asked = parse_repo(repo, path, ref)
    async with _limit(asked, timeout):
        commit, path = await _pin(asked)
        (folder,) = await _ensure(asked, commit, [path], cache or cache_folder())
    return FetchedSource(folder, asked.url, commit)


async def fetch_many(
    repo: str,
    paths: Sequence[str],
    ref: str | None = None,
    *,
    cache: Path | None = None,
    timeout: float = FETCH_TIMEOUT,
) -> list[FetchedSource]:
    """As `fetch`, for several folders of one repository with a single clone."""
    asked = [parse_repo(repo, path, ref) for path in paths]
    if not asked:
        return []
    async with _limit(asked[0], timeout):
        commit, _ = await _pin(asked[0])
        folders = await _ensure(asked[0], commit, [one.path for one in asked], cache or cache_folder())
    return [FetchedSource(folder, asked[0].url, commit) for folder in folders]


def cache_folder() -> Path:
    """Where fetched sources are kept: `$XDG_CACHE_HOME/benchflow/sources`, by default under `~/.cache`."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "benchflow" / "sources"


@contextlib.asynccontextmanager
async def _limit(repo: Repo, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        fix = "try again, name a smaller folder with the path, or clone it yourself and name the local folder"
        raise ConfigError(f"fetching {repo.url} took longer than {seconds:g} s", hint=fix) from error
    except OSError as error:
        where = error.filename or cache_folder()
        raise ConfigError(
            f"fetching {repo.url}: {where}: {error.strerror}", hint="set XDG_CACHE_HOME to a folder you can write"
        ) from error


# -- which commit --------------------------------------------------------------------------------------------


async def _pin(repo: Repo) -> tuple[str, str | None]:
    """The commit and the folder that are meant; asks the repository unless the ref is a commit already."""
    if repo.ref and is_commit(repo.ref):
        return repo.ref, repo.path
    readings = tree_splits(repo.tree) if repo.tree else [(repo.ref or "HEAD", repo.path)]
    wanted = [name for ref, _ in readings for name in _full_names(ref)]
    known = _refs(await run_git(repo, "ls-remote", "--", repo.url, *wanted))
    for ref, path in readings:
        for name in _full_names(ref):
            if commit := known.get(name):
                return commit, path
    if repo.tree or repo.ref:
        everything = _refs(await run_git(repo, "ls-remote", "--heads", "--tags", "--", repo.url))
        short = [name.split("/", 2)[2] for name in everything]
        raise ConfigError(
            f"{repo.url} has no branch or tag {repo.tree or repo.ref}",
            hint=near(repo.ref or repo.tree.partition("/")[0], short) or "a commit is named by its full hash",
        )
    raise ConfigError(f"{repo.url} has no commit yet")


def _full_names(ref: str) -> list[str]:
    """The names `ref` can have in a repository, the one that wins first; a tag's `^{}` is the commit it stands for."""
    if ref == "HEAD" or ref.startswith("refs/"):
        return [f"{ref}^{{}}", ref]
    return [f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"]


def _refs(listing: str) -> dict[str, str]:
    """`git ls-remote` as name -> hash."""
    pairs = (line.partition("\t") for line in listing.splitlines())
    return {name: commit for commit, _, name in pairs if name}


# -- the cache -----------------------------------------------------------------------------------------------


async def _ensure(repo: Repo, commit: str, paths: Sequence[str | None], cache: Path) -> list[Path]:
    """The folder of every path at `commit`, cloned once for all that are not in the cache yet."""
    home = cache / _slug(repo.url)
    entries = home / commit
    if None in (found := [_cached(entries, path) for path in paths]):
        home.mkdir(parents=True, exist_ok=True)
        async with locked(home / f"{commit}.lock"):
            missing = [path for path in paths if _cached(entries, path) is None]
            if missing:
                await clone(repo, commit, {path: _entry(entries, path) for path in missing})
        found = [_cached(entries, path) for path in paths]
    return [folder for folder in found if folder is not None]


def _slug(url: str) -> str:
    """A folder name for a repository that a person can recognise and no other repository has."""
    same = url.removesuffix("/").removesuffix(".git")
    words = re.sub(r"[^\w.-]+", "-", same.partition("://")[2] or same)[-60:].strip("-.")
    return f"{words}-{hashlib.sha256(same.encode()).hexdigest()[:12]}"


def _entry(entries: Path, path: str | None) -> Path:
    return entries / ("default" if path is None else hashlib.sha256(path.encode()).hexdigest()[:16])


def _cached(entries: Path, path: str | None) -> Path | None:
    """The folder, if it or one that holds it was fetched before."""
    if path is None:
        entry = _entry(entries, None)
        return entry / default_path(_kinds(entry)) if entry.is_dir() else None
    parts = path.split("/")
    for end in range(len(parts), -1, -1):
        entry = _entry(entries, "/".join(parts[:end]))
        folder = entry / path
        if folder.is_dir() and folder.resolve() == entry.resolve() / path:
            return folder
    return None


def _kinds(folder: Path) -> dict[str, str]:
    """What a folder holds, in git's words."""
    return {item.name: "tree" if item.is_dir() and not item.is_symlink() else "blob" for item in folder.iterdir()}
