"""Links of the agent's that are innocent by where they lead, and yet would lead a verifier astray.

One that leads nowhere, or to what the agent itself may not read, waits for the verifier to read it. One that has the
name of a file which the tests write or copy would have them write into another one: it becomes a file of its own.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from benchflow.errors import VerifierError
from benchflow.sandbox.base import FileData
from benchflow.verify.environment import HELPERS, OPEN_TO_ALL
from benchflow.verify.evidence import Finding
from benchflow.verify.reading import content, exists

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
    files = {path: await content(box, links[path].end) for path in named.difference(astray)}
    own = {path: held for path, held in files.items() if held is not None}
    await box.restore([*astray, *own])
    for path, held in own.items():
        await box.put({path.lstrip("/"): FileData(held, links[path].mode)}, "/")
    return [
        *(Finding(path, "link", "warning", "restored", "leads to what the agent could not read") for path in astray),
        *(Finding(path, "link", "info", "edited", "is a file of its own now") for path in sorted(own)),
    ]


async def _astray(box: Sandbox, links: Mapping[str, Alias], setting: Setting) -> list[str]:
    """The links that lead nowhere, or to what the agent may not read."""
    asked, user = sorted(links), setting.user
    if setting.root:
        # Root may read everything, and may have replaced the shell.
        return [path for path in asked if not await exists(box, links[path].end or "/")]
    if setting.copied:
        # The agent is nobody here; what is in the workspace was its own.
        asked, user = [path for path in asked if not setting.in_workspace(links[path].end)], _NOBODY
    sound = [path for path in asked if _is_text(path)]
    found = set(asked) - set(sound)
    for start in range(0, len(sound), ASKED_AT_ONCE):
        argv = ["/bin/sh", "-c", _UNREADABLE, "sh", *sound[start : start + ASKED_AT_ONCE]]
        done = await box.exec(argv, user=user or 0, env=HELPERS, cwd="/", timeout=LOOK_TIMEOUT)
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
