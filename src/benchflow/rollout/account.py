"""The sandbox user: a plain account that owns the workspace, made in one command that needs nothing but `sh`.

Slim images have no useradd, so the account is a line in /etc/passwd and one in /etc/group. Nothing of root's home is
copied: agents live in read-only bundles, and an account's home holds small configuration only.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError
from benchflow.sandbox.base import FileData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchflow.sandbox.base import Sandbox

FIRST_UID = 1000

# With the shell's own means wherever they do: on most machines a process costs more than all of this together.
_SCRIPT = """
set -eu
name=$1 workspace=$2
shift 2
known() {
  [ -r /etc/passwd ] || return 1
  while IFS=: read -r user _ uid gid _ home _ || [ -n "$user" ]; do
    [ "$user" != "$name" ] || return 0
  done < /etc/passwd
  return 1
}
taken() {
  for file in /etc/passwd /etc/group; do
    [ -r "$file" ] || continue
    while IFS=: read -r entry _ id _ || [ -n "$entry" ]; do
      [ "$id" != "$1" ] || return 0
    done < "$file"
  done
  return 1
}
if ! known; then
  uid=0 gid=0 home=/root
  if [ "$name" != root ]; then
    uid={first}
    while taken "$uid"; do uid=$((uid + 1)); done
    shell=/bin/sh
    [ ! -x /bin/bash ] || shell=/bin/bash
    gid=$uid home=/home/$name
    echo "$name:x:$uid:$gid::$home:$shell" >> /etc/passwd
    echo "$name:x:$gid:" >> /etc/group
  fi
fi
for folder in "$@"; do set -- "$@" "$home/$folder"; shift; done
[ "$workspace" = / ] || set -- "$@" "$workspace"
mkdir -p "$home" /logs/agent /logs/artifacts "$@"
if [ "$uid" != 0 ]; then
  [ "$workspace" != / ] || workspace=$home
  chown -R "$uid:$gid" "$home" /logs/agent /logs/artifacts "$workspace"
fi
echo "$home"
""".replace("{first}", str(FIRST_UID))


@dataclass(frozen=True, slots=True)
class Account:
    """Whom an agent runs as: 0 is root. None is the image's own user, which the built-in ones act as.

    `beside` are the users of other roles in the same sandbox.
    """

    user: str | int | None
    home: str
    beside: tuple[str, ...] = ()


async def make_account(
    sandbox: Sandbox, name: str | None, *, folders: Iterable[str] = (), timeout: float | None = None
) -> Account:
    """Make sure that `name` exists, owns the workspace and has `folders` in its home; None is root.

    Raises SandboxError when that fails or takes longer than `timeout` seconds.
    """
    who = name or "root"
    workspace = sandbox.workdir if name else "/"
    home = await set_up(sandbox, f"the user {who!r}", _SCRIPT, who, workspace, *folders, timeout=timeout)
    return Account(name, home.strip())


async def set_up(sandbox: Sandbox, what: str, script: str, *args: str, timeout: float | None = None) -> str:
    """Run a shell script as root, by which `what` is set up, and return what it printed.

    Raises SandboxError when it fails or takes longer than `timeout` seconds.
    """
    done = await sandbox.exec(["/bin/sh", "-c", script, "sh", *args], user=0, cwd="/", timeout=timeout)
    if not done.ok:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise SandboxError(
            f"{what} could not be set up: {f'it took longer than {timeout:g} s' if done.timed_out else said}",
            backend=sandbox.backend,
            sandbox=sandbox.id,
            phase="user set-up",
            hint="raise sandbox_setup_timeout" if done.timed_out else None,
        )
    return done.text


async def write_home(sandbox: Sandbox, account: Account, files: Mapping[str, str | bytes]) -> None:
    """Write files into the account's home, readable by it alone. Paths are relative to the home."""
    if files:
        contents = {
            path: FileData(content.encode() if isinstance(content, str) else content, mode=0o600)
            for path, content in files.items()
        }
        await sandbox.put(contents, account.home, owner=account.user)
    if files and account.user:
        # Parents that `put` had to make belong to root; the agent keeps its state beside its configuration.
        quoted = shlex.quote(account.home)
        await sandbox.exec(["/bin/sh", "-c", f"chown -R {shlex.quote(str(account.user))} {quoted}"], user=0, cwd="/")
