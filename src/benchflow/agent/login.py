"""A login of an agent's own, held outside its sandbox: the token is taken out of it, and where it is good for is known.

The agent is then given another token and another address, and whoever answers there sends its requests on with the
real one, as the agent itself would have. That works as long as the token lives: renewing it is the agent's own affair,
so a token that ends soon, or a login that is not understood, is left to the agent.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchflow.agent.spec import Bearer

TIME_LEFT = 3600.0
"""Seconds that a token must still be good for; one that ends sooner is left to the agent, which can renew it."""

_MILLISECONDS = 1e11
"""A time above this is in milliseconds: in seconds it would be in the year 5138."""


@dataclass(frozen=True, slots=True)
class Login:
    """What goes along with the token of a login: `headers` of every request, and `env`, the variable in which the agent
    takes a token that is good at another address (none: it takes it as it takes a key)."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    env: str = ""


def from_variable(bearer: Bearer, token: str, now: float) -> Login | None:
    """The login of a token that stands in a variable; None when only the agent can use it."""
    claims = jwt_claims(token)
    return _login(bearer, claims, claims, now)


def from_file(bearer: Bearer, path: Path, now: float) -> tuple[Login, str] | None:
    """The login and the token of a login file; None when only the agent can use it."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    token = _at(document, bearer.token)
    if not isinstance(token, str) or not token:
        return None
    login = _login(bearer, document, jwt_claims(token), now)
    return (login, token) if login else None


def jwt_claims(token: str) -> dict[str, Any]:
    """What a JSON Web Token says of itself, unverified; nothing when it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _login(bearer: Bearer, document: object, claims: Mapping[str, Any], now: float) -> Login | None:
    ends = _at(document, bearer.expires) if bearer.expires else claims.get("exp")
    if isinstance(ends, int | float) and (ends / 1000 if ends > _MILLISECONDS else ends) < now + TIME_LEFT:
        return None
    headers = {name: _at(document, path) for name, path in bearer.headers.items()}
    found = {name: value for name, value in headers.items() if isinstance(value, str) and value.isprintable()}
    return Login(found, bearer.env) if found.keys() == headers.keys() else None


def _at(document: object, path: Sequence[str]) -> object:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document
