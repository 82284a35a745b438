"""Folders of odd content for put and get, and how to tell whether two are the same."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

ODD_NAMES: tuple[bytes, ...] = (
    b"with space",
    b"new\nline",
    b"tab\tand\rreturn",
    b"-dash",
    b"--",
    b"back\\slash",
    b"quote'\"`$(id)",
    b"*?[a]",
    b".hidden",
    b"...",
    b"\xff\xfe not utf-8",
    b"half\xc3",
    "ünïcödé-🦜".encode(),
    b"x" * 255,
    b"\x01\x1b[31m",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, folder or link, as far as a copy should keep it."""

    kind: str
    mode: int
    content: bytes


def tree(root: Path) -> dict[bytes, Entry]:
    """Everything below `root`, by its path in bytes; links are not followed."""
    found: dict[bytes, Entry] = {}
    top = os.fsencode(root)
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - names are bytes
            found[os.path.relpath(path, top)] = _entry(path)
    return found


def _entry(path: bytes) -> Entry:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Entry("link", 0, os.readlink(path))  # noqa: PTH115 - names are bytes
    if stat.S_ISDIR(status.st_mode):
        return Entry("folder", mode, b"")
    if stat.S_ISREG(status.st_mode):
        return Entry("file", mode, Path(os.fsdecode(path)).read_bytes())
    return Entry("special", mode, b"")


def make_odd_tree(root: Path) -> None:
    """Files, folders and links whose names, modes and contents are as odd as Linux allows."""
    top = os.fsencode(root)
    for number, name in enumerate(ODD_NAMES):
        path = Path(os.fsdecode(os.path.join(top, name)))  # noqa: PTH118 - names are bytes
        path.write_bytes(bytes([number]) * number)
        path.chmod((0o644, 0o755, 0o600, 0o444, 0o711)[number % 5])
    deep = root.joinpath(*["deep"] * 20)
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"far down")
    (root / "empty").mkdir(mode=0o700)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o1777)
    (root / "inside-link").symlink_to("deep/deep")
    (root / "deep" / "up-link").symlink_to("../empty")
    (root / "file-link").symlink_to(".hidden")
    (root / "dangling-link").symlink_to("not-there")
    odd = os.path.join(top, b"link \xff")  # noqa: PTH118 - names are bytes
    os.symlink(ODD_NAMES[10], odd)  # noqa: PTH211 - names are bytes


def make_many(root: Path, count: int) -> None:
    """`count` small files in a hundred folders."""
    for number in range(count):
        folder = root / f"d{number % 100:02}"
        if number < 100:
            folder.mkdir()
        (folder / f"f{number}").write_bytes(b"%d\n" % number)


def escapes(root: Path) -> list[str]:
    """What below `root` is not a plain file or folder and not a link that stays inside."""
    top = os.path.realpath(root)
    bad: list[str] = []
    for folder, folders, files in os.walk(top):
        for name in (*folders, *files):
            path = os.path.join(folder, name)  # noqa: PTH118 - as os.walk gives them
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                end = os.path.realpath(path)
                if end != top and not end.startswith(top + os.sep):
                    bad.append(f"{path} leads to {end}")
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                bad.append(f"{path} is special")
            elif stat.S_IMODE(mode) & (stat.S_ISUID | stat.S_ISGID):
                bad.append(f"{path} is setuid or setgid")
    return bad
