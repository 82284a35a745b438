"""Who a command runs as, looked up in the box's own /etc/passwd and /etc/group.

Those files belong to the box and may hold anything, so they are read as bounded bytes and every line that is
not plainly an entry is passed over. The C library's lookups are never used: they load plug-ins from the root.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

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


def parse_passwd(data: bytes) -> list[PasswdEntry]:
    entries = []
    for line in data.split(b"\n"):
        fields = line.split(b":")
        if len(fields) != 7 or not fields[0]:
            continue
        uid, gid = parse_id(fields[2]), parse_id(fields[3])
        if uid is not None and gid is not None and b"\0" not in line:
            entries.append(PasswdEntry(fields[0], uid, gid, os.fsdecode(fields[5])))
    return entries


def parse_group(data: bytes) -> list[GroupEntry]:
    entries = []
    for line in data.split(b"\n"):
        fields = line.split(b":")
        if len(fields) != 4 or not fields[0]:
            continue
        gid = parse_id(fields[2])
        if gid is not None:
            entries.append(GroupEntry(fields[0], gid, fields[3].split(b",")))
    return entries


def choose(user: str, passwd: list[PasswdEntry], groups: list[GroupEntry]) -> Account:
    """The account that `user` means: `name`, `uid`, or either with `:group` or `:gid` behind it.

    A number without an entry is a user without a home and with group 0, as container engines have it.
    Raises UnknownUser.
    """
    who, colon, group = os.fsencode(user).partition(b":")
    entry = next((entry for entry in passwd if entry.name == who), None)
    number = parse_id(who)
    if entry is None and number is not None:
        entry = next((entry for entry in passwd if entry.uid == number), PasswdEntry(b"", number, 0, "/"))
    if entry is None:
        raise UnknownUser(f"unknown user {user!r}")
    if not colon:
        extra = [item.gid for item in groups if entry.name and entry.name in item.members]
        return Account(entry.uid, entry.gid, extra[:GROUPS_LIMIT], entry.home or "/")
    named = next((item.gid for item in groups if item.name == group), parse_id(group))
    if named is None:
        raise UnknownUser(f"unknown group in {user!r}")
    return Account(entry.uid, named, [], entry.home or "/")


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


def lookup(user: str) -> Account:
    """The account that `user` means in the current root. Raises UnknownUser."""
    return choose(user, parse_passwd(read_database("/etc/passwd")), parse_group(read_database("/etc/group")))
