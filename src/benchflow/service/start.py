"""Starting the services of an image inside a sandbox, as root, before the agent acts.

A service is ready when its `/health` answers. Its database belongs to root alone, so that the agent can change the
state through the API only. What is scored on a fork gets its services started again there, from the same state.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.errors import ConfigError, SandboxError
from benchflow.service.registry import find_services

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchflow.sandbox.base import Sandbox
    from benchflow.service.registry import Service

START_TIMEOUT = 60.0
"""Seconds a service has until its /health must answer."""

LOGS = "/var/log/benchflow-services"
PIDS = "/run/benchflow-services"

_SCRIPT = """
set -u
command=$1 port=$2 database=$3 log=$4 pid=$5
command -v "$command" > /dev/null || exit 3
mkdir -p "$(dirname "$database")" "$(dirname "$log")" "$(dirname "$pid")"
chmod 0700 "$(dirname "$log")" "$(dirname "$pid")"
if [ -e "$database" ]; then chown 0:0 "$database"; chmod 0600 "$database"; fi
umask 077
if command -v setsid > /dev/null; then own=setsid; else own=nohup; fi
$own "$command" --db "$database" serve --host 127.0.0.1 --port "$port" --no-mcp > "$log" 2>&1 < /dev/null &
service=$!
echo "$service" > "$pid"
url=http://127.0.0.1:$port/health
if command -v curl > /dev/null; then ask() { curl -fsS -m 2 "$url"; }
elif command -v wget > /dev/null; then ask() { wget -q -T 2 -O - "$url"; }
else ask() { python3 -I -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=2).read())' "$url"; }
fi
until ask > /dev/null 2>&1; do
  kill -0 "$service" 2> /dev/null || exit 4
  sleep 0.1
done
"""


@dataclass(frozen=True, slots=True)
class ServiceHook:
    """Starts one service of the image. Usable as a `pre_agent_hook`; raises SandboxError when it does not get ready."""

    service: Service

    async def __call__(self, sandbox: Sandbox) -> None:
        one = self.service
        log = f"{LOGS}/{one.name}.log"
        pid = f"{PIDS}/{one.name}"
        argv = ["/bin/sh", "-c", _SCRIPT, "sh", str(one.command), str(one.port), one.database, log, pid]
        ended = await sandbox.exec(argv, user=0, cwd="/", timeout=START_TIMEOUT)
        if ended.ok:
            return
        if ended.exit_code == 3:
            problem, words = f"its command {one.command} is not in the image", ""
        else:
            problem = f"no answer within {START_TIMEOUT:g} s" if ended.timed_out else "it ended at once"
            said = await sandbox.exec(f"tail -c 1000 {shlex.quote(log)}", user=0, cwd="/")
            words = f": {said.text.strip()}" if said.text.strip() else ""
        raise SandboxError(
            f"the service {one.name} did not start: {problem}{words}",
            backend=sandbox.backend,
            sandbox=sandbox.id,
            phase="service start",
        )


def build_service_hooks(services: Iterable[str | Service]) -> list[ServiceHook]:
    """A hook for each service that runs in the sandbox. Raises ConfigError for one that does not exist or cannot."""
    found = find_services(services)
    if outside := [one.name for one in found if one.command is None]:
        raise ConfigError(f"{outside[0]} is not a program of the image; name it under `services` of the config instead")
    return [ServiceHook(one) for one in found]


async def has_command(sandbox: Sandbox, service: Service) -> bool:
    """Whether the image brings the service's program."""
    return (await sandbox.exec(["/bin/sh", "-c", 'command -v "$1"', "sh", str(service.command)], user=0, cwd="/")).ok


async def service_pids(sandbox: Sandbox) -> list[int]:
    """The processes of the services that were started here, as seen inside."""
    listed = await sandbox.exec(["/bin/sh", "-c", f"cat {PIDS}/* 2> /dev/null; true"], user=0, cwd="/")
    return [int(line) for line in listed.text.split() if line.isascii() and line.isdigit()]
