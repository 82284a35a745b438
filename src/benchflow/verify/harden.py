"""Making a sandbox that an agent had fit for a verifier, and writing down what was found.

One look from outside says what differs from the image; the rules of `hooks` say what that means; the image's state is
put back where they say so. Nothing of the sandbox is run for any of it but, as the plain user that the agent was, a
shell which that user could not have replaced (see `aliases`). A step that fails is a VerifierError: there is no reward
without it.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from benchflow.errors import SandboxError, SandboxGone, VerifierError
from benchflow.sandbox.base import FileData
from benchflow.verify.aliases import settle_links
from benchflow.verify.environment import Modules
from benchflow.verify.evidence import Finding
from benchflow.verify.foundations import LOADER_CACHE
from benchflow.verify.hooks import Judgement, judge, names_read, questions, summed
from benchflow.verify.reading import content
from benchflow.verify.sections import (
    Unclear,
    editable_finders,
    harmless_git_config,
    leads_elsewhere,
    named_paths,
    swap_ini_section,
    swap_tables,
    without_import_lines,
)
from benchflow.verify.standins import tool_sections

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchflow.sandbox.base import Change, Sandbox
    from benchflow.verify.hooks import Part
    from benchflow.verify.setting import Setting

FILE_LIMIT = 1024 * 1024
"""Bytes of a configuration file that is taken apart; a longer one is put back as a whole."""

INSPECTED = 5000
"""Files of which a part is looked at; an agent that leaves more gets no reward."""

_OWN_REPOSITORY = "../.."
"""Where git itself has a working tree beside the main one look for its repository."""

_FAMILY = {"pytest-ini": "pytest", "pytest-toml": "pytest", "entry-points": "pytest", "pth": "python-startup"}


@dataclass(frozen=True, slots=True)
class Hardened:
    """All that was found, and what the verifier's environment has to know of it; see `ScriptCheck`."""

    findings: Sequence[Finding] = ()
    modules: Modules = field(default_factory=Modules)
    new_loader_cache: bool = False
    programs: frozenset[str] = frozenset()


class _Around(NamedTuple):
    """What else decides about a file: sections of tools that the tests use, and modules that a .pth file imports."""

    tools: Sequence[str]
    finders: Mapping[str, str]


async def harden(box: Sandbox, setting: Setting) -> Hardened:
    """Undo in `box` what could influence a verifier; returns what was found. Raises VerifierError, SandboxGone."""
    if not box.capabilities.changes:
        detail = "this sandbox cannot tell what differs from the image"
        return Hardened([Finding("/", "evidence", "critical" if setting.root else "info", "left", detail)])
    try:
        found = await _judged(box, setting)
        if len(found.inspect) > INSPECTED:
            raise VerifierError(f"the agent left {len(found.inspect)} configuration files to judge, over {INSPECTED}")
        findings, paths = await _apply(box, found, setting)
        if setting.remove_hooks and not setting.about_links:
            findings += await settle_links(box, found.links, setting)
    except SandboxGone:
        raise
    except SandboxError as error:
        raise VerifierError(f"the sandbox could not be made fit for the verifier: {error.message}") from error
    new_cache = any(finding.path == LOADER_CACHE for finding in findings)
    return Hardened(findings, replace(found.modules, paths=paths), new_cache, found.programs)


async def look_again(box: Sandbox, setting: Setting) -> None:
    """After a verifier that ran beside processes of a plain user: nothing that was undone is back.

    Raises VerifierError when it is, and there is no reward: the verifier may have been led by it; SandboxGone.
    """
    if not box.capabilities.changes:
        return
    try:
        # What the verifier itself left is root's; bytecode is what every server in Python leaves.
        found = await _judged(box, replace(setting, root=False))
    except SandboxGone:
        raise
    except SandboxError as error:
        raise VerifierError(f"the sandbox could not be looked at after the verifier: {error.message}") from error
    for finding in found.findings:
        if finding.action == "restored" and finding.severity != "info":
            raise VerifierError(
                f"{finding.path} was put there while the verifier ran beside the agent's server ({finding.detail})"
            )


async def _judged(box: Sandbox, setting: Setting) -> Judgement:
    changes = await box.changes(unread=setting.workdir, read=names_read(setting))
    asked = questions(changes, setting)
    return judge(changes, setting, await box.shipped(asked) if asked else ())


