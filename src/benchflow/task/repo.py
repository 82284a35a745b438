"""How a user names a repository, and what that means: pure parsing, nothing is contacted here.

Accepted: `org/repo[@ref]` (GitHub), `host/org/repo`, https, http, ssh, git and file URLs, `…/tree/<ref>/<folder>`
pages, `user@host:path`, and local repositories as `/path`, `./path` or `~/path`. A name can never become an option of
git, a path never leaves the repository, and a credential in a URL is kept apart from all that is printed or stored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from benchflow.errors import ConfigError

SCHEMES = ("https", "http", "ssh", "git", "file")
FORMS = "org/repo, a git URL (https, ssh, git, file), user@host:path, or ./path of a local repository"

_SCP = re.compile(r"(?:\w[\w.+-]*@)?\w[\w.-]*:/?[^:/@\s-][^@/]*(?:/.*)?")
_BAD_REF = re.compile(r"^[-/]|[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/$|\.lock$")
_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/@\s]*)@", re.IGNORECASE)
_BARE_USERINFO = re.compile(r"(?<![/\w])[^\s/:@]+:[^\s/@]*@")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Repo(NamedTuple):
    """A repository, and what of it is wanted.

    `url` carries no credential; `secret_url` is the one that does, or the same. `path` is "" for the whole repository
    and None when nothing was said. `tree` is `<ref>/<folder>` of a web page, whose border only the repository's own
    refs can tell; it is empty when `ref` and `path` say it all.
    """

    url: str
    secret_url: str
    ref: str | None = None
    path: str | None = None
    tree: str = ""

    def __repr__(self) -> str:
        """Without the credential, since this is what ends up in logs."""
        return f"Repo({self.url!r}, ref={self.ref!r}, path={self.path!r}, tree={self.tree!r})"


def parse_repo(repo: str, path: str | None = None, ref: str | None = None) -> Repo:
    """What `repo` names. Raises ConfigError when it names none, or `path` or `ref` is unsafe or contradicts it."""
    text = repo.strip()
    if not text or text.startswith("-") or not text.isprintable():
        raise ConfigError(f"{mask(repo)!r} is not a repository", hint=f"write {FORMS}")
    found = _parse(text)
    if found.ref and ref and found.ref != ref:
        raise ConfigError(
            f"{mask(repo)} asks for {found.ref}, and the ref asks for {ref}", hint="give only one of them"
        )
    found = found._replace(ref=check_ref(ref or found.ref))
    if found.tree:
        found = _settle_tree(found)
    if path is not None and (found.path or found.tree):
        raise ConfigError(f"{mask(repo)} names a folder, and so does the path {path}", hint="give only one of them")
    return found._replace(path=check_path(path) if path is not None else found.path)


def check_ref(ref: str | None) -> str | None:
    """`ref` as it is. Raises ConfigError when git could read it as anything but the name of one commit."""
    if ref and _BAD_REF.search(ref):
        raise ConfigError(
            f"{ref!r} is not a branch, tag or commit", hint="write a name such as main, v1.0 or a full hash"
        )
    return ref or None


def check_path(path: str) -> str:
    """A folder inside a repository, normalised; "" is all of it. Raises ConfigError when it could lead out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith(("/", "~")) or ".." in parts or ".git" in map(str.lower, parts) or not path.isprintable():
        raise ConfigError(
            f"{path!r} is not a folder inside the repository", hint="write it relative to the repository's root"
        )
    return "/".join(parts)


def is_commit(ref: str | None) -> bool:
    """Whether `ref` is a full hash, which names the same content for ever."""
    return bool(ref and _COMMIT.fullmatch(ref))


def tree_splits(tree: str) -> list[tuple[str, str | None]]:
    """Every way to read `<ref>/<folder>`, the longest ref first; those that could not be a ref are left out."""
    parts = tree.split("/")
    pairs = [("/".join(parts[:end]), "/".join(parts[end:])) for end in range(len(parts), 0, -1)]
    return [(ref, check_path(path) or None) for ref, path in pairs if not _BAD_REF.search(ref)]


