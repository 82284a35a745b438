"""What a verifier stands on: programs, libraries, modules and their configuration, as far as they are not the task's.

A file that the image shipped is put back when a plain user changed it, and reported when root did: root may have
upgraded a package on purpose, and half of an upgrade is worse than none. What root added is reported when it takes the
place of something that the image ships, when the tests name it, or when programs of the image obey it; all else that
root installs, and its work on data and services, is its own. Pure rules.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from benchflow.verify.environment import SYSTEM_PATH, search_path
from benchflow.verify.seen import SITE
from benchflow.verify.setting import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Finding
    from benchflow.verify.seen import Seen
    from benchflow.verify.setting import Setting

LOADER_CACHE = "/etc/ld.so.cache"

TEST_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "pytest_json_ctrf", "py", "exceptiongroup"})

_TOOLCHAIN = re.compile(
    r"/(?:bin|sbin|lib|lib32|lib64|libx32"
    r"|usr/(?:bin|sbin|lib|lib32|lib64|libx32|libexec|share/perl5?|share/python3?)"
    r"|usr/local/(?:bin|sbin|lib|lib64|share/perl)|opt|etc/alternatives)(?:/|$)"
)
_OTHER_TOOLCHAINS = re.compile(
    r"/(?:usr/(?:local/)?include|usr/local/(?:go|[^/]+/(?:bin|lib\w*|toolchains|gems))|nix|var/lib/gems"
    r"|usr/share/(?:nodejs|go|java|maven|php|cmake|ruby|rubygems|lua|dotnet|misc/magic)(?:[\d.-][^/]*)?"
    r"|(?:root|home/[^/]+)/\.(?:pyenv|nvm|rustup|cargo/bin|local/(?:bin|lib|share/uv)))(?:/|$)"
)
"""Beside those, what is reported when root changed it: toolchains that images bring along in places of their own."""

_MADE_BY_TOOLS = re.compile(
    r"/usr/lib/(?:locale/|systemd/(?:system|user)/|(?:[^/]+/)?(?:gdk-pixbuf|gio|gtk)[^/]*/(?:.*/)?[^/]+\.cache$)"
)
_STDLIB = re.compile(r"(/.*?/lib(?:64)?/python3?(?:\.\d+)?)/(?!(?:site|dist)-packages(?:/|$))")

_STARTS_WITH_PYTHON = "apport_python_hook"
"""What Debian's Python imports whenever it starts, if it is there."""

_SPLIT_OFF = frozenset({"_distutils_system_mod.py"})

_OWN = re.compile(r"/(?:home|tmp|root)/")
_CONFIGURATION = re.compile(
    r"/etc/(?:ld\.so\.conf|ld-musl-|pip\.conf|xdg(?:/pip(?:/pip\.conf)?)?$|uv(?:/|$)"
    r"|gitconfig|npmrc|nsswitch\.conf|perl/|pkcs11/)"
    r"|/gconv/|/glibc-hwcaps(?:/|$)|/libnss_[^/]+\.so\.\d|/usr/lib/gcc/.*/(?:specs|as|ld)$"
    r"|(?:/usr(?:/local)?)?/lib(?:64)?/(?:[^/]+-linux-[^/]+/)?(?:tls|haswell|avx512_1|x86_64|aarch64)(?:/|$)"
    r"|/usr/local/(?:lib|share)/(?:[^/]+/)?(?:(?:site_)?perl|site_ruby)(?:/|$)|/rubygems/defaults/operating_system\.rb$"
)
_BESIDE_PYTHON = re.compile(
    r"(.*?)/(?:pyvenv\.cfg|python[^/]*\._pth|python\d+\.zip|pybuilddir\.txt|Modules/Setup\.local)$"
)
_SEARCHED = re.compile(
    r"/etc$|/usr(?:/local)?(?:/(?:lib\w*|include|share))?$"
    r"|(?:/usr(?:/local)?)?/lib\w*/(?:[^/]+-linux-[^/]+|(?:[^/]+/)?(?:python3|perl)[^/]*(?:/[\d.]+|/(?:site|dist)-packages)?)$"
    r"|/usr/share/perl5$"
)
"""Folders that are searched: as a link, each brings along all that is found in another one."""

