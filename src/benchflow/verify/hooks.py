"""Which changes against the image could influence a verifier, and what is to be done about each. Pure rules.

The guiding rule: what may be the work is kept, and made harmless where it stands (the verifier's environment looks
elsewhere, or the acting part of a file is taken out); only what has no other use is removed.
"""

from __future__ import annotations

import posixpath
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from benchflow.verify import foundations, standins
from benchflow.verify.environment import Modules, search_path
from benchflow.verify.evidence import Finding
from benchflow.verify.foundations import TEST_MODULES
from benchflow.verify.links import Alias, resolve, secret_end, secret_end_elsewhere
from benchflow.verify.seen import SITE, Seen, module_place
from benchflow.verify.setting import made

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Severity
    from benchflow.verify.setting import Setting

Part = Literal["pytest-ini", "pytest-toml", "entry-points", "pth", "git-config", "git-commondir", "loader-cache"]
"""How the acting part of a file is told from the rest."""

READ = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("pyproject.toml", "setup.cfg", "tox.ini", "entry_points.txt", "pyvenv.cfg", "config", "__pycache__"),
    *("site-packages", "dist-packages", "bin"),
)
"""Names in the workspace whose content is always compared with the image's."""

LISTED = 200
"""Findings of one family that are listed one by one; the rest are counted together."""

_NODE_WORDS = frozenset({"node", "npm", "npx", "yarn", "pnpm", "jest", "mocha", "vitest"})
_NODE_ASKED = frozenset(
    {"npm", "yarn", "pnpm", "node_modules", "package.json", "dependency", "dependencies", "upgrade"}
)
_STARTUP = re.compile(r"/(?:site|user)customize(?:\.[^/]*)?$")
_IMPORTED = ("py", "pyc", "so")
_CACHE = re.compile(r"/__pycache__(?:/[^/]+\.py[co])?$")
_INFO = re.compile(r"\.(?:dist|egg)-info$", re.IGNORECASE)
_DISTRIBUTION = re.compile(r"(?:\.(?:dist|egg)|/egg)-info/[^/]+$", re.IGNORECASE)
_GIT_CONFIG = re.compile(r"\.git(?:/modules/.*|/worktrees/[^/]+)?/(?:config(?:\.worktree)?|commondir)$")
_GIT_PARTS: dict[str, Part] = {
    "config": "git-config",
    "config.worktree": "git-config",
    "commondir": "git-commondir",
}
_GIT_HOOK = re.compile(r"\.git/hooks/(?![^/]*\.sample$)[^/]+$")
_SCHEDULED = re.compile(r"/etc/(?:cron|at\.|anacron|rc\.local|init\.d/)|/var/spool/(?:cron|at)/|/systemd/user/")
_LOGIN = re.compile(r"/etc/(?:profile|bash\.bashrc|environment|zsh|csh)|/\.(?:bash|zsh|profile|login|inputrc)[^/]*$")
_HOME_CONFIG = re.compile(r"/(?:\.curlrc|\.netrc|\.wgetrc|\.gitconfig|\.npmrc|pip\.conf|uv\.toml|\.pypirc|\.condarc)$")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings; paths to be put back to the image's state; files of which a part has to be looked at; what Python has
    to know of modules; folders of programs in the workspace, the agent's to write, that belong to virtual environments
    which the tests name; and links that are innocent by where they lead."""

    findings: list[Finding]
    restore: list[str]
    inspect: list[tuple[Change, Part]]
    modules: Modules
    programs: frozenset[str]
    links: Mapping[str, Alias]


def names_read(setting: Setting) -> tuple[str, ...]:
    """Names in the workspace whose content is compared with the image's; see `Sandbox.changes`."""
    folders = [folder for folder in search_path(setting.env.get("PATH", "")) if setting.in_workspace(folder)]
    own = {posixpath.basename(folder) for folder in folders} | ({"lib", "lib64"} if folders else set())
    node = () if _NODE_WORDS.isdisjoint(setting.words) else ("node_modules",)
    return (*READ, *sorted(own), *node)


def questions(changes: Sequence[Change], setting: Setting) -> list[str]:
    """Paths of which `judge` has to know whether the image ships them."""
    mine = [change for change in changes if setting.writes(change)]
    rooms = (foundations, standins)
    asked = [path for change in mine for room in rooms for path in room.questions(change, setting)]
    names = {_module_name(change) for change in mine} - {""}
    top = setting.workdir.rstrip("/")
    return list(dict.fromkeys([*asked, *(f"{top}/{name}{suffix}" for name in sorted(names) for suffix in ("", ".py"))]))


