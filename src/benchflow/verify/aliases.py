"""Links of the agent's that are innocent by where they lead, and yet would lead a verifier astray.

One that leads nowhere, or to what the agent itself may not read, waits for the verifier to read it. One that has the
name of a file which the tests write or copy would have them write into another one: it becomes a file of its own.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from benchflow.errors import SandboxError, SandboxGone, VerifierError
from benchflow.sandbox.base import OUTPUT_LIMIT, FileData
from benchflow.verify.environment import OPEN_TO_ALL, SYSTEM_PATH
from benchflow.verify.evidence import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchflow.sandbox.base import Sandbox
    from benchflow.verify.links import Alias
    from benchflow.verify.setting import Setting

LOOK_TIMEOUT = 60.0
"""Seconds that asking where links lead may take."""

ASKED_AT_ONCE = 200
"""Links that are asked about with one command."""

_NOBODY = 65534
_PROGRAMS = re.compile(r"/\.?bin/[^/]+$|/node_modules/")
_UNREADABLE = 'for link do [ -r "$link" ] || printf "%s\\0" "$link"; done'


async def settle_links(box: Sandbox, links: Mapping[str, Alias], setting: Setting) -> list[Finding]:
    """Undo such links where the agent works. Raises SandboxError, VerifierError."""
    places = tuple(f"{place.rstrip('/')}/" for place in (setting.workdir, *OPEN_TO_ALL))
    links = {path: alias for path, alias in links.items() if path.startswith(places)}
    astray = await _astray(box, links, setting)
    words = setting.words | setting.test_files
    # A program may look for its parts beside what a link to it leads to, and tests write none.
    named = {path for path in links if posixpath.basename(path) in words and not _PROGRAMS.search(path)}
    files = {path: await _content(box, links[path].end) for path in named.difference(astray)}
    own = {path: content for path, content in files.items() if content is not None}
    await box.restore([*astray, *own])
    for path, content in own.items():
        await box.put({path.lstrip("/"): FileData(content, links[path].mode)}, "/")
    return [
        *(Finding(path, "link", "warning", "restored", "leads to what the agent could not read") for path in astray),
        *(Finding(path, "link", "info", "edited", "is a file of its own now") for path in sorted(own)),
    ]


async def _astray(box: Sandbox, links: Mapping[str, Alias], setting: Setting) -> list[str]:
    """The links that lead nowhere, or to what the agent may not read."""
    asked, user = sorted(links), setting.user
    if setting.root:
        # Root may read everything, and may have replaced the shell.
        return [path for path in asked if not await _exists(box, links[path].end)]
    if setting.copied:
        # The agent is nobody here; what is in the workspace was its own.
        asked, user = [path for path in asked if not setting.in_workspace(links[path].end)], _NOBODY
    sound = [path for path in asked if _is_text(path)]
    found = set(asked) - set(sound)
    for start in range(0, len(sound), ASKED_AT_ONCE):
        argv = ["/bin/sh", "-c", _UNREADABLE, "sh", *sound[start : start + ASKED_AT_ONCE]]
        env = {"PATH": ":".join(SYSTEM_PATH), "LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "ENV": ""}
        done = await box.exec(argv, user=user or 0, env=env, cwd="/", timeout=LOOK_TIMEOUT)
        if not done.ok:
            raise VerifierError(f"links could not be looked at: {done.stderr.decode('utf-8', 'replace').strip()}")
        found |= set(done.stdout.decode("utf-8", "replace").split("\0")) & set(sound)
    return sorted(found)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _exists(box: Sandbox, path: str) -> bool:
    try:
        await box.read(path or "/", limit=0)
    except FileNotFoundError:
        return False
    except SandboxGone:
        raise
    except SandboxError:
        return True
    return True


async def _content(box: Sandbox, path: str) -> bytes | None:
    try:
        return await box.read(path, limit=OUTPUT_LIMIT)
    except SandboxGone:
        raise
    except (FileNotFoundError, SandboxError):
        return None
