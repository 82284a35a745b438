"""Everything that can be wrong is found before a sandbox starts: the plan of one rollout, or all of its problems.

Resolving a plan reads the task, looks up the agents and their credentials and asks the backend what it can do. It
starts nothing.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import Credentials, read_dotenv, resolve_credentials
from benchflow.agent.launch import check_launch
from benchflow.errors import BenchflowError, ConfigError
from benchflow.gateway.account import account_of
from benchflow.rollout.oracle import check_solution
from benchflow.rollout.scene import Role, compile_steps
from benchflow.rollout.sidecars import Sidecars
from benchflow.rollout.skills import Skills
from benchflow.rollout.user import check_user
from benchflow.rollout.world import agent_network, sandbox_spec
from benchflow.sandbox.registry import choose_backend
from benchflow.task.env import check_variables
from benchflow.task.load import load_task
from benchflow.task.needs import required_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from benchflow.agent.spec import AgentSpec
    from benchflow.gateway.account import Account
    from benchflow.gateway.upstream import Substitute
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.scene import Step as Turn
    from benchflow.sandbox.base import Backend, Capabilities
    from benchflow.task.needs import Need
    from benchflow.task.task import Step, Task

type Casting = Callable[[Role, Mapping[str, str]], Player]
"""Who plays a role, given the variables of `.env`. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class Player:
    """A role with the agent that plays it: who, on whose account, and whether it can be reached through the gateway.

    A `substitute` answers in the place of the provider, until it is finished.
    """

    role: Role
    spec: AgentSpec
    credentials: Credentials
    through_gateway: bool = False
    substitute: Substitute | None = None


@dataclass(frozen=True, slots=True)
class Act:
    """One scored part of a task: the whole of it, or one of its steps."""

    name: str
    step: Step | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What will run. `environ` is the host's environment with `.env` below it, for templates and credentials.

    `digest` is that of the task's content, where it is known already.
    """

    task: Task
    backend: Backend
    backend_reason: str
    capabilities: Capabilities
    players: Mapping[Role, Player]
    acts: tuple[Act, ...]
    environ: Mapping[str, str]
    digest: str = ""


class CannotRun(ConfigError):
    """Several things keep a rollout from running; `problems` holds each."""

    def __init__(self, message: str, problems: Iterable[BenchflowError]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


async def make_plan(config: RolloutConfig, *, cast: Casting | None = None) -> Plan:
    """Resolve everything. Raises TaskError when the task cannot be read, ConfigError with every other problem.

    `cast` says who plays a role, given the variables of `.env`; by default `cast_role`.
    """
    cast = cast or cast_role
    task = load_task(config.task_path)
    problems: list[BenchflowError] = []

    def attempt[T](resolve: Callable[[], T]) -> T | None:
        try:
            return resolve()
        except BenchflowError as error:
            problems.append(error)
            return None

    dotenv = attempt(lambda: read_dotenv(Path.cwd())) or {}
    environ = {**dotenv, **os.environ}
    acts = attempt(lambda: _acts(task, config)) or ()
    attempt(lambda: check_user(config, task))
    attempt(lambda: _check_lockdown(config))
    attempt(lambda: _check_sandbox_user(config))
    problems += _no_time(config)
    players = {
        role: player
        for role in _acting(acts, config)
        if (player := attempt(lambda role=role: _played(role, config, cast, dotenv)))  # type: ignore[misc]
    }
    if any(role.oracle_access or player.spec.name == "oracle" for role, player in players.items()):
        attempt(lambda: check_solution(task))
    kinds = {player.spec.name if player.spec.kind == "builtin" else "agent" for player in players.values()}
    attempt(lambda: check_variables(task.config, environ, solution="oracle" in kinds, agent="agent" in kinds))
    attempt(lambda: Sidecars(config, task, environ))
    attempt(lambda: Skills(config, task, players.values(), environ))
    attempt(lambda: sandbox_spec(task, name="plan", job="", environ=environ))
    try:
        backend, reason = await choose_backend(config.environment)
        capabilities = await backend.check()
        problems += _unsupported(task, capabilities, backend.name)
        problems += _unprotected(config, capabilities, backend.name)
        problems += _unforkable(config, capabilities, backend.name)
    except BenchflowError as error:
        problems.append(error)
        backend = None
    problems += _unreachable(task, players.values())
    problems += uncounted(players.values(), {"max_cost": config.max_cost, "max_tokens": config.max_tokens})
    if problems or backend is None:
        raise _all_at_once(task, problems)
    return Plan(task, backend, reason, capabilities, players, acts, environ)


def _acts(task: Task, config: RolloutConfig) -> tuple[Act, ...]:
    prefix, scenes = task.config.agent.prompt_prefix, config.played_scenes
    if not task.steps:
        return (Act(task.short_name, None, tuple(compile_steps(scenes, _prompt(prefix, task.instruction)))),)
    return tuple(
        Act(step.name, step, tuple(compile_steps(scenes, _prompt(prefix, step.instruction)))) for step in task.steps
    )


def _acting(acts: tuple[Act, ...], config: RolloutConfig) -> list[Role]:
    """Everyone who has a turn; where the turns cannot be told, everyone, so that what else is wrong is found too."""
    acting = [turn.role for act in acts for turn in act.turns]
    return list(dict.fromkeys(acting or (role for scene in config.scenes for role in scene.roles)))


def _prompt(prefix: str | None, instruction: str) -> str:
    return f"{prefix}\n\n{instruction}" if prefix else instruction


def _played(role: Role, config: RolloutConfig, cast: Casting, dotenv: Mapping[str, str]) -> Player:
    """The role's player; variables that the config gives to agents may hold its key."""
    known = replace(role, env={**config.agent_env, **role.env})
    return replace(cast(known, dotenv), role=role)