_READ_BY = (
    (re.compile(r"/etc/python"), "/usr/bin/python3"),
    (re.compile(r"/etc/wgetrc$"), "/usr/bin/wget"),
    (re.compile(r"/.*/ssl/openssl\.cnf$"), "/usr/lib/libcrypto.so.3"),
    (re.compile(r"/.*/ssl/openssl\.cnf$"), "/usr/lib/libcrypto.so.1.1"),
)
"""Configuration that, when it is new, means nothing where the image does not ship its reader."""

_OBEYED_BY = {
    ("apt", "apt-get", "apk", "yum", "dnf", "microdnf", "pacman"): re.compile(
        r"/etc/(?:apt/(?:apt\.conf|sources|preferences|trusted|auth|keyrings)|dpkg/dpkg\.cfg|apk/|yum\.repos\.d/|dnf/|pacman"
        r"|ca-certificates/update\.d/)|/usr/sbin/policy-rc\.d$|/var/lib/dpkg/info/[^/]+\.(?:pre|post)(?:inst|rm)$"
    ),
    ("su", "sudo", "runuser"): re.compile(r"/etc/(?:pam\.d|security|environment|sudo|login\.defs|default/su)"),
    ("php", "phpunit", "composer"): re.compile(r"/(?:usr/local/)?etc/(?:.*/)?php(?:.*/)?[^/]+\.ini$"),
    ("ssh", "scp", "sftp", "rsync"): re.compile(r"/etc/ssh/ssh_config"),
    ("node", "nodejs", "npm", "npx"): re.compile(r"/node_modules(?:/|$)"),
    ("R", "Rscript"): re.compile(r"/.*/Rprofile\.site$"),
}
"""What is configuration of the work itself, unless the tests run one of these programs."""

_LIBRARY = re.compile(r".*?/(?:([^/]+-linux-[^/]+)/)?((?:lib|ld-)[^/]+\.so(?:\.[^/]*)?)$")
_HEADER = re.compile(r"/usr/local/include/(.+)$")
_PERL = re.compile(r"/(?:etc/perl|usr/share/perl5|usr/lib/[^/]+/perl5(?:/[\d.]+)?)/(.+)$")
_MACHINES = ("x86_64-linux-gnu", "aarch64-linux-gnu")
_PERLS = (
    *(f"/usr/lib/{machine}/perl-base" for machine in _MACHINES),
    *(f"/usr/share/perl/5.{minor}.{patch}" for minor in range(30, 46, 2) for patch in (0, 1, 2, 3)),
)


def questions(change: Change, setting: Setting) -> Iterator[str]:
    """Paths of the image that make a difference to what an added file means."""
    if change.kind != "added" or change.type == "folder":
        return
    folder, name = posixpath.split(change.path)
    folders = search_path(setting.env.get("PATH", ""))
    if folder in folders or (setting.in_workspace(folder) and folder.endswith("/bin")):
        yield from (f"{other}/{name}" for other in folders if other != folder)
    elif setting.root and not setting.in_workspace(folder):
        yield from _meant(change.path)


def _meant(path: str) -> Iterator[str]:
    """Where the image may have what is found under the same name as a library, module or header at `path`."""
    if found := _STDLIB.match(path):
        folder, name = posixpath.split(path)
        yield from (f"{folder}/{name.partition('.')[0]}{suffix}" for suffix in ("", ".py"))
    elif found := SITE.search(path):
        yield from _modules(path[: found.start()], path[found.end() :].split("/", maxsplit=1)[0])
    elif found := _LIBRARY.match(path):
        for machine in [found[1]] if found[1] else _MACHINES:
            for folder in ("/lib", "/usr/lib", "/usr/local/lib"):
                yield from (f"{folder}/{machine}/{found[2]}", f"{folder}/{found[2]}", f"{folder}64/{found[2]}")
    elif found := _HEADER.match(path):
        yield from (f"/usr/include/{place}{found[1]}" for place in ("", *(f"{machine}/" for machine in _MACHINES)))
    elif found := _PERL.match(path):
        yield from (f"{folder}/{found[1]}" for folder in _PERLS)
    yield from _readers(path)


