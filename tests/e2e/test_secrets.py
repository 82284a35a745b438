"""A job with planted keys, agents on providers of another dialect, and a search for the keys afterwards.

One rollout has claude and gemini on a provider of OpenAI's dialect and codex on one of Anthropic's, all through the
job's gateway and its translator. The agents run as root and look for the keys in the sandbox: in the environment and
the command line of every process, and in every folder that a process can write. The task is solved only if none is
found.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from benchflow.gateway.ledger import read_exchanges
from benchflow.testing.model_server import ModelServer, Run, Say

TASK = Path(__file__).parents[2] / "examples" / "tasks" / "write-a-file"
KEYS = {
    "ANTHROPIC_API_KEY": "sk-planted-anthropic-0001",
    "MYCLOUD_API_KEY": "sk-planted-mycloud-0002",
    "OPENAI_API_KEY": "sk-planted-openai-nobody-uses-0003",
}
DOTENV = {"GEMINI_API_KEY": "sk-planted-in-dotenv-0004"}
GIVEN = {"WORK_TOKEN": "given-to-the-agents-0005"}
"""A secret of the user's that the agents get, and of which they tell their models."""
# The pattern does not match itself, because agents keep what they ran; some refuse command substitution.
LOOK = (
    "if grep -rqs 'sk-planted[-]' /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
    " /root /home /tmp /var/tmp /app /logs /run /etc /dev/shm; then touch /app/leaked; fi;"
    " if [ -e /app/leaked ]; then rm -f /app/greeting.txt;"
    " else printf 'Hello from the sandbox!\\n' > /app/greeting.txt; fi; echo \"it is $WORK_TOKEN\""
)
JOB = f"""
task_dir: {TASK}
environment: local
scenes:
  - name: main
    roles:
      - {{name: translated-to-openai, agent: claude, model: mycloud/gpt-5.5}}
      - {{name: translated-to-anthropic, agent: codex, model: anthropic/claude-haiku-4-5}}
      - {{name: translated-from-gemini, agent: gemini, model: mycloud/gpt-5.5}}
    turns:
      - {{role: translated-from-gemini}}
      - {{role: translated-to-openai}}
      - {{role: translated-to-anthropic}}
"""


async def run_job(folder: Path, url: str) -> tuple[int | None, bytes, bytes]:
    command = ["eval", "create", "--config", "job.yaml", "--sandbox-user", "root", "--jobs-dir", "jobs"]
    command += [part for name, value in GIVEN.items() for part in ("--agent-env", f"{name}={value}")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchflow.cli.app", *command),
        cwd=folder,
        env={**os.environ, **KEYS, "ANTHROPIC_BASE_URL": url, "MYCLOUD_BASE_URL": f"{url}/v1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out, err


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.needs("local", "litellm")
async def test_no_key_is_found_anywhere_after_a_job(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in DOTENV.items()))
    async with ModelServer([Run(LOOK), Say("It is written.")]) as provider:
        code, out, err = await run_job(tmp_path, provider.url)
        asked = {
            request.path.partition("?")[0]: request.headers.get("Authorization") or request.headers.get("x-api-key")
            for request in provider.requests
        }
        told = [request for request in provider.requests if GIVEN["WORK_TOKEN"] in request.text]
    assert code == 0, err.decode()
    assert b"Score: 1/1" in out, "a key was found in the sandbox"
    assert asked == {
        "/v1/chat/completions": f"Bearer {KEYS['MYCLOUD_API_KEY']}",
        "/v1/messages": KEYS["ANTHROPIC_API_KEY"],
    }
    assert told, "no agent told its model of what it was given"
    (result,) = (path for path in files(tmp_path / "jobs") if path.name == "result.json")
    assert json.loads(result.read_text())["rewards"] == {"reward": 1.0}
    ledger = result.parent / "trajectory" / "llm_trajectory.jsonl"
    answered = {one["dialect"] for one in read_exchanges(ledger) if one["tokens"]}
    assert answered == {"anthropic", "openai-responses", "gemini"}
    written = {str(path): path.read_bytes() for path in files(tmp_path / "jobs")} | {"stdout": out, "stderr": err}
    planted = [value.encode() for value in (KEYS | DOTENV | GIVEN).values()]
    assert not [name for name, content in written.items() if any(key in content for key in planted)]
