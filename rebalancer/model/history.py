"""CPU of the last days, in steps of five minutes: what forecasts are made from.

A day is a UTC day. A closed day never changes, so it is kept as a block and asked for once; only today is asked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.snapshot import ClusterSnapshot

STEP_SECONDS = 300
SLOTS = 288
"""Steps in a day."""
DAY_SECONDS = 86_400

Grid = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class DayBlock:
    """One day. Values are mean millicores over each step, NaN where there is no sample."""

    day: int
    """Days since the epoch, UTC."""
    pods: tuple[str, ...]
    """`namespace/name` of every pod that ran on that day."""
    pod_millicores: Grid
    """(pods, 288)"""
    nodes: tuple[str, ...]
    node_millicores: Grid
    """(nodes, 288) of the whole machine, what isn't in any pod included."""
    complete: bool = True
    """False for today, and for a day with a gap that may still be filled."""
    filled: int = SLOTS
    """Slots that were asked for, from the first; what lies behind them is not known yet."""
    notes: tuple[str, ...] = ()
    """What is doubtful about this day, in sentences."""

    @cached_property
    def pod_row(self) -> Mapping[str, int]:
        """Row of each pod."""
        return {name: row for row, name in enumerate(self.pods)}

    @cached_property
    def node_row(self) -> Mapping[str, int]:
        """Row of each node."""
        return {name: row for row, name in enumerate(self.nodes)}


@dataclass(frozen=True, kw_only=True)
class History:
    """Days in order, oldest first; the last is today."""

    days: Sequence[DayBlock]
    notes: tuple[str, ...] = ()
    """What is missing or doubtful, in sentences: gaps, duplicate series, clocks that disagree, short retention."""


class DayPull(Protocol):
    """A day, or a part of one, while it is read."""

    def advance(self) -> bool:
        """Go on until all is there (True), or until the queries of the hour are used up or the program is to end.

        Raises ConnectError, ConfigError; what was read before it is kept, and the next call goes on from there.
        """
        ...

    def onto(self, old: DayBlock | None) -> DayBlock | None:
        """What was read, laid over what was known of the day; None when there is no sample at all.

        `filled` and `complete` are left to the caller.
        """
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Not empty: what was read is partial, as the source says."""
        ...


class HistorySource(Protocol):
    """Reads days of CPU."""

    @property
    def identity(self) -> str:
        """What is asked, in a few characters: days that were read with other queries can't be mixed with these."""
        ...

    def seconds_ahead(self) -> float | None:
        """The source's clock less ours; None while the queries of the hour are used up.

        Raises ConnectError, ConfigError.
        """
        ...

    def pull(self, day: int, *, first: int, end: int, snapshot: ClusterSnapshot) -> DayPull:
        """Read the slots from `first` up to, not including, `end`. Nothing is asked yet."""
        ...


class DayStore(Protocol):
    """Keeps days; losing one costs only the time to read it again."""

    def days(self) -> Mapping[int, "StoredDay"]:
        """What is kept. Whatever can't be read is removed."""
        ...

    def load(self, day: int) -> DayBlock | None:
        """None when it isn't there, or can't be read; then it is removed."""
        ...

    def nodes(self, day: int) -> tuple[Sequence[str], Grid] | None:
        """Names and (nodes, 288) millicores of the nodes alone, which cost little beside the pods; None as for `load`.

        May be called from any thread, also while the day is saved.
        """
        ...

    def save(self, block: DayBlock) -> None:
        """Raises ConfigError when it can't be written."""
        ...

    def drop(self, *, before: int) -> None:
        """Remove all earlier days."""
        ...

    def take_notes(self) -> tuple[str, ...]:
        """What was removed since the last call, and why."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredDay:
    """What is known of a day without loading it."""

    day: int
    complete: bool
    filled: int
    notes: tuple[str, ...]


def date_of(day: int) -> str:
    """`2026-02-28`."""
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).strftime("%Y-%m-%d")


def slot_of(at: float) -> tuple[int, int]:
    """The day and slot that a moment (seconds since the epoch) lies in."""
    day, rest = divmod(at, DAY_SECONDS)
    return int(day), int(rest // STEP_SECONDS)