async def _apply(box: Sandbox, found: Judgement, setting: Setting) -> tuple[list[Finding], frozenset[str]]:
    """Returns all findings, and the folders that .pth files of the agent name."""
    findings = list(found.findings)
    paths: set[str] = set()
    mine = [(change, part, await _text(box, change.path)) for change, part in found.inspect]
    finders = {change.path: await _finders(box, change, text) for change, part, text in mine if part == "pth" and text}
    # The image's version can only be read once it is back in its place.
    shipped = [change.path for change, _, text in mine if change.kind == "modified" or text is None]
    await box.restore([*found.restore, *shipped])
    for change, part, text in mine:
        theirs = (await _text(box, change.path)) if change.kind == "modified" else ""
        around = _Around(tool_sections(part, setting), finders.get(change.path, {}))
        finding, use = _decide(change, part, text, theirs or "", around)
        if finding:
            findings.append(finding)
        if part == "pth" and change.kind == "added":
            paths |= named_paths(use or "", posixpath.dirname(change.path))
        if use is None:
            if change.kind == "added" and text is not None:
                await box.restore([change.path])
        elif use != text or change.kind == "modified":
            held = use.encode("utf-8", "surrogateescape")
            await box.put({change.path.lstrip("/"): FileData(held, change.mode)}, "/", owner=change.uid)
    return summed(findings), frozenset(paths)


def _decide(
    change: Change, part: Part, mine: str | None, theirs: str, around: _Around
) -> tuple[Finding | None, str | None]:
    """What is found in a file and the text it gets; None leaves the image's state, which is none for an added one."""
    family = _FAMILY.get(part, "git")
    if mine is None:
        detail = "is no plain file of bearable size"
        return Finding(change.path, family, "warning", "restored", detail), None
    if part == "loader-cache":
        return _loader_cache(change, mine, theirs), theirs or None
    try:
        use = _swapped(part, change.path, mine, theirs, around)
    except Unclear as error:
        return Finding(change.path, family, "warning", "restored", f"cannot be taken apart: {error}"), None
    if use is None:
        return None, mine
    return Finding(change.path, family, "warning", "edited", _TAKEN_OUT[part]), use


def _loader_cache(change: Change, mine: str, theirs: str) -> Finding:
    """It is brought up to date from the image's; but what ran before this has used the agent's."""
    if leads_elsewhere(mine, theirs):
        return Finding(change.path, "loader", "critical", "left", "led programs to other libraries")
    return Finding(change.path, "loader", "info", "restored", "the image's, brought up to date")


_TAKEN_OUT: dict[Part, str] = {
    "pytest-ini": "its sections for pytest, and for tools of the tests, are the image's, or none",
    "pytest-toml": "its tables for pytest, and for tools of the tests, are the image's, or none",
    "entry-points": "its pytest plugins were taken out",
    "pth": "its lines that run code were taken out",
    "git-config": "its settings that may run programs were taken out",
    "git-commondir": "led to the settings of another repository",
}


def _swapped(part: Part, path: str, mine: str, theirs: str, around: _Around) -> str | None:
    match part:
        case "pytest-ini":
            return swap_ini_section(
                mine, theirs, "pytest" if path.endswith("tox.ini") else "tool:pytest", *around.tools
            )
        case "pytest-toml":
            return swap_tables(mine, theirs, "tool.pytest", *around.tools)
        case "entry-points":
            return swap_ini_section(mine, theirs, "pytest11")
        case "pth":
            # Where the image's file ran code, its version is used as it is.
            return theirs if theirs and mine != theirs else without_import_lines(mine, around.finders)
        case "git-config":
            return harmless_git_config(mine)
        case _:
            return None if mine.strip() == _OWN_REPOSITORY else f"{_OWN_REPOSITORY}\n"


async def _finders(box: Sandbox, change: Change, text: str) -> dict[str, str]:
    """The modules that lines of a .pth file import to find editable installations, by their names."""
    folder = posixpath.dirname(change.path)
    return {name: await _text(box, f"{folder}/{name}.py") or "" for name in editable_finders(text)}


async def _text(box: Sandbox, path: str) -> str | None:
    held = await content(box, path, FILE_LIMIT)
    return None if held is None else held.decode("utf-8", "surrogateescape")
