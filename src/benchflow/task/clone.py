"""One clone: the least of a repository that gives the folders asked for, published whole or not at all.

Blobless, shallow and sparse: one commit, its folders, and the content of the files under the paths, nothing else. What
is published are plain files; git's own folder, and with it everything it was told, is gone by then.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.task.git import GitError, run_git

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.task.repo import Repo

DEFAULT_PATH = "tasks"
"""The folder that is meant when none is named, in a repository that has it and is not itself a task."""

REMOVE_ATTEMPTS = 20
"""How often the removal of what a killed clone left is tried, before it is left to the next one."""

_REFUSED = ("not our ref", "unadvertised object", "shallow", "filter")
_KINDS = {"blob": "file", "commit": "submodule"}


async def clone(repo: Repo, commit: str, entries: Mapping[str | None, Path]) -> None:
    """Publish every path of `entries` (None: the default one, "": everything) as its entry, at `entry / path`.

    A path inside another one of them gets no entry of its own. The entries share one parent, which only the caller
    may write to meanwhile. Raises ConfigError when something is not there; whatever happens nothing else is left.
    """
    aside = await asyncio.to_thread(_set_aside, next(iter(entries.values())).parent)
    tree = aside / "tree"
    try:
        await asyncio.to_thread(tree.mkdir)
        await _fetch_commit(repo, commit, tree)
        places = {path: await _place(repo, commit, path, tree) for path in entries}
        await _checkout(repo, commit, sorted(set(places.values())), tree)
        await asyncio.to_thread(_publish, tree, places, entries)
    finally:
        await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)


def default_path(root: Mapping[str, str]) -> str:
    """What is meant where no folder is named, from what the repository has at its root: name -> tree or blob."""
    return DEFAULT_PATH if root.get(DEFAULT_PATH) == "tree" and not root.keys() & {"task.toml", "task.md"} else ""


def near(name: str, names: Iterable[str]) -> str | None:
    """A hint with the names that are like `name`, if any are."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else None


def _set_aside(parent: Path) -> Path:
    """A new folder beside `parent`; those of clones that were killed are removed.

    The name is new each time, because a git whose parent was killed may still be writing to the old one.
    """
    for old in parent.parent.glob(f"{parent.name}.*.tmp"):
        _remove(old)
    return Path(tempfile.mkdtemp(prefix=f"{parent.name}.", suffix=".tmp", dir=parent.parent))


def _remove(folder: Path) -> None:
    """Remove a folder, also one that such a git still writes to: it gives up once its files are gone."""
    for _ in range(REMOVE_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


async def _fetch_commit(repo: Repo, commit: str, tree: Path) -> None:
    """An empty repository in `tree` that knows the commit and its folders, but no file content yet."""
    kind = "sha256" if len(commit) == 64 else "sha1"
    await run_git(repo, "init", "--quiet", "--template=", f"--object-format={kind}", folder=tree)
    await run_git(repo, "remote", "add", "origin", repo.url, folder=tree)
    try:
        await run_git(
            repo, "fetch", "--quiet", "--no-tags", "--filter=blob:none", "--depth=1", "origin", commit, folder=tree
        )
    except GitError as error:
        if not any(sign in error.words for sign in _REFUSED):
            raise
        # Some servers give only what a branch or tag leads to, and no single object: then all of it is fetched.
        every = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
        await run_git(repo, "fetch", "--quiet", "--no-filter", "origin", *every, folder=tree)
        try:
            await run_git(repo, "cat-file", "-e", f"{commit}^{{commit}}", folder=tree)
        except GitError:
            raise ConfigError(f"{repo.url} has no commit {commit}") from error


async def _place(repo: Repo, commit: str, path: str | None, tree: Path) -> str:
    """`path` as a folder that exists in the commit. Raises ConfigError when it does not."""
    if path is None:
        return default_path(await _list(repo, commit, "", tree))
    if not path:
        return path
    parent, _, name = path.rpartition("/")
    try:
        beside = await _list(repo, commit, parent, tree)
    except GitError:
        beside = {}
    kind = beside.get(name)
    if kind == "tree":
        return path
    if kind is None:
        raise ConfigError(f"{repo.url} has no folder {path} at {commit[:12]}", hint=near(name, beside))
    raise ConfigError(f"{path} in {repo.url} is a {_KINDS.get(kind, kind)}, not a folder", hint="name its folder")


async def _list(repo: Repo, commit: str, folder: str, tree: Path) -> dict[str, str]:
    """What a folder of the commit holds: name -> tree, blob or commit."""
    listing = await run_git(repo, "ls-tree", "-z", f"{commit}:{folder}", folder=tree)
    rows = (row.partition("\t") for row in listing.split("\0") if row)
    return {name: about.split()[1] for about, _, name in rows}


async def _checkout(repo: Repo, commit: str, paths: Sequence[str], tree: Path) -> None:
    if "" not in paths:
        patterns = "".join(f"/{re.sub(r'([][*?!# \\])', r'\\\1', path)}/\n" for path in paths)
        (tree / ".git" / "info").mkdir(exist_ok=True)
        (tree / ".git" / "info" / "sparse-checkout").write_text(patterns, encoding="utf-8")
        await run_git(repo, "config", "core.sparseCheckout", "true", folder=tree)
    await run_git(repo, "checkout", "--quiet", "--detach", commit, folder=tree)


def _outermost(places: Mapping[str | None, str]) -> list[str | None]:
    """The paths that no other one holds: the rest is found inside them."""
    named = {place for path, place in places.items() if path is not None}
    inner = {one for one in named for other in named if one != other and (not other or one.startswith(f"{other}/"))}
    return [path for path, place in places.items() if path is None or place not in inner]


def _publish(tree: Path, places: Mapping[str | None, str], entries: Mapping[str | None, Path]) -> None:
    """Move each place out of the tree and make it an entry, in one step that cannot be seen half done."""
    shutil.rmtree(tree / ".git")
    aside = tree.with_name("entry")
    for path in _outermost(places):
        target = aside / places[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        (tree / places[path]).rename(target)
        entries[path].parent.mkdir(exist_ok=True)
        aside.rename(entries[path])
