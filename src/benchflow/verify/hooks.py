"""Which changes against the image could influence a verifier, and what is to be done about each. Pure rules.

The guiding rule: what may be the work is kept, and made harmless where it stands (the verifier's environment looks
elsewhere, or the acting part of a file is taken out); only what has no other use is removed. A file that the image
shipped and the verifier stands on is put back when a plain user changed it, and reported when root did: root may have
upgraded a package on purpose, and half of an upgrade is worse than none.
"""

from __future__ import annotations

import posixpath
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from benchflow.verify.environment import search_path
from benchflow.verify.evidence import Finding
from benchflow.verify.links import secret_end, secret_end_elsewhere
from benchflow.verify.seen import SITE, Seen, module_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Severity

Part = Literal["pytest-ini", "pytest-toml", "entry-points", "pth", "git-config", "git-commondir"]
"""How the acting part of a file is told from the rest."""

READ = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("pyproject.toml", "setup.cfg", "tox.ini", "entry_points.txt", "pyvenv.cfg", "config", "__pycache__"),
    *("site-packages", "dist-packages", "bin"),
)
"""Names in the workspace whose content is compared with the image's; see `Sandbox.changes`."""

LOADER_CACHE = "/etc/ld.so.cache"

LISTED = 200
"""Findings of one family that are listed one by one; the rest are counted together."""

_TOOLCHAIN = re.compile(
    r"/(?:bin|sbin|lib|lib32|lib64|libx32"
    r"|usr/(?:bin|sbin|lib|lib32|lib64|libx32|libexec|share/perl5?|share/python3?)"
    r"|usr/local/(?:bin|sbin|lib|lib64|share/perl)|opt|etc/alternatives)/"
)
_INSIGNIFICANT = re.compile(r"/usr/lib/locale/|/(?:fontconfig|gdk-pixbuf[^/]*|gtk[^/]*|mime|dbus[^/]*|systemd)/")
_STDLIB = re.compile(r"/lib(?:64)?/python3?(?:\.\d+)?/(?!(?:site|dist)-packages(?:/|$))")
_STARTUP = re.compile(r"/(?:site|user)customize(?:\.[^/]*)?$")
_IMPORTED = ("py", "pyc", "so")
_CACHE = re.compile(r"(.*)/__pycache__/([^/.]+)\.[^/]*\.py[co]$")
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
_ROOT_CONFIG = re.compile(
    r"/etc/(?:ld\.so\.conf|apt/apt\.conf|dpkg/dpkg\.cfg|(?:xdg/pip/)?pip\.conf|uv/|gitconfig|npmrc|wgetrc|nsswitch\.conf|perl/|python)"
    r"|/gconv/|/glibc-hwcaps/|/usr/local/(?:lib|share)/(?:[^/]+/)*(?:site_)?perl"
    r"|/pyvenv\.cfg$|python[^/]*\._pth$|/python\d+\.zip$"
)
_PACKAGE_SOURCE = re.compile(
    r"/etc/(?:apt/(?:sources|preferences|trusted|auth|keyrings)|apk/|yum\.repos\.d/|dnf/|pacman)"
    r"|/var/lib/dpkg/info/[^/]+\.(?:pre|post)(?:inst|rm)$"
)
_INSTALLERS = frozenset({"apt", "apt-get", "apk", "yum", "dnf", "microdnf", "pacman"})
_LIBRARY = re.compile(
    r"/usr/local/lib(?:64)?/(?:[^/]+/)?lib(?:c|m|dl|pthread|rt|resolv|stdc\+\+|gcc_s|z|ssl|crypto|crypt|tinfo|ncursesw?"
    r"|readline|selinux|pcre2?(?:-8)?|acl|attr|cap|gmp|ffi|expat|sqlite3|lzma|bz2|zstd|lz4|uuid|mpdec|python3[.\d]*|perl"
    r"|curl(?:-gnutls)?|nghttp2|ssh2|psl|idn2|unistring|gnutls|nettle|hogweed|p11-kit|pam|audit|systemd|jq|onig|magic"
    r"|sigsegv|mpfr|nsl|tirpc|gssapi_krb5|krb5|k5crypto|com_err|brotli(?:dec|common)|md|bsd|db-[.\d]+)\.so"
)
_SHELL_USE = re.compile(r"bash\s+(?:-\w*[li]|--login)|/etc/profile|\.bashrc|\bsu\s+-")

