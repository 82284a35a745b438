"""One rollout as one HTML document: its score, what was asked, said and done, its rounds and its branches.

Pure: what was read in, text out. Nothing in it acts (see `markup`), and it is bounded however much an agent wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchflow.view import facts
from benchflow.view.markup import block, bounded, document, fold, inert, label, link, plain, table
from benchflow.view.story import roles_of, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchflow.trajectory.reader import ToolCall
    from benchflow.view.facts import Branch
    from benchflow.view.load import Seen
    from benchflow.view.story import Item

STORY_SHOWN = 8_000_000
"""Characters of markup that tell one rollout's story; what comes after is counted."""

FINDINGS_SHOWN = 100
"""Findings of tampering that are shown; all are in tampering.json."""

NOTE_SHOWN = 4_000
"""Characters of a note that are shown."""

HUES = 6
"""Colours that tell roles apart; with more roles than these they repeat, and the names remain."""

_CSS = {"PASS": "pass", "PASS, SUSPECT": "suspect", "FAIL": "fail", "LOST": "lost", "RUNNING": "running"}


def render(seen: Seen, back: str = "") -> str:
    """The page of one rollout. `back` is where the page of its job is."""
    result = seen.result
    title = f"{result.get('task', 'rollout')} · {result.get('agent', '')}"
    up = f"<nav>{link(back, 'all rollouts of the job')}</nav>" if back else ""
    listed = facts.branches(result)
    head = _header(result) + _contents(result, listed, seen) + _details(seen, listed)
    below = [_branch(branch, found) for branch in listed if (found := seen.branches.get(branch.anchor))]
    return document(title, "\n".join([up, head, *_story(seen, listed), *below]))


def verdict(result: Mapping[str, object]) -> str:
    word = facts.verdict(result)
    return f"<b class={_CSS[word]}>{word}</b>"


def _header(result: Mapping[str, object], tag: str = "h1") -> str:
    score = label(facts.rewards_text(result.get("rewards")))
    rows = [(inert(name), label(text)) for name, text in facts.facts(result)]
    parts = [
        f"<header><{tag}>{label(str(result.get('task', '')))}</{tag}>",
        f"<p class=verdict>{verdict(result)} {score}</p>",
    ]
    if isinstance(error := result.get("error"), dict):
        head, message = facts.error_head(error), error.get("message", "")
        parts.append(f"<section class=error><h2>{label(head)}</h2>{block(message)}</section>")
    notes = result.get("notes")
    if isinstance(notes, list):
        parts += [f"<p class=note>{inert(bounded(plain(note), NOTE_SHOWN))}</p>" for note in notes]
    return "".join(parts) + table(rows, "facts") + "</header>"


def _contents(result: Mapping[str, object], listed: Sequence[Branch], seen: Seen) -> str:
    """Where to go on the page, where there is more than the story."""
    ways = [link("#story", "story")]
    ways += [link("#rounds", f"rounds ({len(found)})")] if (found := facts.rounds(result)) else []
    ways += [link("#branches", f"branches ({len(listed)})")] if listed else []
    ways += [link("#tampering", f"tampering ({len(seen.findings)})")] if seen.findings else []
    ways += [link("#verifier", "verifier output")] if seen.outputs else []
    return f"<nav>{' · '.join(ways)}</nav>" if len(ways) > 2 else ""


def _details(seen: Seen, listed: Sequence[Branch]) -> str:
    result = seen.result
    parts = [
        _phases(result),
        _titled("steps", "Steps", table([(label(a), label(b)) for a, b in facts.steps(result)], "pairs")),
        _titled("rounds", "Rounds", _rounds(seen)),
        _titled("branches", "Branches", _tree(listed, seen)),
        _titled("tampering", "Tampering", _findings(seen)),
        _logs(seen),
    ]
    return "".join(parts)


def _titled(name: str, title: str, body: str) -> str:
    return f"<section class=part id={name}><h2>{title}</h2>{body}</section>" if body else ""


def _phases(result: Mapping[str, object]) -> str:
    found = facts.phases(result)
    total = dict(found).get("total")
    if not total:
        return ""
    rows = [
        (
            label(name),
            "" if name == "total" else f"<meter max=1 value={min(1.0, took / total):.4f}></meter>",
            f"{took:.2f} s",
        )
        for name, took in found
    ]
    return _titled("phases", "Phases", table(rows, "phases"))


def _rounds(seen: Seen) -> str:
    found = facts.rounds(seen.result)
    # Only when each has its own: then they are in the same order.
    outputs = seen.round_outputs if len(seen.round_outputs) == len(found) else [""] * len(found)
    rows = [
        (label(name), label(text) + (fold("verifier output", block(output)) if output.strip() else ""))
        for (name, text), output in zip(found, outputs, strict=True)
    ]
    return table(rows, "pairs")


def _tree(listed: Sequence[Branch], seen: Seen) -> str:
    lines = []
    for branch in listed:
        name = _name(branch)
        shown = link(f"#{branch.anchor}", name) if branch.anchor in seen.branches else name
        style = f"--depth: {len(branch.path) - 1}"
        lines.append(
            f'<li style="{style}">{shown} {label(branch.text)} <small>after event {branch.after_events}</small></li>'
        )
    return f"<ul class=tree>{''.join(lines)}</ul>" if lines else ""


