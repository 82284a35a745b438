"""Who a command runs as, looked up in the box's own /etc/passwd and /etc/group.

Those files belong to the box and may hold anything, so they are read as bounded bytes and every line that is
not plainly an entry is passed over. The C library's lookups are never used: they load plug-ins from the root.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE_LIMIT = 4 * 1024 * 1024
GROUPS_LIMIT = 1024
MAX_ID = 2**32 - 2


class UnknownUser(LookupError):
    """No such user or group in the box."""


class Account(NamedTuple):
    uid: int
    gid: int
    groups: list[int]
    home: str


class PasswdEntry(NamedTuple):
    name: bytes
    uid: int
    gid: int
    home: str


class GroupEntry(NamedTuple):
    name: bytes
    gid: int
    members: list[bytes]


def parse_id(text: bytes) -> int | None:
    """A user or group number, or None when it is not one."""
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if number <= MAX_ID else None


def parse_passwd(data: bytes) -> Iterator[PasswdEntry]:
    for line in data.split(b"\n"):
        fields = line.split(b":")
        if len(fields) != 7 or not fields[0]:
            continue
        uid, gid = parse_id(fields[2]), parse_id(fields[3])
        if uid is not None and gid is not None and b"\0" not in line:
            yield PasswdEntry(fields[0], uid, gid, os.fsdecode(fields[5]))


def parse_group(data: bytes, wanted: bytes) -> Iterator[GroupEntry]:
    """The groups whose line has `wanted` in it, as their name or as a member."""
    for line in data.split(b"\n"):
        if wanted not in line:
            continue
        fields = line.split(b":")
        gid = parse_id(fields[2]) if len(fields) == 4 and fields[0] else None
        if gid is not None:
            yield GroupEntry(fields[0], gid, fields[3].split(b","))


def choose(user: str, passwd: bytes, groups: bytes) -> Account:
    """The account that `user` means: `name`, `uid`, or either with `:group` or `:gid` behind it.

    A number without an entry is a user without a home and with group 0, as container engines have it.
    Raises UnknownUser.
    """
    who, colon, group = os.fsencode(user).partition(b":")
    number = parse_id(who)
    entries = parse_passwd(passwd)
    entry = next(
        (entry for entry in entries if (entry.uid == number if number is not None else entry.name == who)), None
    )
    if entry is None and number is not None:
        entry = PasswdEntry(b"", number, 0, "/")
    if entry is None:
        raise UnknownUser(f"unknown user {user!r}")
    home = entry.home or "/"
    if not colon:
        extra = (
            [item.gid for item in parse_group(groups, entry.name) if entry.name in item.members] if entry.name else []
        )
        return Account(entry.uid, entry.gid, extra[:GROUPS_LIMIT], home)
    gid = next((item.gid for item in parse_group(groups, group) if item.name == group), parse_id(group))
    if gid is None:
        raise UnknownUser(f"unknown group in {user!r}")
    return Account(entry.uid, gid, [], home)


def read_database(path: str) -> bytes:
    """At most `DATABASE_LIMIT` bytes of a regular file; nothing when there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, DATABASE_LIMIT)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def lookup(user: str, *, any_user: bool) -> Account:
    """The account that `user` means in the current root. Without `any_user` there is no other than root.

    Raises UnknownUser.
    """
    account = choose(user, read_database("/etc/passwd"), read_database("/etc/group"))
    if not any_user and account.uid != 0:
        raise UnknownUser(f"user {user!r} (uid {account.uid}) is not mapped here: everything in this box is root's")
    return account if any_user else Account(0, 0, [], account.home)
