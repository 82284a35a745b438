"""The kinds of value a task configuration is made of, each with its own clear refusal.

Numbers written as text (`cpus = "2"`) are taken as numbers, because tasks in the wild have them; `true` is never a
number. A refusal carries what is wrong, what is expected and how to fix it in its context (see `model.issues_of`).
"""

import math
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from benchflow.task.problem import show

SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Table(BaseModel):
    """A table of the configuration. Immutable; keys it does not know are reported elsewhere, never refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def bad(what: str, expected: str = "", fix: str = "") -> PydanticCustomError:
    """The refusal of one value, to be raised by a validator."""
    return PydanticCustomError("task_value", "{what}", {"what": what, "expected": expected, "fix": fix})


def as_number(value: object) -> int | float | None:
    """A finite number, also from its text; None when it is not one."""
    if isinstance(value, str) and len(value) <= 40 and _DECIMAL.fullmatch(value.strip()):
        value = float(value) if any(mark in value for mark in ".eE") else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:  # an integer beyond every float
        return None


def _number(expected: str, example: str, fits: Callable[[float], bool], *, whole: bool = False) -> BeforeValidator:
    def check(value: object) -> int | float:
        number = as_number(value)
        if number is None or not fits(number) or (whole and number != int(number)):
            raise bad(f"{show(value)} does not do", expected, f"write a number such as {example}")
        return int(number) if whole else number

    return BeforeValidator(check)


def _collapse(value: float) -> float:
    return int(value) if value == int(value) else value


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    fix = "write one text" if isinstance(value, dict | list) else "put it in quotes"
    raise bad(f"{show(value)} is not text", "text", fix)


def _words(value: object) -> str:
    text = _text(value)
    if not text.strip() or "\0" in text:
        raise bad(f"{show(text)} is empty or has a NUL character", "a text that is not empty", "write one, or drop it")
    return text


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise bad(f"{show(value)} is not true or false", "true or false", "write true or false, without quotes")
    return value


def _user(value: object) -> str | int:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise bad(f"{show(value)} is not a user", 'a user name or a uid, such as "agent" or 1000', "write one, or drop it")


def _service(value: object) -> str:
    text = _text(value)
    if not SERVICE_NAME.fullmatch(text):
        expected = "a compose service: letters, digits, '.', '_' and '-', starting with a letter or a digit"
        raise bad(f"{show(text)} is not a service name", expected, 'write a name such as "main"')
    return text


def _variable(value: object) -> str:
    if not isinstance(value, str) or not value or "=" in value or "\0" in value:
        raise bad(f"{show(value)} is not a variable name", "a name that is not empty and has no '='", "rename it")
    return value


def _plain(value: object) -> str:
    text = _text(value)
    if "\0" in text:
        raise bad("the text has a NUL character", "text without NUL", "remove it")
    return text


Text = Annotated[str, BeforeValidator(_text)]
Words = Annotated[str, BeforeValidator(_words)]
"""Text that says something: not empty, no NUL."""
Flag = Annotated[bool, BeforeValidator(_flag)]
User = Annotated[str | int, BeforeValidator(_user)]
Service = Annotated[str, BeforeValidator(_service)]
Env = dict[Annotated[str, BeforeValidator(_variable)], Annotated[str, BeforeValidator(_plain)]]
Seconds = Annotated[float, _number("a finite number of seconds above 0", "600.0", lambda n: n > 0)]
Delay = Annotated[float, _number("a finite number of seconds, 0 or more", "5.0", lambda n: n >= 0)]
Count = Annotated[int, _number("a whole number, 0 or more", "1", lambda n: n >= 0, whole=True)]
Positive = Annotated[int, _number("a whole number above 0", "2048", lambda n: n > 0, whole=True)]
Finite = Annotated[float, _number("a finite number", "1.0", lambda _: True)]
Cpus = Annotated[int | float, BeforeValidator(_collapse), _number("a number above 0", "2 or 0.5", lambda n: n > 0)]
"""Processors; `2.0` is `2`."""
