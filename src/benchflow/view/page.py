"""One rollout as one HTML document: no scripts, no requests, every word of the agent shown as inert text.

Pure: plain data in, text out. Whatever an agent wrote is escaped, and control characters are made visible.
"""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING

from benchflow.trajectory.reader import tool_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchflow.trajectory.events import Event
    from benchflow.trajectory.reader import ToolCall

FOLD_AT = 12
"""Texts with more lines than this are folded; a click opens them."""

# Shown as the symbols that stand for them, so that a terminal escape or a direction mark cannot act or hide.
_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_CONTROL |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")


def inert(value: object) -> str:
    """`value` as text that HTML shows and never acts on."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return html.escape(text.encode("utf-8", "replace").decode("utf-8").translate(_CONTROL))


def render(result: Mapping[str, object], events: Sequence[Event], verifier_output: str = "") -> str:
    """The page of one rollout: its score, its phases, what was asked, said and done, and the verifier's output."""
    title = inert(f"{result.get('task', 'rollout')} · {result.get('agent', '')}")
    style = files("benchflow.view").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(
        [_header(result), _phases(result), *_story(events), _section("verifier", "Verifier output", verifier_output)]
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )


def _header(result: Mapping[str, object]) -> str:
    error = result.get("error")
    verdict = "error" if error else "pass" if result.get("passed") else "fail"
    rewards = result.get("rewards")
    score = " · ".join(f"{inert(k)} {v:g}" for k, v in rewards.items()) if isinstance(rewards, dict) else "no reward"
    facts = " · ".join(
        f"{label} {inert(str(result[key]))}"
        for label, key in (
            ("agent", "agent"),
            ("model", "model"),
            ("sandbox", "sandbox"),
            ("user", "sandbox_user"),
            ("verified", "verify_level"),
            ("tool calls", "n_tool_calls"),
        )
        if result.get(key) is not None
    )
    parts = [
        f"<header><h1>{inert(str(result.get('task', '')))}</h1>",
        f"<p class=verdict><b class={verdict}>{verdict.upper()}</b> {score}</p><p class=facts>{facts}</p>",
    ]
    if isinstance(error, dict):
        where = f"{error.get('boundary')} · {error.get('phase')} · {error.get('kind')}"
        parts.append(
            f"<section class=error><h2>{inert(where)}</h2><pre>{inert(error.get('message', ''))}</pre></section>"
        )
    notes = result.get("notes")
    if isinstance(notes, list):
        parts += [f"<p class=note>{inert(note)}</p>" for note in notes]
    return "".join(parts) + "</header>"


def _phases(result: Mapping[str, object]) -> str:
    timing = result.get("timing")
    if not isinstance(timing, dict) or not timing.get("total"):
        return ""
    total = float(timing["total"])
    bars = "".join(
        f"<li><span>{inert(name.replace('_', ' '))}</span>"
        f"<meter max=1 value={min(1.0, float(took) / total):.4f}></meter>"
        f"<span>{float(took):.2f} s</span></li>"
        for name, took in timing.items()
        if name != "total"
    )
    return f"<ul class=phases>{bars}<li><span>total</span><i></i><span>{total:.2f} s</span></li></ul>"


def _story(events: Sequence[Event]) -> Iterable[str]:
    calls = {call.id: call for call in tool_calls(events)}
    for event in events:
        kind = event["type"]
        if kind == "tool_call" and (call := calls.get(str(event.get("tool_call_id")))):
            yield _tool_call(call)
        elif kind == "diff":
            yield _section("diff", f"Edit {event.get('path', '')}", str(event.get("new_text", "")))
        elif kind in ("prompt", "message", "thought", "error"):
            label = {"prompt": "Prompt", "message": "Agent", "thought": "Thought", "error": "Error"}[kind]
            yield _section(kind, label, event.get("text") or event.get("content") or event.get("message") or "")
        elif kind == "plan":
            yield _section("plan", "Plan", event.get("entries") or "")
        elif kind == "stop":
            yield f"<p class=stop>turn ended: {inert(str(event.get('reason', '')))}</p>"


def _tool_call(call: ToolCall) -> str:
    head = f"<b>{inert(call.title or call.kind)}</b> <small>{inert(call.kind)} · {inert(call.status)}</small>"
    parts = [
        f"<h3>{name}</h3>{_text(value)}"
        for name, value in (
            ("input", call.arguments),
            ("output", call.output if call.output is not None else call.content),
        )
        if value not in (None, [], "")
    ]
    return f"<section class=tool><details><summary>{head}</summary>{''.join(parts)}</details></section>"


def _section(css: str, label: str, content: object) -> str:
    return f"<section class={css}><h2>{inert(label)}</h2>{_text(content)}</section>" if content else ""


def _text(value: object) -> str:
    text = inert(value)
    lines = text.count("\n") + 1
    if lines <= FOLD_AT:
        return f"<pre>{text}</pre>"
    first = "\n".join(text.split("\n", 3)[:3])
    return f"<details><summary>{lines} lines</summary><pre>{text}</pre></details><pre class=peek>{first}\n…</pre>"
