"""Scoring one act: collect what is kept, choose where the verifier runs, run it there, take it away again."""

from __future__ import annotations

import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchflow.errors import VerifierError
from benchflow.rollout.store import write_json
from benchflow.rollout.world import contents, image_source, limits, verifier_network
from benchflow.sandbox.base import Owner, SandboxSpec
from benchflow.task.env import resolve_env, taken_from_host
from benchflow.task.separate import verifier_box
from benchflow.trajectory.redact import secrets_of
from benchflow.verify.artifacts import collect, place_of, restore, run_hooks
from benchflow.verify.base import Evidence, VerifyResult
from benchflow.verify.environment import OPEN_TO_ALL, search_path
from benchflow.verify.evidence import Finding, tampering_document, trust_of
from benchflow.verify.harden import Hardened, harden, look_again
from benchflow.verify.level import place_verifier
from benchflow.verify.script import ScriptCheck, run_script
from benchflow.verify.servers import Alive, still_alive
from benchflow.verify.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.rollout.account import Account
    from benchflow.rollout.plan import Act, Plan
    from benchflow.rollout.sidecars import Sidecars
    from benchflow.sandbox.base import Sandbox
    from benchflow.task.separate import VerifierBox
    from benchflow.task.verifier import VerifierConfig
    from benchflow.trajectory.events import Event
    from benchflow.verify.artifacts import Collected
    from benchflow.verify.evidence import Action, Trust
    from benchflow.verify.level import Level
    from benchflow.verify.rubric import Rubric


TEXT_LIMIT = 1024 * 1024
"""Bytes of a test file that is searched for the names of programs and modules it uses."""

PROCESSES = 50
"""Processes that outlived their turn which are listed."""


