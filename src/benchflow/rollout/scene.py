"""Scenes, roles and turns: how a rollout is declared, and the explicit steps it compiles to.

A rollout is a list of scenes in one sandbox. Within a scene a role keeps its process and its session across its
turns, also when others act in between; between scenes every agent process is gone, and only files remain. A scene may
repeat its turns until something is true (see `stop`). In a scene with several roles they write to each other through
an outbox (see `outbox`), and each is a Unix user of its own (see `cast`).

`compile_steps` is a pure function, so that a plan can be printed before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchflow.rollout.scene_check import refuse
from benchflow.rollout.stop import describe_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.rollout.stop import StopWhen


@dataclass(frozen=True, slots=True)
class Role:
    """Who acts: a name within the scene, the agent that plays it and its model (None: the agent's own default).

    `access` "read" lets it write nothing in the workspace but its outbox. `oracle_access` lets it, and nobody else,
    read /solution. `reads_trajectory` names roles of its scene whose events so far it finds, before each of its turns,
    in /logs/trajectories/<its own name>/<their name>.jsonl. `timeout` is seconds for each of its turns. `skills_dir`
    holds its skills, instead of the rollout's.
    """

    name: str
    agent: str
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    access: Literal["read", "write"] = field(default="write", kw_only=True)
    oracle_access: bool = field(default=False, kw_only=True)
    reads_trajectory: Sequence[str] = field(default=(), kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)
    skills_dir: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.reads_trajectory, str):
            object.__setattr__(self, "reads_trajectory", tuple(self.reads_trajectory))
        if self.skills_dir is not None:
            object.__setattr__(self, "skills_dir", Path(self.skills_dir))


@dataclass(frozen=True, slots=True)
class Turn:
    """One prompt to one role. A prompt of None is the task's instruction.

    `again` is said instead where the scene repeats; None says the same again. `best_of` plays the turn so many times,
    each on a fork, and goes on with the best.
    """

    role: str
    prompt: str | None = None
    again: str | None = field(default=None, kw_only=True)
    best_of: int = field(default=1, kw_only=True)


@dataclass(frozen=True, slots=True)
class Scene:
    """One region of interaction: its roles take the turns in the order given, up to `max_rounds` times.

    `stop_when` ends it before (see `stop`). `verify_rounds` scores every round on a fork and keeps the rewards.
    """

    roles: Sequence[Role]
    turns: Sequence[Turn]
    name: str = "main"
    max_rounds: int | None = field(default=None, kw_only=True)
    stop_when: StopWhen | None = field(default=None, kw_only=True)
    verify_rounds: bool = field(default=False, kw_only=True)

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

    @property
    def rounds(self) -> int:
        """How often the turns are taken at most."""
        return self.max_rounds or 1


@dataclass(frozen=True, slots=True)
class Step:
    """One prompt to one role, fully explicit. `opens_session` marks the first turn of a role in its scene.

    `closes_round` marks the last turn of a round. `source` says where the prompt comes from: the task's instruction or
    the scene. `until` is what ends the scene before its last round.
    """

    scene: str
    role: Role
    prompt: str
    opens_session: bool
    round: int = 1
    closes_round: bool = True
    source: Literal["instruction", "scene"] = "scene"
    best_of: int = 1
    until: str = ""


def compile_steps(scenes: Iterable[Scene], instruction: str) -> list[Step]:
    """The scenes as a flat list of steps, every round written out. Raises ConfigError with every mistake at once."""
    scenes = list(scenes)
    refuse(scenes)
    return [step for scene in scenes for step in _steps(scene, instruction)]


def _steps(scene: Scene, instruction: str) -> list[Step]:
    roles = {role.name: role for role in scene.roles}
    seen: set[str] = set()
    steps: list[Step] = []
    for number in range(1, scene.rounds + 1):
        for place, turn in enumerate(scene.turns, start=1):
            prompt = turn.prompt if number == 1 or turn.again is None else turn.again
            steps.append(
                Step(
                    scene.name,
                    roles[turn.role],
                    instruction if prompt is None else prompt,
                    opens_session=turn.role not in seen,
                    round=number,
                    closes_round=place == len(scene.turns),
                    source="instruction" if prompt is None else "scene",
                    best_of=turn.best_of,
                    until=describe_stop(scene.stop_when),
                )
            )
            seen.add(turn.role)
    return steps
