"""The Unix users that roles run as, and what each of them may touch.

A rollout in which nobody meets anybody else has one user for all (`account`). As soon as a scene has several roles, or
a role has rights of its own, every role is a user of its own with a home that it alone can open, so that none reads
another's processes, login or gateway token, and the owner of a file says who wrote it:

- roles that may write share one group, their primary one, in which the whole workspace is; they are started with a
  umask that lets it write, so each can change what another made;
- a role with `access="read"` is not in that group and can change nothing in the workspace;
- /solution, where a role has `oracle_access`, belongs to root and a group of those roles alone;
- a role's view of another's trajectory lies in a folder of root's that the role's own group can read.

Slim images have no useradd and no ACLs: it is lines in /etc/passwd and /etc/group, and plain modes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from benchflow.rollout.account import FIRST_UID, Account, make_account, set_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.rollout.scene import Role
    from benchflow.sandbox.base import ExecResult, Sandbox, Stream

TRAJECTORIES = "/logs/trajectories"
"""Where, in the sandbox, a role finds what another did: <this>/<its own name>/<the other's name>.jsonl"""

UMASK = "002"
"""With which roles that share a workspace are started."""

NAME_LENGTH = 20
"""Characters of a role's name that go into its user's name."""

_WHO = "the users of the roles"

_HEAD = """
set -eu
shell=/bin/sh
[ ! -x /bin/bash ] || shell=/bin/bash
free() {
  id={first}
  while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id + 1)); done
  echo "$id"
}
group() {
  grep -q "^$1:" /etc/group || echo "$1:x:$(free):$2" >> /etc/group
  grep "^$1:" /etc/group | cut -d: -f3
}
user() {
  name=$1 primary=$2
  shift 2
  if ! grep -q "^$name:" /etc/passwd; then
    uid=$(free)
    echo "$name:x:$uid:$name" >> /etc/group
    echo "$name:x:$uid:${primary:-$uid}::/home/$name:$shell" >> /etc/passwd
  fi
  mkdir -p "/home/$name"
  for folder in "$@"; do mkdir -p "/home/$name/$folder"; done
  chown -R "$name" "/home/$name"
  chmod 0700 "/home/$name"
  grep "^$name:" /etc/passwd | cut -d: -f3
  grep "^$name:" /etc/group | cut -d: -f3
}
mkdir -p /logs/agent /logs/artifacts
""".replace("{first}", str(FIRST_UID))


@dataclass(frozen=True, slots=True)
class Cast:
    """Who is who in one sandbox. `uids` are the roles' users; none where all roles are one user.

    `outbox_gid` is a group that nobody is in: what has it was made in a folder of ours.
    """

    accounts: Mapping[str, Account]
    uids: Mapping[str, int] = field(default_factory=dict)
    gids: Mapping[str, int] = field(default_factory=dict)
    readers: frozenset[str] = frozenset()
    oracles: frozenset[str] = frozenset()
    shared_gid: int = 0
    oracle_gid: int = 0
    outbox_gid: int = 0

    def as_root(self) -> Cast:
        """The same, with everyone root, whoever the image's own user is."""
        return replace(self, accounts={role: replace(one, user=0) for role, one in self.accounts.items()})

    @property
    def separate(self) -> bool:
        return bool(self.uids)

    @property
    def env(self) -> Mapping[str, str]:
        """What roles that share a workspace need, beside their own: git refuses another user's folder otherwise."""
        trust = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        return trust if self.separate else {}

    @property
    def owner(self) -> Account:
        """Whose the workspace is: the one user's, or the first role's that may write."""
        accounts = list(self.accounts.values())
        writing = [account for role, account in self.accounts.items() if role not in self.readers]
        owner = (writing or accounts)[0]
        others = [str(account.user) for account in accounts if account.user and account.user != owner.user]
        return replace(owner, beside=tuple(dict.fromkeys(others)))


class SharedSandbox:
    """The sandbox as roles use it who share a workspace: what they make there, the others may change too."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        return await self._sandbox.exec(_shared(command), **options)

    async def open(self, command: str | Sequence[str], **options: Any) -> Stream:
        return await self._sandbox.open(_shared(command), **options)


def _shared(command: str | Sequence[str]) -> Sequence[str]:
    words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    return ["/bin/sh", "-c", f'umask {UMASK}; exec "$@"', "sh", *words]


def workplace(sandbox: Sandbox, cast: Cast) -> Sandbox:
    """The sandbox as the roles of `cast` use it."""
    return SharedSandbox(sandbox) if cast.separate else sandbox


def needs_own_users(scenes: Iterable[Sequence[Role]]) -> bool:
    """Whether the roles of these scenes, each given by its roles, are told apart by their users."""
    return any(len(roles) > 1 or any(role.access == "read" or role.oracle_access for role in roles) for roles in scenes)


def user_names(base: str, roles: Iterable[str]) -> dict[str, str]:
    """A user's name for each role, all different: `agent-coder`."""
    names: dict[str, str] = {}
    for role in dict.fromkeys(roles):
        plain = re.sub(r"[^a-z0-9]+", "-", role.lower()).strip("-")[:NAME_LENGTH] or "role"
        numbered = (f"{plain}{number or ''}" for number in range(len(names) + 1))
        names[role] = next(f"{base}-{word}" for word in numbered if f"{base}-{word}" not in names.values())
    return names


