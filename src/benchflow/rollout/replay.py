"""A finished rollout, run again: the same agents on the same task in a fresh sandbox, with the recorded answers.

No provider is asked and no key is needed. The first request that differs in substance from what was recorded ends the
agents' turns, with the difference as the result's error. From a turn on, a live model can go on instead.

    recording = read_recording(folder)
    again = await replay(recording)
    again.rollout.rewards == recording.rewards
"""

# ruff: noqa: A002 - `round` is what users call it
from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import Credentials
from benchflow.errors import ConfigError
from benchflow.gateway.ledger import read_exchanges
from benchflow.gateway.replay import Replayer
from benchflow.rollout.lifecycle import Rollout
from benchflow.rollout.plan import Player, cast_role, make_plan
from benchflow.rollout.recipe import config_of
from benchflow.rollout.user import BaseUser
from benchflow.sandbox.registry import backends_in_use
from benchflow.task.digest import task_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.record import Observer
    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.scene import Role, Scene
    from benchflow.rollout.user import RoundResult

LEDGER = "trajectory/llm_trajectory.jsonl"


@dataclass(frozen=True, slots=True)
class Said(BaseUser):
    """A user who says what was said when it was recorded, and then stops."""

    prompts: Sequence[str]

    async def run(self, round: int, instruction: str, round_result: RoundResult | None = None) -> str | None:  # noqa: ARG002
        return self.prompts[round] if round < len(self.prompts) else None


@dataclass(frozen=True, slots=True)
class Recording:
    """A rollout's folder, read. `versions` and `providers` are those of its roles' agents, by the role's name."""

    folder: Path
    config: RolloutConfig
    task_digest: str
    versions: Mapping[str, str]
    providers: Mapping[str, str]
    rewards: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """What came out. `difference` is how the first request that differs does so; None when none did.

    `unused` recorded answers were not asked for; `provider_requests` is how often a live model was asked.
    """

    rollout: RolloutResult
    difference: str | None
    unused: int
    provider_requests: int


def read_recording(
    folder: Path, *, environ: Mapping[str, str] | None = None, given: Mapping[str, Any] | None = None
) -> Recording:
    """The rollout in `folder`, with the values of its agents' variables from `environ` (default: the process's).

    `given` settings replace recorded ones. A user in Python is stood in for by what it said. Raises ConfigError when it
    is no rollout that can be run again.
    """
    config, result = _document(folder / "config.json"), _document(folder / "result.json", optional=True)
    where = str(folder / "config.json")
    try:
        players, digest = config["players"], str(config["task_digest"])
        versions = {name: str(player["version"]) for name, player in players.items()}
        providers = {name: str(player["provider"]) for name, player in players.items()}
    except (KeyError, TypeError, AttributeError):
        raise ConfigError(f"{where}: it does not say what is needed to run it again") from None
    environ = os.environ if environ is None else environ
    if config.get("user") and not result.get("steps"):
        given = {"user": _said(folder / "prompts.json"), **(given or {})}
    return Recording(
        folder.absolute(),
        config_of(config, environ, where, given),
        digest,
        versions,
        providers,
        result.get("rewards"),
    )


