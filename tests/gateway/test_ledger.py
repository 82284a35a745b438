"""The ledger on disk."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import BenchflowError
from benchflow.gateway.ledger import Exchange, Ledger, now, read_exchanges


def exchange(**fields: object) -> Exchange:
    base: dict[str, object] = {
        "ts": now(),
        "id": 1,
        "dialect": "anthropic",
        "operation": "generate",
        "method": "POST",
        "path": "/v1/messages",
        "provider": "anthropic",
    }
    return Exchange(**{**base, **fields})  # type: ignore[arg-type]


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "deep" / "l.jsonl")
    ledger.append(exchange(model="m", status=200, tokens={"input": 5}, request={"body": {"text": "é\ud800"}}))
    ledger.append(exchange(id=2))
    ledger.close()
    first, second = read_exchanges(ledger.path)
    assert first["request"] == {"body": {"text": "é\ud800"}}
    assert (first["tokens"], first["cost"], second["id"]) == ({"input": 5}, None, 2)
    assert list(read_exchanges(tmp_path / "none.jsonl")) == []


def test_a_torn_last_line_is_left_out_and_written_over_by_none(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    ledger = Ledger(path)
    ledger.append(exchange())
    ledger.close()
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert len(list(read_exchanges(path))) == 1
    again = Ledger(path)
    again.append(exchange(id=7))
    again.close()
    assert [one["id"] for one in read_exchanges(path)] == [1, 7]


def test_secrets_are_masked_also_those_that_come_later(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl", secrets=["first-secret"])
    ledger.hide("later-secret", "")
    ledger.append(exchange(error="first-secret", request={"body": {"later-secret": ["x later-secret y"]}}))
    ledger.close()
    text = ledger.path.read_text()
    assert "secret" not in text
    assert json.loads(text)["request"] == {"body": {"***": ["x *** y"]}}


@settings(deadline=None)
@given(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=60),
    st.text(max_size=8),
    st.text(max_size=8),
)
def test_a_secret_is_masked_also_in_a_url_and_in_base64(secret: str, before: str, after: str) -> None:
    around = f"{before}{secret}{after}".encode()
    written = [base64.b64encode(around).decode(), f"https://x/?key={quote(secret, safe='')}&y=1", secret]
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "l.jsonl", secrets=[secret])
        ledger.append(exchange(request={"body": written}))
        ledger.close()
        (kept,) = read_exchanges(ledger.path)
    assert all("***" in one for one in kept["request"]["body"])  # type: ignore[index]
    assert ledger.without_secrets({"body": written}) == kept["request"]


def test_there_is_an_end_to_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchflow.gateway.ledger.BODY_LIMIT", 100)
    monkeypatch.setattr("benchflow.gateway.ledger.LEDGER_LIMIT", 150)
    ledger = Ledger(tmp_path / "l.jsonl")
    assert [ledger.room(size) for size in (101, 100, 60, 50, 1)] == [False, True, False, True, False]
    ledger.close()


def test_a_ledger_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchflowError, match="cannot write"):
        Ledger(tmp_path / "file" / "l.jsonl")
