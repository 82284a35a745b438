"""The shipped agents, and every way to name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.agent.catalog import CATALOG, get_agent, load_agents, parse_agent, read_agent
from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PROMISED = {
    "gemini": (),
    "claude-agent-acp": ("claude",),
    "codex-acp": ("codex",),
    "opencode": (),
    "openhands": ("oh",),
    "pi-acp": ("pi",),
    "openclaw": (),
}
"""The agents of the documentation, with their aliases."""

MINIMAL = 'name = "mine"\naliases = ["my"]\n[launch]\ncommand = ["mine", "--acp"]\n'


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A user's folder without agents, so that those of whoever runs the tests play no part."""
    return tmp_path / "agents"


def test_every_file_is_named_after_its_agent(nowhere: Path) -> None:
    for path in CATALOG.glob("*.toml"):
        assert read_agent(path).name == path.stem
    assert set(PROMISED) | {"oracle", "nop"} <= set(load_agents(nowhere))


@pytest.mark.parametrize(("name", "aliases"), PROMISED.items())
def test_the_documented_names_and_aliases_work(name: str, aliases: tuple[str, ...], nowhere: Path) -> None:
    spec = get_agent(name, nowhere)
    assert spec.aliases == aliases
    assert spec.protocol == "ACP"
    assert spec.dialect
    assert all(get_agent(alias, nowhere) is spec for alias in aliases)


def test_a_version_replaces_that_of_the_first_package(nowhere: Path) -> None:
    spec = get_agent("pi@0.1.0", nowhere)
    assert spec.install.npm[0] == "pi-acp@0.1.0"
    assert spec.install.npm[1:] == get_agent("pi", nowhere).install.npm[1:]


@pytest.mark.parametrize("ref", ["gemini@", "gemini@../x", "gemini@1 2"])
def test_what_is_no_version_is_refused(ref: str, nowhere: Path) -> None:
    with pytest.raises(ConfigError, match="is not a version"):
        get_agent(ref, nowhere)


def test_a_builtin_has_no_version(nowhere: Path) -> None:
    with pytest.raises(ConfigError, match="has no version to choose"):
        get_agent("oracle@1.0", nowhere)


def test_acpx_runs_another_agent(nowhere: Path) -> None:
    spec = get_agent("acpx/claude@0.99.1", nowhere)
    assert spec.ref == "acpx/claude-agent-acp"
    assert spec.through is not None
    assert spec.through.name == "acpx"
    assert get_agent("claude", nowhere).through is None
    assert spec.credentials == get_agent("claude", nowhere).credentials
    with pytest.raises(ConfigError, match="does not speak ACP"):
        get_agent("acpx/oracle", nowhere)
    with pytest.raises(ConfigError, match="did you mean claude"):
        get_agent("acpx/cluade", nowhere)


def test_acpx_alone_is_no_agent(nowhere: Path) -> None:
    with pytest.raises(ConfigError, match="no agent is called 'acpx'"):
        get_agent("acpx", nowhere)


@pytest.mark.parametrize(("ref", "meant"), [("cluade", "claude"), ("Gemini", "gemini"), ("opencod", "opencode")])
def test_an_unknown_name_gets_the_nearest(ref: str, meant: str, nowhere: Path) -> None:
    with pytest.raises(ConfigError, match=f"did you mean .*{meant}"):
        get_agent(ref, nowhere)


def test_a_path_of_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MINIMAL)
    assert get_agent(str(path)).launch.command == ("mine", "--acp")
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        get_agent(str(tmp_path / "none.toml"))


def test_a_users_folder_adds_and_replaces(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL)
    (tmp_path / "gemini.toml").write_text('name = "gemini"\n[launch]\ncommand = ["my-gemini"]\n')
    assert get_agent("my", tmp_path).name == "mine"
    assert get_agent("gemini", tmp_path).launch.command == ("my-gemini",)


def test_two_agents_cannot_share_a_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINIMAL.replace('"my"', '"claude"'))
    with pytest.raises(ConfigError, match="both claim the name 'claude'"):
        load_agents(tmp_path)


def test_the_users_folder_is_below_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "benchflow" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(MINIMAL)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert get_agent("mine").name == "mine"


def test_a_command_with_arguments_is_an_agent(nowhere: Path) -> None:
    spec = get_agent("My.Agent --acp 'two words'", nowhere)
    assert spec.name == "my.agent"
    assert spec.launch.command == ("My.Agent", "--acp", "two words")
    with pytest.raises(ConfigError, match="not a command"):
        get_agent("my-agent 'unclosed", nowhere)
    with pytest.raises(ConfigError, match=r"no such placeholder: {modle} \(there are .*model"):
        get_agent("my-agent --model {modle}", nowhere)


def test_an_executable_path_is_an_agent(tmp_path: Path, nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "agent.py"
    program.write_text("#!/usr/bin/env python3\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no agent is called"):
        get_agent("./agent.py", nowhere)
    program.chmod(0o755)
    assert get_agent("./agent.py", nowhere).launch.command == (str(program),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('alias = ["x"]\n' + MINIMAL, r"f\.toml: unknown key 'alias'; did you mean 'aliases'\?"),
        (MINIMAL + '[install]\nnmp = ["a@1"]\n', r"unknown key 'install\.nmp'; did you mean 'npm'\?"),
        (
            MINIMAL + '[[credentials]]\nenv = "A"\nfiel = "b"\n',
            r"unknown key 'credentials\.0\.fiel'; did you mean 'file'",
        ),
        (MINIMAL + '[[endpoint.files]]\npath = "a"\ncontents = "b"\n', r"unknown key 'endpoint\.files\.0\.contents'"),
        (MINIMAL + '[install]\nnpm = ["a"]\n', r"install\.npm\.0: 'a' must be pinned"),
        (MINIMAL + '[install]\npypi = ["a==1"]\n', "packages from PyPI need `python`"),
        (MINIMAL + '[[credentials]]\nenv = "A"\nfile = "b"\n', "either `env` or `file`"),
        ('name = "mine"\n', r"launch\.command is missing"),
        ("name = \n", "not valid TOML"),
        ('name = "Bad Name"\n', "name: "),
    ],
)
def test_a_wrong_file_is_explained(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_agent(text, "f.toml")


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_agent(MINIMAL + '[session]\nmodel = "magic"\nmod = 1\n', "f.toml")
    assert "session.model" in str(caught.value)
    assert "session.mod'" in str(caught.value)