def _readers(path: str) -> Iterator[str]:
    for places, reader in _READ_BY:
        if places.match(path):
            yield from (reader, *_meant(reader))


@lru_cache(maxsize=1024)
def _modules(library: str, entry: str) -> tuple[str, ...]:
    """The names that hide, or are hidden by, an entry of a folder of packages; `library` is the folder above that."""
    stem = entry.partition(".")[0]
    version = posixpath.basename(library).removeprefix("python")
    tag = f"{stem}.cpython-{version.replace('.', '')}"
    names = {entry, stem, f"{stem}.py", f"{stem}.abi3.so", *(f"{tag}-{machine}.so" for machine in _MACHINES)}
    libraries = {library, "/usr/lib/python3", *(f"{top}/python{version}" for top in ("/usr/lib", "/usr/local/lib"))}
    folders = [
        f"{folder}/{packages}" for folder in sorted(libraries) for packages in ("site-packages", "dist-packages")
    ]
    return tuple(f"{folder}/{name}" for folder in folders for name in sorted(names))


def _loader(change: Change, setting: Setting, _: Seen) -> Finding | None:
    if change.path == "/etc/ld.so.preload" and change.kind in ("added", "modified"):
        # Root's is already in the first process of the copy that is scored.
        put_back = setting.remove_hooks and not setting.root
        return made(change, "loader", "critical", "is loaded into every program", restored=put_back)
    if change.path == LOADER_CACHE and change.kind == "deleted":
        return made(change, "loader", "info", "the image's is put back, and brought up to date", restored=True)
    return None


