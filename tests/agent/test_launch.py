"""What is started, for every shipped agent: files stay well-formed whatever the values, and nothing secret shows."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from benchflow.agent.bundle import Bundle
from benchflow.agent.catalog import load_agents
from benchflow.agent.credentials import Credentials, resolve_credentials
from benchflow.agent.launch import Endpoint, LaunchPlan, check_launch, plan_launch
from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchflow.agent.spec import AgentSpec

NOWHERE = Path("/nonexistent")
AGENTS = {name: spec for name, spec in load_agents(NOWHERE).items() if spec.kind == "acp"}
PARSERS: dict[str, Callable[[str], object]] = {".json": json.loads, ".toml": tomllib.loads, ".yaml": yaml.safe_load}
BUNDLE = Bundle(argv=("agent",))


def plan(spec: AgentSpec, endpoint: Endpoint | None, model: str | None, found: Credentials | None = None) -> LaunchPlan:
    bundle = Bundle(argv=spec.launch.command, before=tuple(service.command for service in spec.launch.before))
    return plan_launch(
        spec, bundle, model=model, home="/home/agent", workspace="/app", endpoint=endpoint, credentials=found
    )


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_can_be_pointed_at_an_endpoint(name: str) -> None:
    spec = AGENTS[name]
    assert spec.dialect
    done = plan(spec, Endpoint("http://127.0.0.1:4000/v1", SecretStr("tok-secret")), "openai/some-model")
    everything = json.dumps([done.argv, done.before, dict(done.env), dict(done.files)])
    assert "http://127.0.0.1:4000" in everything
    assert "tok-secret" in everything
    assert "some-model" in everything
    for path, content in done.files.items():
        PARSERS[Path(path).suffix](content)


VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t\"'\\{}"), min_size=1)


@settings(deadline=None)
@given(model=VALUES.filter(lambda text: "/" not in text), key=VALUES)
def test_values_arrive_in_files_as_they_are(model: str, key: str) -> None:
    endpoint = Endpoint("http://127.0.0.1:4000", SecretStr(key))
    opencode = json.loads(plan(AGENTS["opencode"], endpoint, model).files[".config/opencode/opencode.json"])
    assert opencode["model"] == f"benchflow/{model}"
    assert opencode["provider"]["benchflow"]["options"]["apiKey"] == key
    codex = tomllib.loads(plan(AGENTS["codex-acp"], endpoint, model).files[".codex/config.toml"])
    assert codex["model"] == model
    hermes = yaml.safe_load(plan(AGENTS["hermes"], endpoint, model).files[".hermes/config.yaml"])
    assert hermes["model"]["default"] == model


def test_a_plan_shows_no_secret() -> None:
    done = plan(AGENTS["claude-agent-acp"], Endpoint("http://x", SecretStr("tok-secret")), "m")
    assert done.env["ANTHROPIC_API_KEY"] == "tok-secret"
    assert "tok-secret" not in repr(done)
    assert "tok-secret" not in repr(Endpoint("http://x", SecretStr("tok-secret")))


def test_without_a_model_variables_are_left_out_and_files_refused() -> None:
    done = plan(AGENTS["claude-agent-acp"], Endpoint("http://x", SecretStr("k")), None)
    assert "ANTHROPIC_MODEL" not in done.env
    assert done.env["DISABLE_TELEMETRY"] == "1"
    assert done.model == ""
    with pytest.raises(ConfigError, match=r"agent opencode needs a model for ~/\.config/opencode/opencode\.json"):
        plan(AGENTS["opencode"], Endpoint("http://x/v1", SecretStr("k")), None)
    with pytest.raises(ConfigError, match="agent fast-agent needs a model for its command line"):
        plan(AGENTS["fast-agent"], Endpoint("http://x/v1", SecretStr("k")), None)


@pytest.mark.parametrize("name", AGENTS)
def test_a_start_that_needs_a_model_is_known_beforehand(name: str) -> None:
    spec = AGENTS[name]

    def refusal(act: Callable[[], object]) -> str:
        try:
            act()
        except ConfigError as error:
            return str(error)
        return ""

    said = refusal(lambda: check_launch(spec, None, endpoint=True))
    assert said == refusal(lambda: plan(spec, Endpoint("http://x/v1", SecretStr("k")), None))
    assert not said or "give one with --model" in said
    check_launch(spec, "some-model", endpoint=True)
    check_launch(spec, "some-model", endpoint=False)


def test_the_base_url_is_taken_apart_for_goose() -> None:
    done = plan(AGENTS["goose"], Endpoint("https://host:1/a/v1", SecretStr("k")), "m")
    assert done.env["OPENAI_HOST"] == "https://host:1"
    assert done.env["OPENAI_BASE_PATH"] == "a/v1/chat/completions"


def test_a_service_gets_its_port() -> None:
    done = plan(AGENTS["openclaw"], Endpoint("http://x/v1", SecretStr("k")), "m")
    assert str(done.port) in done.before[0]
    assert f"ws://127.0.0.1:{done.port}" in done.argv


def test_a_login_goes_natively(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "oauth_creds.json").write_text("{}")
    spec = AGENTS["gemini"]
    found = resolve_credentials(spec, "gemini-2.5-pro", {}, tmp_path)
    done = plan(spec, None, "gemini-2.5-pro", found)
    assert "oauth-personal" in done.files[".gemini/settings.json"]
    assert "GEMINI_API_KEY" not in done.env


def test_a_token_is_passed_on_as_it_is() -> None:
    spec = AGENTS["claude-agent-acp"]
    environ = {"ANTHROPIC_AUTH_TOKEN": "tok-1", "ANTHROPIC_BASE_URL": "http://proxy"}
    found = resolve_credentials(spec, "claude-haiku-4-5", environ, NOWHERE)
    done = plan(spec, None, "claude-haiku-4-5", found)
    assert {**environ, "ANTHROPIC_MODEL": "claude-haiku-4-5"}.items() <= done.env.items()
    assert "ANTHROPIC_API_KEY" not in done.env


def test_a_provider_the_agent_knows_is_reached_natively() -> None:
    spec = AGENTS["opencode"]
    found = resolve_credentials(spec, "google/gemini-2.5-pro", {"GEMINI_API_KEY": "k-1"}, NOWHERE)
    done = plan(spec, None, "google/gemini-2.5-pro", found)
    assert json.loads(done.files[".config/opencode/opencode.json"])["model"] == "google/gemini-2.5-pro"
    assert done.model == "google/gemini-2.5-pro"
    assert done.env["GEMINI_API_KEY"] == "k-1"
