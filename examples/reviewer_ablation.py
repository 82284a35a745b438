"""Does a reviewer help? Three conditions on the same tasks, with intervals.

    python examples/reviewer_ablation.py --scripted                     # no key: a model that follows a script
    python examples/reviewer_ablation.py --agent claude --model claude-sonnet-4-6 --tasks my-tasks --attempts 4

| condition     | what happens                                                  |
| ------------- | ------------------------------------------------------------- |
| baseline      | one agent, one turn                                           |
| reviewer      | coder, a reviewer that sees only the work, coder again        |
| reviewer+spec | the same, but the reviewer reads the task's instruction first |
"""

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

import benchflow as bf

TASKS = Path(__file__).parent / "tasks"
REVIEW = """You are reviewing code that somebody else wrote in the current folder. Read it and write specific feedback
to .outbox/coder.json as {"to": "coder", "content": "..."}."""
SPEC = "First read the task at /app/instruction.md: the work must do what it asks for. "
REVISE = "Read the reviewer's feedback and revise your solution."


def conditions(agent: str, model: str | None) -> dict[str, list[bf.Scene]]:
    def reviewed(prompt: str) -> list[bf.Scene]:
        roles = [bf.Role("coder", agent, model), bf.Role("reviewer", agent, model, access="read")]
        turns = [bf.Turn("coder"), bf.Turn("reviewer", prompt), bf.Turn("coder", REVISE)]
        return [bf.Scene(name="review", roles=roles, turns=turns)]

    return {
        "baseline": [bf.Scene.single(agent, model)],
        "reviewer": reviewed(REVIEW),
        "reviewer+spec": reviewed(SPEC + REVIEW),
    }


async def scripted(stack: AsyncExitStack) -> None:
    """Stand a model in that forgets half of `write-a-file` until a reviewer who knows the task tells it."""
    from benchflow.testing.model_server import ModelServer, Run, Say

    half, whole = "echo nothing > greeting.txt", "printf 'Hello from the sandbox!\\n' > greeting.txt"
    right = """echo '{"to": "coder", "content": "greeting.txt must hold the line of the task"}' > .outbox/coder.json"""
    vague = """echo '{"to": "coder", "content": "looks fine"}' > .outbox/coder.json"""
    server = ModelServer(
        [Run(half), Say("Done.")],
        scripts={
            "must hold the line": [Run(half), Say("Done."), Run(whole), Say("Now it is right.")],
            SPEC.strip(): [Run(right), Say("Reviewed.")],
            REVIEW.splitlines()[0]: [Run(vague), Say("Reviewed.")],
        },
    )
    await stack.enter_async_context(server)
    os.environ |= {"OPENAI_API_KEY": "scripted", "OPENAI_BASE_URL": f"{server.url}/v1"}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="goose")
    parser.add_argument("--model", default="openai/gpt-5-mini")
    parser.add_argument("--tasks", type=Path, default=TASKS)
    parser.add_argument("--include", action="append", default=[], help="names or globs of tasks")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--jobs-dir", type=Path, default=Path("jobs"))
    parser.add_argument("--scripted", action="store_true", help="no provider: a model that follows a script")
    given = parser.parse_args()
    include = given.include or (["write-a-file"] if given.scripted else [])

    table = Table("condition", "passed", "scored", "lost", "share", "95 % interval", box=None)
    async with AsyncExitStack() as stack:
        if given.scripted:
            await scripted(stack)
        for name, scenes in conditions(given.agent, given.model).items():
            config = bf.JobConfig(
                scenes=scenes,
                environment=given.sandbox,
                attempts=given.attempts,
                concurrency=given.concurrency,
                include=include,
            )
            job_name = f"ablation-{name.replace('+', '-')}"
            score = (await bf.Job(given.tasks, given.jobs_dir, config, job_name=job_name).run()).scores
            low, high = score.interval or (0.0, 1.0)
            share = f"{score.passed / score.scored:.2f}" if score.scored else "-"
            table.add_row(name, *map(str, (score.passed, score.scored, score.lost)), share, f"{low:.2f} to {high:.2f}")
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
