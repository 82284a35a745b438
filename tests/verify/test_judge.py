"""A judge over the real wire, in three dialects, and verdicts that must not be believed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from benchflow.errors import VerifierError
from benchflow.testing.model_server import Fail, ModelServer, Say
from benchflow.verify.base import Evidence
from benchflow.verify.judge import LLMJudgeRewardFunc, parse_verdict
from benchflow.verify.rubric import Rubric, StringMatchRewardFunc
from benchflow.verify.script import ScriptCheck

EVIDENCE = Evidence(
    sandbox=cast("object", None),  # type: ignore[arg-type]
    script=ScriptCheck(files=()),
    folder=Path("unused"),
    instruction="say hello",
    answer="hello world",
)
WIRES = {
    "anthropic/judge-1": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""),
    "gemini/judge-1": ("GEMINI_API_KEY", "GEMINI_BASE_URL", ""),
    "openai/judge-1": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1"),
    "deepseek/judge-1": ("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", "/v1"),
}


@pytest.mark.parametrize("model", WIRES)
async def test_verdict_over_the_wire(model: str) -> None:
    key, base, path = WIRES[model]
    async with ModelServer([Say('{"score": 0.75, "reason": "close"}')]) as server:
        judge = LLMJudgeRewardFunc(model, "is it friendly?", environ={key: "sk-test-12345", base: server.url + path})
        result = await Rubric([judge, StringMatchRewardFunc("hello")], weights=[1, 3]).verify(EVIDENCE)
        (request,) = server.requests
    assert result.rewards == {"reward": pytest.approx((0.75 + 3) / 4), "judge": 0.75, "match": 1.0}
    assert "hello world" in request.text
    assert "is it friendly?" in request.text


async def test_judge_that_fails_is_a_verifier_error_without_the_key() -> None:
    async with ModelServer([Fail(500)]) as server:
        judge = LLMJudgeRewardFunc(
            "openai/m", "x", environ={"OPENAI_API_KEY": "sk-secret-9", "OPENAI_BASE_URL": server.url + "/v1"}
        )
        with pytest.raises(VerifierError, match="500") as caught:
            await judge.score(EVIDENCE)
    assert "sk-secret-9" not in str(caught.value)
    assert "sk-secret-9" not in repr(judge)


async def test_missing_key_is_named() -> None:
    with pytest.raises(VerifierError, match="OPENAI_API_KEY"):
        await LLMJudgeRewardFunc("openai/m", "x", environ={}).score(EVIDENCE)


@pytest.mark.parametrize("answer", ['{"score": 1, "reason": "r"}', '```json\n{"score": 1.0}\n```'])
def test_verdicts(answer: str) -> None:
    assert parse_verdict(answer)[0] == 1.0


@pytest.mark.parametrize(
    "answer",
    ["", "1.0", "yes", "[1]", '{"score": true}', '{"score": "1"}', '{"score": 2}', '{"score": NaN}', '{"s": 1}'],
)
def test_what_is_not_a_verdict(answer: str) -> None:
    with pytest.raises(VerifierError):
        parse_verdict(answer)


@pytest.mark.parametrize(
    ("expected", "answer", "value"),
    [("42", "it is 42.", 1.0), ("42", "142", 0.0), ("Paris", "paris!", 1.0), ("a.b", "axb", 0.0)],
)
async def test_string_match(expected: str, answer: str, value: float) -> None:
    from dataclasses import replace

    scored = await StringMatchRewardFunc(expected).score(replace(EVIDENCE, answer=answer))
    assert scored.value == value
