"""One tree of errors. Each names the boundary that failed, so that blame is assigned once, where it happened.

A score is only worth something when a failure of the machinery is never counted as a failure of the agent.
Code that meets a failure raises the class of the boundary it stands at; nobody above re-classifies it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Boundary = Literal["config", "task", "sandbox", "agent", "model", "verifier", "benchflow"]


class BenchflowError(Exception):
    """Base of every error we raise on purpose; its text is fit to be shown to a user as it is.

    `hint` says what to do about it. `retryable` says whether the same call may succeed later without
    anything being changed.
    """

    boundary: ClassVar[Boundary] = "benchflow"
    retryable: bool = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.hint}" if self.hint else self.message


class ConfigError(BenchflowError):
    """What the user asked for cannot be done as written: a key, a flag, a file, a missing credential."""

    boundary = "config"


class UserError(BenchflowError):
    """A rollout's user, a callback of whoever asked for it, failed or answered something that is no prompt."""

    boundary = "config"


class TaskError(BenchflowError):
    """A task cannot be loaded, or its files contradict each other."""

    boundary = "task"


class SandboxError(BenchflowError):
    """A sandbox failed to do what its protocol promises; says which backend, which sandbox and in which phase."""

    boundary = "sandbox"
    retryable = True

    def __init__(
        self, message: str, *, backend: str, sandbox: str = "", phase: str = "", hint: str | None = None
    ) -> None:
        where = " ".join(part for part in (backend, sandbox, phase) if part)
        super().__init__(f"{where}: {message}", hint=hint)
        self.backend = backend
        self.sandbox = sandbox
        self.phase = phase


class SandboxUnavailable(SandboxError):
    """The backend cannot work on this machine now: no daemon, no permission, no kernel feature."""

    retryable = False


class SandboxUnsupported(SandboxError):
    """The backend lacks a capability that was asked for; known before anything starts."""

    retryable = False


class SandboxBuildError(SandboxError):
    """An image could not be built or pulled; carries the failing step and the end of the build's output."""

    retryable = False

    def __init__(
        self, message: str, *, backend: str, step: str = "", output: str = "", hint: str | None = None
    ) -> None:
        text = message if not step else f"{message}\n  step: {step}"
        if output:
            text += "\n" + "\n".join(f"  | {line}" for line in output.splitlines()[-20:])
        super().__init__(text, backend=backend, phase="build", hint=hint)
        self.step = step
        self.output = output


class SandboxGone(SandboxError):
    """The sandbox vanished while it was in use: its container or its first process died under us."""


class VerifierError(BenchflowError):
    """The verifier did not score: no reward, an unreadable one, a time-out, a failed hardening step. Never a zero."""

    boundary = "verifier"


class VerifierTimeout(VerifierError):
    """The verifier did not end within its time."""


class AgentError(BenchflowError):
    """The agent did not do its part: it could not be started, died, went silent or broke the protocol.

    `stderr` is the end of what the agent wrote to its standard error, kept as evidence.
    """

    boundary = "agent"

    def __init__(self, message: str, *, stderr: str = "", hint: str | None = None) -> None:
        tail = "".join(f"\n  | {line}" for line in stderr.splitlines()[-20:])
        super().__init__(message + tail, hint=hint)
        self.stderr = stderr


class ACPError(AgentError):
    """The agent answered a request with an error, or with something the protocol does not allow.

    `code` and `data` are the agent's own, where it gave them.
    """

    def __init__(
        self, message: str, *, code: int | None = None, data: object = None, stderr: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, stderr=stderr, hint=hint)
        self.code = code
        self.data = data


CANNOT_START = (126, 127)
"""Exit codes of a command that is not there or cannot be run: trying again would not help."""


class AgentGone(AgentError, ConnectionError):
    """The agent's process ended, or its pipe broke, while an answer was still owed. `exit_code` when it is known."""

    retryable = True

    def __init__(
        self, message: str, *, exit_code: int | None = None, stderr: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, stderr=stderr, hint=hint)
        self.exit_code = exit_code
        self.retryable = exit_code not in CANNOT_START


class AgentTimeout(AgentError, TimeoutError):
    """The agent did not connect, did not end its turn, or sent nothing, for longer than it was given."""


class AgentInstallError(AgentError):
    """An agent's bundle could not be built: which agent, which command, and the end of what it printed."""


class ModelError(BenchflowError):
    """A model's provider refused or failed. `status` is its HTTP status, where there was one."""

    boundary = "model"
    retryable = True

    def __init__(self, message: str, *, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ModelRefused(ModelError):
    """Nothing more is sent to the model: its key is dead, its name unknown, or the budget is used up."""

    retryable = False


class BudgetSpent(ModelRefused):
    """A budget is used up. `scope` says whose (`rollout`, `job`), `kind` in what, `limit` how much it had."""

    def __init__(self, message: str, *, scope: str, kind: str, limit: float | None = None) -> None:
        super().__init__(message)
        self.scope = scope
        self.kind = kind
        self.limit = limit
