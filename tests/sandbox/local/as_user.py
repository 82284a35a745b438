"""Run a command as an ordinary user that exists only for it: `python as_user.py ranges|single COMMAND...`, as root.

In a mount namespace of its own the user is added to /etc/passwd, with or without subordinate ids, and folders that
only root may enter but that hold the interpreter or the sources are opened as far as these. The host is not changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

UID = 54321
NAME = "benchflow-test"
FIRST_SUBORDINATE = 700_000
CLONE_NEWNS = 0x20000


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def closed_above(path: Path) -> Path | None:
    """The highest folder on the way to `path` that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def open_up(paths: list[Path]) -> None:
    """Make each of `paths` reachable, and nothing else beside it."""
    needed: dict[Path, list[Path]] = {}
    for path in paths:
        if (closed := closed_above(path)) is not None:
            needed.setdefault(closed, []).append(path)
    for closed, inside in needed.items():
        with tempfile.TemporaryDirectory() as aside:
            mount("--bind", str(closed), aside)
            mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(closed))
            for path in inside:
                path.mkdir(parents=True, exist_ok=True)
                mount("--bind", str(aside / path.relative_to(closed)), str(path))
            subprocess.run(["umount", "-l", aside], check=True)


def lay_over(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    if not path.exists():
        path.touch()
    mount("--bind", file.name, str(path))
    Path(file.name).unlink()


def main() -> None:
    kind, *command = sys.argv[1:]
    os.unshare(CLONE_NEWNS)
    mount("--make-rprivate", "/")
    open_up([Path(sys.base_prefix), Path(sys.prefix), *(Path(path) for path in os.environ["AS_USER_PATHS"].split(":"))])
    passwd = Path("/etc/passwd").read_text(encoding="utf-8")
    lay_over(Path("/etc/passwd"), f"{passwd}{NAME}:x:{UID}:{UID}::/nonexistent:/bin/sh\n")
    subordinate = f"{NAME}:{FIRST_SUBORDINATE}:65536\n" if kind == "ranges" else ""
    for name in ("/etc/subuid", "/etc/subgid"):
        lay_over(Path(name), subordinate)
    if Path("/dev/net/tun").exists():
        # As distributions have it: open to everyone.
        tun = Path(f"/run/benchflow-test-tun-{os.getpid()}")
        subprocess.run(["mknod", "-m", "666", tun, "c", "10", "200"], check=True)
        mount("--bind", str(tun), "/dev/net/tun")
        tun.unlink()
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, UID, UID)
        env = {**os.environ, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": f"{home}/.cache"}
        code = subprocess.run(command, env=env, cwd=home, user=UID, group=UID, extra_groups=[], check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
