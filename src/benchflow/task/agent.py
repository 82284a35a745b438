"""`[agent]`: what the task says about whoever solves it."""

from benchflow.task.network import NetworkOverride
from benchflow.task.values import Seconds, User, Words


class AgentConfig(NetworkOverride):
    """Limits of the agent's phase. No `timeout_sec` means no limit; no `user` means the image's."""

    timeout_sec: Seconds | None = None
    user: User | None = None
    prompt_prefix: Words | None = None
