"""What an agent is: plain data, read from one TOML file.

The file says how the agent is installed (`install`), started (`launch`), told its model (`session`), pointed at a model
(`endpoint`: at any base URL with a key; `native`: at the provider it knows by itself, with its own login), which
credentials it accepts in order of precedence (`credentials`), and where it looks for skills (`skills`).

Texts in `env`, `files` and `args` are templates: `{model}` and the other names of `VARIABLES` are replaced, everything
else is left as it is. A name that is none of these is an error when the file is read, not when the agent starts.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

if TYPE_CHECKING:
    from collections.abc import Mapping

Dialect = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
Kind = Literal["acp", "builtin", "wrapper"]
ModelChoice = Literal["auto", "config_option", "set_model", "env", "file", "flag", "none"]

VARIABLES: Mapping[str, str] = {
    "base_url": "where the model is, as a client of the agent's dialect takes it (OpenAI's with /v1, others without)",
    "base_origin": "scheme, host and port of base_url",
    "base_path": "the path of base_url, without slashes at its ends",
    "api_key": "the key or token for base_url",
    "model": "the model's name without the provider's prefix",
    "provider": "the provider's name: the prefix of the model, or what was inferred from it",
    "auth": "what the credential that was found says of itself (see Credential.auth)",
    "home": "the home folder of the agent's user in the sandbox",
    "workspace": "the folder in the sandbox that the agent works in",
    "port": "a free port on loopback, for an agent that needs a service of its own (see Launch.before)",
}
"""What a template may name."""

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_PIN = re.compile(r"(?P<name>@?[^@=\s]+)(?:@|==)(?P<version>[^@=\s]+)")


def placeholders(text: str) -> list[str]:
    """The names a template asks for, in order."""
    return _PLACEHOLDER.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """`text` with its placeholders replaced. Raises KeyError for a name without a value."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def split_pin(package: str) -> tuple[str, str]:
    """Name and version of `name@version` or `name==version`. Raises ValueError when it is not pinned."""
    match = _PIN.fullmatch(package)
    if not match:
        raise ValueError(f"{package!r} must be pinned: name@version (npm) or name==version (PyPI)")
    return match["name"], match["version"]


def _template(text: str) -> str:
    unknown = sorted(set(placeholders(text)) - set(VARIABLES))
    if unknown:
        raise ValueError(f"no such placeholder: {{{unknown[0]}}} (there are {', '.join(VARIABLES)})")
    return text


def _home_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith(("/", "~")) or ".." in parts:
        raise ValueError(f"{path!r} must be relative to the home folder and stay in it")
    return path


def _pinned(package: str) -> str:
    split_pin(package)
    return package


Template = Annotated[str, AfterValidator(_template)]
HomePath = Annotated[str, AfterValidator(_home_path)]
Pinned = Annotated[str, AfterValidator(_pinned)]


class Table(BaseModel):
    """A table of an agent's file: read-only once loaded, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HomeFile(Table):
    """A file written into the agent's home before it starts, readable by its user alone."""

    path: HomePath
    content: Template


class Setup(Table):
    """What is laid over the agent's start in one way of reaching a model; `model` is what the agent calls the model."""

    model: Template = "{model}"
    args: tuple[Template, ...] = ()
    env: dict[str, Template] = Field(default_factory=dict)
    files: tuple[HomeFile, ...] = ()


class Native(Setup):
    """The agent's own way to the providers it knows: nothing but its own variables and login files.

    `providers` maps our name of a provider to the agent's own, which is then `{provider}`.
    """

    providers: dict[str, str] = Field(default_factory=dict)


class Install(Table):
    """What the bundle is made of. The version of the first package is the agent's version.

    `{arch}` (x64, arm64) and `{musl}` (`-musl` or nothing) may stand in package names and in `bins`.
    `bins` says where a command is, for packages that do not say so themselves; paths are relative to the bundle.
    `files` are files of ours that go into the bundle's root. `scripts` are npm packages whose install scripts run when
    the bundle is built; no other package's do.
    """

    npm: tuple[Pinned, ...] = ()
    pypi: tuple[Pinned, ...] = ()
    node: str = ""
    python: str = ""
    bins: dict[str, str] = Field(default_factory=dict)
    files: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _runtime(self) -> Self:
        if self.npm and self.pypi:
            raise ValueError("an agent comes from npm or from PyPI, not from both")
        if self.pypi and not self.python:
            raise ValueError("packages from PyPI need `python`, such as python = '3.12'")
        if self.scripts and not self.npm:
            raise ValueError("`scripts` names packages from npm, and there are none")
        return self

    @property
    def packages(self) -> tuple[str, ...]:
        return self.npm or self.pypi

    @property
    def version(self) -> str:
        return split_pin(self.packages[0])[1] if self.packages else ""


class Service(Table):
    """A process that must run beside the agent, started before it with the same user, home and environment.

    It is ready when it accepts connections on 127.0.0.1:`{port}`.
    """

    command: tuple[Template, ...]