def _name(branch: Branch) -> str:
    return "branch " + ".".join(str(number + 1) for number in branch.path)


def _findings(seen: Seen) -> str:
    rows = []
    for one in seen.findings[:FINDINGS_SHOWN]:
        more = f" (and {one['count'] - 1} more)" if isinstance(one.get("count"), int) and one["count"] > 1 else ""
        what = f"{one.get('family')}: {one.get('detail') or ''}{more}"
        rows.append([label(cell) for cell in (one.get("severity"), one.get("path"), one.get("action"), what)])
    return table(rows, "findings", ("severity", "path", "done", "what"))


def _logs(seen: Seen) -> str:
    return "".join(fold(f"end of {label(name)}", block(text), css="log") for name, text in seen.logs)


def _branch(branch: Branch, seen: Seen) -> str:
    """A branch with its own story; the target of its link is inside, so that following it opens it."""
    head = f"<h2>{_name(branch)}</h2> {label(branch.text)}"
    body = _header(seen.result, "h3") + _phases(seen.result) + "".join(_story(seen, (), name=branch.anchor))
    back = link("#branches", "all branches")
    target = f"<div id={branch.anchor}><small>{label(branch.folder)} · {back}</small></div>"
    return f"<section class=branch>{fold(head, target + body)}</section>"


# -- the story -----------------------------------------------------------------------------------------------------


def _story(seen: Seen, listed: Sequence[Branch], name: str = "") -> Iterator[str]:
    items = tell(seen.events, seen.prompts)
    roles = roles_of(items)
    prefix = f"{name}-" if name else ""
    if items:
        yield f"<h2 class=part id={prefix}story>Story</h2>"
    if len(roles) > 1:
        chips = " ".join(_chip(role, roles) for role in roles)
        yield f"<p class=roles>{chips}</p>"
    forks = sorted((branch for branch in listed if len(branch.path) == 1), key=lambda branch: branch.after_events)
    written = 0
    for place, item in enumerate(items):
        while forks and forks[0].after_events <= item.at:
            yield _fork(forks.pop(0), seen)
        made = _show(item, roles)
        written += len(made)
        if written > STORY_SHOWN:
            left = len(items) - place
            yield f"<p class=stop>{left:,} more are in trajectory/acp_trajectory.jsonl of this rollout</p>"
            break
        yield made
    for fork in forks:
        yield _fork(fork, seen)
    for place, (step, output) in enumerate(seen.outputs):
        title = f"Verifier output{f' of {step}' if step else ''}"
        target = "" if place else f" id={prefix}verifier"
        yield f"<section class=verifier{target}><h2>{label(title)}</h2>{block(output)}</section>"


def _fork(branch: Branch, seen: Seen) -> str:
    name = _name(branch)
    shown = link(f"#{branch.anchor}", name) if branch.anchor in seen.branches else name
    return f"<p class=fork>{shown} goes off here: {label(branch.text)}</p>"


def _show(item: Item, roles: Sequence[str]) -> str:
    if item.kind == "round":
        return f"<h2 class=round>{label(item.label)}</h2>"
    # A message between roles names its sender itself.
    chip = f"{_chip(item.actor, roles)} " if item.actor and len(roles) > 1 and item.kind != "mail" else ""
    if item.kind in ("stop", "remark"):
        more = fold("data", block(item.content)) if item.content else ""
        return f"<div class=stop>{chip}{label(item.label)}{more}</div>"
    css = f'class="{item.kind} {_hue(item.actor, roles)}"'
    if item.call:
        return f"<section {css}>{_tool_call(item.call, chip)}</section>"
    title = _prompt_title(item, told=not chip) if item.kind == "prompt" else label(item.label)
    if item.parts:
        body = "".join(f"<h3>{label(source)}</h3>{block(text)}" for source, text in item.parts)
    else:
        body = block(item.content) if item.content else ""
    return f"<section {css}><h2>{chip}{title}</h2>{body}</section>"


def _prompt_title(item: Item, *, told: bool) -> str:
    whom = f" to {item.actor}" if item.actor and told else ""
    return label(f"Prompt{whom}{f' · {item.label}' if item.label else ''}")


def _tool_call(call: ToolCall, chip: str) -> str:
    head = f"{chip}<b>{label(call.title or call.kind)}</b> <small>{label(call.kind)} · {label(call.status)}</small>"
    parts = [
        f"<h3>{name}</h3>{block(value)}"
        for name, value in (
            ("input", call.arguments),
            ("output", call.output if call.output is not None else call.content),
        )
        if value not in (None, [], "")
    ]
    # A title that was cut is whole inside.
    if len(title := plain(call.title)) > len(" ".join(title.split())) or len(title) > 200:
        parts.insert(0, block(title))
    return fold(head, "".join(parts)) if parts else f"<p class=bare>{head}</p>"


def _chip(role: str, roles: Sequence[str]) -> str:
    return f'<span class="role {_hue(role, roles)}">{label(role)}</span>'


def _hue(role: str, roles: Sequence[str]) -> str:
    return f"hue{roles.index(role) % HUES}" if len(roles) > 1 and role in roles else ""
