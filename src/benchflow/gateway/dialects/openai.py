"""What the two dialects of OpenAI share: the paths of models, the credential and the errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from benchflow.gateway.dialects.base import Route

if TYPE_CHECKING:
    from benchflow.gateway.dialects.base import Dialect, Json

_ERRORS: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}

_MODELS = re.compile(r"(?:/v1)?/models(?P<model>(?:/[^/]+)*)")


def models_route(dialect: Dialect, method: str, path: str) -> Route | None:
    found = _MODELS.fullmatch(path) if method == "GET" else None
    return Route(dialect, "models", f"models{found['model']}") if found else None


def credential(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


def error(status: int, message: str) -> Json:
    fallback = ("server_error" if status >= 500 else "invalid_request_error", None)
    kind, code = _ERRORS.get(status, fallback)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
