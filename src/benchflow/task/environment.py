"""`[environment]`: what the agent's sandbox is made from, what it may use, and how it is known to be ready."""

import math
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from benchflow.task.artifacts import MAIN_SERVICE
from benchflow.task.mcp import McpServer
from benchflow.task.network import Hosts, NetworkMode, NetworkPolicy
from benchflow.task.problem import show
from benchflow.task.values import Count, Cpus, Delay, Env, Positive, Seconds, Service, Table, Text, User, Words, bad

_TOPOLOGY = re.compile(r"[1-9]\d*(x[1-9]\d*)+", re.ASCII)


class Healthcheck(Table):
    """A command that says whether the sandbox is ready: exit 0 once is healthy.

    `retries` consecutive failures after the start period mean that it never will be.
    """

    command: Words
    interval_sec: Delay = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Delay = 0.0
    start_interval_sec: Delay = 5.0
    retries: Count = 3


class Tpu(Table):
    """A slice of tensor processors; the number of chips is the product of the topology."""

    type: Words
    topology: Words

    @field_validator("topology")
    @classmethod
    def _dimensions(cls, topology: str) -> str:
        if not _TOPOLOGY.fullmatch(topology):
            raise bad(
                f"{show(topology)} is not a topology", "sizes joined by 'x'", 'write one such as "2x4" or "2x2x1"'
            )
        return topology

    @property
    def chips(self) -> int:
        return math.prod(int(size) for size in self.topology.split("x"))


class SetupCommand(Table):
    """A command that runs once the sandbox is up, before the agent is installed."""

    command: Words
    timeout_sec: Seconds = 600.0
    cwd: Words | None = None
    env: Env = Field(default_factory=dict)
    user: User | None = None
    service: Service = MAIN_SERVICE


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class EnvironmentConfig(Table):
    """The same keys describe the agent's sandbox and that of a separate verifier."""

    docker_image: Text | None = None
    build_timeout_sec: Seconds = 600.0
    os: Annotated[Literal["linux", "windows"], BeforeValidator(_lower)] = "linux"
    cpus: Cpus | None = None
    memory_mb: Positive | None = None
    storage_mb: Positive | None = None
    gpus: Count | None = None
    gpu_types: tuple[Text, ...] | None = None
    tpu: Tpu | None = None
    network_mode: NetworkMode = "public"
    allowed_hosts: Hosts = None
    env: Env = Field(default_factory=dict)
    workdir: Text | None = None
    skills_dir: Text | None = None
    healthcheck: Healthcheck | None = None
    mcp_servers: tuple[McpServer, ...] = ()
    setup_commands: tuple[SetupCommand, ...] = ()

    @property
    def network(self) -> NetworkPolicy:
        return NetworkPolicy(self.network_mode, tuple(self.allowed_hosts or ()))