def mask(text: str) -> str:
    """`text` with the credentials of every URL in it made unreadable."""

    def hide(match: re.Match[str]) -> str:
        user, colon, _ = match["user"].partition(":")
        if match["scheme"].lower().startswith("http"):
            return f"{match['scheme']}***@"
        return f"{match['scheme']}{user}:***@" if colon else match[0]

    return _BARE_USERINFO.sub("***@", _USERINFO.sub(hide, text))


def secrets_of(repo: Repo) -> list[str]:
    """Every spelling of the credential in the URL that git might print, longest first."""
    if repo.secret_url == repo.url:
        return []
    user = urlsplit(repo.secret_url).netloc.rpartition("@")[0]
    parts = {user, *([user.partition(":")[2]] if ":" in user else [])}
    spellings = parts | {unquote(part) for part in parts}
    return sorted((spelling for spelling in spellings if spelling), key=len, reverse=True)


def _parse(text: str) -> Repo:
    if "://" in text:
        return _parse_url(text)
    if text.startswith((".", "/", "~")):
        return _plain(_local(text).as_uri())
    if _SCP.fullmatch(text):
        host, _, path = text.partition(":")
        path, ref = _split_ref(path)
        return _plain(f"{host}:{path}")._replace(ref=ref)
    name, _, ref = text.rstrip("/").partition("@")
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name):
        return _plain(f"https://github.com/{name.removesuffix('.git')}.git")._replace(ref=ref or None)
    if re.fullmatch(r"\w[\w-]*\.[\w.-]+/.+/.+", name):
        return _parse_url("https://" + text)
    raise ConfigError(f"{mask(text)!r} is not a repository", hint=f"write {FORMS}")


def _parse_url(text: str) -> Repo:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        shown = text.partition("://")[0]
        fix = "write / and @ in a user name or password as %2F and %40"
        raise ConfigError(f"{shown}://... is not a valid URL", hint=fix) from None
    if parts.scheme not in SCHEMES or host.startswith("-") or not (host or parts.scheme == "file"):
        raise ConfigError(f"{mask(text)} is not a repository", hint=f"write {FORMS}")
    if parts.query or parts.fragment:
        raise ConfigError(f"{mask(text.partition('?')[0])} has something after the path", hint="leave out ? and #")
    if parts.scheme == "file":
        return _plain(text.rstrip("/"))
    path, tree = _split_tree(parts.path.rstrip("/"))
    ref = None
    if not tree:
        path, ref = _split_ref(path)
    user, _, place = parts.netloc.rpartition("@")
    shown = f"{user.partition(':')[0]}@{place}" if user and parts.scheme == "ssh" else place
    return Repo(f"{parts.scheme}://{shown}{path}", f"{parts.scheme}://{parts.netloc}{path}", ref=ref, tree=tree)


def _plain(url: str) -> Repo:
    return Repo(url, url)


def _local(text: str) -> Path:
    try:
        return Path(text).expanduser().resolve()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"{text} is not a repository: {error}") from error


def _split_tree(path: str) -> tuple[str, str]:
    """The repository's part of a web address, and `<ref>/<folder>` behind it."""
    match = re.fullmatch(r"(/[^/]+/.*?[^/])(?:/-)?/tree/(.+)", path)
    return (match[1], unquote(match[2])) if match else (path, "")


def _split_ref(path: str) -> tuple[str, str | None]:
    """`repo@ref` at the end of a path, apart."""
    name, _, ref = path.rpartition("/")[2].partition("@")
    if not (name and ref):
        return path, None
    return path[: len(path) - len(ref) - 1], ref


def _settle_tree(repo: Repo) -> Repo:
    """Read `<ref>/<folder>` as far as it is certain; raises ConfigError when it contradicts the ref that was given."""
    if repo.ref:
        if repo.tree != repo.ref and not repo.tree.startswith(f"{repo.ref}/"):
            raise ConfigError(f"{repo.url}/tree/{repo.tree} is not at {repo.ref}", hint="give only one of them")
        return repo._replace(path=check_path(repo.tree[len(repo.ref) + 1 :]) or None, tree="")
    first, _, rest = repo.tree.partition("/")
    if is_commit(first) or not rest:
        return repo._replace(ref=check_ref(first), path=check_path(rest) or None, tree="")
    check_path(rest)
    return repo
