"""Users as a container's own /etc/passwd knows them."""

from __future__ import annotations


def owner_ids(passwd: bytes, owner: str | int) -> tuple[int, int] | None:
    """The user and group number of `owner`, a name or a number; None for a name that nobody has.

    A number that nobody has is itself, with the group 0.
    """
    wanted = str(owner)
    for line in passwd.decode("utf-8", "surrogateescape").splitlines():
        fields = line.split(":")
        if len(fields) >= 4 and wanted in fields[0:1] + fields[2:3] and fields[2].isdigit() and fields[3].isdigit():
            return int(fields[2]), int(fields[3])
    return (int(wanted), 0) if wanted.isdigit() else None
