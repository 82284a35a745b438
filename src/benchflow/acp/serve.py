"""What an agent may ask of its client, and how each request is answered.

`AgentRequests` is the handler behind the SDK's connection. It answers with a result or raises the SDK's RequestError,
which the agent then sees; a request whose parameters do not fit the protocol is the agent's error, not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acp import schema
from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from pydantic import ValidationError

from benchflow.acp.permission import choose
from benchflow.errors import SandboxError
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel

    from benchflow.acp.files import Files
    from benchflow.acp.permission import PermissionPolicy
    from benchflow.acp.terminals import Terminals
    from benchflow.trajectory.events import Event
    from benchflow.trajectory.updates import UpdateTranslator

type _Answer = Callable[[dict[str, object]], Awaitable[dict[str, object]]]


class AgentRequests:
    """Answers the requests of one session.

    While `cancelling` is set permission is answered with `cancelled`, as the protocol demands after `session/cancel`.
    """

    def __init__(
        self,
        files: Files,
        terminals: Terminals,
        *,
        policy: PermissionPolicy,
        translator: UpdateTranslator,
        record: Callable[[Event], None],
    ) -> None:
        self.cancelling = False
        self._policy = policy
        self._translator = translator
        self._record = record
        self._answers: dict[str, _Answer] = {
            CLIENT_METHODS["session_request_permission"]: self._permission,
            CLIENT_METHODS["fs_read_text_file"]: _typed(schema.ReadTextFileRequest, files.read),
            CLIENT_METHODS["fs_write_text_file"]: _typed(schema.WriteTextFileRequest, files.write),
            CLIENT_METHODS["terminal_create"]: _typed(schema.CreateTerminalRequest, terminals.create),
            CLIENT_METHODS["terminal_output"]: _typed(schema.TerminalOutputRequest, terminals.output),
            CLIENT_METHODS["terminal_wait_for_exit"]: _typed(
                schema.WaitForTerminalExitRequest, terminals.wait_for_exit
            ),
            CLIENT_METHODS["terminal_kill"]: _typed(schema.KillTerminalRequest, terminals.kill),
            CLIENT_METHODS["terminal_release"]: _typed(schema.ReleaseTerminalRequest, terminals.release),
        }

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:  # noqa: ARG002 - the SDK's shape
        answer = self._answers.get(method)
        if answer is None:
            self._record(event("note", about="request we do not serve", data={"method": method}))
            raise RequestError.method_not_found(method)
        try:
            return await answer(params if isinstance(params, dict) else {})
        except ValidationError as error:
            # Its own list of problems may hold objects that are not JSON, so the agent gets the text.
            raise RequestError.invalid_params({"details": str(error)}) from error
        except SandboxError as error:
            raise RequestError.internal_error({"details": str(error)}) from error

    async def _permission(self, params: dict[str, object]) -> dict[str, object]:
        call, options = params.get("toolCall"), params.get("options")
        if not isinstance(call, dict) or not isinstance(options, list):
            raise RequestError.invalid_params({"details": "toolCall and options are required"})
        for one in self._translator.tool_call(call):
            self._record(one)
        option = None if self.cancelling else choose(self._policy, options)
        outcome = "cancelled" if option is None else "selected"
        call_id = call.get("toolCallId")
        self._record(event("permission", tool_call_id=call_id, options=options, outcome=outcome, option_id=option))
        return {"outcome": {"outcome": outcome} if option is None else {"outcome": outcome, "optionId": option}}


def _typed[M: BaseModel](model: type[M], answer: Callable[[M], Awaitable[dict[str, object]]]) -> _Answer:
    async def validated(params: dict[str, object]) -> dict[str, object]:
        return await answer(model.model_validate(params))

    return validated
