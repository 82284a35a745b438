"""Who pays: which credential a rollout uses, decided before anything starts.

The order is: the provider that the model's prefix names; without a prefix the agent's own precedence, as its file lists
it. A variable of the process wins over the same one in `.env`. Values are kept as secrets: they are in no repr, no
text and no error.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dotenv import dotenv_values
from pydantic import SecretStr

from benchflow.agent.login import Login
from benchflow.agent.login import from_file as login_from_file
from benchflow.agent.login import from_variable as login_from_variable
from benchflow.agent.providers import PROVIDERS, get_provider, infer_provider, provider_url, split_model
from benchflow.agent.spec import Credential
from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchflow.agent.providers import Provider
    from benchflow.agent.spec import AgentSpec, Dialect

NO_KEY = SecretStr("no-key-is-needed")
"""What a server that wants no key is given, because clients want one."""

LOGIN_MODE = 0o600
"""A copied login file is for the agent's user alone."""


@dataclass(frozen=True, slots=True)
class LoginFile:
    """A login file of this machine that the agent gets: `target` is relative to its home in the sandbox."""

    source: Path
    target: str
    mode: int = LOGIN_MODE


@dataclass(frozen=True, slots=True)
class Credentials:
    """What was found. `source` says where, in words, without the value.

    With `api_key` and `base_url` any client of one of `dialects` can be pointed at the provider, or LiteLLM can be,
    which calls it `litellm` and takes `parameters`. Without them only the agent itself can use what was found: `env`
    and `files` go to it as they are. With `login` the key is the token of a login that either of them can use.
    """

    provider: str = ""
    source: str = "none needed"
    env: Mapping[str, SecretStr] = field(default_factory=dict)
    files: tuple[LoginFile, ...] = ()
    api_key: SecretStr | None = None
    base_url: str = ""
    dialects: tuple[Dialect, ...] = ()
    auth: str = ""
    litellm: str = ""
    parameters: Mapping[str, SecretStr] = field(default_factory=dict)
    login: Login | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values themselves, for whoever must keep them out of what is written."""
        named = [value for name, value in self.parameters.items() if re.search("key|token|secret", name)]
        key = (self.api_key,) if self.login and self.api_key else ()
        return tuple(dict.fromkeys(secret.get_secret_value() for secret in (*self.env.values(), *named, *key)))


def read_dotenv(folder: Path) -> dict[str, str]:
    """The variables of `folder/.env`; none when there is no such file. Raises ConfigError when it cannot be read."""
    path = folder / ".env"
    if not path.is_file():
        return {}
    try:
        return {name: value for name, value in dotenv_values(path, interpolate=False).items() if value is not None}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def resolve_credentials(
    spec: AgentSpec, model: str | None, environ: Mapping[str, str], home: Path, dotenv: Mapping[str, str] | None = None
) -> Credentials:
    """The credential `spec` uses for `model`.

    An agent that says nothing of credentials (a command of the user's own, a built-in) gets what its model's prefix
    asks for when that is there, and is not refused when it is not. Raises ConfigError that names what to set.
    """
    if spec.kind == "builtin":
        return Credentials()
    known = {**(dotenv or {}), **{name: value for name, value in environ.items() if value}}
    places = {name: "the environment" if environ.get(name) else ".env" for name in known}
    rows = candidates(spec, model)
    for row in rows:
        if row.env and known.get(row.env):
            return _from_variable(row, model, known, places[row.env], spec)
        if row.file and (home / row.file).is_file():
            return _from_file(row, home, known)
    if keyless := _without_key(model, known):
        return keyless
    if not spec.credentials and not spec.infer_provider:
        return Credentials(source="the agent's own affair")
    raise _missing(spec, model, rows, known)


def candidates(spec: AgentSpec, model: str | None) -> list[Credential]:
    """Every credential that would do, best first."""
    prefix, _ = split_model(model)
    target = prefix or (infer_provider(model) if spec.infer_provider else "")
    own = [row for row in spec.credentials if not target or row.provider in ("", target)]
    named = {row.env for row in own}
    keys = get_provider(target).keys if target else ()
    conventional = [Credential(provider=target, env=name) for name in keys if name not in named]
    if not prefix:
        return [*own, *conventional]
    generic = [row for row in own if not row.provider]
    return [*(row for row in own if row.provider), *conventional, *generic]


def found_here(
    spec: AgentSpec, environ: Mapping[str, str], home: Path, dotenv: Mapping[str, str] | None = None
) -> list[str]:
    """The names of everything found here that this agent could use with some model, best first."""
    known = {**(dotenv or {}), **environ}
    shared = [key for provider in PROVIDERS.values() for key in provider.keys] if spec.infer_provider else []
    own = [row.env for row in spec.credentials]
    names = [name for name in dict.fromkeys((*own, *shared)) if name and known.get(name)]
    return names + [f"~/{row.file}" for row in spec.credentials if row.file and (home / row.file).is_file()]


def _from_variable(
    row: Credential, model: str | None, known: Mapping[str, str], place: str, spec: AgentSpec
) -> Credentials:
    name = row.provider or infer_provider(model)
    provider = get_provider(name) if name else None
    passed = {name: SecretStr(known[name]) for name in (row.env, *row.also) if known.get(name)}
    found = Credentials(provider=name, source=f"{row.env} from {place}", env=passed, auth=row.auth)
    if row.token:
        login = login_from_variable(row.bearer, known[row.env], time.time()) if row.bearer else None
        return _with_login(found, row, login, known[row.env], known)
    given = known.get(row.base_url or (provider.base_url_var if provider else ""), "")
    if provider and (absent := _absent(provider, row.env, known, given)):
        raise ConfigError(
            f"Provider '{name}' for model '{model}' requires {' and '.join(absent)}.",
            hint=f"export {' and '.join(absent)}, or put it in .env",
        )
    base_url = provider_url(provider, given, known) if provider else given.rstrip("/")
    if provider and row.provider and not base_url:
        if not spec.credentials and not spec.infer_provider:
            return found
        raise ConfigError(
            f"Provider '{name}' for model '{model}' requires {provider.base_url_var} to build the provider base URL.",
            hint=f"export {provider.base_url_var}=https://..., or put it in .env",
        )
    if provider is None:
        return replace(found, api_key=passed[row.env], base_url=base_url)
    parameters = {name: SecretStr(value) for name, value in provider.parameters(row.env, known).items()}
    return replace(
        found,
        api_key=passed[row.env],
        base_url=base_url,
        dialects=provider.dialects,
        litellm=provider.litellm,
        parameters=parameters,
    )


def _absent(provider: Provider, key: str, known: Mapping[str, str], given: str) -> list[str]:
    """The variables beside the key that must be set and are not; an address that is given needs none to be made of."""
    needed = provider.requires.get(key, {}).values() if given else provider.variables(key)
    return [name for name in dict.fromkeys(needed) if not known.get(name)]


def _without_key(model: str | None, known: Mapping[str, str]) -> Credentials | None:
    """A provider that the model names and that needs no key."""
    name = split_model(model)[0]
    provider = get_provider(name) if name else None
    if provider is None or not provider.key_optional:
        return None
    base_url = provider_url(provider, known.get(provider.base_url_var, ""))
    return Credentials(
        provider=name, source="no key needed", api_key=NO_KEY, base_url=base_url, dialects=provider.dialects
    )


def _from_file(row: Credential, home: Path, known: Mapping[str, str]) -> Credentials:
    file = LoginFile(home / row.file, row.file)
    found = Credentials(provider=row.provider, source=f"the login in ~/{row.file}", files=(file,), auth=row.auth)
    usable = login_from_file(row.bearer, file.source, time.time()) if row.bearer else None
    return _with_login(found, row, *usable, known) if usable else found


def _with_login(
    found: Credentials, row: Credential, login: Login | None, token: str, known: Mapping[str, str]
) -> Credentials:
    if login is None or row.bearer is None:
        return found
    provider = get_provider(row.provider)
    base_url = known.get(row.base_url or provider.base_url_var) or row.bearer.base_url
    return replace(
        found, login=login, api_key=SecretStr(token), base_url=base_url.rstrip("/"), dialects=provider.dialects
    )


def _missing(spec: AgentSpec, model: str | None, rows: list[Credential], known: Mapping[str, str]) -> ConfigError:
    what = f"agent {spec.name}" + (f" with model {model}" if model else "")
    if not rows:
        return ConfigError(
            f"{what} needs a credential, but the model does not tell whose",
            hint="name the provider in the model, such as --model anthropic/claude-haiku-4-5 or openai/gpt-5.5",
        )
    variables = [row.env for row in rows if row.env]
    logins = [row.login or f"log in so that ~/{row.file} exists" for row in rows if row.file]
    provider = get_provider(rows[0].provider) if rows[0].provider else None
    address = provider.base_url_var if provider and not (provider.base_url or known.get(provider.base_url_var)) else ""
    others = [name for name in provider.variables(variables[0])[1:] if not known.get(name)] if provider else []
    beside = "".join(f", and {name}" for name in (address, *others) if name)
    hint = f"export {' or '.join(variables)}{beside}, or put it in .env"
    hint += "".join(f"; or run `{login}`" for login in logins)
    return ConfigError(f"{what} has no credential: none of {', '.join(variables)} is set", hint=hint)
