"""The network of a box: none but loopback, one of its own with the way out that `pasta` gives it, or the host's.

With `pasta` (Debian package passt) a box reaches what the host reaches, the host's other addresses included, but not
the host's loopback, and nobody reaches the box. Without it a box that is to have a network shares the host's, loopback
and abstract sockets included; the notes of the sandbox then say so.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchflow.sandbox.base import Network

FORWARDED_RESOLVER = "169.254.1.53"
"""Where a box finds the host's resolver when that listens on the host's loopback only."""

TUN = "/dev/net/tun"


def missing() -> str:
    """Why boxes cannot have a network of their own; empty when they can."""
    if shutil.which("pasta") is None:
        return "pasta is not installed (apt-get install passt)"
    if not os.access(TUN, os.R_OK | os.W_OK):
        return f"{TUN} may not be opened"
    return ""


def pasta_command(resolvers: str) -> list[str]:
    """The command that gives a network to the namespace on the descriptor that is put in place of `{}`."""
    words = ["pasta", "--quiet", "--config-net", "--no-map-gw", "--runas", "0:0"]
    words += [word for option in ("-t", "-u", "-T", "-U") for word in (option, "none")]
    if listens_on_loopback(resolvers):
        words += ["--dns-forward", FORWARDED_RESOLVER]
    return [*words, "--netns", "/proc/self/fd/{}"]


def listens_on_loopback(resolvers: str) -> bool:
    """Whether a resolv.conf names a resolver that only the host itself can reach."""
    return any(_is_loopback(address) for address in _nameservers(resolvers))


def _nameservers(resolvers: str) -> list[str]:
    lines = (line.split() for line in resolvers.splitlines())
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def host_resolvers() -> str:
    try:
        return Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def box_files(network: Network, hostname: str, *, own: bool) -> dict[str, str]:
    """The files about names and addresses that are laid over the image's."""
    files = {
        "/etc/hosts": f"127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost ip6-localhost ip6-loopback\n",
        "/etc/hostname": f"{hostname}\n",
    }
    resolvers = host_resolvers() if network.mode != "no-network" else ""
    if own and listens_on_loopback(resolvers):
        kept = [line for line in resolvers.splitlines() if not line.startswith("nameserver")]
        resolvers = "\n".join([f"nameserver {FORWARDED_RESOLVER}", *kept]) + "\n"
    return {**files, "/etc/resolv.conf": resolvers}
