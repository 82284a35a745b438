"""Options that limit what a rollout, or a job, may use."""

from __future__ import annotations

from typing import Annotated

import typer

MaxCost = Annotated[
    float | None, typer.Option("--max-cost", help="Dollars for each rollout; at the limit it is scored as it stands.")
]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", help="Tokens, read and written together, for each rollout.")
]
MaxJobCost = Annotated[
    float | None,
    typer.Option("--max-job-cost", help="Dollars for the whole job; at the limit nothing more is started."),
]
MaxJobTokens = Annotated[int | None, typer.Option("--max-job-tokens", help="Tokens for the whole job.")]
WorkingTimeout = Annotated[
    float | None,
    typer.Option("--agent-working-timeout", help="Seconds for all turns without waiting for the model's provider."),
]
AllowModel = Annotated[
    list[str] | None,
    typer.Option("--allow-model", help="A model, or glob, that agents may ask for beside their own; repeatable."),
]