TOOLS = frozenset(
    """sh bash dash env python python3 pip pip3 pytest py.test uv uvx curl wget git node npm npx tar gzip unzip chmod
    chown mkdir mktemp rm cp mv ln ls cat tee head tail sed awk gawk mawk grep egrep sort uniq tr cut wc diff cmp find
    xargs test [ true false sleep timeout id whoami uname dirname basename readlink realpath date touch expr seq printf
    echo stat md5sum sha256sum apt apt-get dpkg apk ldconfig perl which command jq make gcc su sudo""".split()  # noqa: SIM905
)
"""Programs that scripts run without naming them where we could read it."""

TEST_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "pytest_json_ctrf", "py", "exceptiongroup"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know. `words` are all words in the task's own test files.

    `copied` says that everything which differs was carried over from the agent's sandbox, whoever owns it now; `live`,
    that processes of the agent go on beside the verifier.
    """

    workdir: str
    env: Mapping[str, str] = field(default_factory=dict)
    root: bool = False
    copied: bool = False
    live: bool = False
    words: frozenset[str] = frozenset()
    login_shell: bool = False
    clean_conftests: bool = True
    remove_hooks: bool = True
    restore_files: bool = True
    git_hooks: bool = False

    def in_workspace(self, path: str) -> bool:
        return self.workdir != "/" and path.startswith(f"{self.workdir.rstrip('/')}/")

    def writes(self, change: Change) -> bool:
        """Whether the agent could have made this change: what belongs to root alone, a plain user could not.

        The owner of what was deleted is the image's word; the workspace was the agent's all the same.
        """
        if change.kind == "deleted" and self.in_workspace(change.path):
            return True
        return self.root or self.copied or change.uid != 0 or (change.type != "link" and bool(change.mode & 0o022))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings; paths to be put back to the image's state; files of which a part has to be looked at; the names of all
    Python modules that were added outside of where packages are installed; and folders of programs in the workspace,
    the agent's to write, that belong to virtual environments which the tests name."""

    findings: list[Finding]
    restore: list[str]
    inspect: list[tuple[Change, Part]]
    new_modules: frozenset[str]
    programs: frozenset[str]


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Every word in the task's test files that could name a program or a module."""
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z0-9_.+\[-]+", text))


def wants_login_shell(texts: Iterable[str]) -> bool:
    """Whether the task's test files start shells that read start-up files."""
    return any(_SHELL_USE.search(text) for text in texts)


def judge(changes: Sequence[Change], setting: Setting) -> Judgement:
    """Decide about every change. What none of the rules knows is the agent's work and none of our business."""
    mine = [change for change in changes if setting.writes(change)]
    seen = Seen.of(mine, setting)
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
    modules = (_module_name(change) for change in mine)
    named = (path for path in seen.programs & seen.above if path.split("/")[-2] in setting.words)
    return Judgement(summed(findings), _outermost(restore), inspect, frozenset(filter(None, modules)), frozenset(named))


def _module_name(change: Change) -> str:
    """The name by which an added file or folder could be imported, if there is one."""
    if change.kind != "added" or SITE.search(change.path):
        return ""
    stem, dot, suffix = posixpath.basename(change.path).partition(".")
    # A link may stand for either.
    importable = (change.type != "file" and not dot) or (change.type != "folder" and suffix.endswith(_IMPORTED))
    return stem if importable and stem.isidentifier() and stem.isascii() else ""


