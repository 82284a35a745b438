"""What an error of a provider means for the rollout: a pure function.

It goes by the codes of an error, hardly by its words: words repeat what the client sent, and a client must not be able
to stop a whole job by what it asks for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchflow.gateway.dialects.base import get, objects, text

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["answer", "busy", "key", "billing", "model", "redirect"]

MESSAGE_LIMIT = 300
"""Characters of a provider's message that are repeated."""

_NO_MONEY = {"insufficient_quota", "billing_error", "billing_not_active", "insufficient_balance"}
_NO_MODEL = {"model_not_found", "invalid_model", "model_not_available"}
_NO_KEY = {"API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED", "invalid_api_key"}


@dataclass(frozen=True, slots=True)
class ProviderError:
    """An error as far as it can be read: the provider's own words, shortened, and every code in it."""

    message: str
    codes: frozenset[str]


def read_error(body: bytes) -> ProviderError:
    """The error in the body of an answer, in whichever dialect."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, list):  # Gemini wraps the errors of streams
        document = next(iter(objects(document)), None)
    inner = get(document, "error")
    message = text(inner, "message") or text(document, "message") or text(document, "error") or text(document, "detail")
    reasons = [text(detail, "reason") for detail in objects(get(inner, "details"))]
    codes = [text(inner, "code"), text(inner, "type"), text(inner, "status"), text(document, "code"), *reasons]
    words = (message or body.decode("utf-8", "replace")).strip()
    return ProviderError(words[:MESSAGE_LIMIT], frozenset(code for code in codes if code))


def judge(status: int, headers: Mapping[str, str], error: ProviderError, *, model: str, configured: bool) -> Verdict:
    """What to do with an error. `configured` says that `model` is the one the rollout was made for.

    `busy` is worth another try; `key`, `billing` and `model` are worth none; `answer` is the client's own affair.
    """
    if 300 <= status < 400:
        return "redirect"
    if status == 402 or error.codes & _NO_MONEY or error.message.startswith("Your credit balance is too low"):
        return "billing"
    if status in (429, 529) or (status == 503 and ("retry-after" in headers or "retry-after-ms" in headers)):
        return "busy"
    if status in (401, 403) or (status == 400 and error.codes & _NO_KEY):
        return "key"
    if configured and (error.codes & _NO_MODEL or (status == 404 and model.lower() in error.message.lower())):
        return "model"
    return "answer"