def cast_role(role: Role, dotenv: Mapping[str, str]) -> Player:
    """The agent that a role names, on the account that its model asks for. Raises ConfigError."""
    spec = get_agent(role.agent)
    if spec.kind == "builtin":
        return Player(role, spec, Credentials())
    credentials = resolve_credentials(spec, role.model, {**os.environ, **role.env}, Path.home(), dotenv)
    through_gateway = _through_gateway(spec, credentials, role.model)
    check_launch(spec, role.model, endpoint=through_gateway)
    return Player(role, spec, credentials, through_gateway)


def account_for(player: Player, allowed: Sequence[str] = ()) -> Account | None:
    """The account that a player's requests are sent on; None when they do not go through the gateway.

    A player with a model may ask for that one and for those that match `allowed`; one without, for any.
    """
    if player.spec.dialect is None or not player.through_gateway:
        return None
    return account_of(player.credentials, player.role.model, allowed=allowed)


def _through_gateway(spec: AgentSpec, found: Credentials, model: str | None) -> bool:
    """Whether the agent is pointed at the gateway. Raises ConfigError when it could reach its model in no way."""
    account = account_of(found, model)
    if account is None or spec.dialect is None:
        return False
    # A gateway takes long to load, and a rollout that asks no model needs none.
    from benchflow.gateway.litellm_bridge.translator import LiteLLMTranslator

    if spec.dialect in account.dialects or not (missing := LiteLLMTranslator().missing(account)):
        return True
    if found.provider in spec.native.providers:
        return False
    spoken = " and ".join(account.dialects) or "a protocol of its own"
    raise ConfigError(
        f"agent {spec.name} speaks {spec.dialect}, but the provider {found.provider} speaks {spoken}", hint=missing
    )


_NEVER = {"windows", "tpu", "compose", "llm-judge", "prior-context", "memory-score"}
"""What a task may ask for and this release cannot do yet, on any backend."""


def _unsupported(task: Task, has: Capabilities, backend: str) -> list[BenchflowError]:
    """What the task needs and this backend, or this release, lacks. Limits it cannot enforce are noted instead."""
    faults: list[BenchflowError] = []
    for need in required_capabilities(task):
        lacking = (
            need.capability in _NEVER
            or (need.capability == "gpu" and not has.gpus)
            or (need.capability in ("no-network", "allowlist") and need.capability not in has.network)
            or (need.capability == "network-change" and _changes_between_turns(need))
        )
        if lacking:
            who = "this release" if need.capability in _NEVER else f"the {backend} sandbox"
            faults.append(ConfigError(f"{task.path}: {who} cannot do what the task needs: {need}"))
    return faults


