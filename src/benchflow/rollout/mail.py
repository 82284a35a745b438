"""Messages between the roles of a scene: what a message is, who gets it when, and how it looks in a prompt.

A role writes `{"to": "coder", "content": "..."}`, or a list of those, to `coder.json` in its outbox. `to` may be left
out; where it is given it agrees with the name of the file. `{"to": "scene", "content": "done"}` in `scene.json`, or
`"done": true` in any message, says that the scene is done, where the scene listens to that.

Who sent a message is known from outside and never believed from what is written. Every message is delivered once, or
its sender is told why not. This module is pure; `outbox` does the reading.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchflow.rollout.scene_check import RESERVED
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchflow.trajectory.events import Event

MESSAGE_LIMIT = 100_000
"""Bytes of one file in an outbox."""

LETTERS_LIMIT = 50
"""Messages in one file."""

_DONE = "done"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a prompt and where it comes from: `instruction`, `scene`, `user`, `message` or `notice`."""

    source: str
    text: str
    role: str | None = None

    def to_json(self) -> dict[str, str]:
        return {"source": self.source, **({"role": self.role} if self.role else {}), "text": self.text}


@dataclass(frozen=True, slots=True)
class Entry:
    """What lay in an outbox: a file's name, who certainly wrote it, and its content or why that was not read."""

    name: str
    sender: str | None = None
    data: bytes | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `done` says that the sender holds the scene to be done."""

    sender: str
    to: str
    content: str
    done: bool = False

    def part(self) -> Part:
        """The message as it stands in a prompt: with its sender, and an end that its content cannot contain."""
        mark = hashlib.sha256(f"{self.sender}\0{self.to}\0{self.content}".encode()).hexdigest()[:16]
        text = f'<message from="{self.sender}" id="{mark}">\n{self.content}\n</message id="{mark}">'
        return Part("message", text, self.sender)


class Refused(ValueError):
    """Why a file is no message, as its writer is told."""


def read_messages(data: bytes, *, sender: str, to: str) -> list[Message]:
    """The messages in a file for `to`. Raises Refused with the reason."""
    try:
        found = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise Refused("it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise Refused("it is not JSON") from None
    listed = found if isinstance(found, list) else [found]
    if not 1 <= len(listed) <= LETTERS_LIMIT:
        raise Refused(f"it holds {len(listed)} messages; 1 to {LETTERS_LIMIT} are expected")
    return [_message(one, sender, to) for one in listed]


def _message(found: object, sender: str, to: str) -> Message:
    if not isinstance(found, dict):
        raise Refused('a message is an object with "to" and "content"')
    if found.get("to", to) != to:
        raise Refused(f"it is for {_short(found['to'])}, but the file is named after {to!r}")
    if found.get("from", sender) != sender:
        raise Refused(f"it says that it is from {_short(found['from'])}, which it is not")
    content, done = found.get("content", ""), found.get("done", False)
    if not isinstance(content, str) or not isinstance(done, bool):
        raise Refused('"content" is text, and "done" is true or false')
    # A lone surrogate is no text that could be sent on.
    content = content.encode("utf-8", "replace").decode("utf-8")
    done = done or (to == RESERVED and content.strip().lower() == _DONE)
    if to == RESERVED and not done:
        raise Refused(f'a message to {RESERVED!r} has the content "{_DONE}"')
    if not content.strip() and not done:
        raise Refused('"content" is missing or empty')
    return Message(sender, to, content, done)


def _short(value: object) -> str:
    return repr(value)[:60]


class Mail:
    """What is on its way between the roles of one scene.

    `turns` names the roles in the order they will act, where that is known: a message to someone who will not is not
    kept. `listens_to` are the roles whose word ends the scene.
    """

    def __init__(
        self, roles: Iterable[str], turns: Sequence[str] | None = None, listens_to: Sequence[str] = ()
    ) -> None:
        self.done: list[str] = []
        """Roles that said the scene is done, and are listened to."""
        self._roles = list(roles)
        self._left = None if turns is None else Counter(turns)
        self._listens_to = listens_to
        self._waiting: dict[str, list[Message]] = {}
        self._notices: dict[str, list[str]] = {}

    def how(self, sender: str) -> str:
        """How `sender` writes a message, for those who do not know."""
        to = next((role for role in self._roles if role != sender), sender)
        return f'To write to {to}, write .outbox/{to}.json in the workspace: {{"to": "{to}", "content": "..."}}'

    def open_turn(self, role: str) -> list[Part]:
        """What goes before the role's prompt, in the order it came. From now on it is delivered."""
        if self._left is not None:
            self._left[role] -= 1
        notices = [Part("notice", text) for text in self._notices.pop(role, [])]
        return [*notices, *(message.part() for message in self._waiting.pop(role, []))]

    def take(self, entries: Iterable[Entry]) -> list[Event]:
        """Sort what lay in the outbox after a turn; gives the events of it."""
        return [made for entry in entries for made in self._take(entry)]

    def close(self) -> list[Event]:
        """The scene is over: the events of what nobody will read."""
        left = [message for messages in self._waiting.values() for message in messages]
        self._waiting.clear()
        return [_note("message not delivered", message, reason="the scene ended before") for message in left]

    def _take(self, entry: Entry) -> list[Event]:
        name = _printable(entry.name)
        try:
            messages = self._read(entry)
        except Refused as refused:
            data = {"file": name, "reason": str(refused), **({"from": entry.sender} if entry.sender else {})}
            if entry.sender is not None:
                how = self.how(entry.sender)
                self._tell(entry.sender, f"Your file .outbox/{name} was not delivered: {refused}.\n{how}")
            return [event("note", about="message refused", data=data)]
        made: list[Event] = []
        for message in messages:
            if message.done:
                self.done.append(message.sender)
            if message.to == RESERVED:
                made.append(_note("scene done", message))
            elif self._left is not None and self._left[message.to] <= 0:
                reason = f"{message.to} has no further turn"
                self._tell(message.sender, f"Your message to {message.to} was not delivered: {reason}.")
                made.append(_note("message not delivered", message, reason=reason))
            else:
                self._waiting.setdefault(message.to, []).append(message)
                made.append(_note("message", message))
        return made

    def _read(self, entry: Entry) -> list[Message]:
        if entry.problem or entry.data is None:
            raise Refused(entry.problem or "it could not be read")
        if entry.sender is None:
            raise Refused("it was written by no role")
        to = entry.name.removesuffix(".json")
        if not entry.name.endswith(".json") or to not in (*self._roles, RESERVED):
            raise Refused(f"a file is named after whom it is for: {', '.join(f'{role}.json' for role in self._roles)}")
        messages = read_messages(entry.data, sender=entry.sender, to=to)
        if any(message.done for message in messages) and entry.sender not in self._listens_to:
            raise Refused("nobody waits for you to say that the scene is done")
        return messages

    def _tell(self, role: str, text: str) -> None:
        self._notices.setdefault(role, []).append(text)


def joined(parts: Iterable[Part]) -> str:
    """The prompt that is sent."""
    return "\n\n".join(part.text for part in parts)


def _note(about: str, message: Message, **more: object) -> Event:
    data = {"from": message.sender, "to": message.to, "content": message.content, **more}
    return event("note", about=about, data=data | ({"done": True} if message.done else {}))


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in name)[:80]
