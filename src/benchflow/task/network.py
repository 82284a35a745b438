"""What a task may reach over the network, and in which phase.

`[environment]` sets the baseline, which holds while the sandbox starts and the agent is installed; `[agent]` and
`[verifier]` (and those of a step) may override it for their phase. An allowlist without hosts means: nothing.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast

from pydantic import AfterValidator, ValidationInfo

from benchflow.task.problem import show
from benchflow.task.values import Table, Text, bad

NetworkMode = Literal["no-network", "public", "allowlist"]

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_HOST_LIMIT = 253
_EXPECTED = "a host name, '*.' and a domain, an IP address, or a network such as 10.0.0.0/8"


class NetworkPolicy(NamedTuple):
    """What may be reached. `hosts` counts only under `allowlist`."""

    mode: NetworkMode
    hosts: tuple[str, ...] = ()


def normal_host(text: str) -> str:
    """An allowlist entry in its one spelling: lower case, no final dot. Raises the refusal of `values.bad`."""
    host = text.strip().lower().rstrip(".")
    if _is_address(host) or _is_network(host):
        return host
    name = host.removeprefix("*.")
    if "/" in name or ":" in name:
        raise bad(f"{show(text)} is not a host", _EXPECTED, "drop the scheme, the port and the path")
    if "*" in name:
        raise bad(f"{show(text)} has '*' in the wrong place", _EXPECTED, "use '*.' at the start only")
    if host != name and _is_address(name):
        raise bad(f"{show(text)} is a wildcard on an address", _EXPECTED, "name a network, such as 10.0.0.0/8")
    if len(name) > _HOST_LIMIT or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise bad(f"{show(text)} is not a host", _EXPECTED, "use letters, digits, '-' and dots")
    return host


def _is_address(text: str) -> bool:
    try:
        return not getattr(ipaddress.ip_address(text), "scope_id", None)
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return "/" in text and "%" not in text


def _fits_mode(hosts: Sequence[str] | None, info: ValidationInfo) -> Sequence[str] | None:
    mode = cast("str | None", info.data.get("network_mode", "allowlist"))
    if hosts is not None and mode != "allowlist" and (hosts or mode is None):
        raise bad(
            f"hosts are listed, but network_mode is {show(mode)}" if mode else "hosts are listed without network_mode",
            'allowed_hosts only together with network_mode = "allowlist"',
            'set network_mode = "allowlist", or remove allowed_hosts',
        )
    return hosts


Host = Annotated[Text, AfterValidator(normal_host)]
Hosts = Annotated[tuple[Host, ...] | None, AfterValidator(_fits_mode)]
"""The allowlist of a table whose `network_mode` is declared before it."""


class NetworkOverride(Table):
    """The network keys of a phase; nothing said means the baseline."""

    network_mode: NetworkMode | None = None
    allowed_hosts: Hosts = None


def effective(baseline: NetworkPolicy, *overrides: NetworkOverride | None) -> NetworkPolicy:
    """The policy of a phase: the first override that names a mode, else the baseline."""
    for override in overrides:
        if override is not None and override.network_mode is not None:
            return NetworkPolicy(override.network_mode, tuple(override.allowed_hosts or ()))
    return baseline
