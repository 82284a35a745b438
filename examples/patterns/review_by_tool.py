"""A reviewer as an MCP server: the coder asks for a review, and the reviewer can do nothing but answer.

    python examples/patterns/review_by_tool.py

Needs the extra `mcp`, a key for the model, and asks the model that BENCHFLOW_REVIEWER_MODEL names, or else the coder's.
"""

import asyncio
import os
from pathlib import Path

import benchflow as bf
from benchflow.trial import Role, Scene, TrialConfig, Turn

AGENT = os.environ.get("AGENT", "goose")
MODEL = os.environ.get("MODEL", "openai/gpt-5-mini")

config = TrialConfig(
    task_path=Path(__file__).parents[1] / "tasks/fix-a-bug",
    scenes=[
        Scene(
            name="solve-and-review",
            roles=[Role("coder", AGENT, MODEL)],
            turns=[
                Turn("coder"),
                Turn("coder", "Call the review_code MCP tool to get feedback, then fix issues."),
            ],
        ),
    ],
    services=["benchflow-reviewer:8100"],
    environment=os.environ.get("SANDBOX", "auto"),
)


async def main() -> None:
    result = await bf.run(config)
    print(f"reward: {result.reward}  tool calls: {result.n_tool_calls}  {result.rollout_dir}")


if __name__ == "__main__":
    asyncio.run(main())
