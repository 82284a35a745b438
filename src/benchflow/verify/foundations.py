"""What a verifier stands on: programs, libraries, modules and their configuration, as far as they are not the task's.

A file that the image shipped is put back when a plain user changed it, and reported when root did: root may have
upgraded a package on purpose, and half of an upgrade is worse than none. Pure rules.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from benchflow.verify.environment import search_path
from benchflow.verify.seen import SITE
from benchflow.verify.setting import made

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchflow.sandbox.base import Change
    from benchflow.verify.evidence import Finding
    from benchflow.verify.seen import Seen
    from benchflow.verify.setting import Setting

LOADER_CACHE = "/etc/ld.so.cache"

_TOOLCHAIN = re.compile(
    r"/(?:bin|sbin|lib|lib32|lib64|libx32"
    r"|usr/(?:bin|sbin|lib|lib32|lib64|libx32|libexec|share/perl5?|share/python3?)"
    r"|usr/local/(?:bin|sbin|lib|lib64|share/perl)|opt|etc/alternatives)/"
)
_INSIGNIFICANT = re.compile(r"/usr/lib/locale/|/(?:fontconfig|gdk-pixbuf[^/]*|gtk[^/]*|mime|dbus[^/]*|systemd)/")
_STDLIB = re.compile(r"/lib(?:64)?/python3?(?:\.\d+)?/(?!(?:site|dist)-packages(?:/|$))")
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
TOOLS = frozenset(
    """sh bash dash env python python3 pip pip3 pytest py.test uv uvx curl wget git node npm npx tar gzip unzip chmod
    chown mkdir mktemp rm cp mv ln ls cat tee head tail sed awk gawk mawk grep egrep sort uniq tr cut wc diff cmp find
    xargs test [ true false sleep timeout id whoami uname dirname basename readlink realpath date touch expr seq printf
    echo stat md5sum sha256sum apt apt-get dpkg apk ldconfig perl which command jq make gcc su sudo""".split()  # noqa: SIM905
)
"""Programs that scripts run without naming them where we could read it."""

TEST_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "pytest_json_ctrf", "py", "exceptiongroup"})


def questions(change: Change, setting: Setting) -> Iterator[str]:
    """Paths of the image that make a difference to what an added file means."""
    if change.kind == "added" and change.type != "folder":
        folder, name = posixpath.split(change.path)
        folders = search_path(setting.env.get("PATH", ""))
        if folder in folders:
            yield from (f"{other}/{name}" for other in folders if other != folder)


def _loader(change: Change, setting: Setting, _: Seen) -> Finding | None:
    if change.path == "/etc/ld.so.preload" and change.kind in ("added", "modified"):
        return made(change, "loader", "critical", "is loaded into every program", restored=setting.remove_hooks)
    if change.path == LOADER_CACHE and change.kind in ("added", "modified"):
        return made(change, "loader", "info", "is made anew", restored=False, otherwise="edited")
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
    return made(change, "system-file", "critical", f"shipped by the image and {change.kind}", restored=put_back)


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
        return made(change, "path-shadowing", "critical", detail, restored=put_back)
    return None


def _installed_from(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """Where a verifier that installs packages gets them from, and what runs when it does."""
    if not setting.root or not _INSTALLERS & setting.words or not _PACKAGE_SOURCE.match(change.path):
        return None
    if change.kind == "modified" or (change.kind == "added" and change.path.startswith("/etc/")):
        return made(change, "system-configuration", "critical", "where the verifier installs from", restored=False)
    return None


def _root_only(change: Change, setting: Setting, _: Seen) -> Finding | None:
    """What only root can add, and takes effect in programs that the image shipped."""
    path = change.path
    if not setting.root or setting.in_workspace(path) or change.kind not in ("added", "modified"):
        return None
    if _ROOT_CONFIG.search(path) and not path.startswith(("/home/", "/tmp/", "/root/")):  # noqa: S108 - a name
        return made(change, "system-configuration", "critical", "obeyed by programs of the image", restored=False)
    if _LIBRARY.match(path):
        return made(change, "loader", "critical", "a library that is found before the image's", restored=False)
    if change.kind == "added" and _STDLIB.search(path) and _TOOLCHAIN.match(path) and "/__pycache__" not in path:
        return made(change, "packages", "critical", "among the modules of the image's Python", restored=False)
    if change.kind == "added" and (site := SITE.search(path)):
        top = re.split(r"[./-]", path[site.end() :])[0]
        if top in TEST_MODULES or (top in setting.words and not top.startswith("__")):
            return made(change, "packages", "critical", f"the verifier may import {top}", restored=False)
    return None


RULES = (_loader, _toolchain, _shadow, _installed_from, _root_only)
