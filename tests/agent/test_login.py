"""Logins that stay outside the sandbox: which can, what is taken out of them, and what the agent is given instead."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from benchflow.agent.bundle import Bundle
from benchflow.agent.catalog import get_agent
from benchflow.agent.credentials import resolve_credentials
from benchflow.agent.launch import Endpoint, plan_launch
from benchflow.agent.login import TIME_LEFT, from_file, from_variable, jwt_claims
from benchflow.agent.spec import Bearer
from benchflow.gateway.account import account_of

if TYPE_CHECKING:
    from benchflow.agent.credentials import Credentials
    from benchflow.agent.launch import LaunchPlan

NOWHERE = Path("/nonexistent")
NOW = 1_800_000_000.0
SOON, LATER = NOW + TIME_LEFT - 1, NOW + TIME_LEFT + 1
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "b", "exp"]), inner),
)


def jwt(**claims: Any) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, 0)
    )


def claude_login(home: Path, expires: float) -> Credentials:
    (home / ".claude").mkdir()
    document = {"claudeAiOauth": {"accessToken": "oat-1", "refreshToken": "ort-1", "expiresAt": int(expires * 1000)}}
    (home / ".claude" / ".credentials.json").write_text(json.dumps(document))
    return resolve_credentials(get_agent("claude", NOWHERE), "claude-haiku-4-5", {}, home)


def launched(agent: str, found: Credentials, endpoint: Endpoint | None) -> LaunchPlan:
    bundle = Bundle(argv=("agent",))
    spec = get_agent(agent, NOWHERE)
    return plan_launch(
        spec, bundle, model="some-model", home="/h", workspace="/w", endpoint=endpoint, credentials=found
    )


GATEWAY = Endpoint("http://127.0.0.1:1", SecretStr("pass-1"))


@pytest.mark.parametrize("name", ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"])
def test_a_token_of_claude_stays_outside(name: str) -> None:
    found = resolve_credentials(get_agent("claude", NOWHERE), "claude-haiku-4-5", {name: "real-1"}, NOWHERE)
    account = account_of(found, "claude-haiku-4-5")
    assert account is not None
    assert (account.bearer, account.base_url) == (True, "https://api.anthropic.com")
    assert account.api_key.get_secret_value() == "real-1"
    env = launched("claude", found, GATEWAY).env
    assert (env[name], env["ANTHROPIC_BASE_URL"]) == ("pass-1", "http://127.0.0.1:1")
    assert "ANTHROPIC_API_KEY" not in env
    assert "real-1" not in env.values()
    assert launched("claude", found, None).env[name] == "real-1"


def test_a_login_of_claude_stays_outside_while_it_is_good(tmp_path: Path) -> None:
    found = claude_login(tmp_path, time.time() + TIME_LEFT + 600)
    assert account_of(found, None)
    assert found.secrets == ("oat-1",)
    done = launched("claude", found, GATEWAY)
    assert done.env["CLAUDE_CODE_OAUTH_TOKEN"] == "pass-1"
    assert done.logins == ()
    assert [file.target for file in launched("claude", found, None).logins] == [".claude/.credentials.json"]


def test_a_login_that_ends_soon_is_left_to_the_agent(tmp_path: Path) -> None:
    found = claude_login(tmp_path, time.time() + TIME_LEFT - 60)
    assert account_of(found, None) is None
    assert [file.target for file in found.files] == [".claude/.credentials.json"]


def test_logins_of_codex(tmp_path: Path) -> None:
    """The account that a token is of goes along as a header, as codex sends it itself."""
    token = jwt(exp=time.time() + 1e6, **{"https://api.openai.com/auth": {"chatgpt_account_id": "acct-1"}})
    (tmp_path / ".codex").mkdir()
    document = {"tokens": {"access_token": token, "account_id": "acct-1", "refresh_token": "r"}}
    (tmp_path / ".codex" / "auth.json").write_text(json.dumps(document))
    codex = get_agent("codex", NOWHERE)
    for environ, home in (({"CODEX_ACCESS_TOKEN": token}, NOWHERE), ({}, tmp_path)):
        account = account_of(resolve_credentials(codex, "gpt-5.5", environ, home), "gpt-5.5")
        assert account is not None
        assert account.headers == {"chatgpt-account-id": "acct-1"}
        assert (account.base_url, account.bearer) == ("https://chatgpt.com/backend-api/codex", True)
    opaque = resolve_credentials(codex, "gpt-5.5", {"CODEX_ACCESS_TOKEN": "no-jwt"}, NOWHERE)
    assert account_of(opaque, "gpt-5.5") is None
    moved = resolve_credentials(
        codex, "gpt-5.5", {"CODEX_ACCESS_TOKEN": token, "CHATGPT_BASE_URL": "http://h/"}, NOWHERE
    )
    assert moved.base_url == "http://h"


def test_a_login_of_gemini_is_the_agents_own_affair(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "oauth_creds.json").write_text('{"access_token": "t"}')
    found = resolve_credentials(get_agent("gemini", NOWHERE), "gemini-2.5-pro", {}, tmp_path)
    assert account_of(found, None) is None


@pytest.mark.parametrize(
    ("token", "usable"),
    [
        ("opaque", True),
        (jwt(exp=LATER), True),
        (jwt(exp=SOON), False),
        (jwt(exp=LATER * 1000), True),
        (jwt(exp=SOON * 1000), False),
        (jwt(exp="never"), True),
    ],
)
def test_a_token_that_is_a_jwt_says_when_it_ends(token: str, usable: bool) -> None:
    assert bool(from_variable(Bearer(base_url="https://h"), token, NOW)) is usable


@settings(deadline=None)
@given(document=JSON)
def test_any_document_is_a_login_or_none(document: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "login.json"
    path.write_text(json.dumps(document))
    bearer = Bearer(base_url="https://h", token=("a", "b"), expires=("exp",), headers={"x": ("b",)})
    found = from_file(bearer, path, NOW)
    if found:
        assert found[1] == document["a"]["b"]
        assert found[0].headers == {"x": document["b"]}


@settings(deadline=None)
@given(
    text=st.text() | st.builds(lambda a, b, c: f"{a}.{b}.{c}", st.text(), st.text("eyJ0w_-", max_size=30), st.text())
)
def test_any_text_is_a_token_or_none(text: str) -> None:
    assert isinstance(jwt_claims(text), dict)


def test_a_broken_login_file_is_left_to_the_agent(tmp_path: Path) -> None:
    path = tmp_path / "login.json"
    bearer = Bearer(base_url="https://h", token=("a",))
    assert from_file(bearer, path, NOW) is None
    for text in ("", "{", "[]", '{"a": 1}', '{"a": ""}'):
        path.write_text(text)
        assert from_file(bearer, path, NOW) is None
    path.write_bytes(b"\xff")
    assert from_file(bearer, path, NOW) is None
