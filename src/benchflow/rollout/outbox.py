"""The outbox inside a sandbox: laid out before a role's turn, taken away after it, read where no role can reach it.

While a role acts there is `.outbox` in its workspace: its own, closed to every other role, and with a group that nobody
is in, which every file made there gets. After the turn the whole folder is renamed to a place of root's and closed, so
that what is read then cannot be swapped any more; links, pipes and devices are never opened, and no more is read than a
message may be long. Between turns and before scoring there is no outbox at all.

A file is a message of the role whose turn it was only if it is that role's own and nobody else could have written to
it: another's file that was moved here is refused, and so is one that stood open to the group.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from benchflow.rollout.mail import MESSAGE_LIMIT, Entry

if TYPE_CHECKING:
    from benchflow.rollout.cast import Cast
    from benchflow.sandbox.base import Sandbox

NAME = ".outbox"

FILES_LIMIT = 50
"""Files of an outbox that are looked at after a turn; the rest are counted as refused."""

OUTBOX_TIMEOUT = 60.0
"""Seconds that laying out or taking away an outbox may take."""

PRIVATE = "/var/lib/benchflow"
"""Where an outbox is read. It is root's alone, and gone when the agents are."""

# A role that still runs may swap the folder at any moment. Entered, it stays the one that was looked at.
_LAY = """
set -eu
umask 022
rm -rf "$1/$2" || :
if [ -n "$4" ]; then chmod -R o-w "$4" || :; fi
cd "$1"
here=$(pwd -P)
mkdir "$2"
cd "$2"
[ "$(pwd -P)" = "${here%/}/$2" ]
[ "$(stat -c %u .)" = 0 ]
chown "$3" .
chmod 2700 .
"""
_TAKE = """
umask 077
mkdir -p "$3" && chmod 0700 "$3" && rm -rf "$3/box" || exit 1
[ -e "$1" ] || [ -L "$1" ] || { echo gone; exit 0; }
mv "$1" "$3/box" || exit 1
cd "$3" || exit 1
if [ -L box ] || [ ! -d box ] || [ "$(stat -c %u:%g box)" != "$2" ]; then
  rm -rf box
  echo replaced
  exit 0
fi
chown 0:0 box && chmod 0700 box && cd box || exit 1
echo ours
count=0
for file in * .[!.]* ..?*; do
  [ -e "$file" ] || [ -L "$file" ] || continue
  count=$((count + 1))
  [ "$count" -le "$4" ] || { echo more; exit 0; }
  printf '%s\\0%s\\0' "$file" "$(stat -c '%f:%u:%g:%h:%s' -- "$file")"
done
"""


class Outbox:
    """The outbox of one sandbox."""

    def __init__(self, sandbox: Sandbox, cast: Cast) -> None:
        self._sandbox = sandbox
        self._cast = cast
        self._path = f"{sandbox.workdir.rstrip('/')}/{NAME}"

    async def lay(self, role: str) -> None:
        """Make an empty outbox for the turn of `role`, who can then write nothing else if that is its access."""
        closed = self._sandbox.workdir if role in self._cast.readers and self._sandbox.workdir != "/" else ""
        await self._run(_LAY, self._sandbox.workdir, NAME, self._owner(role), closed)

    async def take(self, role: str) -> list[Entry]:
        """Take the outbox away after the turn of `role`; gives what lay in it."""
        out = await self._run(_TAKE, self._path, self._owner(role), PRIVATE, str(FILES_LIMIT))
        state, _, rest = out.partition(b"\n")
        if state != b"ours":
            return [Entry(NAME, problem="the outbox itself was removed or replaced, or could not be read")]
        *fields, end = rest.split(b"\0")
        entries = [
            await self._entry(name.decode("utf-8", "surrogateescape"), about.decode("ascii", "replace"), role)
            for name, about in zip(fields[0::2], fields[1::2], strict=False)
        ]
        await self._run('rm -rf "$1"', PRIVATE)
        more = [Entry(NAME, problem=f"there are more than {FILES_LIMIT} files")] if end.strip() else []
        return [*entries, *more]

    async def _entry(self, name: str, about: str, acting: str) -> Entry:
        try:
            mode, uid, gid, links, size = (int(part, 16 if not at else 10) for at, part in enumerate(about.split(":")))
        except ValueError:
            return Entry(name, problem="it cannot be looked at")
        sender = self._sender(uid, acting)
        if sender not in (None, acting):
            return Entry(name, sender, problem=f"it lay in the outbox of {acting}")
        if problem := _problem(mode, links, size) or self._open_to_others(mode, gid):
            return Entry(name, sender, problem=problem)
        if "\ufffd" in name or not name.isprintable():
            return Entry(name, sender, data=b"")
        found = await self._sandbox.exec(
            ["head", "-c", str(MESSAGE_LIMIT + 1), f"{PRIVATE}/box/{name}"],
            user=0,
            cwd="/",
            timeout=OUTBOX_TIMEOUT,
            output_limit=MESSAGE_LIMIT + 1,
        )
        if not found.ok or len(found.stdout) > MESSAGE_LIMIT:
            return Entry(name, sender, problem="it could not be read")
        return Entry(name, sender, data=found.stdout)

    def _owner(self, role: str) -> str:
        """Whose its outbox is, as `chown` takes it."""
        return f"{self._cast.uids.get(role, 0)}:{self._cast.outbox_gid}"

    def _sender(self, uid: int, acting: str) -> str | None:
        """The role whose file it is; where all roles are one user, the one whose turn it was."""
        if not self._cast.separate:
            return acting
        return next((role for role, one in self._cast.uids.items() if one == uid), None)

    def _open_to_others(self, mode: int, gid: int) -> str | None:
        if not self._cast.separate:
            return None
        if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and gid != self._cast.outbox_gid):
            return "others could have written it; write it in the outbox itself, and open to nobody else"
        return None

    async def _run(self, script: str, *args: str) -> bytes:
        """What the script says, nothing if it fails: a role may be in its way, and that is no failure of the sandbox.

        Raises SandboxError when the sandbox itself fails.
        """
        done = await self._sandbox.exec(["/bin/sh", "-c", script, "sh", *args], user=0, cwd="/", timeout=OUTBOX_TIMEOUT)
        return done.stdout if done.ok else b""


def _problem(mode: int, links: int, size: int) -> str | None:
    if not stat.S_ISREG(mode):
        return "it is no regular file"
    if links != 1:
        return "it has another name elsewhere"
    if size > MESSAGE_LIMIT:
        return f"it is longer than {MESSAGE_LIMIT} bytes"
    return None
