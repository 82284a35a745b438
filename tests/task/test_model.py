"""Every row of the task format: the key, values that are good, what they become, the default, values that are not."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.task.model import SCHEMA_VERSION, TaskConfig, parse_config, salvage
from benchflow.task.problem import Issue, dotted

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse(toml: str) -> tuple[TaskConfig | None, list[Issue]]:
    return parse_config(tomllib.loads(toml))


def errors(issues: Sequence[Issue]) -> list[str]:
    return [dotted(issue.path) for issue in issues if issue.severity == "error"]


def look(config: object, path: str) -> Any:
    value: Any = config
    for part in path.split("."):
        value = value[int(part)] if part.isdigit() else getattr(value, part)
    return value


DEFAULTS: list[tuple[str, object]] = [
    ("schema_version", "1.4"),
    ("source", None),
    ("multi_step_reward_strategy", None),
    ("artifacts", ()),
    ("task", None),
    ("metadata", {}),
    ("steps", None),
    ("agent.timeout_sec", None),
    ("agent.user", None),
    ("agent.network_mode", None),
    ("agent.allowed_hosts", None),
    ("agent.prompt_prefix", None),
    ("verifier.type", "test-script"),
    ("verifier.timeout_sec", 600.0),
    ("verifier.env", {}),
    ("verifier.user", None),
    ("verifier.network_mode", None),
    ("verifier.allowed_hosts", None),
    ("verifier.environment_mode", None),
    ("verifier.environment", None),
    ("verifier.collect", ()),
    ("verifier.hardening.cleanup_conftests", True),
    ("verifier.pytest_plugins", ()),
    ("verifier.reward_range", None),
    ("verifier.memory.expected_skills", None),
    ("verifier.judge.rubric_path", "tests/rubric.toml"),
    ("verifier.judge.input_dir", "/app"),
    ("environment.docker_image", None),
    ("environment.build_timeout_sec", 600.0),
    ("environment.os", "linux"),
    ("environment.cpus", None),
    ("environment.memory_mb", None),
    ("environment.storage_mb", None),
    ("environment.gpus", None),
    ("environment.gpu_types", None),
    ("environment.tpu", None),
    ("environment.network_mode", "public"),
    ("environment.allowed_hosts", None),
    ("environment.env", {}),
    ("environment.workdir", None),
    ("environment.skills_dir", None),
    ("environment.healthcheck", None),
    ("environment.mcp_servers", ()),
    ("environment.setup_commands", ()),
    ("solution.env", {}),
    ("solution.timeout_sec", None),
]


@pytest.mark.parametrize(("path", "value"), DEFAULTS)
def test_an_empty_document_has_every_default(path: str, value: object) -> None:
    config, issues = parse("")
    assert issues == []
    assert look(config, path) == value


PACKAGE = '[task]\nname = "a/b"\n'
HEALTH = '[environment.healthcheck]\ncommand = "true"\n'
STEP = '[[steps]]\nname = "one"\n'
MCP = '[[environment.mcp_servers]]\nname = "x"\n'
COLLECT = '[[verifier.collect]]\ncommand = "dump"\n'
SETUP = '[[sandbox.setup_commands]]\ncommand = "seed"\n'
JUDGE = '[verifier]\ntype = "llm-judge"\n[verifier.judge]\n'

GOOD = [
    # section 2.1, top level
    ('schema_version = "1.0"', "schema_version", "1.0"),
    ('schema_version = "9.9"', "schema_version", "9.9"),
    ('source = "somewhere"', "source", "somewhere"),
    ('multi_step_reward_strategy = "mean"', "multi_step_reward_strategy", "mean"),
    ('multi_step_reward_strategy = "final"', "multi_step_reward_strategy", "final"),
    ("steps = []", "steps", ()),
    ("[metadata]\na = [1, { b = 2 }]", "metadata", {"a": [1, {"b": 2}]}),
    # section 2.2, task
    (PACKAGE, "task.name", "a/b"),
    ('[task]\nname = "Org-1/na.me_2"', "task.name", "Org-1/na.me_2"),
    (PACKAGE, "task.version", None),
    (PACKAGE + 'version = "1"', "task.version", "1"),
    (PACKAGE, "task.description", ""),
    (PACKAGE + 'authors = [{ name = "A" }]', "task.authors.0.email", None),
    (PACKAGE + 'authors = [{ name = "A", email = "a@b" }]', "task.authors.0.email", "a@b"),
    (PACKAGE + 'keywords = ["k"]', "task.keywords", ("k",)),
    # section 2.3, agent
    ("[agent]\ntimeout_sec = 5", "agent.timeout_sec", 5.0),
    ('[agent]\ntimeout_sec = "5"', "agent.timeout_sec", 5.0),
    ('[agent]\nuser = "me"', "agent.user", "me"),
    ("[agent]\nuser = 1000", "agent.user", 1000),
    ("[agent]\nuser = 0", "agent.user", 0),
    ('[agent]\nnetwork_mode = "no-network"', "agent.network_mode", "no-network"),
    ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["A.com."]', "agent.allowed_hosts", ("a.com",)),
    ('[agent]\nprompt_prefix = "Be fair."', "agent.prompt_prefix", "Be fair."),
    # section 2.4, verifier
    ("[verifier]\ntimeout_sec = 1.5", "verifier.timeout_sec", 1.5),
    ('[verifier.env]\nA = "${B:-c}"', "verifier.env", {"A": "${B:-c}"}),
    ('[verifier]\nuser = "root"', "verifier.user", "root"),
    ('[verifier]\nnetwork_mode = "public"', "verifier.network_mode", "public"),
    ('[verifier]\nenvironment_mode = "separate"', "verifier.own_mode", "separate"),
    ('[verifier]\nenvironment_mode = "shared"', "verifier.own_mode", "shared"),
    ("[verifier.environment]\ncpus = 2", "verifier.own_mode", "separate"),
    ("[verifier.environment]\ncpus = 2", "verifier.environment.cpus", 2),
    ('[verifier]\nenvironment_mode = "separate"\n[verifier.environment]', "verifier.own_mode", "separate"),
    (COLLECT, "verifier.collect.0.service", "main"),
    (COLLECT, "verifier.collect.0.timeout_sec", 60.0),
    (COLLECT, "verifier.collect.0.user", None),
    (COLLECT + 'service = "db-1"', "verifier.collect.0.service", "db-1"),
    # section 2.5, environment
    ('[environment]\ndocker_image = "a:b"', "environment.docker_image", "a:b"),
    ("[environment]\nbuild_timeout_sec = 60", "environment.build_timeout_sec", 60.0),
    ('[environment]\nos = "Windows"', "environment.os", "windows"),
    ("[environment]\ncpus = 2.0", "environment.cpus", 2),
    ("[environment]\ncpus = 0.5", "environment.cpus", 0.5),
    ('[environment]\ncpus = "2"', "environment.cpus", 2),
    ("[environment]\nmemory_mb = 2048.0", "environment.memory_mb", 2048),
    ("[environment]\nstorage_mb = 1", "environment.storage_mb", 1),
    ("[environment]\ngpus = 0", "environment.gpus", 0),
    ('[environment]\ngpu_types = ["T4"]', "environment.gpu_types", ("T4",)),
    ('[environment.tpu]\ntype = "v5e"\ntopology = "2x4"', "environment.tpu.chips", 8),
    ('[environment.tpu]\ntype = "v5e"\ntopology = "2x2x3"', "environment.tpu.chips", 12),
    ('[environment]\nworkdir = "/w"', "environment.workdir", "/w"),
    ('[environment]\nskills_dir = "/s"', "environment.skills_dir", "/s"),
    ('[environment.env]\nA = "x${B}"', "environment.env", {"A": "x${B}"}),
    (HEALTH, "environment.healthcheck.interval_sec", 5.0),
    (HEALTH, "environment.healthcheck.timeout_sec", 30.0),
    (HEALTH, "environment.healthcheck.start_period_sec", 0.0),
    (HEALTH, "environment.healthcheck.start_interval_sec", 5.0),
    (HEALTH, "environment.healthcheck.retries", 3),
    (MCP + 'url = "http://a"', "environment.mcp_servers.0.transport", "sse"),
    (MCP + 'transport = "http"\nurl = "http://a"', "environment.mcp_servers.0.transport", "streamable-http"),
    (MCP + 'transport = "stdio"\ncommand = "c"\nargs = ["a"]', "environment.mcp_servers.0.args", ("a",)),
    # section 2.6, solution
    ('[solution.env]\nA = "${B}"', "solution.env", {"A": "${B}"}),
    ("[solution]\ntimeout_sec = 9", "solution.timeout_sec", 9.0),
    # section 2.7, steps
    (STEP, "steps.0.name", "one"),
    (STEP, "steps.0.verifier.timeout_sec", 600.0),
    (STEP, "steps.0.agent.timeout_sec", None),
    (STEP, "steps.0.min_reward", None),
    (STEP, "steps.0.healthcheck", None),
    (STEP, "steps.0.artifacts", ()),
    (STEP + "min_reward = 1", "steps.0.min_reward", 1.0),
    (STEP + "min_reward = { a = 0.5 }", "steps.0.min_reward", {"a": 0.5}),
    (STEP + "[steps.agent]\nuser = 5", "steps.0.agent.user", 5),
    (STEP + '[steps.healthcheck]\ncommand = "x"', "steps.0.healthcheck.command", "x"),
    (STEP + 'artifacts = ["/a"]', "steps.0.artifacts.0.source", "/a"),
    # section 2.8, artifacts
    ('artifacts = ["/a"]', "artifacts.0.source", "/a"),
    ('artifacts = [{ source = "/a" }]', "artifacts.0.destination", None),
    ('artifacts = [{ source = "/a", destination = "" }]', "artifacts.0.destination", None),
    ('artifacts = [{ source = "/a", destination = "x/manifest.json" }]', "artifacts.0.claims", "x/manifest.json"),
    ('artifacts = [{ source = "/a/b" }]', "artifacts.0.claims", "a/b"),
    ('artifacts = [{ source = "/a", exclude = ["*.o"], service = "db" }]', "artifacts.0.exclude", ("*.o",)),
    # section 2.10, network
    ('[environment]\nnetwork_mode = "allowlist"', "environment.network.hosts", ()),
    ('[environment]\nnetwork_mode = "public"\nallowed_hosts = []', "environment.network.mode", "public"),
    # section 8, additions
    ('[verifier]\ntype = "llm-judge"', "verifier.type", "llm-judge"),
    (JUDGE + 'model = "m"\nrubric_path = "r.json"\ncontext = "c"', "verifier.judge.model", "m"),
    ("[verifier.hardening]\ncleanup_conftests = false", "verifier.hardening.cleanup_conftests", False),
    ('[verifier]\npytest_plugins = ["ctrf"]', "verifier.pytest_plugins", ("ctrf",)),
    ("[verifier]\nreward_range = [-1, 1]", "verifier.reward_range", (-1.0, 1.0)),
    ("[verifier.memory]\nexpected_skills = []", "verifier.memory.expected_skills", ()),
    (SETUP, "environment.setup_commands.0.timeout_sec", 600.0),
    (SETUP + 'cwd = "/x"\nenv = { A = "b" }\nuser = 0', "environment.setup_commands.0.cwd", "/x"),
    (MCP + 'url = "u"\ncwd = "/x"\nenv = { A = "b" }\ntools = ["t"]', "environment.mcp_servers.0.tools", ("t",)),
    (MCP + 'url = "u"\ntags = ["t"]', "environment.mcp_servers.0.tags", ("t",)),
]


@pytest.mark.parametrize(("toml", "path", "value"), GOOD)
def test_good_values(toml: str, path: str, value: object) -> None:
    config, issues = parse(toml)
    assert errors(issues) == []
    found = look(config, path)
    assert found == value
    assert type(found) is type(value)


BAD = [
    # section 2.1, top level
    ("schema_version = 1.4", "schema_version"),
    ("source = 1", "source"),
    ('multi_step_reward_strategy = "max"', "multi_step_reward_strategy"),
    ('artifacts = "/a"', "artifacts"),
    ("metadata = 1", "metadata"),
    ("task = 1", "task"),
    ("agent = 1", "agent"),
    ("steps = {}", "steps"),
    ("steps = [1]", "steps[0]"),
    # section 2.2, task
    ("[task]", "task.name"),
    ('[task]\nname = "a"', "task.name"),
    ('[task]\nname = "a/b/c"', "task.name"),
    ('[task]\nname = ".a/b"', "task.name"),
    ('[task]\nname = "a/b..c"', "task.name"),
    ('[task]\nname = "a/b\\n"', "task.name"),
    (PACKAGE + 'version = ""', "task.version"),
    (PACKAGE + "authors = [{}]", "task.authors[0].name"),
    (PACKAGE + 'authors = ["x"]', "task.authors[0]"),
    (PACKAGE + "keywords = [1]", "task.keywords[0]"),
    # section 2.3, agent
    ("[agent]\ntimeout_sec = 0", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = -1", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = nan", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = inf", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = true", "agent.timeout_sec"),
    ('[agent]\ntimeout_sec = "soon"', "agent.timeout_sec"),
    ("[agent]\nuser = true", "agent.user"),
    ("[agent]\nuser = -1", "agent.user"),
    ('[agent]\nuser = ""', "agent.user"),
    ('[agent]\nnetwork_mode = "off"', "agent.network_mode"),
    ('[agent]\nallowed_hosts = ["a.com"]', "agent.allowed_hosts"),
    ("[agent]\nallowed_hosts = []", "agent.allowed_hosts"),
    ('[agent]\nprompt_prefix = " "', "agent.prompt_prefix"),
    # section 2.4, verifier
    ("[verifier]\ntimeout_sec = []", "verifier.timeout_sec"),
    ("[verifier.env]\nA = 1", "verifier.env.A"),
    ('[verifier.env]\n"A=B" = "x"', "verifier.env.A=B"),
    ('[verifier.env]\nA = "\\u0000"', "verifier.env.A"),
    ('[verifier]\nenvironment_mode = "own"', "verifier.environment_mode"),
    ('[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', "verifier.environment"),
    ("[[verifier.collect]]", "verifier.collect[0].command"),
    ('[[verifier.collect]]\ncommand = ""', "verifier.collect[0].command"),
    (COLLECT + 'service = ""', "verifier.collect[0].service"),
    (COLLECT + "timeout_sec = 0", "verifier.collect[0].timeout_sec"),
    # section 2.5, environment
    ("[environment]\ncpus = nan", "environment.cpus"),
    ("[environment]\ncpus = inf", "environment.cpus"),
    ("[environment]\ncpus = true", "environment.cpus"),
    ("[environment]\ncpus = 0", "environment.cpus"),
    ('[environment]\ncpus = "two"', "environment.cpus"),
    ("[environment]\nmemory_mb = 1.5", "environment.memory_mb"),
    ("[environment]\nmemory_mb = 0", "environment.memory_mb"),
    ("[environment]\nstorage_mb = []", "environment.storage_mb"),
    ("[environment]\ngpus = -1", "environment.gpus"),
    ('[environment]\ngpu_types = "T4"', "environment.gpu_types"),
    ('[environment]\nos = "macos"', "environment.os"),
    ("[environment]\ntpu = 5", "environment.tpu"),
    ('[environment.tpu]\ntype = "v"\ntopology = "4"', "environment.tpu.topology"),
    ('[environment.tpu]\ntype = "v"\ntopology = "2X2"', "environment.tpu.topology"),
    ('[environment.tpu]\ntype = "v"\ntopology = "0x2"', "environment.tpu.topology"),
    ('[environment.tpu]\ntype = ""\ntopology = "2x2"', "environment.tpu.type"),
    ("[environment]\nnetwork_mode = 0", "environment.network_mode"),
    ('[environment]\nallowed_hosts = ["a.com"]', "environment.allowed_hosts"),
    ('[environment]\nnetwork_mode = "no-network"\nallowed_hosts = ["a.com"]', "environment.allowed_hosts"),
    ("[environment]\nworkdir = 1", "environment.workdir"),
    ("[environment.healthcheck]", "environment.healthcheck.command"),
    (HEALTH + "retries = 2.5", "environment.healthcheck.retries"),
    (HEALTH + "interval_sec = -1", "environment.healthcheck.interval_sec"),
    ('[[environment.mcp_servers]]\nurl = "x"', "environment.mcp_servers[0].name"),
    (MCP, "environment.mcp_servers[0].url"),
    (MCP + 'url = ""', "environment.mcp_servers[0].url"),
    (MCP + 'transport = "stdio"', "environment.mcp_servers[0].command"),
    (MCP + 'transport = "ws"\nurl = "x"', "environment.mcp_servers[0].transport"),
    (MCP + 'url = "x"\nargs = "a"', "environment.mcp_servers[0].args"),
    # section 2.6, solution
    ('[solution]\nenv = "x"', "solution.env"),
    ("[solution]\ntimeout_sec = 0", "solution.timeout_sec"),
    # section 2.7, steps
    ("[[steps]]", "steps[0].name"),
    (STEP + "min_reward = nan", "steps[0].min_reward"),
    (STEP + "min_reward = true", "steps[0].min_reward"),
    (STEP + 'min_reward = { a = "x" }', "steps[0].min_reward"),
    (STEP + "[steps.agent]\ntimeout_sec = 0", "steps[0].agent.timeout_sec"),
    # section 2.8, artifacts
    ('artifacts = [""]', "artifacts[0].source"),
    ('artifacts = ["a/../b"]', "artifacts[0].source"),
    ('artifacts = [{ destination = "x" }]', "artifacts[0].source"),
    ('artifacts = [{ source = "a", service = "db" }]', "artifacts[0].source"),
    ('artifacts = [{ source = "/a", service = "" }]', "artifacts[0].service"),
    ('artifacts = [{ source = "/a", destination = "/x" }]', "artifacts[0].destination"),
    ('artifacts = [{ source = "/a", destination = "../x" }]', "artifacts[0].destination"),
    ('artifacts = [{ source = "/a", destination = "x\\\\y" }]', "artifacts[0].destination"),
    ('artifacts = [{ source = "/a", destination = "." }]', "artifacts[0].destination"),
    ('artifacts = [{ source = "/a", destination = "manifest.json" }]', "artifacts[0].destination"),
    ('artifacts = [{ source = "/a", exclude = "*.o" }]', "artifacts[0].exclude"),
    # section 8, additions
    ('[verifier]\ntype = "magic"', "verifier.type"),
    (JUDGE + 'input_type = "trajectory"', "verifier.judge.input_type"),
    ('[verifier.hardening]\ncleanup_conftests = "no"', "verifier.hardening.cleanup_conftests"),
    ("[verifier]\nreward_range = [0, 0.5]", "verifier.reward_range"),
    ("[verifier]\nreward_range = [1]", "verifier.reward_range[1]"),
    ("[verifier]\npytest_plugins = [1]", "verifier.pytest_plugins[0]"),
    ("[[sandbox.setup_commands]]", "environment.setup_commands[0].command"),
]


@pytest.mark.parametrize(("toml", "path"), BAD)
def test_bad_values_are_one_error_at_their_key(toml: str, path: str) -> None:
    config, issues = parse(toml)
    assert config is None
    assert errors(issues) == [path]
    assert all(issue.what and issue.expected and issue.fix for issue in issues)


def test_every_problem_is_reported_at_once() -> None:
    _, issues = parse(
        'source = 1\n[environment]\ncpus = "x"\nmemory = "2G"\nmemory_mb = 1\nallowed_hosts = ["a"]\n'
        '[agent]\ntimeout_sec = 0\nuser = true\n[[steps]]\nname = "a"\n[[steps]]\nname = "A"\nmin_reward = true\n'
    )
    assert set(errors(issues)) == {
        "source",
        "environment.cpus",
        "environment.memory",
        "environment.allowed_hosts",
        "agent.timeout_sec",
        "agent.user",
        "steps[1].name",
        "steps[1].min_reward",
    }


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"metadata": {"x": 2**63}}, "metadata.x"),
        ({"metadata": {"x": ["\ud800"]}}, "metadata.x[0]"),
        ({"metadata": {"\ud800": 1}}, "metadata"),
        ({"\ud800": 1}, ""),
        ({"source": 16**5000}, "source"),
    ],
)
def test_values_that_would_break_whoever_prints_them(raw: dict[str, object], path: str) -> None:
    config, issues = parse_config(raw)
    assert config is None
    assert errors(issues) == [path]
    assert (salvage(raw, issues) is None) == (path == "")


def test_a_document_too_deep_is_refused_however_deep_it_is() -> None:
    nested: dict[str, object] = {}
    for _ in range(100_000):
        nested = {"a": nested}
    config, issues = parse_config(nested)
    assert config is None
    assert "levels deep" in issues[0].what
    assert salvage(nested, issues) is None


def test_salvage_keeps_what_is_right() -> None:
    raw = tomllib.loads(
        '[environment]\ncpus = "x"\nos = "windows"\n[[steps]]\nname = "a"\n[[steps]]\n[[steps]]\nname = "A"\n'
        '[[steps]]\nname = "b"\n'
    )
    left = salvage(raw, parse_config(raw)[1])
    assert left is not None
    assert left.environment.os == "windows"
    assert [step.name for step in left.steps or ()] == ["a", "b"]


def test_the_configuration_is_immutable() -> None:
    config, _ = parse("")
    assert config is not None
    assert config.schema_version == SCHEMA_VERSION
    with pytest.raises(Exception, match="frozen"):
        config.source = "x"  # type: ignore[misc]


KEYS = sorted({part for path, _ in DEFAULTS for part in path.split(".")} | {"name", "sandbox", "memory", "command"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner),
    max_leaves=20,
)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), VALUES))
def test_any_document_gives_a_configuration_or_issues(raw: dict[str, object]) -> None:
    config, issues = parse_config(raw)
    assert (config is None) == any(issue.severity == "error" for issue in issues)
    if config is None:
        salvage(raw, issues)
