"""A rollout's folder with everything in it that can be shown, written as rollouts write theirs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchflow.rollout.result import ErrorInfo, RolloutResult, Usage
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchflow.trajectory.events import Event

TRANSCRIPT = "You go on with work that you began before:\n" + "\n".join(f"> line {n}" for n in range(40))


def write(folder: Path, result: dict[str, Any], events: Sequence[Event] = (), prompts: Sequence[object] = ()) -> Path:
    """The documents of one rollout."""
    for part in ("trajectory", "verifier", "agent"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(one) + "\n" for one in events)
    (folder / "trajectory" / "acp_trajectory.jsonl").write_text(lines)
    (folder / "prompts.json").write_text(json.dumps(list(prompts)))
    (folder / "config.json").write_text(json.dumps({"task": result.get("task"), "agent": result.get("agent")}))
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def two_roles(folder: Path, evil: str = "") -> Path:
    """Two roles, two rounds, a branch with a branch of its own; `evil` stands wherever an agent or a task can write."""
    inner = _branch("inner", "coder", {"reward": 0.25})
    outer = {**_branch("outer", "coder", {"reward": 0.5}, after=12), "kept": True, "branches": [inner]}
    result = RolloutResult(
        task=f"demo/two-roles{evil}",
        agent=f"claude+codex{evil}",
        model=f"big+small{evil}",
        rollout_dir=folder,
        rewards={"reward": 1.0, f"speed{evil}": 0.5},
        error=ErrorInfo("AgentGone", "agent", "agent_execution", f"the agent's process ended\n  | Traceback{evil}"),
        limit={"scope": "rollout", "kind": "cost", "limit": 2.5},
        n_tool_calls=3,
        timing={"environment_setup": 1.5, "agent_setup": 0.25, "agent_execution": 61.0, "waiting": 0.0, "total": 65.0},
        usage=Usage(input_tokens=12345, output_tokens=678, cached_tokens=1000, priced_usd=0.5, prices="table 1"),
        verify_level="fork",
        trust="suspect",
        tampering={"critical": 1, "info": 2},
        opt_outs=[f"live = true{evil}"],
        notes=[f"cut off and scored as it stands{evil}"],
        steps=[{"name": f"build{evil}", "rewards": {"reward": 0.75}, "level": "fork"}],
        rounds=[_round(0, {"reward": 0.0}), _round(1, None)],
        branches=[outer],
        sandbox="local",
        sandbox_user="agent",
    ).to_json()
    result["regraded"] = {"at": "2026-01-01", "folder": "regrades/1", "rewards_before": {"reward": 0.125}}
    write(folder, result, _events(evil), _prompts(evil))
    finding = {"path": f"/bin/sh{evil}", "family": "system-file", "severity": "critical", "action": "left", "count": 3}
    texts = {
        "tampering.json": json.dumps({"findings": []}),
        "regrades/1/tampering.json": json.dumps({"findings": [{**finding, "detail": f"changed{evil}"}]}),
        "regrades/1/verifier/test-stdout.txt": f"1 test passed{evil}\n",
        "regrades/1/steps/build/verifier/test-stdout.txt": f"built well{evil}\n",
        "rounds/0/verifier/test-stdout.txt": f"first check{evil}\n",
        "rounds/1/verifier/test-stdout.txt": f"second check{evil}\n",
        "agent/claude.txt": f"last words{evil}\n",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    below = folder / "branches" / "outer"
    said = [event("prompt", text="try it"), event("message", text=f"said in the outer branch{evil}")]
    short = {"task": "demo/two-roles", "agent": "claude", "rewards": {"reward": 0.5}, "passed": False}
    write(below, {**short, "branches": [inner]}, said)
    write(below / "branches" / "inner", short, [event("message", text=f"said in the inner branch{evil}")])
    return folder


def _branch(name: str, role: str, rewards: dict[str, float], after: int = 0) -> dict[str, Any]:
    began = {"folder": f"branches/{name}", "after_events": after, "role": role, "model": "big", "prompt": "try it"}
    return {**began, "rewards": rewards, "reward": 0.5, "error": None, "kept": False, "branches": []}


def _round(number: int, rewards: dict[str, float] | None) -> dict[str, Any]:
    error = None if rewards else "the tests did not end"
    return {"round": number, "scene": "review", "rewards": rewards, "verifier_error": error, "n_tool_calls": 2}


def _prompts(evil: str) -> list[object]:
    parts = [
        {"source": "transcript", "text": TRANSCRIPT},
        {"source": "message", "role": "coder", "text": f"<message>Please look.{evil}</message>"},
        {"source": "scene", "text": f"Review it.{evil}"},
    ]
    whole = "\n\n".join(part["text"] for part in parts)
    return [
        {"scene_role": "coder", "agent": "claude", "source": "instruction", "prompt": f"Write it.{evil}"},
        {"scene_role": "reviewer", "agent": "codex", "source": "scene", "prompt": whole, "parts": parts},
    ]


def _events(evil: str) -> list[Event]:
    coder, reviewer = {"actor": "coder"}, {"actor": "reviewer"}
    asked = [one["prompt"] for one in _prompts(evil) if isinstance(one, dict)]
    letter = {"from": "coder", "to": "reviewer", "content": f"Please look.{evil}"}
    late = {**letter, "from": "reviewer", "to": "coder", "reason": "coder has no further turn"}
    return [
        event("note", about="round", data={"round": 0, "scene": "review"}),
        event("prompt", text=asked[0], **coder),
        event("thought", text=f"hm{evil}", **coder),
        event("tool_call", tool_call_id="1", title=f"make all{evil}", kind="execute", arguments={"x": evil}, **coder),
        event("tool_call_update", tool_call_id="1", status="completed", output=f"built{evil}", **coder),
        event("diff", path=f"/app/x{evil}", new_text=f"new text{evil}", **coder),
        event("message", text=f"I wrote it.{evil}", **coder),
        event("stop", reason="end_turn", **coder),
        event("note", about="message refused", data={"file": "nobody.json", "reason": f"no role{evil}"}),
        event("note", about="message", data=letter),
        event("note", about="round", data={"round": 1, "scene": "review"}),
        event("prompt", text=asked[1], **reviewer),
        # The same id as the other role's call: ids are a session's own.
        event("tool_call", tool_call_id="1", title=f"cat x{evil}", kind="read", status="failed", **reviewer),
        event("plan", entries=[{"content": f"look{evil}"}], **reviewer),
        event("error", kind="x", message=f"went wrong{evil}", **reviewer),
        event("note", about="message not delivered", data=late),
        event("note", about=f"something else{evil}", data={"k": evil}),
    ]
