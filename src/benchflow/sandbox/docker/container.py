"""A sandbox's container: its name, what the engine is told to create, and its removal."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import TYPE_CHECKING

import aiodocker

from benchflow.sandbox.base import DEFAULT_PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.sandbox.base import SandboxSpec
    from benchflow.sandbox.docker.engine import Engine, Json

KEEP_ALIVE = "while sleep 2147483647 || [ $? -gt 128 ]; do :; done"
"""What the container runs for as long as it lives; needs /bin/sh and sleep. Killing the sleep is no end."""

_LOADED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")

HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.0.1\t{name}\n"
"""/etc/hosts where the engine makes none because it gives no network."""

GONE_POLL = 0.1
"""Seconds between two looks at whether a container that another call removes is gone."""


def new_id(name: str) -> str:
    """A name for a container: recognisable, and unique on this machine."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32].strip("-")
    return f"bf-{slug or 'sandbox'}-{secrets.token_hex(6)}"


def keepers_env(env: Mapping[str, str]) -> dict[str, str]:
    """What the container's own processes, which are root's, must not take over: whoever is inside may write what these
    name. Commands get the image's values again."""
    return {"PATH": DEFAULT_PATH} | {name: "" for name in _LOADED if name in env}


def create_body(
    spec: SandboxSpec, image: str, workdir: str, env: Mapping[str, str], labels: Mapping[str, str], network: str = ""
) -> Json:
    """The body of the create call. `image` and `workdir` are what the spec's came to; no `network` is the engine's."""
    limits = spec.limits
    host: Json = {
        "Init": True,
        "SecurityOpt": ["no-new-privileges"],
        # Containers share a bridge: with raw packets one could pretend to be another. Nobody needs devices.
        "CapDrop": ["NET_RAW", "MKNOD"],
        "LogConfig": {"Type": "none"},
        "Mounts": [
            {"Type": "bind", "Source": str(mount.source), "Target": mount.target, "ReadOnly": not mount.writable}
            for mount in spec.mounts
        ],
    }
    if limits.cpus is not None:
        host["NanoCpus"] = round(limits.cpus * 1_000_000_000)
    if limits.memory_mb is not None:
        # The same number for memory and swap together means no swap.
        host["Memory"] = host["MemorySwap"] = limits.memory_mb * 1024 * 1024
    if limits.pids is not None:
        host["PidsLimit"] = limits.pids
    if limits.storage_mb is not None:
        host["StorageOpt"] = {"size": f"{limits.storage_mb}m"}
    body: Json = {
        "Image": image,
        # The image's own entry point and user are for its services; ours only keeps the container alive, as root.
        "Entrypoint": ["/bin/sh", "-c"],
        "Cmd": [KEEP_ALIVE],
        "User": "0",
        "WorkingDir": workdir,
        "Env": [f"{name}={value}" for name, value in {**env, **keepers_env(env)}.items()],
        "Labels": dict(labels),
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host,
    }
    if spec.network.mode == "no-network":
        # Docker then makes no network at all, which is twice as fast as its "none"; Podman knows only that.
        body["NetworkDisabled"] = True
        host["NetworkMode"] = "none"
    elif network:
        host["NetworkMode"] = network
    return body


async def remove_container(engine: Engine, name: str) -> None:
    """Kill and remove a container, and wait until it is gone. One that is not there is fine. Raises DockerError."""
    container = engine.docker.containers.container(name)
    while True:
        try:
            await container.delete(force=True, v=True)
        except aiodocker.DockerError as error:
            if error.status == 404:
                return
            if error.status != 409:
                raise
            # Somebody else is removing it.
            await asyncio.sleep(GONE_POLL)
        else:
            return
