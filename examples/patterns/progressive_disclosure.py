"""Progressive disclosure: the agent is told a little, and more each time the verifier says that it is not done.

    python examples/patterns/progressive_disclosure.py

No second model is needed: plain Python decides the next prompt from the last result.
"""

import asyncio
import os
from pathlib import Path

import benchflow as bf

AGENT = os.environ.get("AGENT", "goose")
MODEL = os.environ.get("MODEL", "openai/gpt-5-mini")


class Discloser(bf.BaseUser):
    """First a summary, then the whole instruction with what failed, until the verifier is content."""

    async def setup(self, instruction: str, solution: str | None = None) -> None:
        del solution  # it is told only with `oracle_access`
        self.summary = instruction.strip().splitlines()[0].lstrip("# ")

    async def run(self, round: int, instruction: str, round_result: bf.RoundResult | None = None) -> str | None:
        if round == 0 or round_result is None:
            return f"{self.summary}. The code is in /app."
        if (round_result.rewards or {}).get("reward") == 1.0:
            return None
        failed = round_result.verifier_output
        return f"That is not right yet. The whole task:\n\n{instruction}\n\nThe verifier says:\n{failed}"


config = bf.RolloutConfig(
    task_path=Path(__file__).parents[1] / "tasks/fix-a-bug",
    scenes=[bf.Scene.single(agent=AGENT, model=MODEL)],
    user=Discloser(),
    max_user_rounds=3,
    environment=os.environ.get("SANDBOX", "auto"),
)


async def main() -> None:
    result = await bf.run(config)
    print(f"reward: {result.reward}  tool calls: {result.n_tool_calls}  {result.rollout_dir}")


if __name__ == "__main__":
    asyncio.run(main())
