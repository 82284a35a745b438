"""What this machine gives boxes, found without starting anything, and what follows from it for the backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.sandbox.base import Capabilities
from benchflow.sandbox.local import identity, network
from benchflow.sandbox.local.cgroups import Cgroups
from benchflow.sandbox.local.guest import restrain

if TYPE_CHECKING:
    from benchflow.sandbox.local.identity import Identity

STORAGE_VARIABLE = "BENCHFLOW_LOCAL_STORAGE"
"""Where sandboxes write: `disk` (the default), or `tmpfs`, which is faster, bounded by the storage limit, and counts
as memory of the sandbox."""

Storage = Literal["disk", "tmpfs"]


@dataclass(frozen=True, slots=True)
class Means:
    """`no_network` is why a box with a network shares the host's; empty where it has one of its own."""

    identity: Identity
    cgroups: Cgroups
    no_network: str

    @classmethod
    def here(cls) -> Means:
        return cls(identity.current(), Cgroups.here(), network.missing())

    def capabilities(self, storage: Storage) -> Capabilities:
        limits: set[Literal["cpus", "memory", "storage", "pids"]] = {*self.cgroups.limits}
        if storage == "tmpfs":
            limits.add("storage")
        return Capabilities(
            fork=True,
            mounts=True,
            host_root=True,
            listen=True,
            network=frozenset({"public", "no-network"}),
            limits=frozenset(limits),
            users=self.identity.kind != "single",
            changes=True,
            restrain=restrain.SUPPORTED,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of results must know about every sandbox made here."""
        found = []
        if self.identity.kind == "single":
            found.append("every process is root inside: this user has no subordinate ids (/etc/subuid)")
        if "pids" not in self.cgroups.limits:
            found.append("the number of processes is not limited: no control groups can be made here")
        return tuple(found)