async def replay(
    recording: Recording,
    *,
    from_turn: int | None = None,
    model: str | None = None,
    changed_task: bool = False,
    jobs_dir: Path | None = None,
    job_name: str | None = None,
    observer: Observer | None = None,
) -> Replay:
    """Run it again. With `from_turn` the turns before that one are replayed and then a live model goes on, `model` or
    the recorded one; a turn is one answer of the model to a request that offers tools.

    Raises ConfigError or TaskError when it cannot be planned, or when the task has changed and `changed_task` does not
    allow it; whatever happens later is in the result.
    """
    _check_task(recording, changed_task)
    if model and from_turn is None:
        raise ConfigError("recorded answers are those of the recorded model", hint="say from which turn: --from-turn N")
    scenes = [_with_model(scene, model) for scene in recording.config.scenes] if model else recording.config.scenes
    other_model = list(scenes) != list(recording.config.scenes)
    turns = None if from_turn is None else from_turn - 1
    replayer = Replayer.from_file(recording.folder / LEDGER, turns=turns, other_model=other_model)
    if turns is not None and not 0 <= turns <= replayer.n_turns:
        raise ConfigError(f"{recording.folder}: it has {replayer.n_turns} turns, so it cannot go on from {from_turn}")
    labels: dict[str, str | int] = {"replay_of": str(recording.folder)}
    if from_turn is not None:
        labels["from_turn"] = from_turn
    config = replace(
        recording.config,
        scenes=scenes,
        labels=labels,
        jobs_dir=jobs_dir or recording.config.jobs_dir,
        job_name=job_name,
    )
    async with backends_in_use():
        result = await _run(config, _Replayed(recording, replayer, live=turns is not None), observer)
    asked = [one for one in read_exchanges(result.rollout_dir / LEDGER) if not one.get("replayed")]
    return Replay(result, replayer.difference, replayer.unused, sum(one.get("ended") != "refused" for one in asked))


async def _run(config: RolloutConfig, cast: _Replayed, observer: Observer | None) -> RolloutResult:
    plan = await make_plan(config, cast=cast)
    if not plan.capabilities.listen:
        raise ConfigError(f"the {plan.backend.name} sandbox cannot be listened in, so nothing can be replayed in it")
    return await Rollout(config, plan=plan, observer=observer).run()


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Who plays a role in a replay: the agent at its recorded version, with the recording as its provider."""

    recording: Recording
    replayer: Replayer
    live: bool

    def __call__(self, role: Role, dotenv: Mapping[str, str]) -> Player:
        player = cast_role(role, dotenv) if self.live else self._recorded(role)
        if player.spec.kind == "builtin":
            return player
        if not player.through_gateway:
            raise ConfigError(f"agent {player.spec.name} is not reached through the gateway, so it cannot be replayed")
        version = self.recording.versions.get(role.name, "")
        moved = version and player.spec.install.packages and player.spec.version != version
        spec = player.spec.at_version(version) if moved else player.spec
        return replace(player, spec=spec, substitute=self.replayer)

    def _recorded(self, role: Role) -> Player:
        """A role on an account that nobody has: its key opens nothing, and its address is nowhere."""
        spec = get_agent(role.agent)
        if spec.kind == "builtin" or spec.dialect is None:
            return Player(role, spec, Credentials())
        nobody = Credentials(
            provider=self.recording.providers.get(role.name, ""),
            source="the recording",
            api_key=SecretStr(secrets.token_urlsafe(32)),
            base_url="http://recording.invalid",
            dialects=(spec.dialect,),
        )
        return Player(role, spec, nobody, through_gateway=True)


def _check_task(recording: Recording, changed_task: bool) -> None:
    path = recording.config.task_path
    if not path.is_dir():
        raise ConfigError(f"{path}: the task is not there any more", hint="say where it is: --task FOLDER")
    if not changed_task and (now := task_digest(path)) != recording.task_digest:
        raise ConfigError(
            f"{path}: the task has changed since then:\n  recorded: {recording.task_digest}\n  now:      {now}",
            hint="restore it, or replay on the task as it is with --changed-task",
        )


def _with_model(scene: Scene, model: str) -> Scene:
    roles: Sequence[Role] = [
        role if get_agent(role.agent).kind == "builtin" else replace(role, model=model) for role in scene.roles
    ]
    return replace(scene, roles=roles)


def _said(path: Path) -> Said:
    """Raises ConfigError when the prompts are not there."""
    try:
        return Said([str(one["prompt"]) for one in json.loads(path.read_bytes()) if one.get("source") == "user"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def _document(path: Path, *, optional: bool = False) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        if optional:
            return {}
        raise ConfigError(f"{path.parent}: not the folder of a rollout: it has no {path.name}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: is not an object")
    return document
