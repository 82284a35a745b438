"""How repositories may be written, what each means, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import ConfigError
from benchflow.task.git import git_environment
from benchflow.task.repo import Repo, is_commit, mask, parse_repo, secrets_of, tree_splits

if TYPE_CHECKING:
    from pathlib import Path

HASH = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "url", "ref", "path"),
    [
        ("org/repo", "https://github.com/org/repo.git", None, None),
        ("org/repo.git", "https://github.com/org/repo.git", None, None),
        ("org/repo@v1.0", "https://github.com/org/repo.git", "v1.0", None),
        ("org/repo@feature/x", "https://github.com/org/repo.git", "feature/x", None),
        ("gitlab.com/org/sub/repo", "https://gitlab.com/org/sub/repo", None, None),
        ("https://example.org/org/repo/", "https://example.org/org/repo", None, None),
        ("https://example.org:8443/org/repo.git@v2", "https://example.org:8443/org/repo.git", "v2", None),
        ("ssh://git@example.org:22/org/repo", "ssh://git@example.org:22/org/repo", None, None),
        ("git@example.org:org/repo.git", "git@example.org:org/repo.git", None, None),
        ("git@example.org:org/repo@v1", "git@example.org:org/repo", "v1", None),
        ("file:///srv/repo.git", "file:///srv/repo.git", None, None),
        ("/srv/a b", "file:///srv/a%20b", None, None),
        ("https://github.com/org/repo/tree/main", "https://github.com/org/repo", "main", None),
        (f"https://github.com/org/repo/tree/{HASH}/a/b", "https://github.com/org/repo", HASH, "a/b"),
    ],
)
def test_every_way_to_write_a_repository(text: str, url: str, ref: str | None, path: str | None) -> None:
    assert parse_repo(text) == Repo(url, url, ref, path)


def test_local_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_repo("./x").url == parse_repo("~/x").url == (tmp_path / "x").as_uri()


@pytest.mark.parametrize("page", ["https://h.org/o/r/tree/", "https://h.org/o/r/-/tree/"])
def test_where_the_ref_of_a_page_ends_is_left_to_the_repository(page: str) -> None:
    repo = parse_repo(f"{page}feature/x/tasks")
    assert (repo.url, repo.tree) == ("https://h.org/o/r", "feature/x/tasks")
    assert tree_splits(repo.tree) == [("feature/x/tasks", None), ("feature/x", "tasks"), ("feature", "x/tasks")]
    assert parse_repo(f"{page}feature/x/tasks", ref="feature/x").path == "tasks"


@pytest.mark.parametrize(
    ("text", "path", "ref"),
    [
        ("https://h.org/o/r/tree/main/tasks", None, "dev"),
        ("https://h.org/o/r/tree/main/tasks", "other", None),
        ("o/r@v1", None, "v2"),
    ],
)
def test_contradictions_are_refused(text: str, path: str | None, ref: str | None) -> None:
    with pytest.raises(ConfigError, match="give only one of them"):
        parse_repo(text, path, ref)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "repo", "a/b/c", "-x", "--upload-pack=touch x", "ext::sh -c id", "fd::3", "foo://h/x", "ssh://-oProxy/x",
        "https:///x", "https://h.org/o/r?token=x", "https://h.org/o/r#x", "http://[::1/x", "a/b\nc", "a\0/b",
        "o/r/../..", "u:token@h.org/o/r", "~nobody-of-that-name/x",
    ],
)  # fmt: skip
def test_what_is_no_repository_is_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_repo(text)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize("ref", ["-x", "--all", "a..b", "a b", "x:y", "^x", "a~1", "x.lock", "/x", "x/", "@{1}", "*"])
def test_refs_that_git_could_misread_are_refused(ref: str) -> None:
    with pytest.raises(ConfigError, match="is not a branch, tag or commit"):
        parse_repo("o/r", None, ref)


@pytest.mark.parametrize("path", ["..", "a/../../b", "/etc", "~/x", ".git", "a/.GIT/hooks", "a\nb"])
def test_paths_that_lead_out_of_the_repository_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is not a folder inside the repository"):
        parse_repo("o/r", path)


def test_paths_are_normalised() -> None:
    assert parse_repo("o/r", "./a//b/").path == "a/b"
    assert parse_repo("o/r", ".").path == ""


def test_a_credential_is_kept_apart_from_what_is_shown() -> None:
    repo = parse_repo("https://me:p%40ss@h.org/o/r")
    assert (repo.url, repo.secret_url) == ("https://h.org/o/r", "https://me:p%40ss@h.org/o/r")
    assert "p%40ss" not in repr(repo)
    assert secrets_of(repo) == ["me:p%40ss", "me:p@ss", "p%40ss", "p@ss"]
    assert parse_repo("https://token@h.org/o/r").url == "https://h.org/o/r"
    assert parse_repo("ssh://git:pw@h.org/o/r").url == "ssh://git@h.org/o/r"


def test_masking_hides_credentials_and_nothing_else() -> None:
    assert (
        mask("x https://me:pw@h/o, http://t@h and ssh://git:pw@h/x")
        == "x https://***@h/o, http://***@h and ssh://git:***@h/x"
    )
    for plain in ("https://h/o/r@v1", "git@h:o/r", "ssh://git@h/o", "user@example.org"):
        assert mask(plain) == plain


def test_git_gets_the_credential_through_its_environment_and_keeps_the_users_settings() -> None:
    given_env = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
        "GIT_DIR": "/x",
        "HOME": "/h",
    }
    env = git_environment(parse_repo("https://t@h.org/o/r"), given_env)
    settings_given = [
        (env[f"GIT_CONFIG_KEY_{i}"], env[f"GIT_CONFIG_VALUE_{i}"]) for i in range(int(env["GIT_CONFIG_COUNT"]))
    ]
    assert settings_given[0] == ("a.b", "c")
    assert settings_given[-1] == ("url.https://t@h.org/o/r.insteadOf", "https://h.org/o/r")
    assert "GIT_DIR" not in env
    assert (env["HOME"], env["GIT_TERMINAL_PROMPT"]) == ("/h", "0")


_TEXT = st.text(st.sampled_from("ab/.:@-~%? \n\0é[") | st.characters(), max_size=20)


@settings(deadline=None)
@given(
    _TEXT | st.tuples(st.sampled_from(["https://", "ssh://", "file://", "git@h:"]), _TEXT).map("".join), _TEXT, _TEXT
)
def test_any_text_gives_a_safe_repository_or_a_diagnosis(text: str, path: str, ref: str) -> None:
    try:
        repo = parse_repo(text, path, ref)
    except ConfigError:
        return
    assert not repo.url.startswith("-")
    assert "::" not in repo.url.partition("/")[0]
    assert not (repo.ref or "").startswith("-")
    assert ".." not in (repo.path or "").split("/")
    assert not (repo.path or "").startswith("/")


def test_only_a_full_hash_is_a_commit() -> None:
    assert is_commit(HASH)
    assert not is_commit(HASH[:12])
    assert not is_commit(None)
