"""What can be wrong with scenes, all of it found before anything starts."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.rollout.stop import parse_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchflow.rollout.scene import Role, Scene

MAX_ROUNDS = 1000
"""Rounds that a scene may have at most."""

RESERVED = "scene"
"""Nobody's name, because a message to it says that the scene is done."""

_NAME = re.compile(r"\w[\w .-]{0,63}")
_RIGHTS = ("access", "oracle_access")


def refuse(scenes: Sequence[Scene]) -> None:
    """Raises ConfigError with everything that is wrong with the scenes."""
    if found := list(_problems(scenes)):
        raise ConfigError("scenes cannot run as written:\n" + "\n".join(f"  - {problem}" for problem in found))


def _problems(scenes: Sequence[Scene]) -> Iterator[str]:
    if not scenes:
        yield "there is no scene"
    for name in _twice(scene.name for scene in scenes):
        yield f"two scenes are named {name!r}"
    for scene in scenes:
        names = [role.name for role in scene.roles]
        for name in _twice(names):
            yield f"scene {scene.name!r}: two roles are named {name!r}"
        if not scene.turns:
            yield f"scene {scene.name!r} has no turns"
        unknown = sorted({turn.role for turn in scene.turns} - set(names))
        known = ", ".join(names) or "none"
        for role in unknown:
            yield f"scene {scene.name!r}: a turn names the role {role!r}; its roles are: {known}"
        for problem in [*_turns(scene), *_rounds(scene), *_roles(scene)]:
            yield f"scene {scene.name!r}: {problem}"
    yield from _changing(scenes)


def _turns(scene: Scene) -> Iterator[str]:
    for turn in scene.turns:
        if not _whole(turn.best_of) or turn.best_of < 1:
            yield f"a turn of {turn.role!r}: best_of is {turn.best_of!r}; a whole number, 1 or more, is expected"
        if turn.again is not None and scene.rounds == 1:
            yield f"a turn of {turn.role!r}: again is never said, because the scene has one round"


def _rounds(scene: Scene) -> Iterator[str]:
    if scene.max_rounds is not None and (not _whole(scene.max_rounds) or not 1 <= scene.max_rounds <= MAX_ROUNDS):
        yield f"max_rounds is {scene.max_rounds!r}; a whole number from 1 to {MAX_ROUNDS} is expected"
    if scene.stop_when is None:
        return
    if scene.max_rounds is None:
        yield "stop_when needs max_rounds, or the scene might never end"
    try:
        stop = parse_stop(scene.stop_when)
    except ConfigError as error:
        yield str(error).replace("\n", "")
        return
    acting = {turn.role for turn in scene.turns}
    for role in stop.speakers:
        if role not in acting:
            yield f"stop_when waits for {role!r}, who has no turn; those who have: {', '.join(sorted(acting))}"
    if stop.speakers and len(scene.roles) < 2:
        yield "stop_when waits for a role's word, but a scene with one role has no outbox"


def _roles(scene: Scene) -> Iterator[str]:
    names = {role.name for role in scene.roles}
    for role in scene.roles:
        if not _NAME.fullmatch(role.name) or (role.name == RESERVED and len(names) > 1):
            yield f"no role can be named {role.name!r}"
        if role.access not in ("read", "write"):
            yield f"role {role.name!r}: access is {role.access!r}; 'read' or 'write' is expected"
        if role.timeout is not None and not _positive(role.timeout):
            yield f"role {role.name!r}: timeout is {role.timeout!r}; a number of seconds is expected"
        if isinstance(role.reads_trajectory, str):
            yield f"role {role.name!r}: reads_trajectory is a list of roles"
            continue
        for other in role.reads_trajectory:
            if other not in names - {role.name}:
                yield f"role {role.name!r}: reads_trajectory names {other!r}, who is no other role of the scene"


def _changing(scenes: Sequence[Scene]) -> Iterator[str]:
    """A role is one user of the sandbox, so its rights are the same in every scene."""
    first: dict[str, Role] = {}
    for scene in scenes:
        for role in scene.roles:
            before = first.setdefault(role.name, role)
            for right in _RIGHTS:
                if getattr(before, right) != getattr(role, right):
                    yield f"role {role.name!r} has one {right} in scene {scene.name!r} and another before"


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
