from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import SandboxBuildError
from benchflow.sandbox import dockerignore
from benchflow.sandbox.dockerignore import context_digest, context_files, parse_ignore

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "name", "ignored"),
    [
        ("file", "file", True),
        ("file", "dir/file", False),
        ("/file", "file", True),
        ("./file/", "file", True),
        ("a/../file", "file", True),
        ("dir", "dir/deep/file", True),
        ("*", "file", True),
        ("*", "dir/file", True),
        ("*.txt", "dir/a.txt", False),
        ("*/*.txt", "dir/a.txt", True),
        ("**", "dir/file", True),
        ("**/", "file", True),
        ("**/file", "file", True),
        ("**/file", "dir/dir/file", True),
        ("**/file", "dir/myfile", False),
        ("**/*.txt", "a.txt", True),
        ("**/*.txt", "x/y/a.txt", True),
        ("**.pyc", "x/a.pyc", True),
        ("**file", "dir/file", True),
        ("a**/*.txt", "a/dir/x.txt", True),
        ("dir/**", "dir", False),
        ("dir/**", "dir/a/b", True),
        ("**/dir2/*", "dir/dir2/file", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a[b-d]e", "ace", True),
        ("a[b-d]e", "aae", False),
        ("a[^b-d]e", "aze", True),
        ("a[\\-x]", "a-", True),
        (r"a\*b", "a*b", True),
        (r"a\*b", "axb", False),
        ("a.b", "axb", False),
        ("a(b)|c+$", "a(b)|c+$", True),
        (".*", ".git", True),
        (".*", "git", False),
        ("a?b", "a☺b", True),
        ("line*", "line\nbreak", True),
        ("file   ", "file", True),
        ("   file", "file", True),
        ("#file", "#file", False),
        ("\ufefffile", "file", True),
        ("/", "file", False),
        (".", "file", False),
    ],
)
def test_one_pattern_matches_as_docker_does(pattern: str, name: str, *, ignored: bool) -> None:
    assert parse_ignore(pattern).ignored(name) is ignored


@pytest.mark.parametrize(
    ("lines", "name", "ignored"),
    [
        (["*.md", "!README.md"], "README.md", False),
        (["!README.md", "*.md"], "README.md", True),
        (["docs", "!docs/a"], "docs/a", False),
        (["docs", "!docs/a"], "docs/b", True),
        (["**", "!keep"], "keep/below", False),
        (["**", "!keep", "keep/secret"], "keep/secret", True),
        (["*", "! spaced "], "spaced", False),
        (["# *", "", "a"], "b", False),
    ],
)
def test_the_last_match_wins(lines: list[str], name: str, *, ignored: bool) -> None:
    assert parse_ignore("\n".join(lines)).ignored(name) is ignored


@pytest.mark.parametrize(
    "pattern", ["!", "!  ", "[", "[^", "[^bc", "a[", "[]a]", "[-]", "[x-]", "[a-b-c]", "[b-a]", "\\"]
)
def test_a_malformed_pattern_is_named_with_its_line(pattern: str) -> None:
    with pytest.raises(SandboxBuildError, match=r"\.dockerignore:2"):
        parse_ignore(f"fine\n{pattern}\n")


@settings(deadline=None)
@given(st.text(), st.text(min_size=1))
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    try:
        rules = parse_ignore(text)
    except SandboxBuildError:
        return
    assert rules.ignored(name) in {True, False}


def _tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def _names(context: Path, dockerfile: str = "Dockerfile") -> list[str]:
    return [file.name for file in context_files(context, dockerfile)]


def test_the_listing_is_sorted_and_has_folders_before_their_content(tmp_path: Path) -> None:
    _tree(tmp_path, "b/x", "a-b", "a/z", "a/y/q", "Dockerfile")
    (tmp_path / "empty").mkdir()
    assert _names(tmp_path) == ["Dockerfile", "a", "a/y", "a/y/q", "a/z", "a-b", "b", "b/x", "empty"]


