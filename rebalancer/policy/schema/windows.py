"""Change windows: a cron schedule, a duration and a time zone, and whether a set of them is open.

A window holds in [start, start + duration); `policy/schema/schedule.py` computes the starts. The duration is elapsed
time: `0 22 * * *` for 8h in Europe/Berlin ends at 06:00, but at 07:00 in spring's night of the change and at 05:00 in
autumn's. No search looks further than 400 days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError, field_validator

from rebalancer.policy.schema.schedule import DAY_SECONDS, Instants, read_cron, spans, spans_a_day
from rebalancer.policy.schema.types import AsTuple, Duration, Format, NonEmpty, Section, ZoneName, format_duration

SEARCH_DAYS = (8, 64, 400)
"""Search ranges for the next change, nearest first. A change beyond the last range counts as none."""
LONGEST_SECONDS = 366 * DAY_SECONDS
MOST_IN_ANNOTATION = 32
MOST_SPANS_A_DAY = 96
"""All windows of one annotation together. Any user may write one, so its cost in a cycle is bounded."""
_SHOWN_CHARS = 80

Spans = tuple[Instants, Instants]
"""(begins, ends) of disjoint half-open time spans, in order."""


class Window(Section):
    """A recurring time in which evictions are allowed or denied."""

    name: Annotated[str, Format(r"^[^\x00-\x1f\x7f]{1,63}$", "one line of at most 63 characters")] | None = None
    """Name in messages; one line of at most 63 characters."""
    kind: Literal["Allow", "Deny"]
    """If there are Allow windows, nothing is evicted outside them. Nothing is evicted in a Deny window; Deny wins."""
    schedule: NonEmpty
    """Start times: cron with five fields (minute, hour, day of month, month, weekday; 0 and 7 are Sunday), on the
    wall clock of `timeZone`. As in Debian's cron a day must match both day fields if one of them starts with `*`,
    otherwise one of them. A start in the hour skipped in spring moves to the end of that hour; a start in the hour
    repeated in autumn counts once, or twice if minute or hour starts with `*`."""
    duration: Annotated[Duration, Field(gt=0)]
    """Duration from each start, at most 366d, as elapsed time: `0 22 * * *` with 8h ends at 06:00, but at 07:00
    (05:00) in the night in which clocks go forward (back)."""
    time_zone: ZoneName = "UTC"
    """IANA time zone, for example Europe/Berlin."""

    @field_validator("schedule")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        read_cron(value)
        return value

    @field_validator("duration")
    @classmethod
    def _is_bounded(cls, value: float) -> float:
        if value > LONGEST_SECONDS:
            raise ValueError(f"expected at most {format_duration(LONGEST_SECONDS)}")
        return value

    @property
    def shown(self) -> str:
        """Its name, or its kind, schedule, duration and time zone."""
        text = (
            f"{self.kind.lower()} {' '.join(self.schedule.split())} {format_duration(self.duration)} {self.time_zone}"
        )
        return self.name or text


class Windows(Section):
    """Change windows for all evictions. Pools and service levels have further windows, and services may carry some in
    the annotation `rebalancer.dev/change-window`; all must be open."""

    global_: Annotated[tuple[Window, ...], AsTuple] = Field(default=(), alias="global")
    """For all clusters. Use the same value in each cluster's policy."""
    cluster: Annotated[tuple[Window, ...], AsTuple] = ()
    """For this cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """Whether a set of windows is open, and when that changes next."""

    open: bool
    until: float | None = None
    """Time of the next change in seconds since the epoch; None: no change within 400 days."""
    next_open: float | None = None
    """If closed, time of the next opening in seconds since the epoch; None: none within 400 days."""
    because: str
    """The deciding window, or the error of an invalid one."""
    broken: bool = False
    """The windows are invalid and count as closed."""


def is_open(windows: tuple[Window, ...], now: float) -> WindowState:
    """Whether `windows` are open at `now` (seconds since the epoch): in no Deny window, and in an Allow window if
    there are any."""
    if not windows:
        return WindowState(open=True, because="no windows")
    has_allow = any(window.kind == "Allow" for window in windows)
    for days in SEARCH_DAYS:
        end = now + days * DAY_SECONDS
        held = [spans(window.schedule, window.duration, window.time_zone, now=now, end=end) for window in windows]
        times = _boundaries(held, now, end)
        opened = _opened(windows, held, times)
        changes = np.flatnonzero(opened != opened[0])
        if changes.size:
            break
    at = float(times[changes[0]]) if changes.size else None
    paired = list(zip(windows, held, strict=True))
    holding = [window for window, each in paired if _holds(each, times[:1])[0]]
    return WindowState(
        open=bool(opened[0]),
        until=at,
        next_open=None if opened[0] else at,
        because=_because(holding, has_allow),
    )


def open_spans(windows: tuple[Window, ...], *, now: float, end: float) -> Spans:
    """The spans in [now, end) in which `windows` are open (seconds since the epoch), clipped to that range."""
    held = [spans(window.schedule, window.duration, window.time_zone, now=now, end=end) for window in windows]
    times = _boundaries(held, now, end)
    return _runs(_opened(windows, held, times), times, end)


def common_spans(each: Sequence[Spans], *, now: float, end: float) -> Spans:
    """The intersection of several lists of spans in [now, end)."""
    times = _boundaries(each, now, end)
    return _runs(np.logical_and.reduce([_holds(one, times) for one in each]), times, end)


def decided_by(windows: tuple[Window, ...], at: float, *, opens: bool) -> Window:
    """The window that opens (or closes) the set at `at`: an Allow window by its start (end), a Deny window by its end
    (start)."""
    return next(window for window in windows if at in _edges(window, at, starts=opens == (window.kind == "Allow")))


def _edges(window: Window, at: float, *, starts: bool) -> Instants:
    begins, ends = spans(window.schedule, window.duration, window.time_zone, now=at, end=at)
    return begins if starts else ends


def _opened(windows: Sequence[Window], held: Sequence[Spans], times: Instants) -> NDArray[np.bool_]:
    """(times,) whether the set is open, given the spans `held` of each window."""
    has_allow = any(window.kind == "Allow" for window in windows)
    allowed, denied = np.full(len(times), not has_allow), np.zeros(len(times), dtype=np.bool_)
    for window, each in zip(windows, held, strict=True):
        side = allowed if window.kind == "Allow" else denied
        side |= _holds(each, times)
    return allowed & ~denied


def _runs(opened: NDArray[np.bool_], times: Instants, end: float) -> Spans:
    """The open spans before `end`; the state changes only at `times`."""
    seen = times < end
    turns = np.diff(np.concatenate([[False], opened[seen], [False]]).astype(np.int8))
    edges = np.append(times[seen], end)
    return edges[turns == 1], edges[turns == -1]


def _holds(held: Spans, times: Instants) -> NDArray[np.bool_]:
    """(times,) whether one of the disjoint spans contains each time: more have begun than ended."""
    begins, ends = held
    inside: NDArray[np.bool_] = np.searchsorted(begins, times, "right") > np.searchsorted(ends, times, "right")
    return inside


def _because(holding: Sequence[Window], has_allow: bool) -> str:
    for window in holding:
        if window.kind == "Deny":
            return f"in the deny window {window.shown}"
    if not has_allow:
        return "in no deny window"
    return f"in the allow window {holding[0].shown}" if holding else "outside every allow window"


def _boundaries(held: Sequence[Spans], now: float, end: float) -> Instants:
    """`now` and all begins and ends in (now, end], sorted."""
    parts = [side[(side > now) & (side <= end)] for pair in held for side in pair]
    return np.unique(np.concatenate([np.array([now]), *parts]))


_LIST: TypeAdapter[tuple[Window, ...]] = TypeAdapter(tuple[Window, ...])


def parse_change_window(text: str) -> tuple[Window, ...]:
    """The windows in a service's annotation `rebalancer.dev/change-window`.

    Windows are separated by `;`. Each is `allow|deny <five cron fields> <duration> [<time zone>]`, UTC by default:
    `allow 0 22 * * 1-5 8h Europe/Berlin; deny 0 0 24 12 * 72h Europe/Berlin`. Or a JSON list of objects with the
    fields of a window in the policy. At most 32 windows with at most 96 starts a day together.

    Raises ValueError with a one-line message.
    """
    try:
        windows = _LIST.validate_json(text) if text.lstrip().startswith("[") else _parse_line(text)
    except ValidationError as error:
        raise ValueError(_one_line(error)) from None
    except OverflowError:
        raise ValueError(f"expected durations of at most {format_duration(LONGEST_SECONDS)}") from None
    if not 1 <= len(windows) <= MOST_IN_ANNOTATION:
        raise ValueError(f"expected 1 to {MOST_IN_ANNOTATION} windows, got {len(windows) or 'none'}")
    a_day = sum(spans_a_day(window.schedule, window.duration) for window in windows)
    if a_day > MOST_SPANS_A_DAY:
        raise ValueError(f"expected windows that begin at most {MOST_SPANS_A_DAY} times a day, got {a_day} times")
    return windows


def _parse_line(text: str) -> tuple[Window, ...]:
    parts = [part.split() for part in text.split(";") if part.strip()]
    return tuple(_parse_one(words) for words in parts[: MOST_IN_ANNOTATION + 1])


def _parse_one(words: list[str]) -> Window:
    given = repr(" ".join(words)[:_SHOWN_CHARS])
    kind = words[0].capitalize()
    if kind not in ("Allow", "Deny") or len(words) not in (7, 8):
        raise ValueError(f"expected allow|deny, five cron fields, a duration and optionally a time zone, got {given}")
    fields: dict[str, Any] = {"kind": kind, "schedule": " ".join(words[1:6]), "duration": words[6]}
    try:
        return Window.model_validate(fields | ({"timeZone": words[7]} if len(words) == 8 else {}))
    except ValidationError as error:
        raise ValueError(f"{_one_line(error)}, in {given}") from None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    cause = first.get("ctx", {}).get("error")
    text = str(cause) if isinstance(cause, ValueError) else first["msg"]
    line = f"{where}: {text}" if where else text
    # an unknown key is quoted from the annotation
    return "".join(char if char.isprintable() else "?" for char in line[: 3 * _SHOWN_CHARS])


def state_of_annotation(text: str, now: float) -> WindowState:
    """State of a service's own windows at `now` (seconds since the epoch); closed if the annotation is invalid."""
    try:
        windows = parse_change_window(text)
    except ValueError as error:
        return WindowState(open=False, because=str(error), broken=True)
    return is_open(windows, now)
