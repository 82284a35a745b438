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

_SCRIPT = """
set -eu
name=$1 workspace=$2
shift 2
line=$(grep "^$name:" /etc/passwd || true)
if [ -z "$line" ]; then
  uid={first}
  while grep -q "^[^:]*:[^:]*:$uid:" /etc/passwd /etc/group; do uid=$((uid + 1)); done
  shell=/bin/sh
  [ ! -x /bin/bash ] || shell=/bin/bash
  echo "$name:x:$uid:$uid::/home/$name:$shell" >> /etc/passwd
  echo "$name:x:$uid:" >> /etc/group
  line="$name:x:$uid:$uid::/home/$name:$shell"
fi
home=$(echo "$line" | cut -d: -f6)
owner=$(echo "$line" | cut -d: -f3):$(echo "$line" | cut -d: -f4)
mkdir -p "$home" /logs/agent /logs/artifacts
for folder in "$@"; do mkdir -p "$home/$folder"; done
chown -R "$owner" "$home" /logs/agent /logs/artifacts
if [ "$workspace" != / ]; then mkdir -p "$workspace"; chown -R "$owner" "$workspace"; fi
echo "$home"
""".replace("{first}", str(FIRST_UID))


@dataclass(frozen=True, slots=True)
class Account:
    """Whom an agent runs as. `user` None is the image's own user, root unless the image says otherwise."""

    user: str | None
    home: str

    @property
    def is_root(self) -> bool:
        return self.user is None


async def make_account(
    sandbox: Sandbox, name: str | None, *, folders: Iterable[str] = (), timeout: float | None = None
) -> Account:
    """Make sure that `name` exists, owns the workspace and has `folders` in its home; None is root.

    Raises SandboxError when that fails or takes longer than `timeout` seconds.
    """
    who = name or "root"
    workspace = sandbox.workdir if name else "/"
    made = await sandbox.exec(
        ["/bin/sh", "-c", _SCRIPT, "sh", who, workspace, *folders], user=0, cwd="/", timeout=timeout
    )
    if not made.ok:
        reason = (
            f"it took longer than {timeout:g} s" if made.timed_out else made.stderr.decode("utf-8", "replace").strip()
        )
        raise SandboxError(
            f"the user {who!r} could not be set up: {reason}",
            backend=sandbox.backend,
            sandbox=sandbox.id,
            phase="user set-up",
            hint="raise sandbox_setup_timeout" if made.timed_out else None,
        )
    return Account(name, made.text.strip())


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
        await sandbox.exec(["/bin/sh", "-c", f"chown -R {shlex.quote(account.user)} {quoted}"], user=0, cwd="/")