def judge(changes: Sequence[Change], setting: Setting, shipped: Collection[str] = ()) -> Judgement:
    """Decide about every change. What none of the rules knows is the agent's work and none of our business.

    `shipped` are those of `questions` that the image has.
    """
    mine = [change for change in changes if setting.writes(change) and not setting.declares(change)]
    seen = Seen.of(mine, setting, shipped)
    findings: list[Finding] = []
    restore: list[str] = []
    inspect: list[tuple[Change, Part]] = []
    for change in mine:
        if part := _part(change, setting, seen):
            inspect.append((change, part))
        elif finding := _finding(change, setting, seen):
            findings.append(finding)
            if finding.action == "restored":
                restore.append(change.path)
    top = setting.workdir.rstrip("/")
    known = {posixpath.basename(path).removesuffix(".py") for path in seen.shipped if posixpath.dirname(path) == top}
    own = frozenset(known.union(filter(None, (_own_module(change, setting) for change in mine))))
    added = (_module_name(change) for change in mine if not _is_copy(change, own, setting))
    named = (path for path in seen.programs & seen.above if path.split("/")[-2] in setting.words)
    restore = _outermost(restore)
    kept = (change.path for change in mine if change.path in seen.links and change.kind in ("added", "modified"))
    gone, modes = frozenset(restore), {change.path: change.mode for change in mine if change.kind != "deleted"}
    ends = {path: resolve(path, seen.links)[0] for path in kept if not _is_below(path, gone)}
    links = {path: Alias(end, modes.get(end, 0o755)) for path, end in ends.items()}
    packages = (_package_place(change, setting, seen) for change in mine if not _is_below(change.path, gone))
    return Judgement(
        summed(findings),
        restore,
        inspect,
        Modules(frozenset(filter(None, added)), own, frozenset(filter(None, packages))),
        frozenset(named),
        links,
    )


def _own_module(change: Change, setting: Setting) -> str:
    """The name of what the image has at the top of the workspace and could be imported."""
    at_top = posixpath.dirname(change.path) == setting.workdir.rstrip("/")
    if not at_top or change.kind not in ("touched", "modified"):
        return ""
    return _module_name(replace(change, kind="added"))


def _is_copy(change: Change, own: Collection[str], setting: Setting) -> bool:
    """Whether an added module lies where nobody looks for it, while one of the same name is the image's own."""
    name = _module_name(change)
    top = setting.workdir.rstrip("/")
    near = posixpath.dirname(change.path) == top or change.path.startswith(f"{top}/{name}/")
    return name in own and not near


def _module_name(change: Change) -> str:
    """The name by which an added file or folder could be imported, if there is one."""
    if change.kind != "added" or SITE.search(change.path):
        return ""
    folder, name = posixpath.split(change.path)
    stem, dot, suffix = name.partition(".")
    if stem == "__init__":
        stem = posixpath.basename(folder)
    # A link may stand for either.
    importable = (change.type != "file" and not dot) or (change.type != "folder" and suffix.endswith(_IMPORTED))
    return stem if importable and stem.isidentifier() and stem.isascii() else ""


def _package_place(change: Change, setting: Setting, seen: Seen) -> str:
    """Where among the packages of the workspace a module was added, unless the image has one there."""
    place = module_place(change) or (change.path if change.type == "folder" else "")
    folder, name = posixpath.split(place)
    new = change.kind == "added" and setting.in_workspace(place) and place not in seen.hidden
    return place if new and name.isidentifier() and folder.endswith(("/site-packages", "/dist-packages")) else ""


def _part(change: Change, setting: Setting, seen: Seen) -> Part | None:
    """Whether the file acts only by a part of it."""
    if change.kind not in ("added", "modified") or change.type == "folder":
        return None
    folder, name = posixpath.split(change.path)
    part: Part | None = None
    if change.path == foundations.LOADER_CACHE:
        part = "loader-cache"
    elif setting.clean_conftests and name in ("setup.cfg", "tox.ini"):
        part = "pytest-ini"
    elif setting.clean_conftests and name == "pyproject.toml":
        part = "pytest-toml"
    elif setting.remove_hooks and name == "entry_points.txt" and _DISTRIBUTION.search(change.path):
        part = "entry-points"
    elif setting.remove_hooks and name.endswith(".pth") and SITE.search(change.path):
        part = "pth"
    elif not setting.git_hooks and (_GIT_CONFIG.search(change.path) or folder in seen.repositories):
        part = _GIT_PARTS.get(name)
    return part


