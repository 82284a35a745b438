"""Which changes are found, what is done about each, and what is left alone because it may be the work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.sandbox.base import Change
from benchflow.verify.evidence import Finding, count, tampering_document
from benchflow.verify.hooks import LISTED, judge, summed
from benchflow.verify.links import resolve
from benchflow.verify.setting import Setting, words_of

USER = Setting("/app", {"PATH": "/app/.venv/bin:/usr/bin:/bin"}, words=frozenset({"mytool", "requests"}))
SHIPPED = {"/usr/bin/bash", "/usr/bin/pytest"}


def by_agent(path: str, kind: str = "added", **more: object) -> Change:
    return Change(path, kind, **{"uid": 1000, **more})  # type: ignore[arg-type]


def verdict(change: Change, setting: Setting) -> tuple[str, str, str] | None:
    found = judge([change], setting, SHIPPED)
    if not found.findings:
        return None
    finding = found.findings[0]
    assert (finding.action == "restored") == (change.path in found.restore)
    return finding.family, finding.severity, finding.action


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("/app/conftest.py", "added", ("pytest", "warning", "restored")),
        ("/app/tests/conftest.py", "modified", ("pytest", "warning", "restored")),
        ("/app/conftest.py", "touched", None),
        ("/app/pytest.ini", "added", ("pytest", "warning", "restored")),
        ("/app/sitecustomize.py", "added", ("python-startup", "critical", "restored")),
        ("/tmp/usercustomize.cpython-311-x86_64-linux-gnu.so", "added", ("python-startup", "critical", "restored")),
        ("/app/__pycache__/solve.cpython-311.pyc", "added", ("bytecode", "info", "restored")),
        ("/app/json.py", "added", ("module-shadowing", "warning", "ignored")),
        ("/app/pytest", "added", ("module-shadowing", "warning", "ignored")),
        ("/app/.venv/lib/python3.11/site-packages/numpy/core.py", "modified", ("packages", "warning", "restored")),
        ("/app/.venv/lib/python3.11/site-packages/new/core.py", "added", None),
        ("/app/.venv/bin/python", "modified", ("system-file", "critical", "restored")),
        ("/app/.venv/bin/pytest", "added", ("path-shadowing", "critical", "restored")),
        ("/app/.venv/bin/mytool", "added", None),
        ("/app/.venv/bin/solution-cli", "added", None),
        ("/app/bin/tool", "modified", None),
        ("/app/sub/.venv/bin/tool", "modified", ("system-file", "critical", "restored")),
        ("/app/sub/.venv/bin/bash", "added", ("path-shadowing", "critical", "restored")),
        ("/app/sub/.venv/bin/mytool", "added", None),
        ("/app/sub/.venv/pyvenv.cfg", "deleted", ("packages", "warning", "restored")),
        ("/app/sub/.venv/pip.conf", "added", ("packages", "warning", "restored")),
        ("/app/sub/pip.conf", "added", ("tool-configuration", "info", "ignored")),
        ("/app/conftest.py", "deleted", ("pytest", "warning", "restored")),
        ("/app/solve.py", "deleted", None),
        ("/usr/bin/python3", "modified", ("system-file", "critical", "restored")),
        ("/home/agent/.bashrc", "added", ("shell-startup", "info", "ignored")),
        ("/home/agent/.curlrc", "added", ("tool-configuration", "info", "ignored")),
        ("/app/.git/hooks/post-checkout", "added", ("git", "info", "ignored")),
        ("/app/.git/hooks/post-checkout.sample", "added", None),
        ("/app/solve.py", "modified", None),
        ("/app/data/answer.txt", "added", None),
        ("/home/agent/notes.md", "added", None),
    ],
)
def test_what_a_plain_user_changed(path: str, kind: str, expected: tuple[str, str, str] | None) -> None:
    assert verdict(by_agent(path, kind), USER) == expected


def test_what_belongs_to_root_was_not_a_plain_users_doing() -> None:
    assert verdict(Change("/etc/passwd", "modified"), USER) is None
    assert verdict(Change("/usr/bin/python3", "modified", mode=0o755), USER) is None
    assert verdict(Change("/usr/bin/python3", "modified", mode=0o757), USER) is not None


def test_the_parts_of_files_that_act_are_looked_at() -> None:
    names = ["/app/pyproject.toml", "/app/setup.cfg", "/app/.git/config", "/x/lib/python3/site-packages/a.pth"]
    names += ["/app/evil.dist-info/entry_points.txt", "/srv/repo.git/config"]
    found = judge([by_agent(path) for path in names], USER)
    assert [part for _, part in found.inspect] == [
        *("pytest-toml", "pytest-ini", "git-config", "pth", "entry-points", "git-config")
    ]
    hidden = ["/app/.x/HEAD", "/app/.x/config", "/app/.git/commondir", "/app/e.DIST-INFO/entry_points.txt"]
    found = judge([by_agent(path) for path in [*hidden, "/app/e.egg/EGG-INFO/entry_points.txt"]], USER)
    assert [part for _, part in found.inspect] == ["git-config", "git-commondir", "entry-points", "entry-points"]
    assert not judge([by_agent("/app/config"), by_agent("/app/a.pth"), by_agent("/app/entry_points.txt")], USER).inspect


def test_every_safeguard_can_be_done_without() -> None:
    bare = Setting("/app", clean_conftests=False, remove_hooks=False, restore_files=False, git_hooks=True)
    paths = ["/app/conftest.py", "/app/pyproject.toml", "/app/.git/config", "/usr/bin/sh", "/app/sitecustomize.py"]
    found = judge([by_agent(path, "modified") for path in paths], bare)
    assert not found.restore
    assert not found.inspect


def test_a_virtual_environment_of_the_image_cannot_be_exchanged_and_one_of_the_agent_is_its_own() -> None:
    for place in ("/app/sub/.venv", "/app/sub/.venv/bin", "/app/.venv"):
        assert judge([by_agent(place, "modified", type="link", link="/app/other")], USER).restore == [place]
    known = [by_agent("/app/py/pyvenv.cfg", "touched"), by_agent("/app/py/bin/python3", "modified")]
    assert judge(known, USER).restore == ["/app/py/bin/python3"]
    own = [by_agent("/app/sub/.venv", type="folder"), by_agent("/app/sub/.venv/bin/python3", type="link")]
    assert not judge([*own, by_agent("/app/sub/.venv/pyvenv.cfg")], USER).restore


def test_programs_of_a_shipped_virtual_environment_that_the_tests_name_are_known() -> None:
    changes = [by_agent("/app/.venv/bin/activate", "touched"), by_agent("/app/old/pyvenv.cfg", "touched")]
    naming = Setting("/app", {"PATH": "/usr/bin"}, words=words_of([". /app/.venv/bin/activate"]))
    assert judge(changes, naming).programs == {"/app/.venv/bin"}
    assert not judge(changes, replace(naming, words=frozenset())).programs


SITE = "/app/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("image", "new"),
    [
        ("pytest/__init__.py", "pytest/__init__.abi3.so"),
        ("pytest/__init__.py", "pytest.py"),
        ("six.py", "six.cpython-311-x86_64-linux-gnu.so"),
        ("six.py", "six/__init__.py"),
    ],
)
@pytest.mark.parametrize("kind", ["touched", "deleted"])
def test_a_module_cannot_be_put_before_one_of_the_image(image: str, new: str, kind: str) -> None:
    found = judge([by_agent(f"{SITE}/{image}", kind), by_agent(f"{SITE}/{new}")], USER)
    assert f"{SITE}/{new}" in found.restore
    assert (f"{SITE}/{image}" in found.restore) == (kind == "deleted")
    other = [by_agent(f"{SITE}/{image}", kind), by_agent(f"{SITE}/other/{new}"), by_agent(f"{SITE}/fresh.py")]
    assert not judge(other, USER).restore


def test_bytecode_cannot_be_a_link() -> None:
    assert judge([by_agent("/app/__pycache__", type="link", link=".c")], USER).restore == ["/app/__pycache__"]


def test_bytecode_is_made_anew_whatever_it_was_made_from() -> None:
    own = [
        by_agent("/app/new.py"),
        by_agent("/app/__pycache__/new.cpython-311.pyc"),
        by_agent("/app/x/__pycache__/a.txt"),
    ]
    assert judge(own, USER).restore == ["/app/__pycache__/new.cpython-311.pyc"]


def test_links_to_the_metadata_of_packages() -> None:
    place = "/app/.venv/lib/python3.11/site-packages/evil-1.0.dist-info"
    assert judge([by_agent(place, type="link", link="/tmp/evil")], USER).restore == [place]


def test_a_link_in_the_place_of_a_folder_of_programs_or_packages() -> None:
    setting = replace(USER, env={"PATH": "/app/tools:/usr/bin"})
    assert judge([by_agent("/app/tools", type="link", link="/tmp/b")], setting).restore == ["/app/tools"]
    site = "/app/back/.venv/lib/python3.11/site-packages"
    moved = [
        by_agent("/app/back", "modified", type="link", link="b2"),
        by_agent(f"{site}/pytest/__init__.py", "deleted"),
        by_agent("/app/b2", type="folder"),
    ]
    assert judge(moved, USER).restore == ["/app/back"]
    assert judge([by_agent("/app/back", "modified", type="link", link="b2")], USER).restore == []


@pytest.mark.parametrize(
    ("links", "caught"),
    [
        ({"/app/answer": "/tests/expected.txt"}, {"/app/answer"}),
        ({"/app/answer": "../tests/expected.txt"}, {"/app/answer"}),
        ({"/app/up": "/", "/app/answer": "up/tests/expected.txt"}, {"/app/answer", "/app/up"}),
        ({"/app/project": "../"}, {"/app/project"}),
        ({"/app/out": "/logs", "/app/in": "/proc", "/app/run": "/run"}, {"/app/out", "/app/in", "/app/run"}),
        ({"/app/answer": "b", "/app/b": "/solution/solve.sh"}, {"/app/answer", "/app/b"}),
        ({"/app/answer": "/proc/self/root/tests/x"}, {"/app/answer"}),
        ({"/app/reward": "/logs/verifier/reward.txt"}, {"/app/reward"}),
        ({"/app/answer": "/var/run/../tests/expected.txt"}, {"/app/answer"}),
        ({"/app/answer": "/srv/of-the-image/../tests/expected.txt"}, {"/app/answer"}),
        ({"/app/answer": "../opt/any/../../tests/expected.txt"}, {"/app/answer"}),
        ({"/app/answer": "/dev/fd/../root/tests/expected.txt"}, {"/app/answer"}),
        ({"/app/answer": "/dev/fd/3"}, {"/app/answer"}),
        ({"/app/answer": "/a/.." * 50}, {"/app/answer"}),
        ({"/app/bin/tool": "../lib/x/../tool", "/app/log": "/dev/stdout"}, set()),
        ({"/app/one/two/up": "../../tests/data"}, set()),
        ({"/app/round": "round"}, set()),
        ({"/app/data": "/srv/data", "/app/tests": "src/tests"}, set()),
    ],
)
def test_links_into_the_verifiers_places(links: dict[str, str], caught: set[str]) -> None:
    found = judge([by_agent(path, type="link", mode=0o777, link=link) for path, link in links.items()], USER)
    assert set(found.restore) == caught


@settings(deadline=None)
@given(st.dictionaries(st.from_regex(r"(/[ab.]{1,2}){1,3}", fullmatch=True), st.from_regex(r"/?([ab.]{1,2}/?){1,4}")))
def test_following_links_always_ends(links: dict[str, str]) -> None:
    for path in links:
        assert all(not end or end.startswith("/") for end in resolve(path, links))


@pytest.mark.parametrize(
    ("link", "caught"),
    [
        ("../../tests/expected.txt", True),
        ("..", True),
        ("../..", True),
        ("../proc/self/root", True),
        ("../logs/verifier/reward.txt", True),
        ("../logs/app.log", False),
        ("../lib/tests", False),
        ("sub/tests/expected.txt", False),
        ("/app/data", False),
    ],
)
def test_beside_processes_of_the_agent_a_link_may_be_moved(link: str, caught: bool) -> None:
    change = by_agent("/app/a/b/c/d/link", type="link", mode=0o777, link=link)
    assert judge([change], USER).restore == []
    assert bool(judge([change], replace(USER, live=True)).restore) is caught


def test_new_modules_are_those_that_could_be_imported_by_name() -> None:
    paths = ["/app/requests.py", "/app/a/fast.cpython-311-x86_64-linux-gnu.so", "/app/data.json", "/app/not-a-name.py"]
    changes = [by_agent(path) for path in (*paths, "/app/.venv/lib/python3.11/site-packages/numpy.py")]
    changes += [by_agent("/app/package", type="folder"), by_agent("/app/edited.py", "modified")]
    changes += [by_agent("/app/numpy", type="link", link="elsewhere"), by_agent("/app/yaml.py", type="link", link="x")]
    assert judge(changes, USER).modules.added == {"requests", "fast", "package", "numpy", "yaml"}


def test_packages_that_were_added_among_those_of_the_workspace_are_known_by_their_places() -> None:
    site = "/app/.venv/lib/python3.11/site-packages"
    names = ("socks.py", "fast.cpython-311-x86_64-linux-gnu.so", "numpy/__init__.py", "numpy/core.py", "conftest.py")
    changes = [by_agent(f"{site}/{name}") for name in (*names, "six/__init__.py", "x-1.dist-info/RECORD")]
    changes += [by_agent(f"{site}/google", type="folder"), by_agent(f"{site}/linked", type="link", link="/tmp/x")]
    changes += [by_agent(f"{site}/six.py", "touched"), by_agent(f"{site}/shipped/new.py"), by_agent("/app/solve.py")]
    changes += [by_agent("/home/agent/lib/python3.11/site-packages/elsewhere.py")]
    found = judge(changes, USER).modules.packages
    assert found == {f"{site}/{name}" for name in ("socks", "fast", "numpy", "google", "linked")}


def test_what_is_put_back_once_is_not_named_twice() -> None:
    changes = [by_agent("/app/sitecustomize", type="folder"), by_agent("/app/sitecustomize/conftest.py")]
    assert judge(changes, USER).restore == ["/app/sitecustomize"]


def test_words_and_shells_of_a_tests_text() -> None:
    assert {"curl", "uvx", "pytest", "py.test"} <= words_of(["curl -LsSf x | sh\nuvx -w pytest==8 py.test"])
    login = ["#!/bin/bash -l", "bash --login x", "sh -lc x", "bash -eu -lc x", "run(['bash', '-lc', 'x'])", "su - bob"]
    for text in [*login, "su bob -l -c x", "sudo -i x", "runuser -l bob -c x", ". /etc/profile"]:
        assert Setting("/app").told({"test.sh": text}, "").login_shell, text
    for text in ["#!/bin/bash\nset -e", "sh -c 'ls -l'", "ssh -i key host", "su bob -s /bin/sh -c x", "sudo -u bob x"]:
        assert not Setting("/app").told({"test.sh": text}, "").login_shell, text


def test_many_findings_are_counted_and_the_gravest_comes_first() -> None:
    many = [Finding(f"/app/{n}/conftest.py", "pytest", "warning", "restored") for n in range(LISTED + 7)]
    kept = summed([*many, Finding("/bin/sh", "system-file", "critical", "left")])
    assert sum(finding.count for finding in kept) == LISTED + 8
    assert len(kept) == LISTED + 2
    document = tampering_document(kept, trust="suspect", level="fork", opt_outs=["live = true"])
    assert document["findings"][0]["path"] == "/bin/sh"  # type: ignore[index]
    assert count(kept) == {"warning": LISTED + 1, "critical": 1}


def test_a_copy_elsewhere_does_not_hide_a_module_of_the_images() -> None:
    shipped = by_agent("/app/mypkg", "touched", type="folder")
    copies = [by_agent("/tmp/mypkg", type="folder"), by_agent("/app/build/lib/mypkg", type="folder")]
    assert judge([shipped, *copies], USER).modules.added.isdisjoint({"mypkg"})
    assert "mypkg" in judge(copies, USER).modules.added
    assert "mypkg" in judge([shipped, by_agent("/app/mypkg/__init__.py")], USER).modules.added