class Told(NamedTuple):
    """What a result says beside its rewards."""

    trust: Trust
    findings: Sequence[Finding]
    opt_outs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Scorer:
    """What scoring needs of a rollout. `trusted_agent` is true for the built-in ones: they are ours."""

    plan: Plan
    sandbox: Sandbox
    account: Account
    owner: Owner
    trusted_agent: bool
    sidecars: Sidecars
    rubric: Rubric | None = None
    fresh: bool = False

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
        users = (self.account.user, *self.account.beside)
        each = [await still_alive(self.sandbox, user=user) for user in users]
        alive = Alive(
            tuple(pid for one in each for pid in one.servers), tuple(other for one in each for other in one.others)
        )
        return await self._score(act, folder, events, alive, manifest), remarks

    async def soft(self, act: Act, folder: Path, events: Sequence[Event] = ()) -> VerifyResult:
        """Score the present state on a fork, leaving the sandbox and every process in it as they are.

        It is the final verification in all but the processes, which no fork has: what that changes in the sandbox
        beforehand is done to a fork here.
        """
        separate = verifier_box(self.plan.task, act.step) is not None
        if not self.sandbox.capabilities.fork or not (separate or self._config(act).collect):
            return await self._score(act, folder, events, None, ())
        other = await self.sandbox.fork()
        try:
            await self.sidecars.start_again(other)
            result, _ = await replace(self, sandbox=other).final(act, folder, events)
        finally:
            await other.stop()
        return result

    async def _score(
        self, act: Act, folder: Path, events: Sequence[Event], alive: Alive | None, manifest: Sequence[Collected]
    ) -> VerifyResult:
        task = self.plan.task
        box = verifier_box(task, act.step)
        place = place_verifier(
            separate=box is not None,
            fresh=self.fresh,
            can_fork=self.sandbox.capabilities.fork,
            servers=len(alive.servers) if alive else 0,
            agent_is_root=self._root and not self.trusted_agent,
            task_wants_live=task.config.verifier.hardening.live and alive is not None,
        )
        everything = task.config.verifier.hardening.live
        findings = _outlived(alive, live=place.level == "live", everything=everything)
        if not place.trusted:
            findings.append(Finding("/", "level", "critical", "left", "root's processes live beside the verifier"))
        if place.level == "live":
            self._refuse_own_user(act)
            spared = (*alive.servers, *(pid for pid, _ in alive.others if everything)) if alive else ()
            keep = (*spared, *await self.sidecars.pids(self.sandbox))
            await self.sandbox.kill_processes(keep=keep)
            setting = replace(self._setting(act), live=True)
            async with AsyncExitStack() as held:
                if not self._root and self.sandbox.capabilities.restrain:
                    await held.enter_async_context(self.sandbox.restrained())
                fit = await harden(self.sandbox, setting)
            told = self._tell(act, place.level, [*findings, *self._beside_agent(fit), *fit.findings], folder)
            check = replace(self._check(act, fit), private=True, keep=keep)
            result = await self._run(self.sandbox, check, act, folder, events)
            if not self._root:
                await look_again(self.sandbox, setting)
        else:
            if alive is not None:
                await self.sandbox.kill_processes(keep=await self.sidecars.pids(self.sandbox))
            if place.level == "fork":
                other = await self.sandbox.fork(network=verifier_network(task, act.step))
            else:
                other = await self._fresh(act, box, folder / "artifacts", manifest)
            try:
                setting = replace(self._setting(act, copied=place.level == "fresh"), env=other.env)
                if box is not None:
                    declared = frozenset(place_of(row.source, other.workdir) for row in manifest)
                    setting = replace(setting, declared=declared)
                fit = await harden(other, setting)
                told = self._tell(act, place.level, [*findings, *fit.findings], folder)
                check = self._check(act, fit)
                await self.sidecars.start_again(other)
                check = replace(check, files=() if box and box.brings_tests else check.files)
                result = await self._run(other, check, act, folder, events)
            finally:
                await other.stop()
        return replace(result, level=place.level, **told._asdict())

    def _tell(self, act: Act, level: Level, findings: list[Finding], folder: Path) -> Told:
        """What was found; written down before the verifier runs, which may fail."""
        trust = "trusted" if self.trusted_agent else trust_of(findings)
        opt_outs = self._config(act).hardening.opt_outs
        if findings or opt_outs:
            document = tampering_document(findings, trust=trust, level=level, opt_outs=opt_outs)
            write_json(folder / "tampering.json", document)
        return Told(trust, findings, opt_outs)

    @property
    def _root(self) -> bool:
        return self.account.user in (None, 0)

    def _could_be_root(self, act: Act) -> bool:
        """Whether something ran as root where the agent had worked, which it may have led astray."""
        hooks = act.step.config.verifier.collect if act.step else self.plan.task.config.verifier.collect
        steps = self.plan.task.steps
        between = [step for step in steps[1:] if step.setup_script] if steps else []
        in_place = bool(steps) and self.plan.task.config.verifier.hardening.live
        return self._root or bool(between) or in_place or any(hook.user in (None, "root", "0", 0) for hook in hooks)

    def _config(self, act: Act) -> VerifierConfig:
        return act.step.config.verifier if act.step else self.plan.task.config.verifier

    def _setting(self, act: Act, *, copied: bool = False) -> Setting:
        hardening = self._config(act).hardening
        files = contents(self.plan.task.upload_files("tests", act.step))
        texts = {
            name: file.content.decode("utf-8", "replace") if len(file.content) <= TEXT_LIMIT else ""
            for name, file in files.items()
        }
        setting = Setting(
            workdir=self.sandbox.workdir,
            env=self.sandbox.env,
            root=self._could_be_root(act) and not copied,
            user=self.account.user,
            copied=copied,
            clean_conftests=hardening.cleanup_conftests,
            remove_hooks=hardening.remove_hooks,
            restore_files=hardening.restore_files,
            git_hooks=hardening.git_hooks,
        )
        return setting.told(texts, act.step.instruction if act.step else self.plan.task.instruction)

    def _refuse_own_user(self, act: Act) -> None:
        """Raises VerifierError where the verifier's files would belong to the user whose processes are beside it."""
        user = self._config(act).user
        if user is not None and str(user) in {str(one) for one in (self.account.user, *self.account.beside)}:
            raise VerifierError(
                f"[verifier] user is {user}, whose own server runs beside it: nothing could be kept from that",
                hint="name another user, or none",
            )

    def _beside_agent(self, fit: Hardened) -> list[Finding]:
        """What the agent's processes could exchange under a verifier which runs beside them."""
        workspace = (self.sandbox.workdir, *OPEN_TO_ALL)
        path = self.sandbox.env.get("PATH", "")
        exposed = [
            entry for entry in search_path(path) if f"{entry}/".startswith(tuple(f"{one}/" for one in workspace))
        ]
        found = [Finding(entry, "level", "critical", "left", "on PATH, and the agent's to write") for entry in exposed]
        others = sorted(fit.programs.difference(exposed))
        detail = "named by the tests, and the agent's to write"
        found += [Finding(entry, "level", "critical", "left", detail) for entry in others]
        if not self._root and not self.sandbox.capabilities.restrain:
            detail = "the agent's processes could make links while the verifier ran"
            found.append(Finding(self.sandbox.workdir, "level", "critical", "left", detail))
        return found

    def _check(self, act: Act, fit: Hardened) -> ScriptCheck:
        task, verifier = self.plan.task, self._config(act)
        env = resolve_env({**task.config.verifier.env, **verifier.env}, self.plan.environ, where="verifier.env")
        return ScriptCheck(
            files=[contents(task.upload_files("tests", act.step))],
            env=env,
            user=verifier.user,
            timeout=verifier.timeout_sec,
            reward_range=verifier.reward_range,
            clean_env=verifier.hardening.clean_env,
            git_hooks=verifier.hardening.git_hooks,
            new_loader_cache=fit.new_loader_cache,
            modules=fit.modules,
            secrets=secrets_of(taken_from_host(task.config, self.plan.environ)),
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


def _outlived(alive: Alive | None, *, live: bool, everything: bool) -> list[Finding]:
    """The agent's processes that were still there when it had ended. At the level `live` servers go on, and with
    `everything` the others do too."""
    if alive is None:
        return []
    did: Action = "left" if live else "ended"
    others: Action = did if everything else "ended"
    found = [Finding(f"/proc/{pid}", "process", "warning", others, name) for pid, name in alive.others[:PROCESSES]]
    return [*found, *(Finding(f"/proc/{pid}", "process", "info", did, "listens") for pid in alive.servers[:PROCESSES])]