class Launch(Table):
    """How the agent is started. A command that the bundle has is run from it; any other is looked up in the sandbox.

    `on_path` puts the bundle's commands on the agent's PATH, for agents that start one of them by name.
    """

    command: tuple[Template, ...] = ()
    before: tuple[Service, ...] = ()
    on_path: bool = False


class Session(Table):
    """How a session is set up over ACP.

    `model` says how the model is chosen: through a config option, by session/set_model, or already by
    `env`, `file` or `flag` before the start; `auto` is by whichever of the first two the agent offers, unless its start
    tells it. `mode` is a session mode to switch to where the agent offers it. `permission` is how its requests for
    permission are answered. With `files` or `terminals` it is offered ours, which then may replace tools of its own;
    they are served inside the sandbox either way.
    """

    model: ModelChoice = "auto"
    mode: str = ""
    permission: Literal["allow", "deny"] = "allow"
    files: bool = False
    terminals: bool = False


class Bearer(Table):
    """How another than the agent can use its login: with the token as `Authorization: Bearer` at `base_url`.

    `token` is where a login file, which is JSON, has it, and `expires` where it has its end (seconds or milliseconds
    since 1970; a token that is a JWT says so itself). `headers` go along, each with what is found at its path in the
    file or in the claims of the token. `env` is the variable in which the agent takes a token for another address;
    without it, it takes one as it takes a key.
    """

    base_url: str
    token: tuple[str, ...] = ()
    expires: tuple[str, ...] = ()
    headers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    env: str = ""


class Credential(Table):
    """One way to pay for the model; the first one found is taken.

    `env` is a variable. It holds a key for the provider's public endpoint, or, with `token`, something that only the
    agent itself can use. `file` is a login file of the agent's own command line, relative to the home folder.
    `login` is the command that makes it. `also` are variables that go along when they are set. `auth` is what
    templates see as `{auth}`. Without `provider` it is good for whichever provider the model has, and `base_url` is the
    variable that may say where that is. With `bearer` a token or a login stays outside the sandbox where it can.
    """

    provider: str = ""
    env: str = ""
    base_url: str = ""
    token: bool = False
    file: str = ""
    login: str = ""
    also: tuple[str, ...] = ()
    auth: str = ""
    bearer: Bearer | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.env) == bool(self.file):
            raise ValueError("a credential is either `env` or `file`")
        return self


class Skills(Table):
    """Folders in which the agent looks for skills, relative to its home and to its workspace."""

    home: tuple[HomePath, ...] = ()
    workspace: tuple[HomePath, ...] = ()


class AgentSpec(Table):
    """One agent.

    `infer_provider` says that the agent serves many providers, so that a model's name alone tells whose key is
    needed. `home` lists folders that must exist, writable, in the home before the start.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    aliases: tuple[str, ...] = ()
    description: str = ""
    kind: Kind = "acp"
    dialect: Dialect | None = None
    install: Install = Field(default_factory=Install)
    launch: Launch = Field(default_factory=Launch)
    session: Session = Field(default_factory=Session)
    env: dict[str, Template] = Field(default_factory=dict)
    files: tuple[HomeFile, ...] = ()
    endpoint: Setup = Field(default_factory=Setup)
    native: Native = Field(default_factory=Native)
    credentials: tuple[Credential, ...] = ()
    infer_provider: bool = False
    skills: Skills = Field(default_factory=Skills)
    home: tuple[HomePath, ...] = ()
    _through: AgentSpec | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _startable(self) -> Self:
        if self.kind == "acp" and not self.launch.command:
            raise ValueError("launch.command is missing: the words that start the agent")
        return self

    @property
    def through(self) -> AgentSpec | None:
        """The wrapper that this agent is run by (`acpx/name`)."""
        return self._through

    @property
    def version(self) -> str:
        """The pinned version, or nothing for an agent that is not installed by us."""
        return self.install.version

    @property
    def protocol(self) -> str:
        return "built-in" if self.kind == "builtin" else "ACP"

    @property
    def ref(self) -> str:
        """How a user names exactly this agent."""
        return f"{self.through.name}/{self.name}" if self.through else self.name

    @property
    def auth(self) -> tuple[str, ...]:
        """The credentials it accepts, in order, in words."""
        if self.kind == "builtin":
            return ()
        own = tuple(row.env or f"~/{row.file}" for row in self.credentials)
        return (*own, "inferred from the model") if self.infer_provider else own

    def at_version(self, version: str) -> AgentSpec:
        """The same agent with its first package at another version."""
        first, *rest = self.install.packages
        _, pinned = split_pin(first)
        packages = (first.removesuffix(pinned) + version, *rest)
        field = "npm" if self.install.npm else "pypi"
        return self.model_copy(update={"install": self.install.model_copy(update={field: packages})})

    def run_by(self, wrapper: AgentSpec) -> AgentSpec:
        """The same agent, run through `wrapper`."""
        copy = self.model_copy()
        copy._through = wrapper  # noqa: SLF001 - a copy of our own
        return copy
