"""The reviewer asked from inside a real sandbox, with a scripted model behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from benchflow.mcp.reviewer_server import Reviewer, serve_reviewer
from benchflow.service.reviewer import FILE_LIMIT, SHOWN, read_work
from benchflow.testing.model_server import Fail, ModelServer, Say

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Sandbox

CALL = """
import json, sys, urllib.request
url, method, params = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
accept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
print(urllib.request.urlopen(urllib.request.Request(url, body, accept)).read().decode())
"""


async def call(box: Sandbox, url: str, method: str, **params: object) -> dict[str, object]:
    ended = await box.exec(["python3", "-c", CALL, url, method, json.dumps(params)], user="nobody", timeout=60)
    assert ended.ok, ended.stderr.decode()
    result: dict[str, object] = json.loads(ended.text)["result"]
    return result


def words(result: dict[str, object]) -> str:
    content = result["content"]
    assert isinstance(content, list)
    return str(content[0]["text"])


@pytest.mark.needs("local")
async def test_a_coder_is_reviewed_and_nothing_is_written(box: Sandbox) -> None:
    await box.put({"main.py": b"print(1 / 0)\n", ".git/secret": b"hidden"}, "/app")
    before = (await box.exec("find /app -newermt 1970-01-01 | sort; stat -c %y /app/main.py")).text
    async with ModelServer([Say("It divides by zero.")]) as model:
        environ = {"OPENAI_API_KEY": "key-of-the-host", "OPENAI_BASE_URL": f"{model.url}/v1"}
        reviewer = Reviewer(box, "openai/some-model", "Print a number.", environ)
        async with serve_reviewer(reviewer, 8100) as url:
            assert url == "http://127.0.0.1:8100/mcp"
            tools = await call(box, url, "tools/list")
            answer = await call(box, url, "tools/call", name="review_code", arguments={})
            status = await call(box, url, "tools/call", name="get_review_status", arguments={})
            outside = await call(box, url, "tools/call", name="review_code", arguments={"path": "../etc/passwd"})
        shown = model.requests[0].text
    assert {tool["name"] for tool in tools["tools"]} == {"review_code", "get_review_status"}  # type: ignore[attr-defined]
    assert words(answer) == "It divides by zero."
    assert json.loads(words(status))["reviews"] == 1
    assert "outside the workspace" in words(outside)
    assert "print(1 / 0)" in shown
    assert "Print a number." in shown
    assert "hidden" not in shown
    assert (await box.exec("find /app -newermt 1970-01-01 | sort; stat -c %y /app/main.py")).text == before


@pytest.mark.needs("local")
async def test_a_model_that_fails_is_an_answer_without_the_key(box: Sandbox) -> None:
    async with ModelServer([Fail(500)]) as model:
        environ = {"OPENAI_API_KEY": "key-of-the-host", "OPENAI_BASE_URL": f"{model.url}/v1"}
        answer = await Reviewer(box, "openai/some-model", "Print.", environ).review_code()
    assert answer.startswith("No review could be made")
    assert "key-of-the-host" not in answer


def test_what_a_reviewer_sees_is_bounded_text(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * (FILE_LIMIT + 10))
    (tmp_path / "bin").write_bytes(b"\0\1")
    (tmp_path / "link").symlink_to("/etc/passwd")
    text = read_work(tmp_path)
    assert text.count("x") == FILE_LIMIT + 1
    assert "root:" not in text
    assert "bin" not in text
    for number in range(10):
        (tmp_path / f"more{number}.txt").write_text("y" * FILE_LIMIT)
    assert len(read_work(tmp_path)) <= SHOWN + 100
    assert read_work(tmp_path).endswith("(more files are not shown)")