def _toolchain(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """A file of the image that programs of a verifier stand on."""
    path = change.path
    if change.kind == "added" or "/__pycache__/" in path:
        return None
    in_path = posixpath.dirname(path) in seen.programs or (change.type == "link" and path in seen.above)
    if not in_path and (setting.in_workspace(path) or not _stood_on(path, setting, seen)):
        return None
    runs = not in_path or change.type != "file" or change.mode & 0o111
    if (change.kind == "deleted" and not setting.root) or (change.kind == "touched" and (runs or not setting.root)):
        return None
    put_back = setting.restore_files and (not setting.root or setting.in_workspace(path))
    return made(change, "system-file", "critical", f"shipped by the image and {change.kind}", restored=put_back)


def _stood_on(path: str, setting: Setting, seen: Seen) -> bool:
    if _TOOLCHAIN.match(path) or not setting.root:
        return bool(_TOOLCHAIN.match(path)) and not _MADE_BY_TOOLS.match(path)
    libraries = tuple(f"{posixpath.dirname(folder).rstrip('/')}/lib" for folder in seen.programs)
    return path.startswith(libraries) or bool(_OTHER_TOOLCHAINS.match(path) or SITE.search(path))


def _shadow(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """A program that is found before, or instead of, the one that the verifier means."""
    if change.kind != "added" or change.type == "folder":
        return None
    folder, name = posixpath.split(change.path)
    if folder not in seen.programs:
        return None
    folders = search_path(setting.env.get("PATH", ""))
    shipped = {other for other in folders if f"{other}/{name}" in seen.shipped}
    # The folders of the verifier come in the image's order, those of our own preparations in the system's.
    orders = [order for order in (folders, list(SYSTEM_PATH)) if folder in order]
    later = {other for order in orders for other in order[order.index(folder) :]} if orders else shipped
    # A program that nobody else has is the one that the tests mean, unless they install it, or root made it.
    doubtful = (setting.root and not setting.in_workspace(folder)) or name in setting.installs
    if shipped & later or (not shipped and doubtful and name in setting.words and folder in folders):
        detail = "a program that the verifier may run by name"
        put_back = setting.remove_hooks and (not setting.root or setting.in_workspace(change.path))
        return made(change, "path-shadowing", "critical", detail, restored=put_back)
    return None


def _configuration(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """What only root can write, and programs that the image shipped obey."""
    path = change.path
    if not _by_root(change, setting) or (_OWN.match(path) and not _OTHER_TOOLCHAINS.match(path)):
        return None
    beside, readers = _BESIDE_PYTHON.match(path), list(_readers(path))
    read = readers if change.kind == "modified" else not seen.shipped.isdisjoint(readers)
    # In a folder of its own, it is part of an environment of its own.
    if read or _CONFIGURATION.search(path) or (beside and beside[1] not in seen.added):
        return made(change, "system-configuration", "critical", "obeyed by programs of the image", restored=False)
    for programs, places in _OBEYED_BY.items():
        installed = change.kind == "added" and path.startswith("/var/lib/")
        if places.match(path) and not setting.words.isdisjoint(programs) and not installed:
            return made(change, "system-configuration", "critical", "obeyed by what the tests run", restored=False)
    return None


def _searched_link(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """A link in the place of a folder in which programs, libraries or modules are found."""
    if change.type != "link" or not _by_root(change, setting):
        return None
    if _SEARCHED.match(change.path) or any(f"{folder}/".startswith(f"{change.path}/") for folder in seen.programs):
        return made(change, "link", "critical", "leads the verifier's programs elsewhere", restored=False)
    return None


def _added_by_root(change: Change, setting: Setting, seen: Seen) -> Finding | None:
    """What only root can add, and is found before, or instead of, what the image ships."""
    path = change.path
    if not _by_root(change, setting) or change.kind != "added" or "/__pycache__" in path:
        return None
    if (found := _STDLIB.match(path)) and _TOOLCHAIN.match(path) and found[1] not in seen.added:
        return _standard(change, found, seen)
    if site := SITE.search(path):
        return _package(change, site, setting, seen)
    folder = posixpath.dirname(path)
    private = _LIBRARY.match(path) and folder in seen.added and not _SEARCHED.match(folder)
    if not private and not seen.shipped.isdisjoint(_meant(path)):
        return made(change, "loader", "critical", "found under a name that the image ships", restored=False)
    return None


def _standard(change: Change, library: re.Match[str], seen: Seen) -> Finding | None:
    """A file among the modules of the image's Python. What Debian splits off lies in folders, under new names."""
    name, below, _ = change.path[library.end() :].partition("/")
    split_off = name != "lib-dynload" if below else name in _SPLIT_OFF
    if split_off and seen.shipped.isdisjoint(_meant(change.path)):
        return None
    return made(change, "packages", "critical", "among the modules of the image's Python", restored=False)


def _package(change: Change, site: re.Match[str], setting: Setting, seen: Seen) -> Finding | None:
    path = change.path
    packages, top = path[: site.end() - 1], path[site.end() :].partition("/")[0]
    name = re.split(r"[.-]", top)[0]
    if (packages in seen.added and not packages.startswith("/usr/")) or top.endswith((".pth", "-info")):
        return None
    into = f"{packages}/{top}" != path and f"{packages}/{top}" not in seen.added
    named = name in TEST_MODULES or name == _STARTS_WITH_PYTHON or (name in setting.words and not name.startswith("__"))
    if into or named or not seen.shipped.isdisjoint(_meant(path)):
        return made(change, "packages", "critical", f"the verifier may import {name}", restored=False)
    return None


def _by_root(change: Change, setting: Setting) -> bool:
    written = change.kind in ("added", "modified") and change.type != "folder"
    return setting.root and written and not setting.in_workspace(change.path)


RULES = (_loader, _toolchain, _shadow, _configuration, _searched_link, _added_by_root)
