"""Who pays, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import Credentials, found_here, read_dotenv, resolve_credentials
from benchflow.errors import ConfigError

NOWHERE = Path("/nonexistent")
LOGINS = {
    "claude": ".claude/.credentials.json",
    "codex": ".codex/auth.json",
    "gemini": ".gemini/oauth_creds.json",
}


def resolve(agent: str, model: str | None, *names: str, home: Path = NOWHERE) -> Credentials:
    return resolve_credentials(get_agent(agent, NOWHERE), model, {name: f"value-of-{name}" for name in names}, home)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which every login exists."""
    for path in LOGINS.values():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text("{}")
    return tmp_path


CLAUDE = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]
CODEX = ["OPENAI_API_KEY", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN"]
GEMINI = ["GEMINI_API_KEY", "GOOGLE_API_KEY"]


@pytest.mark.parametrize(
    ("agent", "order", "model"),
    [
        ("claude", CLAUDE, "claude-haiku-4-5"),
        ("claude", CLAUDE, "anthropic/claude-haiku-4-5"),
        ("claude", CLAUDE, None),
        ("codex", CODEX, "gpt-5.5"),
        ("codex", CODEX, "openai/gpt-5.5"),
        ("gemini", GEMINI, "gemini-2.5-flash"),
        ("gemini", GEMINI, "google/gemini-2.5-flash"),
        ("gemini", GEMINI, "gemini/gemini-2.5-flash"),
        ("acpx/claude", CLAUDE, None),
    ],
)
def test_an_agents_own_precedence(agent: str, order: list[str], model: str | None, home: Path) -> None:
    """Each variable wins over all below it and over the login; the login comes last."""
    for index, name in enumerate(order):
        found = resolve(agent, model, *order[index:], home=home)
        assert list(found.env) == [name]
        assert found.env[name].get_secret_value() == f"value-of-{name}"
        assert found.source == f"{name} from the environment"
        assert found.files == ()
    login = resolve(agent, model, home=home)
    assert login.env == {}
    assert [(file.source, file.target, file.mode) for file in login.files] == [
        (home / LOGINS[agent.removeprefix("acpx/")], LOGINS[agent.removeprefix("acpx/")], 0o600)
    ]


@pytest.mark.parametrize(
    ("agent", "model", "names", "taken", "base_url"),
    [
        ("opencode", "openai/gpt-5.5", ["OPENAI_API_KEY"], "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("opencode", "anthropic/claude-x", ["ANTHROPIC_API_KEY"], "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
        (
            "opencode",
            "claude-x",
            ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"],
            "ANTHROPIC_API_KEY",
            "https://api.anthropic.com",
        ),
        ("opencode", "gpt-5.5", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("pi", "gpt-5.5", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("pi", None, ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"], "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
        ("openhands", "gpt-5.5", ["OPENAI_API_KEY", "LLM_API_KEY"], "LLM_API_KEY", "https://api.openai.com/v1"),
        (
            "openhands",
            "openai/gpt-5.5",
            ["OPENAI_API_KEY", "LLM_API_KEY"],
            "OPENAI_API_KEY",
            "https://api.openai.com/v1",
        ),
        ("openhands", "openai/gpt-5.5", ["LLM_API_KEY"], "LLM_API_KEY", "https://api.openai.com/v1"),
        ("openhands", "some-model", ["LLM_API_KEY"], "LLM_API_KEY", ""),
        ("claude", "zai/glm-5", ["ANTHROPIC_API_KEY", "ZAI_API_KEY"], "ZAI_API_KEY", "https://api.z.ai/api/paas/v4"),
        ("codex", "openrouter/a/b", ["OPENROUTER_API_KEY"], "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1"),
    ],
)
def test_the_models_provider_comes_first(
    agent: str, model: str | None, names: list[str], taken: str, base_url: str
) -> None:
    found = resolve(agent, model, *names)
    assert list(found.env) == [taken]
    assert found.api_key == SecretStr(f"value-of-{taken}")
    assert found.base_url == base_url


@pytest.mark.parametrize(
    ("model", "variables", "base_url"),
    [
        ("deepseek/m", {"DEEPSEEK_BASE_URL": "https://d/v1/"}, "https://d/v1"),
        ("my-own.cloud/m", {"MY_OWN_CLOUD_BASE_URL": "https://d/v1"}, "https://d/v1"),
        ("openai/m", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "http://127.0.0.1:1/v1"),
        (
            "azure-foundry-openai/gpt-5.5",
            {"AZURE_API_ENDPOINT": "https://res.services.ai.azure.com/x"},
            "https://res.openai.azure.com/openai/v1",
        ),
        (
            "azure-foundry-anthropic/claude-opus-4-5",
            {"AZURE_API_ENDPOINT": "https://res.openai.azure.com/"},
            "https://res.services.ai.azure.com/anthropic",
        ),
        ("azure-foundry-openai/gpt-5.5", {"AZURE_API_ENDPOINT": "http://127.0.0.1:1/"}, "http://127.0.0.1:1/openai/v1"),
    ],
)
def test_addresses_from_variables(model: str, variables: dict[str, str], base_url: str) -> None:
    provider = model.partition("/")[0]
    key = (
        "AZURE_API_KEY"
        if provider.startswith("azure")
        else provider.upper().replace("-", "_").replace(".", "_") + "_API_KEY"
    )
    found = resolve_credentials(get_agent("opencode", NOWHERE), model, {key: "k-123", **variables}, NOWHERE)
    assert found.base_url == base_url
    assert found.provider == provider


def test_a_missing_base_url_is_named_as_documented() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("claude", "deepseek/v4", "DEEPSEEK_API_KEY")
    assert caught.value.message == (
        "Provider 'deepseek' for model 'deepseek/v4' requires DEEPSEEK_BASE_URL to build the provider base URL."
    )


@pytest.mark.parametrize(
    ("agent", "model", "words"),
    [
        (
            "claude",
            "claude-haiku-4-5",
            ["claude-agent-acp", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "claude login"],
        ),
        ("claude", "openai/gpt-5.5", ["openai/gpt-5.5", "OPENAI_API_KEY"]),
        ("codex", None, ["OPENAI_API_KEY", "CODEX_ACCESS_TOKEN", "codex --login"]),
        ("gemini", "gemini-2.5-pro", ["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("opencode", "deepseek/v4", ["DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"]),
        ("opencode", "azure-foundry-openai/gpt-5.5", ["AZURE_API_KEY", "AZURE_API_ENDPOINT"]),
        ("opencode", "mystery", ["does not tell whose", "--model anthropic/"]),
        ("openhands", None, ["LLM_API_KEY"]),
    ],
)
def test_a_missing_credential_is_named(agent: str, model: str | None, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(agent, model, "UNRELATED_API_KEY")
    assert all(word in str(caught.value) for word in words)


def test_another_providers_key_is_not_taken_for_the_models() -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        resolve("claude", "openai/gpt-5.5", *CLAUDE)


def test_builtins_need_nothing_and_commands_are_not_refused() -> None:
    assert resolve("oracle", "anything/at-all") == Credentials()
    assert resolve("my-agent --acp", "openai/gpt-5.5").env == {}
    assert list(resolve("my-agent --acp", "openai/gpt-5.5", "OPENAI_API_KEY").env) == ["OPENAI_API_KEY"]
    assert list(resolve("my-agent --acp", "deepseek/x", "DEEPSEEK_API_KEY").env) == ["DEEPSEEK_API_KEY"]


def test_the_environment_wins_over_dotenv_and_empty_means_unset(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("export ANTHROPIC_API_KEY='from file'  # mine\nEMPTY\nOTHER=$HOME\n")
    dotenv = read_dotenv(tmp_path)
    assert dotenv == {"ANTHROPIC_API_KEY": "from file", "OTHER": "$HOME"}
    spec = get_agent("claude", NOWHERE)
    found = resolve_credentials(spec, None, {"ANTHROPIC_API_KEY": ""}, NOWHERE, dotenv)
    assert (found.secrets, found.source) == (("from file",), "ANTHROPIC_API_KEY from .env")
    found = resolve_credentials(spec, None, {"ANTHROPIC_API_KEY": "exported"}, NOWHERE, dotenv)
    assert (found.secrets, found.source) == (("exported",), "ANTHROPIC_API_KEY from the environment")
    assert read_dotenv(tmp_path / "nothing") == {}


def test_a_token_takes_along_what_belongs_to_it() -> None:
    found = resolve("claude", None, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY")
    assert list(found.env) == ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"]
    assert (found.api_key, found.base_url) == (found.env["ANTHROPIC_AUTH_TOKEN"], "value-of-ANTHROPIC_BASE_URL")


def test_values_never_show() -> None:
    found = resolve("claude", None, "ANTHROPIC_API_KEY")
    assert "value-of" not in repr(found)
    assert "value-of" not in str(found)
    with pytest.raises(ConfigError) as caught:
        resolve("claude", "deepseek/x", "DEEPSEEK_API_KEY")
    assert "value-of" not in str(caught.value)


def test_what_is_found_here_is_named(home: Path) -> None:
    environ = {"OPENAI_API_KEY": "k", "CODEX_API_KEY": "", "GEMINI_API_KEY": "k"}
    assert found_here(get_agent("codex", NOWHERE), environ, home) == ["OPENAI_API_KEY", "~/.codex/auth.json"]
    assert found_here(get_agent("opencode", NOWHERE), environ, home) == ["OPENAI_API_KEY", "GEMINI_API_KEY"]
    assert found_here(get_agent("oracle", NOWHERE), environ, home) == []
