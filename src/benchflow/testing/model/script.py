"""What the scripted model does, as a list of steps, and where in it a conversation is.

`Say`, `Run`, `Write` and `Use` are each one answer of the model: text that ends the turn, or a call of a tool that the
request offers. `Think`, `Wait` and `Fail` belong to the answer that follows them. A script goes on across prompts:
after a `Say` the next prompt of the same conversation gets the next step. When it is used up every further answer is
`END`.

The server keeps no conversation. Which answer is next is read off the history that every request carries, so a repeated
request gets the same answer again, and any number of conversations may share one script at the same time. Only a `Fail`
leaves no trace in a history; the server counts those (see `ModelServer`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with a text and end the turn; a streamed one takes `seconds`."""

    text: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """Call the agent's shell tool, with `text` said before the call."""

    command: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Call the agent's tool for writing a file, or its shell where it has none."""

    path: str
    content: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """Call a tool by its name, or a part of it: one of an MCP server, say."""

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning in front of the next answer, for clients that take it."""

    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Keep the next answer back for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer one request with an HTTP error. `retry_after` (seconds) is sent with 429, 503 and 529."""

    status: int
    retry_after: float = 0.0


Step = Say | Run | Write | Use | Think | Wait | Fail
Action = Say | Run | Write | Use

END = Say("The script has ended.")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the model with what goes before it."""

    action: Action
    thought: str = ""
    wait: float = 0.0
    fails: tuple[Fail, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model's side of a history said in one go: the text, and whether it called a tool."""

    text: str = ""
    called: bool = False


@dataclass(slots=True)
class _Prefix:
    thoughts: list[str] = field(default_factory=list)
    wait: float = 0.0
    fails: list[Fail] = field(default_factory=list)


def answers(script: Sequence[Step]) -> list[Answer]:
    """The answers of a script; the last one, `END`, is there to be repeated."""
    made = []
    before = _Prefix()
    for step in [*script, END]:
        match step:
            case Think():
                before.thoughts.append(step.text)
            case Wait():
                before.wait += step.seconds
            case Fail():
                before.fails.append(step)
            case _:
                made.append(Answer(step, "\n".join(before.thoughts), before.wait, tuple(before.fails)))
                before = _Prefix()
    return made


def position(script: Sequence[Answer], history: Sequence[Reply]) -> int:
    """The number of the answer that comes next: how many were given already.

    A history may hold replies that are not ours, such as a greeting the agent made up: those are passed over.
    """
    given = 0
    for reply in history:
        if given < len(script) - 1 and _is(script[given].action, reply):
            given += 1
    return given


def _is(action: Action, reply: Reply) -> bool:
    if isinstance(action, Say):
        return not reply.called and _plain(action.text) in _plain(reply.text)
    return reply.called


def _plain(text: str) -> str:
    """A text without white space: histories cut and join the pieces of a streamed text as they like."""
    return "".join(text.split())