def _part(change: Change, setting: Setting, seen: Seen) -> Part | None:
    """Whether the file acts only by a part of it."""
    if change.kind not in ("added", "modified") or change.type == "folder":
        return None
    folder, name = posixpath.split(change.path)
    part: Part | None = None
    if setting.clean_conftests and name in ("setup.cfg", "tox.ini"):
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
    for rule in (_link, _pytest, _python, _packages, _loader, _toolchain, _shadow, _installed_from, _root_only, _inert):
        if found := rule(change, setting, seen):
            return found
    return None


def _made(
    change: Change, family: str, severity: Severity, detail: str, *, restored: bool, otherwise: str = "left"
) -> Finding:
    action = "restored" if restored else otherwise
    return Finding(change.path, family, severity, action, detail)  # type: ignore[arg-type]


def _link(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    if change.type != "link" or change.kind == "deleted":
        return None
    if end := secret_end(change.path, seen.links) or (secret_end_elsewhere(change.link) if setting.live else None):
        detail = f"leads to {end}" if end.startswith("/proc/") else f"a link to {end}, where the verifier's files are"
        return _made(change, "link", "critical", detail, restored=setting.remove_hooks)
    return None


def _pytest(change: Change, setting: Setting, _: Seen) -> Finding | None:
    name = posixpath.basename(change.path)
    if name == "conftest.py" or re.fullmatch(r"\.?pytest\.(?:ini|toml)", name):
        if change.kind == "touched":
            return None
        did = "was not in the image" if change.kind == "added" else f"was {change.kind}"
        return _made(change, "pytest", "warning", did, restored=setting.clean_conftests)
    return None


def _python(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    if _STARTUP.search(change.path) and change.kind in ("added", "modified"):
        return _made(
            change, "python-startup", "critical", "runs at every start of Python", restored=setting.remove_hooks
        )
    if cached := _CACHE.match(change.path):
        if change.kind not in ("added", "modified") or f"{cached[1]}/{cached[2]}.py" in seen.added:
            return None
        return _made(change, "bytecode", "info", "made for a file of the image", restored=setting.remove_hooks)
    if posixpath.basename(change.path) == "__pycache__" and change.type == "link" and change.kind != "deleted":
        return _made(change, "bytecode", "warning", "a link to other bytecode", restored=setting.remove_hooks)
    return None


def _packages(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """Modules of the workspace: those of a virtual environment that the image shipped, and those that hide others."""
    site = setting.in_workspace(change.path) and SITE.search(change.path)
    if change.kind == "modified" and site:
        return _made(change, "packages", "warning", "was modified", restored=setting.restore_files)
    if site and change.kind != "touched" and module_place(change) in seen.hidden:
        return _made(change, "packages", "warning", "hides a module of the image", restored=setting.restore_files)
    folder, name = posixpath.split(change.path)
    if name == "pip.conf" and setting.in_workspace(folder) and f"{folder}/bin" in seen.programs:
        return _made(change, "packages", "warning", "obeyed by the pip beside it", restored=setting.remove_hooks)
    if name == "pyvenv.cfg" and change.kind in ("modified", "deleted"):
        return _made(change, "packages", "warning", f"was {change.kind}", restored=setting.restore_files)
    top, at_top = _top_module(change.path, setting.workdir)
    if at_top and change.kind == "added" and (top in sys.stdlib_module_names or top in TEST_MODULES):
        return _made(change, "module-shadowing", "warning", f"named like {top}", restored=False, otherwise="ignored")
    return None


def _top_module(path: str, folder: str) -> tuple[str, bool]:
    head, _, name = path.rpartition("/")
    return re.split(r"\.", name)[0], head == folder.rstrip("/") and not name.startswith(".")


def _loader(change: Change, setting: Setting, _: Seen) -> Finding | None:
    if change.path == "/etc/ld.so.preload" and change.kind in ("added", "modified"):
        return _made(change, "loader", "critical", "is loaded into every program", restored=setting.remove_hooks)
    if change.path == LOADER_CACHE and change.kind in ("added", "modified"):
        return _made(change, "loader", "info", "is made anew", restored=False, otherwise="edited")
    return None


def _toolchain(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """A file of the image that programs of a verifier stand on."""
    path = change.path
    if change.kind in ("added", "touched") or "/__pycache__/" in path:
        return None
    in_path = posixpath.dirname(path) in seen.programs or (change.type == "link" and path in seen.above)
    if setting.in_workspace(path) and not in_path:
        return None
    if not in_path and (not _TOOLCHAIN.match(path) or _INSIGNIFICANT.search(path)):
        return None
    if change.kind == "deleted" and not setting.root:
        return None
    put_back = setting.restore_files and (not setting.root or setting.in_workspace(path))
    return _made(change, "system-file", "critical", f"shipped by the image and {change.kind}", restored=put_back)


def _shadow(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """A program or module that is found before, or instead of, the one that the verifier means."""
    if change.kind != "added" or change.type == "folder":
        return None
    folder, name = posixpath.split(change.path)
    if folder not in seen.programs:
        return None
    if name in TOOLS or (name in setting.words and folder in search_path(setting.env.get("PATH", ""))):
        detail = "a program that the verifier may run by name"
        put_back = setting.remove_hooks and (not setting.root or setting.in_workspace(change.path))
        return _made(change, "path-shadowing", "critical", detail, restored=put_back)
    return None


def _installed_from(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """Where a verifier that installs packages gets them from, and what runs when it does."""
    if not setting.root or not _INSTALLERS & setting.words or not _PACKAGE_SOURCE.match(change.path):
        return None
    if change.kind == "modified" or (change.kind == "added" and change.path.startswith("/etc/")):
        return _made(change, "system-configuration", "critical", "where the verifier installs from", restored=False)
    return None


def _root_only(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """What only root can add, and takes effect in programs that the image shipped."""
    path = change.path
    if not setting.root or setting.in_workspace(path) or change.kind not in ("added", "modified"):
        return None
    if _ROOT_CONFIG.search(path) and not path.startswith(("/home/", "/tmp/", "/root/")):  # noqa: S108 - a name
        return _made(change, "system-configuration", "critical", "obeyed by programs of the image", restored=False)
    if _LIBRARY.match(path):
        return _made(change, "loader", "critical", "a library that is found before the image's", restored=False)
    if change.kind == "added" and _STDLIB.search(path) and _TOOLCHAIN.match(path) and "/__pycache__" not in path:
        return _made(change, "packages", "critical", "among the modules of the image's Python", restored=False)
    if change.kind == "added" and (site := SITE.search(path)):
        top = re.split(r"[./-]", path[site.end() :])[0]
        if top in TEST_MODULES or (top in setting.words and not top.startswith("__")):
            return _made(change, "packages", "critical", f"the verifier may import {top}", restored=False)
    return None


def _inert(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """What the verifier does not look at, but a reader of the result may want to know."""
    path, found = change.path, None
    if change.kind in ("added", "modified", "touched") and change.type == "file" and change.mode & 0o6000:
        found = _made(change, "setuid", "warning", f"mode {change.mode:o}", restored=False)
    elif change.kind not in ("added", "modified") or change.type == "folder":
        return None
    elif _LOGIN.search(path):
        read = setting.login_shell and path.startswith("/etc/")
        severity: Severity = "critical" if read else "info"
        found = _made(change, "shell-startup", severity, "", restored=False, otherwise="left" if read else "ignored")
    elif _GIT_HOOK.search(path):
        found = _made(change, "git", "info", "", restored=False, otherwise="left" if setting.git_hooks else "ignored")
    elif _SCHEDULED.search(path):
        found = _made(change, "scheduled", "info", "nothing starts it", restored=False, otherwise="ignored")
    elif _HOME_CONFIG.search(path):
        found = _made(change, "tool-configuration", "info", "", restored=False, otherwise="ignored")
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


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those below another one of them."""
    kept: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not kept or not path.startswith(f"{kept[-1]}/"):
            kept.append(path)
    return kept