def test_a_kept_file_keeps_its_ignored_folders(tmp_path: Path) -> None:
    _tree(tmp_path, "a/b/keep", "a/b/drop", "c/drop", "Dockerfile")
    (tmp_path / ".dockerignore").write_text("*\n!a/b/keep\n")
    assert _names(tmp_path) == ["a", "a/b", "a/b/keep"]


def test_a_wildcard_exception_reaches_into_ignored_folders(tmp_path: Path) -> None:
    _tree(tmp_path, "a/b/x.keep", "a/b/drop")
    (tmp_path / ".dockerignore").write_text("*\n!**/*.keep\n")
    assert _names(tmp_path) == ["a", "a/b", "a/b/x.keep"]


def test_the_dockerfiles_own_ignore_file_replaces_the_general_one(tmp_path: Path) -> None:
    _tree(tmp_path, "x", "y", "Dockerfile", "sub/Other")
    (tmp_path / ".dockerignore").write_text("x\n")
    (tmp_path / "sub" / "Other.dockerignore").write_text("y\nsub\n.dockerignore")
    assert "x" not in _names(tmp_path)
    assert _names(tmp_path, "sub/Other") == ["Dockerfile", "x"]


def test_links_are_listed_and_never_followed(tmp_path: Path) -> None:
    secret = _tree(tmp_path / "outside", "secret")
    context = _tree(tmp_path / "context", "Dockerfile")
    (context / "folder").symlink_to(secret)
    (context / "file").symlink_to(secret / "secret")
    (context / "dangling").symlink_to("nowhere")
    links = {file.name: file.target for file in context_files(context) if file.kind == "link"}
    assert links == {"folder": str(secret), "file": str(secret / "secret"), "dangling": "nowhere"}


def test_sockets_and_pipes_are_left_out(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert _names(tmp_path) == []


def test_a_dockerfile_that_leads_out_of_the_context_is_refused(tmp_path: Path) -> None:
    _tree(tmp_path, "secret", "context/x")
    (tmp_path / "context" / "Dockerfile").symlink_to("../secret")
    with pytest.raises(SandboxBuildError, match="leads out of the build context"):
        context_digest(tmp_path / "context")


def test_a_missing_context_or_dockerfile_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxBuildError, match="is not a folder"):
        context_files(tmp_path / "nowhere")
    with pytest.raises(SandboxBuildError, match="Dockerfile cannot be read"):
        context_digest(tmp_path)


def test_the_digest_follows_what_the_build_can_see(tmp_path: Path) -> None:
    _tree(tmp_path, "Dockerfile", "a/file", "ignored")
    (tmp_path / ".dockerignore").write_text("ignored\nDockerfile\n")
    (tmp_path / "link").symlink_to("a/file")
    seen = {context_digest(tmp_path)}

    def changed() -> bool:
        before = len(seen)
        seen.add(context_digest(tmp_path))
        return len(seen) > before

    assert not changed()
    (tmp_path / "ignored").write_text("other")
    os.utime(tmp_path / "a" / "file", (1, 1))
    assert not changed()
    (tmp_path / "a" / "file").write_text("A/file")
    assert changed()
    (tmp_path / "a" / "file").chmod(0o755)
    assert changed()
    (tmp_path / "a" / "file").rename(tmp_path / "a" / "file2")
    assert changed()
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("a/file2")
    assert changed()
    (tmp_path / "Dockerfile").write_text("FROM scratch")
    assert changed()
    (tmp_path / "empty").mkdir()
    assert changed()


def test_a_remembered_digest_notices_a_rewrite_of_the_same_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dockerignore, "SETTLED", -1.0)
    _tree(tmp_path, "Dockerfile", "file")
    first = context_digest(tmp_path)
    assert context_digest(tmp_path) == first
    (tmp_path / "new").write_text("elif")
    (tmp_path / "new").replace(tmp_path / "file")
    assert context_digest(tmp_path) != first


def test_names_that_are_not_utf8_are_kept(tmp_path: Path) -> None:
    _tree(tmp_path, "Dockerfile")
    (tmp_path / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    assert os.fsencode(_names(tmp_path)[-1]) == b"\xff\xfe"
    assert context_digest(tmp_path) == context_digest(tmp_path)