def _finding(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    for rule in (_link, standins.stands_in, _pytest, _python, _packages, *foundations.RULES, standins.obeyed, _inert):
        if found := rule(change, setting, seen):
            return found
    return None


def _link(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    if change.type != "link" or change.kind == "deleted":
        return None
    if end := secret_end(change.path, seen.links) or (secret_end_elsewhere(change.link) if setting.live else None):
        detail = f"leads to {end}" if end.startswith("/proc/") else f"a link to {end}, where the verifier's files are"
        return made(change, "link", "critical", detail, restored=setting.remove_hooks)
    return None


def _pytest(change: Change, setting: Setting, _: Seen) -> Finding | None:
    name = posixpath.basename(change.path)
    if name == "conftest.py" or re.fullmatch(r"\.?pytest\.(?:ini|toml)", name):
        if change.kind == "touched":
            return None
        did = "was not in the image" if change.kind == "added" else f"was {change.kind}"
        return made(change, "pytest", "warning", did, restored=setting.clean_conftests)
    return None


def _python(change: Change, setting: Setting, _: Seen) -> Finding | None:
    if _STARTUP.search(change.path) and change.kind in ("added", "modified"):
        return made(
            change, "python-startup", "critical", "runs at every start of Python", restored=setting.remove_hooks
        )
    if change.kind not in ("added", "modified"):
        return None
    if change.type == "link" and _INFO.search(change.path):
        return made(change, "python-startup", "warning", "a link to other plugins", restored=setting.remove_hooks)
    if posixpath.basename(change.path) == "__pycache__" and change.type == "link":
        return made(change, "bytecode", "warning", "a link to other bytecode", restored=setting.remove_hooks)
    if _CACHE.search(change.path):
        # Whatever it was made from: a file of the verifier's may take the place of that.
        return made(change, "bytecode", "info", "is made anew when it is needed", restored=setting.remove_hooks)
    return None


def _packages(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """Modules of the workspace: those of a virtual environment that the image shipped, and those that hide others."""
    site = setting.in_workspace(change.path) and _shipped_code(change.path, setting, seen)
    if change.kind == "modified" and site:
        return made(change, "packages", "warning", "was modified", restored=setting.restore_files)
    if site and change.kind != "touched" and module_place(change) in seen.hidden:
        return made(change, "packages", "warning", "hides a module of the image", restored=setting.restore_files)
    folder, name = posixpath.split(change.path)
    if name == "pip.conf" and setting.in_workspace(folder) and f"{folder}/bin" in seen.programs:
        return made(change, "packages", "warning", "obeyed by the pip beside it", restored=setting.remove_hooks)
    if name == "pyvenv.cfg" and change.kind in ("modified", "deleted"):
        return made(change, "packages", "warning", f"was {change.kind}", restored=setting.restore_files)
    top, at_top = _top_module(change.path, setting.workdir)
    if at_top and change.kind == "added" and (top in sys.stdlib_module_names or top in TEST_MODULES):
        return made(change, "module-shadowing", "warning", f"named like {top}", restored=False, otherwise="ignored")
    return None


def _shipped_code(path: str, setting: Setting, seen: Seen) -> bool:
    """Whether what the image has at a path of the workspace is others' code: packages, or an interpreter's own."""
    if "/node_modules/" in path and setting.asked.isdisjoint(_NODE_ASKED):
        return True
    return bool(SITE.search(path)) or path.startswith(tuple(f"{prefix}/lib" for prefix in seen.prefixes))


def _top_module(path: str, folder: str) -> tuple[str, bool]:
    head, _, name = path.rpartition("/")
    return re.split(r"\.", name)[0], head == folder.rstrip("/") and not name.startswith(".")


def _inert(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """What the verifier does not look at, but a reader of the result may want to know."""
    path, found = change.path, None
    if change.kind in ("added", "modified", "touched") and change.type == "file" and change.mode & 0o6000:
        found = made(change, "setuid", "warning", f"mode {change.mode:o}", restored=False)
    elif change.kind not in ("added", "modified") or change.type == "folder":
        return None
    elif _LOGIN.search(path):
        read = setting.login_shell and path.startswith("/etc/")
        severity: Severity = "critical" if read else "info"
        found = made(change, "shell-startup", severity, "", restored=False, otherwise="left" if read else "ignored")
    elif _GIT_HOOK.search(path):
        found = made(change, "git", "info", "", restored=False, otherwise="left" if setting.git_hooks else "ignored")
    elif _SCHEDULED.search(path):
        found = made(change, "scheduled", "info", "nothing starts it", restored=False, otherwise="ignored")
    elif _HOME_CONFIG.search(path):
        found = made(change, "tool-configuration", "info", "", restored=False, otherwise="ignored")
    return found


def summed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings with those beyond `LISTED` of a kind counted in one."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.family, finding.severity, finding.action), []).append(finding)
    kept: list[Finding] = []
    for found in groups.values():
        # Bytecode is only of interest as a number.
        listed = 0 if found[0].family == "bytecode" else LISTED
        kept += found[:listed]
        if rest := found[listed:]:
            first = rest[0]
            kept.append(Finding(first.path, first.family, first.severity, first.action, first.detail, len(rest)))
    return kept


def _is_below(path: str, folders: Collection[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:length]) in folders for length in range(2, len(parts) + 1))


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those below another one of them."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not kept or not path.startswith(f"{kept[-1]}/"):
            kept.append(path)
    return kept
