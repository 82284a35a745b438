"""Scenes, roles and turns: how a rollout is declared, and the explicit steps it compiles to.

A rollout is a list of scenes in one sandbox. Within a scene a role keeps its process and its session across its
turns; between scenes every agent process is gone, and only files remain. `compile_steps` is a pure function, so that
a plan can be printed before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Role:
    """Who acts: a name within the scene, the agent that plays it and its model (None: the agent's own default)."""

    name: str
    agent: str
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt to one role. A prompt of None is the task's instruction."""

    role: str
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """One region of interaction: its roles take the turns in the order given."""

    roles: Sequence[Role]
    turns: Sequence[Turn]
    name: str = "main"

    @classmethod
    def single(
        cls,
        agent: str,
        model: str | None = None,
        *,
        prompts: Sequence[str | None] = (None,),
        name: str = "main",
        role: str = "agent",
    ) -> Scene:
        """One role that gets the prompts one after the other in one session."""
        return cls(roles=[Role(role, agent, model)], turns=[Turn(role, prompt) for prompt in prompts], name=name)


@dataclass(frozen=True, slots=True)
class Step:
    """One prompt to one role, fully explicit. `opens_session` marks the first turn of a role in its scene."""

    scene: str
    role: Role
    prompt: str
    opens_session: bool
    closes_scene: bool


def compile_steps(scenes: Iterable[Scene], instruction: str) -> list[Step]:
    """The scenes as a flat list of steps. Raises ConfigError with every mistake at once."""
    scenes = list(scenes)
    if problems := _problems(scenes):
        raise ConfigError("scenes cannot run as written:\n" + "\n".join(f"  - {problem}" for problem in problems))
    steps: list[Step] = []
    for scene in scenes:
        roles = {role.name: role for role in scene.roles}
        seen: set[str] = set()
        for number, turn in enumerate(scene.turns, start=1):
            prompt = instruction if turn.prompt is None else turn.prompt
            steps.append(
                Step(
                    scene.name, roles[turn.role], prompt, turn.role not in seen, closes_scene=number == len(scene.turns)
                )
            )
            seen.add(turn.role)
    return steps


def _problems(scenes: Sequence[Scene]) -> list[str]:
    found = [] if scenes else ["there is no scene"]
    found += [f"two scenes are named {name!r}" for name in _twice(scene.name for scene in scenes)]
    for scene in scenes:
        names = [role.name for role in scene.roles]
        found += [f"scene {scene.name!r}: two roles are named {name!r}" for name in _twice(names)]
        if not scene.turns:
            found.append(f"scene {scene.name!r} has no turns")
        unknown = sorted({turn.role for turn in scene.turns} - set(names))
        known = ", ".join(names) or "none"
        found += [f"scene {scene.name!r}: a turn names the role {role!r}; its roles are: {known}" for role in unknown]
    return found


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
