"""What of a request reaches LiteLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.gateway.litellm_bridge.calls import arguments
from benchflow.gateway.refusal import Refusal

if TYPE_CHECKING:
    from benchflow.gateway.dialects.base import Json


@pytest.mark.parametrize("model", ["../../etc", "a b", "", "x?y", "-x", "a\nb"])
def test_a_model_is_a_name(model: str) -> None:
    with pytest.raises(Refusal):
        arguments("openai-chat", {}, model)


def test_only_what_a_dialect_has_is_passed_on() -> None:
    body: Json = {
        "messages": [],
        "api_base": "http://x",
        "vertex_credentials": "/etc/passwd",
        "temperature": None,
        "n": 2,
    }
    assert arguments("openai-chat", body, "m") == {"messages": [], "n": 2}
