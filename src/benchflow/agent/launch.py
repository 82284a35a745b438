"""From an agent's data to the exact start of its process: a pure function.

There are two ways to a model. With an `Endpoint` the agent is pointed at a base URL with a key (a gateway's, or the
provider's own where there can be no gateway); without one it uses its own login or variables (`native`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchflow.agent.providers import split_model
from benchflow.agent.spec import VARIABLES, Setup, fill, placeholders
from benchflow.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic import SecretStr

    from benchflow.agent.bundle import Bundle
    from benchflow.agent.credentials import Credentials, LoginFile
    from benchflow.agent.spec import AgentSpec, HomeFile

SERVICE_PORT = 18789
"""The port of an agent's own service (`launch.before`), unless the caller chooses another."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the model is, as a client of the agent's dialect takes it, and the key for it."""

    base_url: str
    api_key: SecretStr


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How the agent's process starts. What may hold a secret is left out of the repr.

    `env` is laid over the sandbox's own. `files` go to the home, relative to it, readable by the agent's user alone;
    so do `logins`, files of this machine. `model` is what the agent calls the model, for the session to choose; empty
    when there is nothing to choose. `told` says whether the start itself names the model.
    """

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    files: Mapping[str, str] = field(repr=False)
    before: tuple[tuple[str, ...], ...] = ()
    model: str = ""
    told: bool = False
    port: int = SERVICE_PORT
    logins: tuple[LoginFile, ...] = ()


def plan_launch(
    spec: AgentSpec,
    bundle: Bundle,
    *,
    model: str | None,
    home: str,
    workspace: str,
    endpoint: Endpoint | None = None,
    credentials: Credentials | None = None,
    port: int = SERVICE_PORT,
) -> LaunchPlan:
    """How to start `spec` from its `bundle`, with `home` and `workspace` its folders in the sandbox.

    A variable whose template needs something that is not given (a model, say) is left out. Raises ConfigError when an
    argument or a file needs it.
    """
    setup: Setup = spec.endpoint if endpoint else spec.native
    places = {"home": home, "workspace": workspace, "port": str(port)}
    values = places | _values(spec, model, endpoint, credentials)
    env = {
        name: fill(text, values)
        for name, text in {**spec.env, **setup.env}.items()
        if values.keys() >= set(placeholders(text))
    }
    if endpoint and credentials and credentials.login and credentials.login.env:
        env = {name: value for name, value in env.items() if "api_key" not in placeholders(setup.env.get(name, ""))}
        env[credentials.login.env] = endpoint.api_key.get_secret_value()
    if endpoint is None and credentials:
        env |= {name: secret.get_secret_value() for name, secret in credentials.env.items() if name not in setup.env}
    return LaunchPlan(
        argv=_words(spec, (*bundle.argv, *setup.args), values),
        env=env,
        files={file.path: _content(spec, file, values) for file in (*spec.files, *setup.files)},
        before=tuple(_words(spec, command, values) for command in bundle.before),
        model=fill(setup.model, values) if model else "",
        told=any("model" in placeholders(text) for text in _templates(spec, setup)),
        port=port,
        logins=credentials.files if credentials and endpoint is None else (),
    )


def check_launch(spec: AgentSpec, model: str | None, *, endpoint: bool) -> None:
    """Raises ConfigError when `spec` cannot be started without a model and there is none."""
    if model is None:
        setup: Setup = spec.endpoint if endpoint else spec.native
        services = [word for service in spec.launch.before for word in service.command]
        given = dict.fromkeys(set(VARIABLES) - {"model"}, "")
        _words(spec, (*spec.launch.command, *services, *setup.args), given)
        for file in (*spec.files, *setup.files):
            _content(spec, file, given)


def _values(spec: AgentSpec, model: str | None, endpoint: Endpoint | None, found: Credentials | None) -> dict[str, str]:
    """What templates may use and what is known; what is not known is not in it."""
    prefix, name = split_model(model)
    provider = prefix or (found.provider if found else "")
    values = {"model": name}
    values["provider"] = spec.native.providers.get(provider, provider)
    values["auth"] = found.auth if found else ""
    if endpoint:
        parts = urlsplit(endpoint.base_url)
        values["base_url"] = endpoint.base_url
        values["base_origin"] = f"{parts.scheme}://{parts.netloc}"
        values["base_path"] = parts.path.strip("/")
        values["api_key"] = endpoint.api_key.get_secret_value()
    elif found and found.api_key:
        values["api_key"] = found.api_key.get_secret_value()
        values["base_url"] = found.base_url
    return {key: value for key, value in values.items() if value}


def _templates(spec: AgentSpec, setup: Setup) -> list[str]:
    """Everything that the agent is started with."""
    services = [word for service in spec.launch.before for word in service.command]
    files = [file.content for file in (*spec.files, *setup.files)]
    return [*spec.launch.command, *services, *setup.args, *spec.env.values(), *setup.env.values(), *files]


def _words(spec: AgentSpec, words: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    for word in words:
        _require(spec, word, values, "its command line")
    return tuple(fill(word, values) for word in words)


def _content(spec: AgentSpec, file: HomeFile, values: Mapping[str, str]) -> str:
    """Values stand inside double quotes in JSON, TOML and YAML files alike, which all take JSON's escapes."""
    _require(spec, file.content, values, f"~/{file.path}")
    return fill(file.content, {key: json.dumps(value, ensure_ascii=False)[1:-1] for key, value in values.items()})


def _require(spec: AgentSpec, text: str, values: Mapping[str, str], what: str) -> None:
    missing = [name for name in placeholders(text) if name not in values]
    if missing:
        fix = "give one with --model" if missing[0] == "model" else None
        raise ConfigError(f"agent {spec.name} needs a {missing[0].replace('_', ' ')} for {what}", hint=fix)
