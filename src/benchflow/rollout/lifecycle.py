"""One rollout, phase by phase. Each phase can be called alone, in this order; `run` calls them all.

    setup, start, install_agent, connect | connect_as(role), execute(prompts), disconnect, verify, cleanup

`run` always returns a result: an error is written into it, with the boundary it happened at. `cleanup` runs whatever
happened, also when the rollout is cancelled, and leaves no sandbox. `result.json` is written last.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from benchflow.errors import AgentError, BudgetSpent, UserError
from benchflow.rollout.branch import outcome, starts
from benchflow.rollout.forking import branch_off, play_best
from benchflow.rollout.furnish import prepare_act
from benchflow.rollout.keep import FOLDER as KEPT
from benchflow.rollout.location import Location, known
from benchflow.rollout.merge import gate_passed, merge_rewards
from benchflow.rollout.plan import Plan, make_plan
from benchflow.rollout.play import Play, Setting
from benchflow.rollout.record import Record
from benchflow.rollout.score import Scorer
from benchflow.rollout.sidecars import Sidecars
from benchflow.rollout.skills import Skills
from benchflow.rollout.world import unenforced
from benchflow.sandbox.base import Owner
from benchflow.settle import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.gateway.server import Gateway
    from benchflow.rollout.account import Account
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Act
    from benchflow.rollout.record import Observer
    from benchflow.rollout.result import RolloutResult
    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.base import VerifyResult


class Rollout:
    """One run of one config. Not reusable. Without a `gateway` of its job it opens its own."""

    def __init__(
        self,
        config: RolloutConfig,
        *,
        plan: Plan | None = None,
        observer: Observer | None = None,
        gateway: Gateway | None = None,
    ) -> None:
        self.config = config
        self._gateway = gateway
        self._plan = plan
        self._observer = observer
        self._record: Record | None = None
        self._location: Location | None = None
        self._act: Act | None = None
        self._play: Play | None = None
        self._branches: list[Rollout] = []
        self._entry: dict[str, Any] = {}

    @classmethod
    async def create(cls, config: RolloutConfig) -> Self:
        """A rollout of `config`; nothing has happened yet."""
        return cls(config)

    # -- the phases ------------------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Resolve everything, make the rollout's folder and the agents' bundles. Raises ConfigError or TaskError."""
        self._plan = plan = self._plan or await make_plan(self.config)
        self._act = plan.acts[0]
        sidecars = Sidecars(self.config, plan.task, plan.environ)
        skills = Skills(self.config, plan.task, plan.players.values(), plan.environ)
        self._record = Record(self.config, plan, self._observer)
        self._location = Location(self.config, plan, self._record, sidecars, skills, gateway=self._gateway)
        for remark in unenforced(plan.task.config.environment, plan.capabilities):
            self._record.note(remark)
        with self.record.phase("agent_setup"):
            await self._location.make_bundles()

    async def start(self) -> None:
        """Start the sandbox and wait until it is healthy; run the task's own set-up and the config's hooks."""
        with self.record.phase("environment_setup"):
            await self.location.open()

    async def install_agent(self) -> None:
        """Make the sandbox user with its small home; the agents themselves are mounted already."""
        with self.record.phase("agent_setup"):
            await self.location.settle()
            best_of = partial(play_best, self)
            setting = Setting(self.config, self.plan, self.record, self.location, self.soft_verify, best_of)
            self._play = Play(setting)

    async def connect(self) -> None:
        """Open the session of the first role."""
        await self.connect_as(self._current_act.turns[0].role.name)

    async def connect_as(self, role: str) -> None:
        """Make `role` the one that `execute` speaks to, opening its session if it has none in this scene."""
        await self.play.take(role)

    async def execute(self, prompts: Sequence[str | None]) -> None:
        """Send prompts one after the other in the role's session; None is the task's instruction.

        Raises AgentTimeout, AgentGone or ACPError; what happened until then is in the trajectory.
        """
        for prompt in prompts:
            text = self._current_act.turns[0].prompt if prompt is None else prompt
            await self.play.say(self._current_act, text)

    async def disconnect(self) -> None:
        """End every agent process. What they wrote to disk is all that remains."""
        if self._location and self._location.stage:
            await self._location.stage.clear(spare_children=True)
            self.play.forget()

    async def verify(self) -> VerifyResult:
        """Score what the agents left, as the final score of the act. Raises VerifierError or SandboxError."""
        folder = self.record.act_folder(self._current_act)
        if self.config.keep_workspace:
            await self.location.keep(folder / KEPT)
        with self.record.phase("verifier"):
            result, remarks = await self._scorer.final(self._current_act, folder, self.record.events())
            if self.location.stage:
                await self.location.stage.release()
            self._scored(result, remarks)
            return result

    async def soft_verify(self) -> VerifyResult:
        """The same verification on a fork of the present state; the agents notice nothing."""
        with self.record.phase("verifier"):
            folder, events = self.record.scratch_folder(), self.record.events()
            return await self._scorer.soft(self._current_act, folder, events)

    async def cleanup(self) -> None:
        """Leave no process and no sandbox, and write the result. Idempotent; what fails here is noted, not raised."""
        try:
            for branch in self._branches:
                await branch.cleanup()
        finally:
            if self._location:
                await self._location.close()
        if self._record is not None:
            await asyncio.to_thread(self._record.finish)  # it waits for the disk
            self._entry |= outcome(self._record.result) if self._entry else {}

    async def fork(
        self, n: int | None = None, *, prompts: Sequence[str | None] | None = None, models: Sequence[str] | None = None
    ) -> list[Self]:
        """Rollouts that go on from here, each in a fork of the sandbox: n alike, or one for each prompt or model.

        Each is where `install_agent` leaves one: its `run` says its prompt (None is the task's instruction) to the
        role that was spoken to last and scores it, and its phases can be called from `connect` on. They end with this
        rollout at the latest, whose result lists them. Raises ConfigError for numbers that do not fit and a model that
        cannot be reached, SandboxError when the sandbox cannot be forked.
        """
        first = self._current_act.turns[0]
        asked = starts(first, self.play.role or first.role, n, prompts, models)
        return [await branch_off(self, start) for start in asked]

    async def run(self) -> RolloutResult:
        """All phases. Returns a result whatever happened, except that cancellation is passed on after clean-up.

        Raises ConfigError or TaskError when the rollout cannot even be planned: then there is nothing to write.
        """
        try:
            if self._play is None:
                await self.setup()
                await self.start()
                await self.install_agent()
            await self._perform_acts()
        except BaseException as error:
            # Becomes the result's error, attributed to its boundary; without a record there is nothing to write.
            if self._record is None:
                raise
            self._record.failed(error)
            if not isinstance(error, Exception):
                raise
        finally:
            if self._record is not None:
                await finished(self.cleanup())
        return self.record.result

    # -- how they are done -----------------------------------------------------------------------------------

    async def _perform_acts(self) -> None:
        for act in self.plan.acts:
            self._act = act
            if not self._entry:
                await prepare_act(self.sandbox, self.plan.task, act, owner=self.account.user)
            try:
                await self.play.perform(act)
            except (AgentError, BudgetSpent, UserError) as error:
                # An agent that failed, or ran out of time or money, is scored as it stands; so is a failed user's. One
                # whose model does not answer was not measured.
                self.record.failed(error)
            await self.disconnect()
            result = await self.verify()
            if not gate_passed(act, result.rewards) and act is not self.plan.acts[-1]:
                self.record.note(f"step {act.name}: below min_reward; later steps were not run")
                break

    def _scored(self, result: VerifyResult, remarks: Sequence[str]) -> None:
        self.record.scored(self._current_act, result, remarks)
        strategy = self.plan.task.config.multi_step_reward_strategy
        self.record.result.rewards = merge_rewards(strategy, self.record.act_rewards)

    @property
    def _scorer(self) -> Scorer:
        trusted = all(player.spec.kind == "builtin" for player in self.plan.players.values())
        owner = Owner(self.record.job, self.record.folder.name)
        return Scorer(
            self.plan,
            self.sandbox,
            self.account,
            owner,
            trusted,
            self.location.sidecars,
            self.config.rubric,
            self.config.fresh_verifier,
        )

    @property
    def _current_act(self) -> Act:
        return known(self._act, "setup")

    @property
    def plan(self) -> Plan:
        return known(self._plan, "setup")

    @property
    def record(self) -> Record:
        return known(self._record, "setup")

    @property
    def location(self) -> Location:
        return known(self._location, "setup")

    @property
    def sandbox(self) -> Sandbox:
        return self.location.sandbox

    @property
    def account(self) -> Account:
        """Whose the workspace is."""
        return self.location.cast.owner

    @property
    def play(self) -> Play:
        return known(self._play, "install_agent")