def _unprotected(config: RolloutConfig, has: Capabilities, backend: str) -> list[BenchflowError]:
    """A role may only read the solution where others can be kept from it."""
    if config.sandbox_user is not None and has.users:
        return []
    why = "sandbox_user is root" if config.sandbox_user is None else f"the {backend} sandbox has one user only"
    named = {role.name: None for scene in config.scenes for role in scene.roles if role.oracle_access}
    return [
        ConfigError(f"role {name!r}: oracle_access would show the solution to every role, because {why}")
        for name in named
    ]


def _check_lockdown(config: RolloutConfig) -> None:
    paths: object = config.lockdown_paths
    listed = list(paths) if isinstance(paths, list | tuple) else [None]
    if not all(isinstance(path, str) and path.startswith("/") and path.strip("/") for path in listed):
        raise ConfigError(f"lockdown_paths is {paths!r}; a list of absolute paths is expected")


_USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
"""What every image takes as the name of a user."""


def _check_sandbox_user(config: RolloutConfig) -> None:
    name: object = config.sandbox_user
    if name is not None and not (isinstance(name, str) and _USER_NAME.fullmatch(name)):
        raise ConfigError(f"sandbox_user is {name!r}; the name of a user is expected, such as 'agent'")


def _no_time(config: RolloutConfig) -> list[BenchflowError]:
    """Times in which nothing can be done."""
    times = {name: getattr(config, name) for name in ("agent_timeout", "agent_idle_timeout", "sandbox_setup_timeout")}
    return [
        ConfigError(f"{name} is {value!r}; a number of seconds above 0 is expected")
        for name, value in times.items()
        if value is not None and not (isinstance(value, int | float) and value > 0)
    ]


def _changes_between_turns(need: Need) -> bool:
    """Whether a network policy would have to change in a living sandbox: an agent's, from one step to the next."""
    return need.where.startswith("steps") and ".agent." in need.where


def _unforkable(config: RolloutConfig, has: Capabilities, backend: str) -> list[BenchflowError]:
    """What keeps the branches that the scenes ask for from being made."""
    faults: list[BenchflowError] = []
    if config.branch_concurrency < 1:
        faults.append(ConfigError(f"branch_concurrency is {config.branch_concurrency!r}; 1 or more is expected"))
    if not has.fork and any(turn.best_of != 1 for scene in config.scenes for turn in scene.turns):
        faults.append(ConfigError(f"best_of: the {backend} sandbox cannot be forked", hint="use docker or local"))
    return faults


def _unreachable(task: Task, players: Iterable[Player]) -> list[BenchflowError]:
    """An agent in a task without network reaches a model through the gateway or not at all."""
    if agent_network(task).mode == "public":
        return []
    return [
        ConfigError(
            f"{task.path}: the task gives its agent no network, so {player.spec.name} cannot reach its model"
            f" at {player.credentials.provider}",
            hint="give it a key instead of a login, so that the gateway can carry its requests",
        )
        for player in players
        if player.spec.kind != "builtin" and player.credentials.provider and not player.through_gateway
    ]


def uncounted(players: Iterable[Player], limits: Mapping[str, float | None]) -> list[BenchflowError]:
    """What agents use is limited only where their requests go through the gateway, which counts it."""
    asked = " and ".join(name for name, limit in limits.items() if limit is not None)
    return [
        ConfigError(
            f"{asked} cannot be kept: {player.spec.name} reaches {player.credentials.provider} by itself",
            hint="give it a key instead of a login, or leave the limit out",
        )
        for player in players
        if asked and player.spec.kind != "builtin" and player.credentials.provider and not player.through_gateway
    ]


def _all_at_once(task: Task, problems: list[BenchflowError]) -> BenchflowError:
    if len(problems) == 1:
        return problems[0]
    return CannotRun(f"{task.path} cannot run:\n" + "\n".join(f"- {problem}" for problem in problems), problems)
