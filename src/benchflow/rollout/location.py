"""Where a rollout takes place: one sandbox, what runs beside the agents, who is who in it, and the agents' processes.

It is opened and settled once, then closed; whatever was reached until then, closing leaves nothing. A branch takes
place in a fork: the files and the users are the same, the processes, the sessions and the way to the model are new.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from benchflow.agent.bundle import ensure_bundle
from benchflow.agent.platforms import host_platform, sandbox_platform
from benchflow.errors import BenchflowError, ConfigError, SandboxError, SandboxGone
from benchflow.rollout.backstage import Backstage
from benchflow.rollout.cast import lock, make_cast, needs_own_users
from benchflow.rollout.furnish import furnish
from benchflow.rollout.keep import NotKept, keep_state
from benchflow.rollout.world import sandbox_spec, workshop_spec

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.agent.bundle import Bundle
    from benchflow.agent.platforms import Platform
    from benchflow.gateway.budget import Budget
    from benchflow.gateway.server import Gateway
    from benchflow.rollout.cast import Cast
    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Plan
    from benchflow.rollout.record import Record
    from benchflow.rollout.sidecars import Sidecars
    from benchflow.rollout.skills import Skills
    from benchflow.rollout.stage import Stage
    from benchflow.rollout.wire import Wire
    from benchflow.sandbox.base import Sandbox


class Location:
    """What a rollout has in one sandbox. Without agents but built-in ones there is neither stage nor wire.

    What happens there is told to `record`.
    """

    def __init__(
        self,
        config: RolloutConfig,
        plan: Plan,
        record: Record,
        sidecars: Sidecars,
        skills: Skills,
        *,
        gateway: Gateway | None = None,
    ) -> None:
        self.record = record
        self.sidecars = sidecars
        self.skills = skills
        self.stage: Stage | None = None
        self.wire: Wire | None = None
        self._config = config
        self._plan = plan
        self._gateway = gateway
        self._origin: Location | None = None
        self._sandbox: Sandbox | None = None
        self._cast: Cast | None = None
        self._backstage: Backstage | None = None
        self._bundles: dict[str, Bundle] = {}
        self._budgets: list[Budget] = []

    def branch(self, config: RolloutConfig, plan: Plan, record: Record) -> Location:
        """Where a branch will take place that goes on from here; its own sandbox is forked when it is opened."""
        other = Location(config, plan, record, self.sidecars.again(), self.skills, gateway=self._gateway)
        other._origin, other._cast, other._bundles = self, self._cast, self._bundles
        other._budgets = [*self._budgets, *([self.wire.total.budget] if self.wire else [])]
        return other

    # -- from its beginning to its end -----------------------------------------------------------------------

    async def make_bundles(self, platform: Platform | None = None) -> None:
        """Build what is mounted of the agents, if nobody has. Raises AgentInstallError."""
        for player in self._plan.players.values():
            if player.spec.kind != "builtin":
                self._bundles[player.role.agent] = await ensure_bundle(
                    player.spec, platform=platform, workshop=self._workshop, log=self.record.install_log
                )

    async def open(self) -> None:
        """Start the sandbox and what runs beside the agents; furnish a new one and run the config's hooks in it."""
        if self._origin:
            self._sandbox = await self._origin.sandbox.fork(name=self.record.folder.name)
            self.record.started(self._sandbox)
            await self.sidecars.start_again(self._sandbox)
            return
        await self._start_sandbox()
        if self._bundles and (found := await sandbox_platform(self.sandbox)) != host_platform():
            await self.sandbox.stop()
            await self.make_bundles(found)
            await self._start_sandbox()
        await furnish(self.sandbox, self._plan.task, self._plan.environ)
        await self.sidecars.start(self.sandbox)
        for hook in self._config.pre_agent_hooks:
            await hook(self.sandbox)

    async def settle(self) -> None:
        """Make the users and give them what is theirs; set the stage for the agents. Raises SandboxError."""
        if self._origin:
            self._backstage = self._origin.backstage.branched(self.sandbox, self.record)
        else:
            self._cast = await self._make_cast()
            await self.skills.put(self.sandbox)
            self._backstage = Backstage(self.sandbox, self._cast, self._plan, self.record)
        if any(player.spec.kind != "builtin" for player in self._plan.players.values()):
            self.stage = await self._make_stage()

    async def keep(self, folder: Path) -> None:
        """Keep in `folder` what the agents left; what cannot be kept is noted. Raises SandboxGone."""
        homes, players = self.cast.accounts, self._plan.players.values()
        own = [f"{homes[player.role.name].home}/{path}" for player in players for path in player.spec.home]
        try:
            await keep_state(self.sandbox, folder, leave_out=own, secrets=self.record.secrets)
        except SandboxGone:
            raise
        except (NotKept, SandboxError) as reason:
            self.record.note(f"what the agents left was not kept: {reason}")

    def succeed(self, other: Location) -> None:
        """Take the place of `other`, of which this is a fork: what happens here is told to its record, and counts."""
        self.record = self.backstage.record = other.record
        self._budgets = other._budgets
        if self.wire and other.wire:
            self.wire.total = other.wire.total

    async def close(self) -> None:
        """Leave no process and no sandbox. Idempotent; what fails here is noted, not raised."""
        try:
            if self.stage:
                with suppress(BenchflowError):
                    await self.stage.clear()
            if self.wire:
                await self.wire.close()
                self.record.metered(self.wire.usage)
            await self.sidecars.close()
        finally:
            if self._sandbox:
                try:
                    await self._sandbox.stop()
                except BenchflowError as error:
                    self.record.note(f"clean-up: {error.message}")

    # -- how it is made --------------------------------------------------------------------------------------

    async def _start_sandbox(self) -> None:
        mounts = {mount: None for bundle in self._bundles.values() for mount in bundle.mounts}
        spec = sandbox_spec(
            self._plan.task,
            name=self.record.folder.name,
            job=self.record.job,
            environ=self._plan.environ,
            has=self._plan.capabilities,
            mounts=tuple(mounts),
            log=self.record.build_log,
        )
        self._sandbox = self._plan.backend.create(spec)
        await self._sandbox.start()
        self.record.started(self._sandbox)

    def _workshop(self) -> Sandbox:
        """A throw-away sandbox of the task's own image, for an agent that cannot be built on this machine."""
        name, job = self.record.folder.name, self.record.job
        return self._plan.backend.create(workshop_spec(self._plan.task, name=name, job=job, log=self.record.build_log))

    async def _make_cast(self) -> Cast:
        """The users of the roles, from whom what is locked is kept."""
        players = {player.role.name: player for player in self._plan.players.values()}
        agents = any(player.spec.kind != "builtin" for player in players.values())
        user = self._config.sandbox_user if agents else None
        if user and not self._plan.capabilities.users:
            user = None
            self.record.only_root()
        separate = needs_own_users(scene.roles for scene in self._config.played_scenes)
        if separate and user is None and self._bundles:
            self.record.one_user()
        cast = await make_cast(
            self.sandbox,
            user,
            [player.role for player in players.values()],
            separate=separate,
            folders={name: player.spec.home for name, player in players.items()},
            timeout=self._config.sandbox_setup_timeout,
        )
        if user:
            await lock(self.sandbox, self._config.lockdown_paths)
        return cast if user or not agents else cast.as_root()

    async def _make_stage(self) -> Stage:
        # The protocol's SDK takes most of a second to import, which a rollout without agents need not pay.
        from benchflow.gateway.budget import Limits
        from benchflow.rollout.stage import Stage, Surroundings
        from benchflow.rollout.wire import Wire

        # Through `self`, because the record is another one after `succeed`.
        self.wire = Wire(
            self.sandbox,
            self.record.folder.ledger,
            lambda text: self.record.note(text),  # noqa: PLW0108
            limits=Limits(self._config.max_cost, self._config.max_tokens),
            allowed=self._config.allow_models,
            gateway=self._gateway,
            budgets=self._budgets,
            secrets=self.record.secrets,
        )
        await self.wire.open()
        around = Surroundings(
            self.sandbox,
            self.cast,
            self.wire,
            on_event=lambda event: self.record.event(event),  # noqa: PLW0108
            log=lambda agent, line: self.record.agent_log(agent, line),  # noqa: PLW0108
            note=lambda text: self.record.note(text),  # noqa: PLW0108
            skills=self.skills,
            mcp_servers=[*self.record.mcp_servers(), *await self.sidecars.serve(self.sandbox)],
            env=self._config.agent_env,
        )
        return Stage(around, self._bundles)

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def sandbox(self) -> Sandbox:
        return known(self._sandbox, "start")

    @property
    def cast(self) -> Cast:
        return known(self._cast, "install_agent")

    @property
    def backstage(self) -> Backstage:
        return known(self._backstage, "install_agent")


def known[T](value: T | None, phase: str) -> T:
    """What a phase makes. Raises ConfigError when it has not been called."""
    if value is None:
        raise ConfigError(f"call {phase}() first: a rollout's phases have an order")
    return value
