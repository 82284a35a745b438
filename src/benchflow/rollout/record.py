"""What is written of a rollout while it goes on: the one place that touches its folder.

Every event is on disk as it happens; result.json is written last, by `finish`, and only then.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from benchflow.errors import BudgetSpent
from benchflow.rollout.recipe import recipe
from benchflow.rollout.result import PHASES, ErrorInfo, RolloutResult
from benchflow.rollout.store import RolloutFolder
from benchflow.task.digest import task_digest
from benchflow.task.env import resolve_env, resolve_text, taken_from_host
from benchflow.trajectory.reader import read_events
from benchflow.trajectory.redact import Redactor, secrets_of
from benchflow.trajectory.writer import TrajectoryWriter
from benchflow.verify.evidence import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchflow.rollout.config import RolloutConfig
    from benchflow.rollout.plan import Act, Plan
    from benchflow.rollout.result import Usage
    from benchflow.rollout.scene import Role
    from benchflow.rollout.user import RoundResult
    from benchflow.sandbox.base import Sandbox
    from benchflow.trajectory.events import Event
    from benchflow.verify.base import VerifyResult

LOG_LIMIT = 64 * 1024 * 1024
"""Bytes that the log of one agent, or of the installation, may have."""


class Observer(Protocol):
    """Whoever watches a rollout live, such as the terminal. Calls must return at once and not raise."""

    def phase(self, name: str) -> None: ...

    def event(self, event: Event) -> None: ...


class Record:
    """The folder, the trajectory and the result of one rollout."""

    def __init__(self, config: RolloutConfig, plan: Plan, observer: Observer | None) -> None:
        self.job = config.job_name or datetime.now().strftime("%Y-%m-%d__%H-%M-%S")  # noqa: DTZ005 - for the user's eyes
        self.folder = RolloutFolder(config.jobs_dir / self.job, plan.task.name)
        self.act_rewards: list[dict[str, float]] = []
        self._plan = plan
        self._observer = observer
        self._phase = "setup"
        self._metered = False
        self._finished = False
        self._continued: list[Path] = []
        self._began = time.monotonic()
        secrets = [secret for player in plan.players.values() for secret in player.credentials.secrets]
        for variables in (config.agent_env, *(player.role.env for player in plan.players.values())):
            secrets += secrets_of(variables)
        secrets += secrets_of(taken_from_host(plan.task.config, plan.environ))
        self.secrets = secrets
        self._redactor = Redactor(secrets)
        self._writer = TrajectoryWriter(self.folder.trajectory, secrets=secrets)
        self._prompts: list[dict[str, object]] = []
        players = list(plan.players.values())
        self.result = RolloutResult(
            task=plan.task.name,
            agent="+".join(dict.fromkeys(player.spec.ref for player in players)),
            model="+".join(dict.fromkeys(player.role.model for player in players if player.role.model)) or None,
            rollout_dir=self.folder.path,
            sandbox_user=config.sandbox_user if any(p.spec.kind != "builtin" for p in players) else None,
            labels=dict(config.labels),
            started_at=_now(),
        )
        self.folder.write("config.json", self._redactor.value(self._config_document(config)))

    def _config_document(self, config: RolloutConfig) -> dict[str, object]:
        return {
            **recipe(config),
            "labels": dict(config.labels),
            "task": self._plan.task.name,
            "task_digest": self._plan.digest or task_digest(config.task_path),
            "agent": self.result.agent,
            "model": self.result.model,
            "environment": self._plan.backend.name,
            "environment_reason": self._plan.backend_reason,
            "players": {
                player.role.name: {
                    "agent": player.spec.ref,
                    "version": player.spec.version,
                    "model": player.role.model,
                    "provider": player.credentials.provider,
                    "credential": player.credentials.source,
                }
                for player in self._plan.players.values()
            },
        }

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; several visits add up. An error is attributed to the phase it came from."""
        self._phase = name
        if self._observer:
            self._observer.phase(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self.result.timing[name] = self.result.timing.get(name, 0.0) + time.monotonic() - began

    def event(self, event: Event) -> None:
        self._writer.append(event)
        if self._observer:
            self._observer.event(event)

    def events(self) -> list[Event]:
        """The trajectory so far."""
        self._writer.flush()
        return list(read_events(self.folder.trajectory))

    @property
    def prompts(self) -> list[dict[str, object]]:
        """Everything that was said to agents so far."""
        return list(self._prompts)

    def prompted(self, role: Role, prompt: str, source: str, parts: Sequence[Mapping[str, str]] = ()) -> None:
        """Keep a prompt that is about to be sent, who says it, and where each of its parts comes from."""
        said: dict[str, object] = {"scene_role": role.name, "agent": role.agent, "source": source, "prompt": prompt}
        self._prompts.append({**said, **({"parts": list(parts)} if len(parts) > 1 else {}), "at": _now()})
        self.folder.write("prompts.json", self._redactor.value(self._prompts))

    def metered(self, usage: Usage | None) -> None:
        """Take the gateway's totals, which count what was sent and not what an agent says of itself."""
        if usage is not None:
            self.result.usage = usage
            self._metered = True

    def used(self, usage: Mapping[str, int] | None) -> None:
        """Add what an agent says it used, where nobody counted."""
        if self._metered:
            return
        for theirs, ours in (
            ("input_tokens", "input_tokens"),
            ("output_tokens", "output_tokens"),
            ("cached_read_tokens", "cached_tokens"),
        ):
            if usage and (count := usage.get(theirs)) is not None:
                setattr(self.result.usage, ours, (getattr(self.result.usage, ours) or 0) + count)

    def started(self, sandbox: Sandbox) -> None:
        self.result.sandbox = sandbox.backend
        self.result.notes += [note for note in sandbox.notes if note not in self.result.notes]

    def only_root(self) -> None:
        """The agents run as root after all, because the sandbox has no other user."""
        self.result.sandbox_user = None
        self.note("this sandbox maps one user only: the agents run as root inside it")

    def one_user(self) -> None:
        """The roles are told apart by nothing, because they are all the same user."""
        self.note("all roles run as one user: their access, and who wrote a message, rest on good faith")

    def note(self, text: str) -> None:
        self.result.notes.append(self._redactor.text(text))

    def failed(self, error: BaseException) -> None:
        """Keep the first error: it is the cause, later ones are consequences."""
        info = ErrorInfo.of(error, self._phase)
        if isinstance(error, BudgetSpent) and self.result.limit is None:
            self.result.limit = {"scope": error.scope, "kind": error.kind, "limit": error.limit}
            self.note(f"cut off and scored as it stands: {error.message}")
        if self.result.error is None:
            self.result.error = dataclasses.replace(info, message=self._redactor.text(info.message))
        else:
            self.note(f"{info.phase}: {info.message}")

    def scored(self, act: Act, result: VerifyResult, remarks: Sequence[str]) -> None:
        self.act_rewards.append(result.rewards)
        self.result.verify_level = result.level
        if not result.trusted:
            self.result.trust = result.trust
        for severity, number in count(result.findings).items():
            self.result.tampering[severity] = self.result.tampering.get(severity, 0) + number
        self.result.opt_outs = list(dict.fromkeys([*self.result.opt_outs, *result.opt_outs]))
        for remark in remarks:
            self.note(remark)
        if act.step:
            self.result.steps.append({"name": act.name, "rewards": result.rewards, "level": result.level})

    def continue_with(self, branch: Record) -> None:
        """What a branch did is this rollout's own; its exchanges with models, which may go on, are added at the end."""
        for one in branch.events():
            self.event(one)
        self._prompts += branch.prompts
        self.folder.write("prompts.json", self._redactor.value(self._prompts))
        self._continued.append(branch.folder.ledger)

    def round_ended(self, act: Act, found: RoundResult, prompt: str | None = None, scene: str | None = None) -> None:
        """Keep what came of a round: a user's, with what it said, or a scene's."""
        said = {"scene": scene} if scene else {"prompt": prompt}
        kept = {"round": found.round, **said, "rewards": found.rewards, "reward": found.reward}
        kept |= {"verifier_error": found.verifier_error, "n_tool_calls": found.n_tool_calls}
        self.result.rounds.append({**kept, **({"step": act.name} if act.step else {})})

    def act_folder(self, act: Act) -> Path:
        """Where an act's verifier output and artifacts go: the rollout's folder, or steps/<name>."""
        return self.folder.path / "steps" / act.name if act.step else self.folder.path

    def scratch_folder(self) -> Path:
        """A new folder for a verification between rounds."""
        base = self.folder.path / "rounds"
        number = len(list(base.iterdir())) if base.is_dir() else 0
        return base / str(number)

    def agent_log(self, agent: str, line: str) -> None:
        self._log(self.folder.agent_log(agent), line)

    def install_log(self, line: str) -> None:
        self._log(self.folder.install_log, line)

    def _log(self, path: Path, line: str) -> None:
        """Add a line, as long as there is room: who writes here must not fill the disk."""
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            size = file.tell()
            if size < LOG_LIMIT:
                file.write(self._redactor.text(line).rstrip("\n") + "\n")
                if file.tell() >= LOG_LIMIT:
                    file.write(f"(the log has {LOG_LIMIT} bytes: what follows is not kept)\n")

    build_log = install_log

    def mcp_servers(self) -> list[dict[str, object]]:
        """The task's MCP servers as the protocol has them; of two with one name the later counts.

        Raises ConfigError when a variable is not set.
        """
        environ = self._plan.environ
        found: list[dict[str, object]] = []
        named = {server.name: server for server in self._plan.task.config.environment.mcp_servers}
        for server in named.values():
            if server.transport == "stdio":
                env = resolve_env(server.env, environ, where=f"mcp_servers.{server.name}.env")
                pairs = [{"name": name, "value": value} for name, value in env.items()]
                found.append({"name": server.name, "command": server.command, "args": list(server.args), "env": pairs})
            else:
                headers = [
                    {"name": name, "value": resolve_text(text, environ, where=f"mcp_servers.{server.name}.headers")}
                    for name, text in server.headers.items()
                ]
                kind = "sse" if server.transport == "sse" else "http"
                found.append({"type": kind, "name": server.name, "url": server.url, "headers": headers})
        return found

    def finish(self) -> None:
        """Write timing.json and, last, result.json. Once: what is called again does nothing."""
        if self._finished:
            return
        self._writer.close()
        if dropped := self._writer.n_dropped:
            self.note(f"the trajectory is full: {dropped} events are not in it")
        for ledger in self._continued:
            if ledger.exists():
                with ledger.open("rb") as theirs, self.folder.ledger.open("ab") as ours:
                    shutil.copyfileobj(theirs, ours)
        result = self.result
        result.n_tool_calls = self._writer.n_tool_calls
        result.timing = {name: round(result.timing.get(name, 0.0), 4) for name in PHASES}
        result.timing["waiting"] = result.usage.waiting_seconds or 0.0
        result.timing["total"] = round(time.monotonic() - self._began, 4)
        result.finished_at = _now()
        self.folder.write("timing.json", result.timing)
        self.folder.write("result.json", self._redactor.value(result.to_json()))
        self._finished = True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
