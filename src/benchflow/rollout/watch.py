"""What ends a turn besides the agent and the clock: its own time is used up, or its model answers no more.

An agent's own time is that of its turns without what was spent waiting for its provider. When its model refuses for
good, whatever the agent makes of that is not its failure: the refusal is raised as the cause. An agent that used up its
own budget, or the job's, is to be scored as it stands; one whose key is dead, whose model does not exist or whose
provider was too busy or out of reach was not measured at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchflow.errors import AgentError, AgentTimeout, BudgetSpent, ModelError, ModelRefused

if TYPE_CHECKING:
    from benchflow.acp.session import Session, TurnResult
    from benchflow.rollout.wire import Wire

REFUSED_GRACE = 30.0
"""Seconds in which an agent may end its turn by itself after its model refused to answer; then it is cancelled."""

LOOK_AGAIN = 0.1
"""Seconds, at least, between looks at how much of its own time an agent used, while it waits for its provider."""


class Watch:
    """Over all turns of one rollout."""

    def __init__(self, wire: Wire | None, working_timeout: float | None) -> None:
        self._wire = wire
        self._limit = working_timeout
        self._earlier = 0.0
        self._began: float | None = None
        self._waited = 0.0

    @property
    def working_seconds(self) -> float:
        """The agents' own time so far."""
        if self._began is None:
            return self._earlier
        now = asyncio.get_running_loop().time()
        return self._earlier + max(0.0, now - self._began - (self._waiting - self._waited))

    async def prompt(
        self, session: Session, prompt: str, *, timeout: float | None, idle_timeout: float | None
    ) -> TurnResult:
        """`Session.prompt`, watched.

        Raises what that raises, unless the model is the cause: BudgetSpent when a budget is used up, ModelRefused when
        nothing can be asked any more, ModelError when the provider was too busy or out of reach.
        """
        if self._limit is not None and self.working_seconds >= self._limit:
            raise AgentTimeout(f"the agent's own time, {self._limit:g} s, was over before its turn began")
        self._began, self._waited = asyncio.get_running_loop().time(), self._waiting
        try:
            ended = await session.prompt(prompt, timeout=timeout, idle_timeout=idle_timeout, until=self._over)
        except AgentError as error:
            if cause := self._cause():
                raise cause from error
            raise
        finally:
            self._earlier, self._began = self.working_seconds, None
        if cause := self._cause():
            raise cause
        return ended

    @property
    def _waiting(self) -> float:
        return self._wire.tally.clock.seconds if self._wire else 0.0

    def _cause(self) -> ModelError | None:
        if self._wire is None:
            return None
        tally = self._wire.tally
        if (trip := tally.trip) is not None:
            budget = BudgetSpent(trip.message, scope=trip.scope, kind=trip.kind, limit=trip.limit)
            return budget if trip.scope else ModelRefused(trip.message)
        if tally.strangers and not tally.usage.requests:
            names = ", ".join(tally.strangers)
            return ModelRefused(
                f"the agent asked only for models that it was not configured for: {names}",
                hint="give it one of them as its model, or allow them: --allow-model NAME, allow_models",
            )
        return ModelError(tally.starved) if tally.starved else None

    async def _over(self) -> str:
        """Returns when the turn must end, with the reason."""
        refused = asyncio.create_task(self._refused())
        try:
            while True:
                left = None if self._limit is None else self._limit - self.working_seconds
                if left is not None and left <= 0:
                    return f"the agent worked for {self._limit:g} s, which is all the time of its own that it has"
                done, _ = await asyncio.wait({refused}, timeout=None if left is None else max(left, LOOK_AGAIN))
                if done:
                    return "the agent's model refuses to answer, and the agent did not end its turn"
        finally:
            refused.cancel()
            await asyncio.gather(refused, return_exceptions=True)

    async def _refused(self) -> None:
        if self._wire is None:
            await asyncio.Event().wait()
        else:
            await self._wire.tally.alarm.wait()
            await asyncio.sleep(REFUSED_GRACE)