async def make_cast(
    sandbox: Sandbox,
    base: str | None,
    roles: Sequence[Role],
    *,
    separate: bool,
    folders: Mapping[str, Sequence[str]],
    timeout: float | None = None,
) -> Cast:
    """Make the users of `roles`, with `folders` in each one's home; `base` None runs everyone as root.

    Raises SandboxError when that fails or takes longer than `timeout` seconds.
    """
    if base is None or not separate:
        every = [folder for role in roles for folder in folders.get(role.name, ())]
        account = await make_account(sandbox, base, folders=every, timeout=timeout)
        return Cast({role.name: account for role in roles})
    names = user_names(base, (role.name for role in roles))
    script = _script(base, {names[role.name]: (role, folders.get(role.name, ())) for role in roles}, sandbox.workdir)
    said = (await set_up(sandbox, _WHO, script, timeout=timeout)).split()
    shared, oracle, outbox, *ids = (int(word) for word in said)
    return Cast(
        accounts={role: Account(name, f"/home/{name}") for role, name in names.items()},
        uids=dict(zip(names, ids[0::2], strict=True)),
        gids=dict(zip(names, ids[1::2], strict=True)),
        readers=frozenset(role.name for role in roles if role.access == "read"),
        oracles=frozenset(role.name for role in roles if role.oracle_access),
        shared_gid=shared,
        oracle_gid=oracle,
        outbox_gid=outbox,
    )


def _script(base: str, users: Mapping[str, tuple[Role, Sequence[str]]], workspace: str) -> str:
    oracles = ",".join(user for user, (role, _) in users.items() if role.oracle_access)
    writers = [user for user, (role, _) in users.items() if role.access == "write"]
    lines = [
        f"shared=$(group {shlex.quote(base + 's')} '')",
        'echo "$shared"',
        f"group {shlex.quote(base + 's-oracle')} {shlex.quote(oracles)}",
        f"group {shlex.quote(base + 's-outbox')} ''",
    ]
    for user, (_, folders) in users.items():
        primary = '"$shared"' if user in writers else "''"
        lines.append(shlex.join(["user", user]) + f" {primary} " + shlex.join(folders))
    owner = shlex.quote(writers[0]) if writers else "0"
    lines.append(f'chown {owner}:"$shared" /logs/agent /logs/artifacts; chmod 0775 /logs/agent /logs/artifacts')
    lines.append(_share(owner, workspace, readers=len(writers) < len(users)))
    return _HEAD + "\n".join(lines)


def _share(owner: str, workspace: str, *, readers: bool) -> str:
    """Gives the workspace to the group of those who may write, and to nobody else."""
    if workspace == "/":
        return ":"
    place = shlex.quote(workspace)
    others = f"chmod -R o+rX,o-w {place}" if readers else ":"
    return f'mkdir -p {place}; chown -R {owner}:"$shared" {place}; chmod -R g+rwX {place}; {others}'


async def share_workspace(sandbox: Sandbox, cast: Cast) -> None:
    """Share with everyone what was put into the workspace since. Raises SandboxError."""
    if cast.separate:
        owner = next((str(uid) for role, uid in cast.uids.items() if role not in cast.readers), "0")
        share = _share(owner, sandbox.workdir, readers=bool(cast.readers))
        await set_up(sandbox, _WHO, f"set -eu\nshared={cast.shared_gid}\n{share}")


async def lock(sandbox: Sandbox, paths: Sequence[str]) -> None:
    """Make what exists of `paths` unreadable for everyone but root. Raises SandboxError."""
    script = 'set -eu\nfor path in "$@"; do [ ! -e "$path" ] || { chown 0:0 "$path"; chmod go-rwx "$path"; }; done'
    if paths:
        await set_up(sandbox, _WHO, script, *paths)


async def make_room(sandbox: Sandbox, folder: str, gid: int) -> None:
    """A folder of root's that `gid` may read, and nobody else, whatever is put into it. Raises SandboxError."""
    script = """
set -eu
case $1 in /*/*) umask 022; mkdir -p "${1%/*}" ;; esac
umask 077
mkdir -p "$1"
chown "0:$2" "$1"
chmod 0750 "$1"
"""
    await set_up(sandbox, _WHO, script, folder, str(gid))


async def remove(sandbox: Sandbox, *paths: str) -> None:
    """Remove what exists of these. Raises SandboxError."""
    await set_up(sandbox, _WHO, 'rm -rf "$@"', *paths)
