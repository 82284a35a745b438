"""Scoring one act: collect what is kept, choose where the verifier runs, run it there, take it away again."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchflow.rollout.store import write_json
from benchflow.rollout.world import contents, image_source, limits, verifier_network
from benchflow.sandbox.base import Owner, SandboxSpec
from benchflow.task.env import resolve_env
from benchflow.task.separate import verifier_box
from benchflow.verify.artifacts import collect, restore, run_hooks
from benchflow.verify.base import Evidence, VerifyResult
from benchflow.verify.level import place_verifier
from benchflow.verify.script import ScriptCheck, run_script
from benchflow.verify.servers import listening_pids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.rollout.account import Account
    from benchflow.rollout.plan import Act, Plan
    from benchflow.sandbox.base import Sandbox
    from benchflow.task.separate import VerifierBox
    from benchflow.trajectory.events import Event
    from benchflow.verify.artifacts import Collected
    from benchflow.verify.rubric import Rubric


@dataclass(frozen=True, slots=True)
class Scorer:
    """What scoring needs of a rollout. `trusted_agent` is true for the built-in ones: they are ours."""

    plan: Plan
    sandbox: Sandbox
    account: Account
    owner: Owner
    trusted_agent: bool
    rubric: Rubric | None = None

    async def final(self, act: Act, folder: Path, events: Sequence[Event] = ()) -> tuple[VerifyResult, list[str]]:
        """Score what the agent left. Its processes end, but for servers when they are what is scored.

        Returns the result and remarks about it. Raises VerifierError, or SandboxError when a sandbox fails.
        """
        artifacts = folder / "artifacts"
        config = act.step.config if act.step else self.plan.task.config
        remarks = await run_hooks(self.sandbox, config.verifier.collect)
        manifest = await collect(self.sandbox, config.artifacts, artifacts)
        if any(row.status != "empty" for row in manifest):
            write_json(artifacts / "manifest.json", [asdict(row) for row in manifest])
        servers = await listening_pids(self.sandbox, user=self.account.user)
        return await self._score(act, folder, events, servers, manifest), remarks

    async def soft(self, act: Act, folder: Path, events: Sequence[Event] = ()) -> VerifyResult:
        """Score the present state on a fork, leaving the sandbox and every process in it as they are."""
        return await self._score(act, folder, events, None, ())

    async def _score(
        self, act: Act, folder: Path, events: Sequence[Event], servers: list[int] | None, manifest: Sequence[Collected]
    ) -> VerifyResult:
        task = self.plan.task
        box = verifier_box(task, act.step)
        place = place_verifier(
            separate=box is not None,
            can_fork=self.sandbox.capabilities.fork,
            servers=len(servers or ()),
            agent_is_root=self.account.is_root and not self.trusted_agent,
            task_wants_live=task.config.verifier.hardening.live and servers is not None,
        )
        check = self._check(act)
        if place.level == "live":
            keep = tuple(servers or ())
            await self.sandbox.kill_processes(keep=keep)
            result = await self._run(self.sandbox, replace(check, private=True, keep=keep), act, folder, events)
        else:
            if servers is not None:
                await self.sandbox.kill_processes()
            if place.level == "fork":
                other = await self.sandbox.fork(network=verifier_network(task, act.step))
            else:
                other = await self._fresh(act, box, folder / "artifacts", manifest)
                check = replace(check, files=() if box and box.brings_tests else check.files)
            try:
                result = await self._run(other, check, act, folder, events)
            finally:
                await other.stop()
        return replace(result, level=place.level, trusted=place.trusted)

    def _check(self, act: Act) -> ScriptCheck:
        task, step = self.plan.task, act.step
        verifier = step.config.verifier if step else task.config.verifier
        env = resolve_env({**task.config.verifier.env, **verifier.env}, self.plan.environ, where="verifier.env")
        return ScriptCheck(
            files=[contents(task.upload_files("tests", step))],
            env=env,
            user=verifier.user,
            timeout=verifier.timeout_sec,
            reward_range=verifier.reward_range,
        )

    async def _run(
        self, sandbox: Sandbox, check: ScriptCheck, act: Act, folder: Path, events: Sequence[Event]
    ) -> VerifyResult:
        output = folder / "verifier"
        if self.rubric is None:
            return VerifyResult(rewards=await run_script(sandbox, check, output))
        messages = [str(event.get("text", "")) for event in events if event["type"] == "message"]
        instruction = act.step.instruction if act.step else self.plan.task.instruction
        return await self.rubric.verify(
            Evidence(sandbox, check, output, instruction, messages[-1] if messages else "", events)
        )

    async def _fresh(
        self, act: Act, box: VerifierBox | None, artifacts: Path, manifest: Sequence[Collected]
    ) -> Sandbox:
        """A new sandbox for the verifier with the declared artifacts, or else the whole workspace, in it."""
        task = self.plan.task
        config, folder = (box.config, box.folder) if box else (task.config.environment, task.environment_dir)
        spec = SandboxSpec(
            image=image_source(config, folder),
            name=f"{self.owner.rollout}-verifier",
            env=resolve_env(config.env, self.plan.environ, where="verifier.environment.env"),
            workdir=config.workdir,
            network=verifier_network(task, act.step),
            limits=limits(config, self.sandbox.capabilities),
            owner=self.owner,
            build_timeout=config.build_timeout_sec,
        )
        other = self.plan.backend.create(spec)
        await other.start()
        try:
            if box is not None:
                await restore(other, manifest, artifacts)
            else:
                with tempfile.TemporaryDirectory(prefix="benchflow-") as scratch:
                    await self.sandbox.get(self.sandbox.workdir, Path(scratch))
                    await other.put(Path(scratch), other.workdir)
        except BaseException:
            await other.stop()
            raise
        return other
