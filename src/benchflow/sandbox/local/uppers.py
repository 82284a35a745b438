"""Writable layers of boxes, and who still needs them.

A layer is written by one box at a time; after a fork it is frozen and read by that box and by its forks, in any
order of their ends. So each one counts its users and is removed with the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchflow.sandbox.local.guest.messages import StackRequest


@dataclass(slots=True)
class Upper:
    """One writable layer below `home`. One that was given to us (`kept`) is not removed."""

    home: Path
    upper: Path
    work: Path
    kept: bool = False
    users: int = 1

    @classmethod
    def new(cls, home: Path) -> Upper:
        return cls(home, home / "upper", home / "work")

    @classmethod
    def given(cls, folder: Path) -> Upper:
        """A layer in a folder of the caller's; its working folder lies beside it."""
        work = folder.with_name(f"{folder.name}.work")
        return cls(work, folder, work / "work", kept=True)

    def release(self) -> list[Path]:
        """One user less; what is to be removed now."""
        self.users -= 1
        return [self.home] if self.users == 0 else []


@dataclass(slots=True)
class Stack:
    """All layers of one box: the one it writes, those frozen by forks (top first), and the image's."""

    current: Upper
    frozen: list[Upper]
    image: tuple[Path, ...]
    tmpfs_bytes: int = 0
    """Size of what the box may write, in memory; 0 is on the disk and without bound."""

    released: bool = field(default=False, init=False)

    def request(self, *, copy: Upper | None = None) -> StackRequest:
        return self.request_for(self.current, self.frozen, copy=copy)

    def request_for(self, upper: Upper, frozen: Sequence[Upper], *, copy: Upper | None = None) -> StackRequest:
        return {
            "layers": [*(str(layer.upper) for layer in frozen), *(str(layer) for layer in self.image)],
            "home": str(upper.home),
            "upper": str(upper.upper),
            "work": str(upper.work),
            "empty": str(upper.home / "empty"),
            "tmpfs_bytes": 0 if upper.kept else self.tmpfs_bytes,
            "charged": [str(layer.home) for layer in frozen],
            "copy": str(copy.upper) if copy else "",
        }

    @property
    def changed(self) -> list[str]:
        """What the box wrote over its image, top first."""
        return [str(layer.upper) for layer in (self.current, *self.frozen)]

    def freeze(self, fresh: Upper) -> None:
        """The box writes `fresh` from now on, over all it had."""
        self.frozen.insert(0, self.current)
        self.current = fresh

    def branch(self, fresh: Upper, *, over_current: bool = False) -> Stack:
        """Another box over the same frozen layers; also over the one that is written now, and is about to freeze."""
        shared = [*([self.current] if over_current else []), *self.frozen]
        for layer in shared:
            layer.users += 1
        return Stack(fresh, shared, self.image, self.tmpfs_bytes)

    def release(self) -> list[Path]:
        """The box is gone; what is to be removed with it."""
        if self.released:
            return []
        self.released = True
        return [path for layer in (self.current, *self.frozen) for path in layer.release()]


@dataclass(slots=True)
class Exchange:
    """A fresh layer for a box that is being forked: all it had is frozen under it."""

    stack: Stack
    fresh: Upper
    done: bool | None = None
    """None while nobody knows."""

    _taken: bool = field(default=False, init=False)

    @property
    def left(self) -> list[Path]:
        """What is to be removed: the fresh layer, unless it is the box's."""
        return [] if self._taken else [self.fresh.home]

    def request(self) -> StackRequest:
        return self.stack.request_for(self.fresh, [self.stack.current, *self.stack.frozen])

    def settle(self, *, done: bool) -> None:
        """Called once it is known whether the box writes the fresh layer now. It may be gone meanwhile."""
        self.done = done
        if done and not self.stack.released:
            self.stack.freeze(self.fresh)
            self._taken = True
