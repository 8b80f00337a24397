"""From forecasts to decisions: each node's expected course, and what each pod has in it.

Made every few minutes from the whole history, and laid over newer snapshots in between: pods that left since are taken
out of their node's course, pods that came are added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.arrivals import Arrival
from rebalancer.forecast.membership import SHORT_LIVED_KINDS, DepartedPod, Ints, leaving, members_of
from rebalancer.forecast.predict import Expected, look_ahead
from rebalancer.forecast.result import Forecasts
from rebalancer.forecast.trajectories import (
    NodeTrajectories,
    PodLoads,
    SeasonalProfiles,
    lay,
    node_trajectories,
    pod_loads,
    seasonal_profiles,
)
from rebalancer.model.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid, History
from rebalancer.model.peaks import Peaks, ServiceDayProfiles
from rebalancer.model.snapshot import ClusterSnapshot
from rebalancer.policy.schema.forecast import Forecast

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
REMEMBERED_SECONDS = float(DAY_SECONDS)
"""What a node uses by itself is told from its latest hours: pods that left earlier don't disturb it."""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """The pods of a newer snapshot, held against those of the forecast."""

    row: Ints
    """Index into `PodLoads`, -1 for one that it doesn't hold."""
    on: Ints
    """Index of its node in `NodeTrajectories`, -1 for none or an unknown one."""
    service: Ints
    level: Floats
    short_lived: Bools
    counted: Bools
    """It is in the course, and still there."""
    added: Bools
    """It is there and not in the course: it came since, or nothing was known of it."""


