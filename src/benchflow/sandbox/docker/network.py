"""The network of sandboxes that have one: shared by all of them, because address ranges are few, and by nobody else.

On it the engine passes nothing from one container to another, so that no rollout reads what another one serves. It is
made when first needed and stays, like an image does. Podman knows no such network: its own default is taken there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiodocker

if TYPE_CHECKING:
    from benchflow.sandbox.docker.engine import Engine, Json

NAME = "benchflow"

_BRIDGE = "com.docker.network.bridge"
_APART = {f"{_BRIDGE}.enable_icc": "false", f"{_BRIDGE}.name": "br-benchflow"}
"""The device has a name of its own because there can be only one of it: engines let two networks have the same name."""

_KEPT = ("com.docker.network.driver.mtu", f"{_BRIDGE}.enable_ip_masquerade")
"""What the engine's operator may have set for its own bridge because the network outside needs it."""


async def shared_network(engine: Engine) -> str:
    """The name of the network, which is there now; empty where it is the engine's default. Raises DockerError."""
    if engine.podman:
        return ""
    networks = engine.docker.networks
    try:
        await networks.get(NAME)
    except aiodocker.DockerError as error:
        if error.status != 404:
            raise
        default = await (await networks.get("bridge")).show()
        try:
            await networks.create(network_body(default.get("Options") or {}))
        except aiodocker.DockerError:
            # Another process was faster, or else this says what is wrong.
            await networks.get(NAME)
    return NAME


def network_body(default: Json) -> Json:
    """The body of the create call, by the options of the engine's own bridge."""
    kept = {name: default[name] for name in _KEPT if name in default}
    return {"Name": NAME, "CheckDuplicate": True, "Driver": "bridge", "Options": {**kept, **_APART}}
