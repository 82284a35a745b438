"""Clock readings in a text: dates and times of the run itself, which are others in every run.

A time that lies within the run, with some slack, was read from a clock; any other one was written by somebody and means
what it says. Times of files and fractions of seconds always come from a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_SLACK = timedelta(days=1)
"""How far a date may be from the run: clocks in other time zones show another day."""

TIME_SLACK = timedelta(minutes=30)
"""How far a time of day may be from the run."""

READ = "<time>"
"""What stands for a clock reading."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})[a-z]*"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_HOUR = r"(?P<hour>[0-2]?\d):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?P<fraction>[.,]\d+)?)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"


@dataclass(frozen=True, slots=True)
class Span:
    """From the beginning of a run to the request that is looked at."""

    begin: datetime
    end: datetime

    def near(self, moment: datetime, slack: timedelta) -> bool:
        return self.begin - slack <= moment <= self.end + slack


def without_readings(text: str, span: Span) -> str:
    """`text` with what was read from a clock during `span` replaced by `READ`."""
    for pattern, is_reading in _PATTERNS:
        text = pattern.sub(lambda found, test=is_reading: READ if test(found, span) else found[0], text)  # type: ignore[misc]
    return text


def _always(found: re.Match[str], span: Span) -> bool:  # noqa: ARG001 - one of several tests
    return True


def _by_date(found: re.Match[str], span: Span) -> bool:
    parts = found.groupdict()
    if parts.get("fraction"):
        return True
    month = _MONTHS.index(parts["month"]) + 1 if parts["month"] in _MONTHS else int(parts["month"])
    year, day = int(parts["year"]), int(parts["day"])
    return any(span.near(moment, DAY_SLACK) for moment in _dates(year, month, day))


def _by_either_date(found: re.Match[str], span: Span) -> bool:
    one, other, year = (int(part) for part in found.groups())
    return any(span.near(moment, DAY_SLACK) for pair in ((one, other), (other, one)) for moment in _dates(year, *pair))


def _dates(year: int, month: int, day: int) -> list[datetime]:
    """Noon of that day, if there is one."""
    try:
        return [datetime(year, month, day, 12, tzinfo=UTC)]
    except ValueError:
        return []


def _by_time(found: re.Match[str], span: Span) -> bool:
    """A time of day alone, in universal time or in this machine's."""
    if found["fraction"]:
        return True
    hour, minute = int(found["hour"]) % 24, int(found["minute"])
    hours = {(hour % 12) + (12 if found["half"].upper() == "P" else 0)} if found["half"] else {hour}
    shown = [
        day.replace(hour=one, minute=minute, second=0, microsecond=0)
        for end in (span.end.astimezone(UTC), span.end.astimezone())
        for day in (end - timedelta(days=1), end, end + timedelta(days=1))
        for one in hours
    ]
    return any(span.near(moment, TIME_SLACK) for moment in shown)


def _by_epoch(found: re.Match[str], span: Span) -> bool:
    seconds = int(found["seconds"])
    return span.near(datetime.fromtimestamp(seconds, UTC), DAY_SLACK)


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Span], bool]], ...] = (
    (re.compile(rf"\b(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?:[T ]{_HOUR})?{_ZONE}(?![\w-])"), _by_date),
    # `date` in its two forms, HTTP's dates, and dates in words
    (
        re.compile(
            rf"\b(?:{_DAY},? )?(?:{_MONTH} +(?P<day>\d{{1,2}})),?(?: {_HOUR}(?: ?[AP]M)?{_ZONE})? (?P<year>\d{{4}})\b"
        ),
        _by_date,
    ),
    (
        re.compile(rf"\b(?:{_DAY},? )?(?P<day>\d{{1,2}}) {_MONTH},? (?P<year>\d{{4}})(?: {_HOUR}{_ZONE})?(?!\w)"),
        _by_date,
    ),
    # `ls -l` shows when a file was made, which is when the sandbox or its image was
    (re.compile(rf"\b{_MONTH} +\d{{1,2}} {_HOUR}(?!\w)"), _always),
    (re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b"), _by_either_date),
    # not a line and a column, a ratio or a part of an address
    (re.compile(rf"(?<![\w:./-]){_HOUR}(?: ?(?P<half>[AP])M)?(?![\w:])", re.IGNORECASE), _by_time),
    (re.compile(r"(?<![\w.])(?P<seconds>1\d{9})(?:\d{3})?(?:\.\d+)?(?!\w)"), _by_epoch),
)
