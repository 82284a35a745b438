"""What `bench doctor` says about Docker and Podman on this machine."""

from __future__ import annotations

import os

from benchflow.errors import SandboxUnavailable
from benchflow.sandbox.docker.engine import Engine, connect
from benchflow.sandbox.docker.home import Home, capabilities
from benchflow.sandbox.probe import Check

SLOW_DRIVERS = frozenset({"vfs", "devicemapper", "aufs", "fuse-overlayfs"})
"""Storage drivers that copy whole file systems or are much slower than overlay."""

FIX = "apt-get install docker.io, then start dockerd (or: podman system service); add your user to the docker group"


async def probe() -> list[Check]:
    """Whether an engine answers, which one, how it stores files, and how far we reach into its containers."""
    try:
        engine = await connect()
    except SandboxUnavailable as error:
        # Whoever names an engine has one, and is told what is wrong with the name.
        named = os.environ.get("DOCKER_HOST") and error.hint
        return [Check("engine", ok=False, detail=error.message, fix=named or FIX)]
    try:
        return [_identity(engine), _storage(engine), _limits(engine), _reach(engine)]
    finally:
        await engine.close()


def _identity(engine: Engine) -> Check:
    name = "Podman" if engine.podman else "Docker"
    version = engine.docker.api_version.removeprefix("v")
    return Check("engine", ok=True, detail=f"{name} {engine.version}, API {version}, at {engine.url}")


def _storage(engine: Engine) -> Check:
    driver = str(engine.info.get("Driver") or "unknown")
    where = engine.info.get("DockerRootDir") or "?"
    slow = driver in SLOW_DRIVERS
    detail = f"{driver} in {where}" + ("; it is slow: starts and forks copy files" if slow else "")
    return Check("storage driver", ok=not slow, detail=detail, fix="configure the overlay2 driver" if slow else "")


def _limits(engine: Engine) -> Check:
    able = capabilities(engine, near=False).limits
    missing = {"cpus", "memory", "pids"} - able
    detail = f"enforced: {', '.join(sorted(able)) or 'none'}"
    if "storage" not in able:
        detail += " (storage needs xfs with project quotas, btrfs or zfs)"
    fix = "give the engine the cgroup controllers cpu, memory and pids" if missing else ""
    return Check("limits", ok=not missing, detail=detail, fix=fix)


def _reach(engine: Engine) -> Check:
    if Home.wants_near() and engine.local:
        return Check("access", ok=True, detail="directly through the kernel: files and signals cost no engine call")
    reason = "the engine is not on this machine" if not engine.local else f"not root (uid {os.geteuid()})"
    return Check("access", ok=True, detail=f"through the engine's API only: {reason}")
