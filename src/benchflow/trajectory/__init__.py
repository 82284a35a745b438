"""What happened: the events of a rollout, the writer that saves them as they arrive, and the reader."""

from benchflow.trajectory.events import Event, EventType, event
from benchflow.trajectory.reader import ToolCall, join_pieces, read_events, tool_calls
from benchflow.trajectory.redact import Redactor
from benchflow.trajectory.updates import UpdateTranslator
from benchflow.trajectory.writer import TrajectoryWriter

__all__ = [
    "Event",
    "EventType",
    "Redactor",
    "ToolCall",
    "TrajectoryWriter",
    "UpdateTranslator",
    "event",
    "join_pieces",
    "read_events",
    "tool_calls",
]