@dataclass(frozen=True, kw_only=True)
class NodeForecasts:
    """What is expected of a cluster, to be laid over its newer snapshots. Nothing changes it."""

    forecasts: Forecasts
    made_at: float
    """Seconds since the epoch."""
    departed: tuple[DepartedPod, ...]
    """Pods that left within the last day."""
    first_step: int
    """The step, counted from the epoch, that `made_at` lies in."""
    steps: int
    """How many the horizon holds."""
    nodes: NodeTrajectories
    services: SeasonalProfiles
    pods: PodLoads
    expected: Expected
    """Arrivals that are in the courses."""

    def peaks(self, snapshot: ClusterSnapshot, *, now: float) -> Peaks:
        """What is expected of the snapshot's nodes with the pods that are on them, from `now` to the horizon.

        A pod of which nothing is known counts with its request.
        """
        first = min(max(int(now // STEP_SECONDS) - self.first_step, 0), self.steps)
        part = slice(first, self.steps)
        rows = np.array([*map(self.nodes.row.get, snapshot.nodes.names, repeat(-1)), -1], dtype=np.int32)
        seen = self._look_at(snapshot, rows)
        expected = self._recomposed(seen, part)[rows[:-1]]
        starts_at = float((self.first_step + first) * STEP_SECONDS)
        known = np.isfinite(expected).any(axis=1)
        at = np.zeros(len(expected), dtype=np.int64)
        peak = np.full(len(expected), np.nan)
        if known.any():
            at[known] = np.argmax(np.nan_to_num(expected[known], nan=-1.0), axis=1)
            peak[known] = expected[known, at[known]]
        ratio = self.nodes.ratio[seen.on]
        highest = self.services.shapes[:, part].max(axis=1, initial=0.0)[seen.service]
        return Peaks(
            made_at=self.made_at,
            starts_at=starts_at,
            expected=expected,
            node_millicores=peak,
            node_at=np.where(known, starts_at + at * STEP_SECONDS, np.nan),
            relief_millicores=self._reliefs(snapshot, seen, np.append(np.where(known, first + at, -1), -1)),
            pod_millicores=seen.level * np.where(seen.short_lived, 1.0, highest * ratio),
        )

    def service_day_profiles(self, snapshot: ClusterSnapshot) -> ServiceDayProfiles:
        """How the usual days of the snapshot's services go."""
        tops = np.unique(snapshot.top_owner)
        row_of = np.full(len(snapshot.owners), -1, dtype=np.int32)
        for top in tops.tolist():
            row = self.services.row.get(str(snapshot.service_of(top)), -1)
            if row >= 0 and math.isfinite(self.services.usual[row]):
                row_of[top] = row
        usual = self.services.usual[:-1, None] * self.services.shapes[:-1]
        return ServiceDayProfiles(row_of=row_of, usual=usual, days=self.services.days[:-1])

    def _look_at(self, snapshot: ClusterSnapshot, rows: Ints) -> _Seen:
        """`rows` (nodes + 1,): row of each of the snapshot's nodes in `nodes`, -1 for an unknown one and at the end."""
        pods = snapshot.pods
        row = np.fromiter(map(self.pods.row.get, pods.uids, repeat(-1)), dtype=np.int32, count=len(pods))
        service, short_lived = self.pods.service[row], self.pods.short_lived[row]
        new = np.flatnonzero(row < 0)
        service[new], short_lived[new] = self._services_of(snapshot, pods.owner[new])
        on = rows[pods.node]
        level = self.pods.level[row]
        usual = self.services.usual[service] / self.nodes.factor[on]
        requested = np.where(pods.cpu_request_millicores > 0, pods.cpu_request_millicores, np.nan)
        there = snapshot.active & ~pods.terminating
        counted = there & self.pods.counted[row]
        return _Seen(
            row=row,
            on=on,
            service=service,
            level=np.where(np.isfinite(level), level, np.where(np.isfinite(usual), usual, requested)),
            short_lived=short_lived,
            counted=counted,
            added=there & ~counted & ~short_lived,
        )

    def _services_of(self, snapshot: ClusterSnapshot, owners: Ints) -> tuple[Ints, Bools]:
        """Service of each owner and whether its pods are short-lived; -1 and no for none."""
        service = np.full(len(snapshot.owners) + 1, -1, dtype=np.int32)
        short_lived = np.zeros(len(service), dtype=np.bool_)
        for owner in np.unique(owners[owners >= 0]).tolist():
            found = snapshot.service_of(owner)
            assert found is not None
            service[owner] = self.services.row.get(str(found), -1)
            short_lived[owner] = found.kind in SHORT_LIVED_KINDS
        return service[owners], short_lived[owners]

    def _recomposed(self, seen: _Seen, part: slice) -> Grid:
        """(nodes + 1, steps of `part`) the courses with the pods that are there now."""
        shapes, nodes, base = self.services.shapes[:, part], self.nodes, self.pods
        left = base.counted
        left[seen.row[seen.counted]] = False
        gone = np.zeros((len(nodes.course), shapes.shape[1]), dtype=np.float32)
        lay(gone, shapes, base.node[left], base.service[left], base.level[left])
        gone[:-1] += self._no_longer_expected(seen, part)
        grid = np.maximum(nodes.course[:, part] - nodes.gain[:, part] * gone, np.float32(0))
        came = seen.added & (seen.on >= 0) & np.isfinite(seen.level)
        on = seen.on[came]
        lay(grid, shapes, on, seen.service[came], seen.level[came] * nodes.ratio[on])
        return grid

    def _no_longer_expected(self, seen: _Seen, part: slice) -> Grid:
        """(nodes, steps of `part`) usual millicores of pods that were expected and have come, on the nodes where they
        were expected. One that came elsewhere stands for a share of each that is still missing."""
        expected, services, nodes = self.expected, self.services, self.nodes
        row_of = np.full(len(services.usual), -1, dtype=np.int32)
        row_of[expected.service] = np.arange(len(expected.service))
        came = np.flatnonzero(seen.added & (row_of[seen.service] >= 0))
        rows, place = np.unique(row_of[seen.service[came]], return_inverse=True)
        here = np.zeros((len(rows), len(nodes.course)), dtype=np.float32)
        np.add.at(here, (place, seen.on[came]), 1.0)
        count = expected.count[rows]
        met = np.minimum(here[:, :-1], count)
        still = count - met
        more, missing = here.sum(axis=1) - met.sum(axis=1), still.sum(axis=1)
        elsewhere = np.minimum(np.divide(more, missing, out=np.zeros_like(more), where=missing > 0), 1.0)
        over = (met + still * elsewhere[:, None]) / nodes.factor[:-1].astype(np.float32)
        return np.asarray(over.T @ services.courses(expected.service[rows], part), dtype=np.float32)

    def _reliefs(self, snapshot: ClusterSnapshot, seen: _Seen, at: NDArray[np.int64]) -> Floats:
        """(pods,) what each has in its node's course at step `at` (nodes + 1,), -1 where nothing is known."""
        step = at[snapshot.pods.node]
        each = np.where(seen.counted, self.nodes.gain[seen.on, step], self.nodes.ratio[seen.on])
        relief = np.nan_to_num(seen.level) * self.services.shapes[seen.service, step] * each
        relief[step < 0] = np.nan
        relief[~(seen.counted | seen.added)] = 0.0
        return relief


def forecast_nodes(
    history: History,
    snapshot: ClusterSnapshot,
    *,
    policy: Forecast,
    pool_of: Ints,
    pools: Sequence[str],
    now: float,
    arrivals: Sequence[Arrival] = (),
    before: NodeForecasts | None = None,
) -> NodeForecasts:
    """Look ahead from `now`; other arguments as for `forecast`.

    `before` is the last one: from it is known which pods left which node since. Without it, what they used counts as
    the node's own until its latest hours are without them.
    """
    departed = _departed(before, snapshot, now)
    members = members_of(
        snapshot,
        pool_of=pool_of,
        pools=pools,
        generation=policy.generation,
        now=now,
        departed=departed,
        departed_known=before is not None,
    )
    ahead = look_ahead(history, members, policy=policy, now=now, arrivals=arrivals)
    services = seasonal_profiles(ahead, policy.day_weights)
    pods = pod_loads(ahead)
    return NodeForecasts(
        forecasts=ahead.forecasts,
        made_at=now,
        departed=departed,
        first_step=ahead.composition.window.end_step,
        steps=min(math.ceil(policy.horizon / STEP_SECONDS), SLOTS),
        nodes=node_trajectories(ahead, services, pods, policy.min_days),
        services=services,
        pods=pods,
        expected=ahead.expected,
    )


def _departed(before: NodeForecasts | None, snapshot: ClusterSnapshot, now: float) -> tuple[DepartedPod, ...]:
    """Pods that left within the last day, or are leaving, as far as they were seen; the newest last."""
    out = {(each.pod, each.node): each for each in leaving(snapshot)}
    if before is not None:
        active = snapshot.active & ~snapshot.pods.terminating
        staying = {snapshot.pods.uids[index] for index in np.flatnonzero(active).tolist()}
        names = [each.node for each in before.forecasts.nodes]
        for uid, row in before.pods.row.items():
            if uid not in staying:
                each = DepartedPod(before.pods.names[row], names[before.pods.node[row]], now)
                out[each.pod, each.node] = each
        out |= {(each.pod, each.node): each for each in before.departed if now - each.seen_at < REMEMBERED_SECONDS}
    return tuple(sorted(out.values(), key=lambda each: each.seen_at))
