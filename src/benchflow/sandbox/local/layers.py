"""The store of layers: folders in overlay form, each made once and then never changed.

A layer lives in `layers/<key>/`: `fs/` is the folder that boxes stack, `layer.json` says what it is and, by its
modification time, when it was last used. Invariants:
- A layer appears complete or not at all: it is made under `tmp/` and published by one rename.
- Whoever wants a missing layer waits for the one that is making it, in this process or another; if that one fails
  or dies, the next in line makes it.
- A layer that a live process has asked for is never pruned: every process lists what it uses in a file under
  `uses/` that it holds locked until it ends.
- A layer is used no later than the layers below it, so that pruning by age never takes a lower one first.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.locks import briefly, hold, is_locked, locked
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path

type Maker = Callable[[Path], Awaitable[Mapping[str, object]]]
"""Fills an empty folder and returns what is to be remembered about it."""

type Remover = Callable[[Path], Coroutine[object, object, None]]
"""Removes a tree; what boxes wrote may belong to users that only the engine can act for."""


@dataclass(frozen=True, slots=True)
class Layer:
    key: str
    path: Path
    about: Mapping[str, object]


class LayerStore:
    """One cache folder. Cheap to make; any number of processes share the folder."""

    def __init__(self, root: Path, remove: Remover) -> None:
        self._root = root
        self._remove = remove
        self._used: dict[str, Layer] = {}
        self._use_file: int | None = None

    def find(self, key: str) -> Layer | None:
        """A layer that exists; from now on this process uses it."""
        known = self._used.get(key)
        if known is None or not known.path.is_dir():
            with self._uses_locked(shared=True):
                about = self._read(key)
                if about is None:
                    return None
                self._list_use(key)
            known = self._used[key] = Layer(key, self._folder(key) / "fs", about)
        return known

    async def ensure(self, key: str, make: Maker, *, on_wait: Callable[[], None] = lambda: None) -> Layer:
        """The layer `key`, made by `make` if nobody has made it. What `make` raises is raised, and nothing is left.

        `make` may keep other files beside the folder it fills, and removes them itself when it succeeds.
        """
        while not (found := self.find(key)):
            async with locked(self._root / "locks" / key, on_wait=on_wait):
                if not self.find(key):
                    await self._make(key, make)
        return found

    def touch(self, layers: Sequence[str]) -> None:
        """Note that layers are being used now, all at the same instant; `layers` are keys, the lowest first."""
        now = time.time()
        for key in layers:
            with suppress(OSError):
                os.utime(self._folder(key) / "layer.json", (now, now))

    async def prune(self, *, older_than: float = 0.0, dry_run: bool = False) -> list[str]:
        """Remove layers that no live process uses and that were last used `older_than` seconds ago or earlier."""
        removed = []
        with self._uses_locked(shared=False):
            used = self._used_anywhere()
            for key, last in self._last_uses():
                if key in used or last > time.time() - older_than:
                    continue
                removed.append(self._describe(key))
                if not dry_run:
                    self._folder(key).rename(self._scratch(key))
        for leftover in [] if dry_run else self._leftovers():
            await self._remove(leftover)
        return removed

    def disk_use(self) -> int:
        """Bytes that the layers take on the disk. Walks every file: call it from a thread."""
        return sum(_tree_bytes(self._folder(key)) for key, _ in self._last_uses())

    def close(self) -> None:
        """Give up every use of this process. Idempotent."""
        if self._use_file is not None:
            self._use_path.unlink(missing_ok=True)
            os.close(self._use_file)
            self._use_file = None
        self._used.clear()

    # -- making ----------------------------------------------------------------------------------------------

    async def _make(self, key: str, make: Maker) -> None:
        for stale in self._leftovers(key):
            await self._remove(stale)
        work = self._scratch(key)
        try:
            work.mkdir(mode=0o700)
            (work / "fs").mkdir(mode=0o755)
            (work / "fs").chmod(0o755)
            about = await make(work / "fs")
            (work / "layer.json").write_text(json.dumps(about))
            self._folder(key).parent.mkdir(exist_ok=True)
            if self._folder(key).exists():  # damaged, or `find` would have found it
                await self._remove(self._folder(key))
            work.rename(self._folder(key))
        finally:
            if work.exists():
                await finished(self._remove(work))

    def _leftovers(self, key: str = "") -> list[Path]:
        """What makers that died left behind. Only its maker's lock makes `key`'s own safe to touch."""
        found = []
        for path in self._scratch("").parent.iterdir():
            owner = path.name.partition(".")[0]
            if owner == key or (not key and not is_locked(self._root / "locks" / owner)):
                found.append(path)
        return found

    # -- who uses what ---------------------------------------------------------------------------------------

    @property
    def _use_path(self) -> Path:
        return self._root / "uses" / f"{os.getpid()}.{id(self):x}"

    def _list_use(self, key: str) -> None:
        if self._use_file is None:
            self._use_file = hold(self._use_path)
            os.ftruncate(self._use_file, 0)
        os.write(self._use_file, f"{key}\n".encode())

    def _used_anywhere(self) -> set[str]:
        used: set[str] = set()
        for path in (self._root / "uses").iterdir():
            if path.name == "lock":
                continue
            if is_locked(path):
                used.update(path.read_text().split())
            else:
                path.unlink(missing_ok=True)
        return used

    def _uses_locked(self, *, shared: bool) -> AbstractContextManager[None]:
        self._make_root()
        return briefly(self._root / "uses" / "lock", shared=shared)

    # -- the folder ------------------------------------------------------------------------------------------

    def _make_root(self) -> None:
        # Layers hold set-uid programs and other people's secrets alike: nobody else may reach into them.
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def _scratch(self, key: str) -> Path:
        """A new name for a folder that is being made or removed."""
        self._make_root()
        (self._root / "tmp").mkdir(exist_ok=True)
        return self._root / "tmp" / f"{key}.{secrets.token_hex(4)}"

    def _folder(self, key: str) -> Path:
        return self._root / "layers" / key

    def _read(self, key: str) -> Mapping[str, object] | None:
        try:
            about = json.loads((self._folder(key) / "layer.json").read_text())
        except (OSError, ValueError):
            return None
        return about if isinstance(about, dict) else None

    def _describe(self, key: str) -> str:
        about = self._read(key) or {}
        return f"{key} {about.get('text', '')}".strip()

    def _last_uses(self) -> Iterator[tuple[str, float]]:
        layers = self._root / "layers"
        for path in sorted(layers.iterdir()) if layers.is_dir() else ():
            with suppress(OSError):
                yield path.name, (path / "layer.json").stat().st_mtime


def _tree_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118  joining is hot here
    return total
