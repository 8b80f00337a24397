"""Expected usage of a snapshot's nodes and pods in the hours to come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS, Grid
from rebalancer.model.notation.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True)
class WeekPeaks:
    """Highest daily P95 of the coming week, by the last seven days: each weekday is among them. Without margin: the
    highest of seven days is a high estimate already. At least the expected peak of the horizon."""

    node_millicores: Floats
    """(nodes,) of the pods that are on each node now. NaN with too little data to act on."""
    pod_millicores: Floats
    """(pods,) of each pod: what another node's peak grows by at most. NaN where unknown."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Expected usage of the pods that are on each node now: millicores of CPU, of other resources amounts in units of
    day blocks. NaN with too little data to act on."""

    made_at: float
    """When the forecast behind it was made, seconds since the epoch."""
    starts_at: float
    """The first step of `expected` begins here."""
    expected: Grid
    """(nodes, steps) millicores in steps of five minutes up to the end of the horizon, scaled so that their daily P95
    is the forecast's, margin included."""
    node_millicores: Floats
    """(nodes,) the highest of them."""
    node_at: Floats
    """(nodes,) time of that peak, seconds since the epoch."""
    relief_millicores: Floats
    """(pods,) decrease of the node's peak when the pod leaves."""
    pod_millicores: Floats
    """(pods,) largest increase of another node's peak when the pod lands there, margin included."""
    allowance_millicores: Floats | None = None
    """(nodes,) what new services may use beyond their expected CPU: counted for landings, not for relief. None: 0."""
    week: WeekPeaks | None = None
    """The coming week; None: not known."""
    resources: Mapping[str, "Peaks"] = field(default_factory=dict)
    """Name -> peaks, of each resource besides CPU that is forecast."""

    def first_over(self, limit_millicores: Floats) -> Floats:
        """(nodes,) seconds since the epoch from when more than `limit_millicores` (nodes,) is expected; NaN = never."""
        if not self.expected.shape[1]:
            return np.full(len(limit_millicores), np.nan)
        with np.errstate(invalid="ignore"):
            over = self.expected > limit_millicores[:, None]
        first = self.starts_at + over.argmax(axis=1) * STEP_SECONDS
        out: Floats = np.where(over.any(axis=1), first, np.nan)
        return out


@dataclass(frozen=True, kw_only=True)
class ServiceDayProfiles:
    """Usual CPU of services over a day: mean of one of their pods, from the days with data."""

    row_of: Ints
    """(owners,) row of a top owner's service; -1 without data."""
    usual: Floats
    """(rows, 288) mean millicores of one pod in each five minutes of a day; all rows begin at the same time of day."""
    days: Ints
    """(rows,) number of days with data."""
