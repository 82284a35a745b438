"""How the turns of a rollout are performed: who is spoken to, what is said, and in how much time.

The lifecycle names the phases; this is what happens between `install_agent` and `verify`. A scene ends with every
process gone.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchflow.errors import AgentTimeout, ConfigError
from benchflow.rollout.branch import prefaces
from benchflow.rollout.mail import Part, joined
from benchflow.rollout.oracle import run_oracle
from benchflow.rollout.rounds import play_rounds
from benchflow.rollout.scenes import play_scenes
from benchflow.rollout.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.location import Location
    from benchflow.rollout.plan import Act, Plan, Player
    from benchflow.rollout.record import Record
    from benchflow.rollout.scene import Role, Step
    from benchflow.rollout.stage import Stage
    from benchflow.trajectory.events import Event
    from benchflow.verify.base import VerifyResult


@dataclass(frozen=True, slots=True)
class Setting:
    """What performing needs of a rollout."""

    config: RolloutConfig
    plan: Plan
    record: Record
    location: Location
    soft_verify: Callable[[], Awaitable[VerifyResult]]
    best_of: Callable[[Step, str, str], Awaitable[None]]


class Play:
    """Performs turns in one sandbox. The agents' time passes in their turns alone, not in what is done between."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._player: Player | None = None
        self._watch = Watch(setting.location.wire, setting.config.agent_working_timeout)
        given = setting.config.agent_timeout
        self.time_left = (setting.plan.task.config.agent.timeout_sec or None) if given is None else given
        """Seconds that are left for all turns together; None when there is no limit."""
        self._past: Sequence[Event] = ()
        self._since = 0
        self._prefaces: dict[str, str] = {}

    async def perform(self, act: Act) -> None:
        """All turns of an act, or all rounds of its user.

        Raises AgentError, ModelError or UserError when an agent, its model or the user fails.
        """
        if driver := self._setting.config.driver:
            await play_rounds(*driver, self, self._setting, act)
            return
        await play_scenes(self, self._setting, act)

    async def turn(self, act: Act, turn: Step, prompt: str, source: str) -> None:
        """One turn with that prompt: played once, or the best of several. Raises AgentError or ModelError."""
        if turn.best_of > 1:
            await self._setting.best_of(turn, prompt, source)
        else:
            await self.take(turn.role)
            await self.say(act, prompt, source=source)

    @property
    def memory(self) -> list[Event]:
        """The events that the sessions of now remember."""
        return [*self._past, *self._setting.record.events()[self._since :]]

    def recall(self, memory: Sequence[Event]) -> None:
        """Tell these events to each role before it is spoken to, because its session is a new one."""
        self._past = memory
        self._prefaces = prefaces(memory, (player.role.name for player in self._setting.plan.players.values()))

    def forget(self) -> None:
        """The sessions have ended: the next ones remember nothing."""
        self._past, self._since, self._prefaces = (), len(self._setting.record.events()), {}

    @property
    def role(self) -> Role | None:
        """Who is spoken to."""
        return self._player.role if self._player else None

    @property
    def working_left(self) -> float | None:
        """Seconds of their own that the agents have left; None when there is no limit."""
        limit = self._setting.config.agent_working_timeout
        return None if limit is None else max(0.0, limit - self._watch.working_seconds)

    def become(self, other: Play) -> None:
        """Go on where `other` stands: in its sandbox, with its sessions and the time that it has left."""
        self._setting = replace(self._setting, location=other._setting.location)
        self._player, self._watch, self.time_left = other._player, other._watch, other.time_left
        self._prefaces = other._prefaces

    async def take(self, role: Role | str) -> None:
        """Make `role` the one that `say` speaks to, opening its session if it has none in this scene."""
        players = self._setting.plan.players
        named = {player.role.name: player for player in players.values()}
        player = named.get(role) if isinstance(role, str) else players.get(role)
        if player is None:
            raise ConfigError(f"there is no role {role!r}; the roles are: {', '.join(named)}")
        self._player = player
        if self._player.spec.kind != "builtin":
            with self._setting.record.phase("agent_setup"):
                await self._stage.session(self._player)

    async def say(self, act: Act, prompt: str, *, source: str = "scene") -> None:
        """One prompt to the role that was taken, until it ends its turn; `source` is who says it.

        Raises AgentError or ModelError.
        """
        if self._player is None:
            raise ConfigError("execute was called before connect")
        if self.time_left is not None and self.time_left <= 0:
            raise AgentTimeout("the agent's time was over before its turn began")
        role = self._player.role
        told = self._prefaces.pop(role.name, None)
        nudge = self._setting.location.skills.preface(role) if source == "instruction" else ""
        before = [Part(kind, text) for kind, text in (("transcript", told), ("skills", nudge)) if text]
        async with self._setting.location.backstage.turn(act, role, prompt, source) as around:
            parts = [*before, *around]
            prompt = joined(parts)
            self._setting.record.prompted(role, prompt, source, [part.to_json() for part in parts])
            clock = asyncio.get_running_loop().time
            began = clock()
            try:
                with self._setting.record.phase("agent_execution"):
                    await self._turn(self._player, act, prompt)
            finally:
                if self.time_left is not None:
                    self.time_left -= clock() - began

    async def end_scene(self) -> None:
        """End every process; only files remain."""
        location = self._setting.location
        if location.stage:
            await location.stage.clear()
        self.forget()
        await location.sandbox.kill_processes(keep=await location.sidecars.pids(location.sandbox))

    async def _turn(self, player: Player, act: Act, prompt: str) -> None:
        setting, location = self._setting, self._setting.location
        left = min((limit for limit in (self.time_left, player.role.timeout) if limit is not None), default=None)
        if player.spec.name == "nop":
            return
        if player.spec.name == "oracle":
            async with location.backstage.hidden_solution() if location.stage else nullcontext():
                await run_oracle(
                    location.sandbox,
                    setting.plan.task,
                    act.step,
                    environ=setting.plan.environ,
                    env=setting.config.agent_env,
                    timeout=left,
                    on_event=setting.record.event,
                    log=lambda text: setting.record.agent_log("oracle", text),
                )
            return
        session = await self._stage.session(player)
        try:
            idle = setting.config.agent_idle_timeout
            ended = await self._watch.prompt(session, prompt, timeout=left, idle_timeout=idle)
        finally:
            setting.record.metered(location.wire.usage if location.wire else None)
        setting.record.used(ended.usage)

    @property
    def _stage(self) -> Stage:
        stage = self._setting.location.stage
        assert stage, "a rollout with an agent has a stage"
        return stage
