"""One rollout, phase by phase. Each phase can be called alone, in this order; `run` calls them all.

    setup, start, install_agent, connect | connect_as(role), execute(prompts), disconnect, verify, cleanup

`run` always returns a result: an error is written into it, with the boundary it happened at. `cleanup` runs whatever
happened, also when the rollout is cancelled, and leaves no sandbox. `result.json` is written last.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from benchflow.agent.bundle import ensure_bundle
from benchflow.agent.platforms import host_platform, sandbox_platform
from benchflow.errors import AgentError, AgentTimeout, BenchflowError, ConfigError, ModelError, ModelRefused
from benchflow.rollout.account import make_account
from benchflow.rollout.health import wait_healthy
from benchflow.rollout.merge import gate_passed, merge_rewards
from benchflow.rollout.oracle import check_solution, run_oracle
from benchflow.rollout.plan import Plan, make_plan
from benchflow.rollout.record import Record
from benchflow.rollout.score import Scorer
from benchflow.rollout.world import furnish, sandbox_spec, unenforced
from benchflow.sandbox.base import Owner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.agent.bundle import Bundle
    from benchflow.rollout.account import Account
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Act, Player
    from benchflow.rollout.record import Observer
    from benchflow.rollout.result import RolloutResult
    from benchflow.rollout.stage import Stage
    from benchflow.rollout.wire import Wire
    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.base import VerifyResult


class Rollout:
    """One run of one config. Not reusable."""

    def __init__(self, config: RolloutConfig, *, plan: Plan | None = None, observer: Observer | None = None) -> None:
        self.config = config
        self._plan = plan
        self._observer = observer
        self._record: Record | None = None
        self._bundles: dict[str, Bundle] = {}
        self._sandbox: Sandbox | None = None
        self._account: Account | None = None
        self._stage: Stage | None = None
        self._wire: Wire | None = None
        self._player: Player | None = None
        self._act: Act | None = None
        self._deadline: float | None = None

    @classmethod
    async def create(cls, config: RolloutConfig) -> Self:
        """A rollout of `config`; nothing has happened yet."""
        return cls(config)

    # -- the phases ------------------------------------------------------------------------------------------

    async def setup(self) -> None:
        """Resolve everything, make the rollout's folder and the agents' bundles. Raises ConfigError or TaskError."""
        self._plan = self._plan or await make_plan(self.config)
        if any(player.spec.name == "oracle" for player in self._plan.players.values()):
            check_solution(self._plan.task)
        self._act = self._plan.acts[0]
        self._record = Record(self.config, self._plan, self._observer)
        for remark in unenforced(self._plan.task.config.environment, self._plan.capabilities):
            self._record.note(remark)
        with self.record.phase("agent_setup"):
            await self._make_bundles()

    async def start(self) -> None:
        """Start the sandbox and wait until it is healthy; run the task's own set-up and the config's hooks."""
        with self.record.phase("environment_setup"):
            await self._start_sandbox()
            if self._bundles and (found := await sandbox_platform(self.sandbox)) != host_platform():
                await self.sandbox.stop()
                await self._make_bundles(found)
                await self._start_sandbox()
            environment = self.plan.task.config.environment
            await furnish(self.sandbox, self.plan.task)
            for command in environment.setup_commands:
                await self._must(command.command, user=command.user, cwd=command.cwd, timeout=command.timeout_sec)
            if environment.healthcheck:
                await wait_healthy(self.sandbox, environment.healthcheck)
            for hook in self.config.pre_agent_hooks:
                await hook(self.sandbox)

    async def install_agent(self) -> None:
        """Make the sandbox user with its small home; the agents themselves are mounted already."""
        with self.record.phase("agent_setup"):
            specs = [player.spec for player in self.plan.players.values() if player.spec.kind != "builtin"]
            user = self.config.sandbox_user if specs else None
            if user and not self.plan.capabilities.users:
                user = None
                self.record.only_root()
            self._account = await make_account(
                self.sandbox,
                user,
                folders=[folder for spec in specs for folder in spec.home],
                timeout=self.config.sandbox_setup_timeout,
            )
            if specs:
                self._stage = await self._make_stage()
            limit = self.config.agent_timeout or self.plan.task.config.agent.timeout_sec
            self._deadline = asyncio.get_running_loop().time() + limit if limit else None

    async def connect(self) -> None:
        """Open the session of the first role."""
        await self.connect_as(self._current_act.turns[0].role.name)

    async def connect_as(self, role: str) -> None:
        """Make `role` the one that `execute` speaks to, opening its session if it has none in this scene."""
        known = {player.role.name: player for player in self.plan.players.values()}
        if role not in known:
            raise ConfigError(f"there is no role {role!r}; the roles are: {', '.join(known)}")
        self._player = known[role]
        if self._player.spec.kind != "builtin":
            with self.record.phase("agent_setup"):
                await self.stage.session(self._player)

    async def execute(self, prompts: Sequence[str | None]) -> None:
        """Send prompts one after the other in the role's session; None is the task's instruction.

        Raises AgentTimeout, AgentGone or ACPError; what happened until then is in the trajectory.
        """
        with self.record.phase("agent_execution"):
            for prompt in prompts:
                text = self._current_act.turns[0].prompt if prompt is None else prompt
                await self._turn(text)

    async def disconnect(self) -> None:
        """End every agent process. What they wrote to disk is all that remains."""
        if self._stage:
            await self._stage.clear(spare_children=True)

    async def verify(self) -> VerifyResult:
        """Score what the agents left, as the final score of the act. Raises VerifierError or SandboxError."""
        with self.record.phase("verifier"):
            folder = self.record.act_folder(self._current_act)
            result, remarks = await self._scorer.final(self._current_act, folder, self.record.events())
            if self._stage:
                await self._stage.release()
            self.record.scored(self._current_act, result, remarks)
            return result

    async def soft_verify(self) -> VerifyResult:
        """The same verification on a fork of the present state; the agents notice nothing."""
        with self.record.phase("verifier"):
            return await self._scorer.soft(self._current_act, self.record.scratch_folder(), self.record.events())

    async def cleanup(self) -> None:
        """Leave no process and no sandbox. Idempotent; what fails here is recorded and not raised."""
        try:
            if self._stage:
                with suppress(BenchflowError):
                    await self._stage.clear()
            if self._wire:
                await self._wire.close()
        finally:
            if self._sandbox:
                try:
                    await self._sandbox.stop()
                except BenchflowError as error:
                    self.record.note(f"clean-up: {error.message}")

    async def run(self) -> RolloutResult:
        """All phases. Returns a result whatever happened, except that cancellation is passed on after clean-up.

        Raises ConfigError or TaskError when the rollout cannot even be planned: then there is nothing to write.
        """
        try:
            await self.setup()
            await self.start()
            await self.install_agent()
            await self._play()
        except BaseException as error:
            # Becomes the result's error, attributed to its boundary; without a record there is nothing to write.
            if self._record is None:
                raise
            self._record.failed(error)
            if not isinstance(error, Exception):
                raise
        finally:
            if self._record is not None:
                await asyncio.shield(self._finish())
        return self.record.result

    # -- how they are done -----------------------------------------------------------------------------------

    async def _finish(self) -> None:
        await self.cleanup()
        self.record.finish()

    async def _play(self) -> None:
        for act in self.plan.acts:
            self._act = act
            await self._prepare_act(act)
            try:
                await self._perform(act)
            except (AgentError, ModelError) as error:
                # An agent that failed, ran out of time or lost its model is scored as it stands.
                self.record.failed(error)
            await self.disconnect()
            result = await self.verify()
            if not gate_passed(act, result.rewards) and act is not self.plan.acts[-1]:
                self.record.note(f"step {act.name}: below min_reward; later steps were not run")
                break
        merged = merge_rewards(self.plan.task.config.multi_step_reward_strategy, self.record.act_rewards)
        self.record.result.rewards = merged

    async def _prepare_act(self, act: Act) -> None:
        if act.step is None:
            return
        if act.step.workdir:
            await self.sandbox.put(act.step.workdir, self.sandbox.workdir, owner=self.account.user)
        if act.step.setup_script:
            await self._must("bash ./setup.sh", user=None, cwd=self.sandbox.workdir, timeout=None)
        if act.step.config.healthcheck:
            await wait_healthy(self.sandbox, act.step.config.healthcheck)

    async def _perform(self, act: Act) -> None:
        for turn in act.turns:
            await self.connect_as(turn.role.name)
            await self.execute([turn.prompt])
            if turn.closes_scene and turn is not act.turns[-1]:
                await self._end_scene()

    async def _end_scene(self) -> None:
        if self._stage:
            await self._stage.clear()
        await self.sandbox.kill_processes()

    async def _turn(self, prompt: str) -> None:
        player, left = self._player, self._time_left()
        if player is None:
            raise ConfigError("execute was called before connect")
        self.record.prompted(player.role, prompt)
        if player.spec.name == "nop":
            return
        if player.spec.name == "oracle":
            await run_oracle(
                self.sandbox,
                self.plan.task,
                self._current_act.step,
                environ=self.plan.environ,
                env=self.config.agent_env,
                timeout=left,
                on_event=self.record.event,
                log=lambda text: self.record.agent_log("oracle", text),
            )
            return
        session = await self.stage.session(player)
        try:
            ended = await session.prompt(prompt, timeout=left, idle_timeout=self.config.agent_idle_timeout)
        finally:
            self.record.metered(self._wire.usage if self._wire else None)
        self.record.used(ended.usage)
        if self._wire and (trip := self._wire.trip):
            raise ModelRefused(trip.message)

    def _time_left(self) -> float | None:
        if self._deadline is None:
            return None
        left = self._deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise AgentTimeout("the agent's time was over before its turn began")
        return left

    async def _make_stage(self) -> Stage:
        # The protocol's SDK takes most of a second to import, which a rollout without agents need not pay.
        from benchflow.rollout.stage import Stage, Surroundings
        from benchflow.rollout.wire import Wire

        self._wire = Wire(self.sandbox, self.record.folder.ledger, self.record.note)
        await self._wire.open()
        around = Surroundings(
            self.sandbox,
            self.account,
            self._wire,
            on_event=self.record.event,
            log=self.record.agent_log,
            mcp_servers=self.record.mcp_servers(),
            env=self.config.agent_env,
        )
        return Stage(around, self._bundles)

    async def _make_bundles(self, platform: object = None) -> None:
        for player in self.plan.players.values():
            if player.spec.kind != "builtin":
                bundle = await ensure_bundle(player.spec, platform=platform, log=self.record.install_log)  # type: ignore[arg-type]
                self._bundles[player.role.agent] = bundle

    async def _start_sandbox(self) -> None:
        mounts = {mount: None for bundle in self._bundles.values() for mount in bundle.mounts}
        spec = sandbox_spec(
            self.plan.task,
            name=self.record.folder.name,
            job=self.record.job,
            environ=self.plan.environ,
            has=self.plan.capabilities,
            mounts=tuple(mounts),
            log=self.record.build_log,
        )
        self._sandbox = self.plan.backend.create(spec)
        await self._sandbox.start()
        self.record.started(self._sandbox)

    async def _must(self, command: str, *, user: str | int | None, cwd: str | None, timeout: float | None) -> None:
        ended = await self.sandbox.exec(command, user=user, cwd=cwd, timeout=timeout)
        if not ended.ok:
            how = "timed out" if ended.timed_out else f"exited {ended.exit_code}"
            words = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()[-500:]
            raise ConfigError(f"the task's set-up command {command!r} {how}: {words}")

    @property
    def _scorer(self) -> Scorer:
        trusted = all(player.spec.kind == "builtin" for player in self.plan.players.values())
        owner = Owner(self.record.job, self.record.folder.name)
        return Scorer(self.plan, self.sandbox, self.account, owner, trusted, self.config.rubric)

    @property
    def _current_act(self) -> Act:
        return _known(self._act, "setup")

    @property
    def plan(self) -> Plan:
        return _known(self._plan, "setup")

    @property
    def record(self) -> Record:
        return _known(self._record, "setup")

    @property
    def sandbox(self) -> Sandbox:
        return _known(self._sandbox, "start")

    @property
    def account(self) -> Account:
        return _known(self._account, "install_agent")

    @property
    def stage(self) -> Stage:
        return _known(self._stage, "install_agent")


def _known[T](value: T | None, phase: str) -> T:
    if value is None:
        raise ConfigError(f"call {phase}() first: a rollout's phases have an order")
    return value
