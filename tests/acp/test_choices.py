"""Which request selects a model or a mode."""

from __future__ import annotations

import pytest

from benchflow.acp.choices import choose_mode, choose_model, kept_another, match_model
from benchflow.acp.permission import choose
from benchflow.acp.usage import usage_of

CONFIG = {
    "configOptions": [
        {"id": "effort", "category": "thought_level", "options": [{"value": "low"}]},
        {
            "id": "m",
            "category": "model",
            "currentValue": "b",
            "options": [{"group": "g", "options": [{"value": "a"}, {"value": "b"}]}],
        },
        {"id": "mode", "options": [{"value": "ask"}, {"value": "yolo"}]},
    ]
}
MODELS = {"models": {"currentModelId": "x", "availableModels": [{"modelId": "x"}, {"modelId": "y"}]}}


def test_a_config_option_is_preferred_and_groups_are_read() -> None:
    choice = choose_model({**CONFIG, **MODELS}, "a")
    assert choice is not None
    assert (choice.method, choice.params) == ("session/set_config_option", {"configId": "m", "value": "a"})
    assert choice.offered == ("a", "b")


def test_the_older_request_where_only_that_is_offered() -> None:
    choice = choose_model(MODELS, "openai/Y")
    assert choice is not None
    assert (choice.method, choice.params) == ("session/set_model", {"modelId": "y"})


@pytest.mark.parametrize(
    ("way", "method"),
    [
        ("none", None),
        ("auto", None),
        ("set_model", "session/set_model"),
        ("config_option", "session/set_config_option"),
    ],
)
def test_an_agent_that_offers_nothing_is_asked_only_where_its_data_says_so(way: str, method: str | None) -> None:
    choice = choose_model({"models": "?", "configOptions": [1, {}]}, "m", way)  # type: ignore[arg-type]
    assert (choice.method if choice else None) == method


@pytest.mark.parametrize(
    ("wanted", "current", "found"),
    [
        ("gpt-5[high]", "", "gpt-5[high]"),
        ("gpt-5", "", "gpt-5[low]"),
        ("openai/GPT-5", "gpt-4[high]", "gpt-5[high]"),
        ("claude", "", "anthropic/claude"),
        ("o9", "", None),
    ],
)
def test_a_model_is_matched_by_what_it_means(wanted: str, current: str, found: str | None) -> None:
    assert match_model(wanted, ("gpt-5[low]", "gpt-5[high]", "anthropic/claude"), current) == found


def test_a_mode_is_chosen_by_the_request_or_the_option() -> None:
    assert choose_mode({"modes": {"availableModes": [{"id": "yolo"}]}, **CONFIG}, "yolo").method == "session/set_mode"
    assert choose_mode(CONFIG, "yolo").params == {"configId": "mode", "value": "yolo"}
    assert choose_mode({}, "yolo").params == {"modeId": "yolo"}


def test_an_agent_that_keeps_another_value_is_found_out() -> None:
    choice = choose_mode(CONFIG, "yolo")
    assert kept_another({"configOptions": [{"id": "mode", "currentValue": "ask"}]}, choice) == "ask"
    assert kept_another({"configOptions": [{"id": "mode", "currentValue": "yolo"}]}, choice) is None
    assert kept_another({}, choice) is None


def test_permission_goes_by_kind_never_by_id() -> None:
    options = [
        {"optionId": "allow", "kind": "reject_once"},
        {"optionId": "2", "kind": "allow_always"},
        {"optionId": "reject", "kind": "allow_once"},
        {"kind": "allow_once"},
        "junk",
    ]
    assert choose("allow", options) == "reject"
    assert choose("deny", options) == "allow"
    assert choose("allow", options[:1]) is None
    assert choose("deny", []) is None


def test_usage_is_read_where_agents_put_it() -> None:
    assert usage_of({"usage": {"inputTokens": 3, "outputTokens": 1, "other": 9}}) == {
        "input_tokens": 3,
        "output_tokens": 1,
    }
    assert usage_of({"_meta": {"quota": {"token_count": {"input_tokens": 3}}}}) == {"input_tokens": 3}
    assert usage_of({"usage": {"inputTokens": "3"}}) is None
    assert usage_of({}) is None
