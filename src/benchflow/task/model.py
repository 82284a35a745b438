"""The whole configuration of a task, and how a raw document becomes one.

`parse_config` is total: any document, however wrong, gives a configuration or issues, never an exception. Unknown
keys and old spellings are warnings; what this release cannot execute is not an issue at all but a declared need
(see `needs`).
"""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from benchflow.task.agent import AgentConfig
from benchflow.task.artifacts import Artifacts
from benchflow.task.environment import EnvironmentConfig
from benchflow.task.legacy import modernise
from benchflow.task.problem import Issue, KeyPath, has_errors, show
from benchflow.task.steps import StepConfig, duplicate_names
from benchflow.task.unknown import number_texts, unknown_keys
from benchflow.task.values import Env, Seconds, Table, Text, Words, bad
from benchflow.task.verifier import VerifierConfig

SCHEMA_VERSION = "1.4"

DEPTH_LIMIT = 64
"""Tables and lists inside each other; a document that goes deeper is refused."""

INTEGER_LIMIT = 2**63
"""Integers are of 64 bits, as TOML has them."""

SALVAGE_ROUNDS = 4
"""How often what is left is looked at again; removing one value may leave its table without a needed one."""

_PACKAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def _package(name: str) -> str:
    if not _PACKAGE_NAME.fullmatch(name) or ".." in name:
        expected = "org/name, of letters, digits, '.', '_' and '-', without '..'"
        raise bad(f"{show(name)} is not a package name", expected, 'write a name such as "my-org/my-task"')
    return name


class Author(Table):
    name: Text
    email: Text | None = None


class PackageInfo(Table):
    """`[task]`: the identity under which the task is published."""

    name: Annotated[Text, AfterValidator(_package)]
    version: Words | None = None
    description: Text = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[Text, ...] = ()


class SolutionConfig(Table):
    """`[solution]`: what the oracle is run with."""

    env: Env = Field(default_factory=dict)
    timeout_sec: Seconds | None = None


class TaskConfig(Table):
    """Everything that `task.toml` or the front matter of `task.md` says. An empty document is a valid one."""

    schema_version: Text = SCHEMA_VERSION
    source: Text | None = None
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    artifacts: Artifacts = ()
    task: PackageInfo | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    agent: AgentConfig = AgentConfig()
    verifier: VerifierConfig = VerifierConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution: SolutionConfig = SolutionConfig()
    steps: tuple[StepConfig, ...] | None = None


def parse_config(raw: Mapping[str, object]) -> tuple[TaskConfig | None, list[Issue]]:
    """The configuration, or None when an issue is an error; and every issue."""
    issues = list(_unusable(raw))
    if issues:
        return None, issues
    document, issues = modernise(raw)
    issues += duplicate_names(document.get("steps"))
    issues += unknown_keys(TaskConfig, document)
    try:
        config = TaskConfig.model_validate(document)
    except ValidationError as error:
        return None, [*issues, *issues_of(error)]
    issues += number_texts(config, document)
    return (None if has_errors(issues) else config), issues


def salvage(raw: Mapping[str, object], issues: Sequence[Issue]) -> TaskConfig | None:
    """What is left of a document without the values that have errors, so that its files can be looked at too.

    For diagnosis only. None when too little is left.
    """
    try:
        document = copy.deepcopy(modernise(raw)[0])
    except RecursionError:
        return None
    for _ in range(SALVAGE_ROUNDS):
        wrong = [
            issue.path[:-1] if issue.code in ("missing-key", "duplicate-step") else issue.path
            for issue in issues
            if issue.severity == "error" and issue.code != "conflict"  # which is settled in `document` already
        ]
        for path in sorted(wrong, key=_removal_order, reverse=True):
            _remove(document, path)
        config, issues = parse_config(document)
        if config is not None:
            return config
    return None


def _removal_order(path: KeyPath) -> tuple[str, ...]:
    """Reversed, later entries of a list go before earlier ones, which keeps the paths that are left valid."""
    return tuple(f"{part:08}" if isinstance(part, int) else part for part in path)


def _remove(document: object, path: KeyPath) -> None:
    if not path:
        return
    for part in path[:-1]:
        try:
            document = document[part]  # type: ignore[index]
        except (LookupError, TypeError):
            return
    if isinstance(document, dict):
        document.pop(path[-1], None)
    elif isinstance(document, list) and isinstance(path[-1], int) and path[-1] < len(document):
        del document[path[-1]]


def issues_of(error: ValidationError) -> Iterator[Issue]:
    """What a model refused, in our words."""
    for detail in error.errors(include_url=False):
        path = tuple(part for part in detail["loc"] if part != "[key]")
        yield _issue(path, detail)


_EXPECTED = {
    "model_type": ("a table", "write it as a table"),
    "dict_type": ("a table", "write it as a table"),
    "tuple_type": ("a list", "put it in [ ]"),
    "string_type": ("text", "put it in quotes"),
}


def _issue(path: KeyPath, detail: ErrorDetails) -> Issue:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "task_value":
        return Issue(path, str(context["what"]), str(context["expected"]), str(context["fix"]))
    if kind == "missing":
        return Issue(path, "is missing", "a value", f"add {path[-1]}", "missing-key")
    value = show(detail["input"])
    if kind in _EXPECTED:
        expected, fix = _EXPECTED[kind]
        return Issue(path, f"{value} is not {expected}", expected, fix)
    if kind == "literal_error":
        return Issue(path, f"{value} is not one of the choices", str(context["expected"]), "write one of them")
    return Issue(path, f"{value}: {detail['msg']}", "another value", "see the task format")


def _unusable(raw: Mapping[str, object]) -> Iterator[Issue]:
    """What must not reach the models: values that no task can mean and that break whoever walks over them."""
    pending: list[tuple[KeyPath, object]] = [((), raw)]
    while pending:
        path, value = pending.pop()
        if len(path) > DEPTH_LIMIT:
            yield Issue(path[:3], f"is nested more than {DEPTH_LIMIT} levels deep", "fewer levels", "flatten it")
            return
        if isinstance(value, dict):
            for key, item in cast("dict[str, object]", value).items():
                if not _is_unicode(key):
                    yield Issue(path, f"the key {show(key)} is not valid Unicode", "Unicode text", "rename it")
                pending.append(((*path, key), item))
        elif isinstance(value, list):
            pending.extend(((*path, index), item) for index, item in enumerate(value))
        elif isinstance(value, str) and not _is_unicode(value):
            yield Issue(path, f"{show(value)} is not valid Unicode", "Unicode text", "remove the lone surrogate")
        elif isinstance(value, int) and not -INTEGER_LIMIT <= value < INTEGER_LIMIT:
            yield Issue(path, f"{show(value)} is beyond 64 bits", "a smaller number", "write it as text")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
