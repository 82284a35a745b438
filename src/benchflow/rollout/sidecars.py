"""The services of one rollout: those its config names, those its Dockerfile names, and the reviewer.

Services of the image run inside, as root, from before the agent acts until the sandbox ends, also between scenes. A
verifier on a fork or in a fresh sandbox finds them started again on the state they had. The reviewer is served from
the host and announced to agents as an MCP server.
"""

from __future__ import annotations

import copy
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError
from benchflow.sandbox.base import FileData
from benchflow.service.registry import REVIEWER, detect_services, find_services
from benchflow.service.start import ServiceHook, has_command, service_pids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.rollout.config import RolloutConfig
    from benchflow.sandbox.base import Sandbox
    from benchflow.service.registry import Service
    from benchflow.task.task import Task


class Sidecars:
    """What runs beside the agents. Made when the plan is; raises ConfigError for a service that does not exist."""

    def __init__(self, config: RolloutConfig, task: Task, environ: Mapping[str, str]) -> None:
        self._task = task
        self._environ = environ
        self._named = find_services(config.services)
        hooked = {hook.service.name for hook in config.pre_agent_hooks if isinstance(hook, ServiceHook)}
        self._hooked = [hook for hook in config.pre_agent_hooks if isinstance(hook, ServiceHook)]
        known = {one.name for one in self._named} | hooked
        self._detected = [one for one in _detect(task) if one.name not in known]
        self._running: list[ServiceHook] = []
        self._stack = AsyncExitStack()
        self._model = next((role.model for scene in config.scenes for role in scene.roles if role.model), None)
        if any(one.name == REVIEWER for one in self._named):
            self._reviewer_model()

    async def start(self, sandbox: Sandbox) -> None:
        """Start what belongs into a new sandbox. Raises SandboxError when one does not get ready."""
        wanted = [one for one in self._named if one.command]
        wanted += [one for one in self._detected if await has_command(sandbox, one)]
        for service in wanted:
            await self._seed(sandbox, service)
            hook = ServiceHook(service)
            await hook(sandbox)
            self._running.append(hook)
        for hook in self._hooked:
            await self._seed(sandbox, hook.service)

    async def start_again(self, sandbox: Sandbox) -> None:
        """Start in the verifier's sandbox what ran in the agent's."""
        for hook in [*self._running, *self._hooked]:
            await hook(sandbox)

    def again(self) -> Sidecars:
        """The same for a fork of the sandbox, with an end of its own."""
        other = copy.copy(self)
        other._stack = AsyncExitStack()  # noqa: SLF001 - it is one of us
        return other

    async def pids(self, sandbox: Sandbox) -> list[int]:
        """The processes that a scene's end leaves alone."""
        return await service_pids(sandbox) if self._running or self._hooked else []

    async def serve(self, sandbox: Sandbox) -> list[dict[str, object]]:
        """Make the reviewer reachable, if there is one; gives MCP servers as the agents' protocol has them."""
        found: list[dict[str, object]] = []
        for service in self._named:
            if service.name == REVIEWER:
                from benchflow.service.reviewer import Reviewer, serve_reviewer

                reviewer = Reviewer(sandbox, self._reviewer_model(), self._task.instruction, self._environ)
                url = await self._stack.enter_async_context(serve_reviewer(reviewer, service.port))
                found.append({"type": "http", "name": REVIEWER, "url": url, "headers": []})
        return found

    async def close(self) -> None:
        """End what is served from the host. Idempotent; what runs inside ends with the sandbox."""
        await self._stack.aclose()

    def _reviewer_model(self) -> str:
        from benchflow.service.reviewer import MODEL_VARIABLE

        model = self._environ.get(MODEL_VARIABLE) or self._model
        if not model:
            raise ConfigError(f"services: {REVIEWER} needs a model", hint=f"set {MODEL_VARIABLE}, or a role's model")
        return model

    async def _seed(self, sandbox: Sandbox, service: Service) -> None:
        state = self._task.environment_dir / service.database_file
        if state.is_file():
            await sandbox.put({service.database.lstrip("/"): FileData(state.read_bytes(), 0o600)}, "/")


def _detect(task: Task) -> tuple[Service, ...]:
    dockerfile = task.environment_dir / "Dockerfile"
    return detect_services(dockerfile.read_text("utf-8", "replace")) if dockerfile.is_file() else ()
