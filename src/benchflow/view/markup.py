"""HTML that shows whatever an agent wrote and acts on none of it: escaped, control characters visible, bounded.

Every function returns markup; what comes from outside enters it through `inert` alone.
"""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLD_AT = 12
"""Texts with more lines than this are folded; a click opens them."""

FOLD_CHARACTERS = 2_000
"""So are texts with more characters than this."""

TEXT_SHOWN = 100_000
"""Characters of one text that are shown: its beginning and its end."""

LABEL_SHOWN = 300
"""Characters of a line that names something."""

# Shown as the symbols that stand for them, so that a terminal escape or a direction mark cannot act or hide.
_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "\u2421"}
_CONTROL |= dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")


def plain(value: object) -> str:
    """A value as text: texts as they are, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"


def bounded(text: str, limit: int = TEXT_SHOWN) -> str:
    """The text, or its beginning and its end with a line that says how much is missing between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are left out here …\n{text[-half:]}"


def inert(value: object) -> str:
    """`value` as text that HTML shows and never acts on, however long it is."""
    return html.escape(plain(value).encode("utf-8", "replace").decode("utf-8").translate(_CONTROL))


def label(value: object) -> str:
    """The same for a short line."""
    text = " ".join(plain(value)[: 2 * LABEL_SHOWN].split())
    return inert(text if len(text) <= LABEL_SHOWN else f"{text[:LABEL_SHOWN]}…")


def block(value: object) -> str:
    """A text of any length; a long one is folded under its first lines."""
    text = bounded(plain(value)).strip("\n")
    lines = text.count("\n") + 1
    if lines <= FOLD_AT and len(text) <= FOLD_CHARACTERS:
        return f"<pre>{inert(text)}</pre>"
    first = "\n".join(text.split("\n", 3)[:3])[: FOLD_CHARACTERS // 4]
    size = f"{lines:,} lines" if lines > FOLD_AT else f"{len(text):,} characters"
    return fold(size, f"<pre>{inert(text)}</pre>") + f"<pre class=peek>{inert(first)}\n…</pre>"


def fold(summary: str, body: str, *, css: str = "", opened: bool = False) -> str:
    """Markup that a click opens."""
    name = f' class="{css}"' if css else ""
    return f"<details{name}{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def table(rows: Iterable[Sequence[str]], css: str = "", head: Sequence[str] = ()) -> str:
    """Rows of markup; nothing when there are none."""
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    if not lines:
        return ""
    top = f"<thead><tr>{''.join(f'<th>{inert(cell)}</th>' for cell in head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table class="{css}">{top}<tbody>{body}</tbody></table></div>'


def link(target: str, words: str) -> str:
    """A link to `target`, which is ours, with markup as its words."""
    return f'<a href="{html.escape(target)}">{words}</a>'


def document(title: str, body: str) -> str:
    """A whole page: one file without scripts or requests, and forbidden to have any."""
    style = files("benchflow.view").joinpath("page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "form-action 'none'; base-uri 'none'\">"
        f"<title>{label(title)}</title><style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )
