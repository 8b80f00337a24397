"""Usage of the last days, in steps of five minutes: the input of forecasts. Each resource has days of its own.

A day is a UTC day. A closed day never changes, so it is stored as a block and read once; only today is read again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation.resource_names import CPU, MEMORY

STEP_SECONDS = 300
SLOTS = 288
"""Steps in a day."""
HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400

Grid = NDArray[np.float32]

MIB = 2.0**20


def block_units(resource: str) -> float:
    """Units of a day block in one unit of `Usage`. Blocks have millicores of CPU, MiB of memory, and thousandths of the
    unit of any other resource, so that the figures of all have about the size of millicores."""
    return {CPU: 1.0, MEMORY: 1.0 / MIB}.get(resource, 1000.0)


@dataclass(frozen=True, kw_only=True)
class DayBlock:
    """One day of one resource. Values are mean millicores over each step, NaN where there is no sample. Of resources
    besides CPU they are amounts at the end of each step, in units of `block_units`."""

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
    """Slots that were read, from the first; later ones are not known yet."""
    notes: tuple[str, ...] = ()
    """Doubts about this day's data, in sentences."""

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
    """Missing or doubtful data, in sentences: gaps, duplicate series, clocks that disagree, short retention."""


class DayPull(Protocol):
    """A day, or a part of one, while it is read."""

    def advance(self) -> bool:
        """Continue until everything is read (True), or until the queries of the hour are used up or the program is
        stopping.

        Raises ConnectError, ConfigError; what was read before it is kept, and the next call continues from there.
        """
        ...

    def onto(self, old: DayBlock | None) -> DayBlock | None:
        """The day as read, completed by what was known of it; None without any sample.

        `filled` and `complete` are left to the caller.
        """
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Not empty: the responses were partial, by the source's warnings."""
        ...


class HistorySource(Protocol):
    """Reads days of one resource."""

    @property
    def identity(self) -> str:
        """A digest of the queries: days that were read with other queries can't be combined with these."""
        ...

    def seconds_ahead(self) -> float | None:
        """The source's clock less ours; None while the queries of the hour are used up.

        Raises ConnectError, ConfigError.
        """
        ...

    def pull(self, day: int, *, first: int, end: int, snapshot: ClusterSnapshot) -> DayPull:
        """Read the slots from `first` up to, not including, `end`. No query is sent yet."""
        ...


class DayStore(Protocol):
    """Stores days; losing one costs only the time to read it again."""

    def days(self) -> Mapping[int, "StoredDay"]:
        """The stored days. Unreadable ones are removed."""
        ...

    def load(self, day: int) -> DayBlock | None:
        """None when it isn't stored, or can't be read; then it is removed."""
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
        """Removals since the last call, with their causes."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoredDay:
    """A day's summary, without loading it."""

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
