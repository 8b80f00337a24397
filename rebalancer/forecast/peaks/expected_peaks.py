"""Predicted peaks of nodes and the shares of their pods.

Forecasts are made every few minutes from the whole history and applied to later snapshots in between: departed pods are
subtracted from their node's trajectory, arrived pods are added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.peaks.predict import Expected, look_ahead
from rebalancer.forecast.peaks.result import Forecasts
from rebalancer.forecast.peaks.trajectories import (
    NodeTrajectories,
    PodLoads,
    SeasonalProfiles,
    lay,
    node_trajectories,
    pod_loads,
    seasonal_profiles,
)
from rebalancer.forecast.series.arrivals import Arrival
from rebalancer.forecast.series.membership import SHORT_LIVED_KINDS, DepartedPod, leaving, members_of
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, Grid, History
from rebalancer.model.measured.outcomes import ForecastOutcomes
from rebalancer.model.measured.peaks import Peaks, ServiceDayProfiles, WeekPeaks
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.policy.schema.forecast import Forecast

REMEMBERED_SECONDS = float(DAY_SECONDS)
"""Age at which a departed pod is dropped: a node's own usage is derived from its latest hours."""


@dataclass(frozen=True, kw_only=True)
class _Matched:
    """Pods of a later snapshot, matched with those of the forecast."""

    row: Ints
    """Index into `PodLoads`, -1 for an unknown pod."""
    on: Ints
    """Index of the node in `NodeTrajectories`, -1 for none or an unknown one."""
    service: Ints
    level: Floats
    week: Floats
    """Highest daily P95 of the week."""
    short_lived: Bools
    counted: Bools
    """Whether the pod is in the trajectory and still on the node."""
    added: Bools
    """Whether the pod is on the node and not in the trajectory: it is new, or its load was unknown."""


@dataclass(frozen=True, kw_only=True)
class NodeForecasts:
    """Forecasts of a cluster, which later snapshots are applied to. Immutable."""

    forecasts: Forecasts
    made_at: float
    """Seconds since the epoch."""
    departed: tuple[DepartedPod, ...]
    """Pods that departed within the last day."""
    first_step: int
    """Step of `made_at`, counted from the epoch."""
    steps: int
    """Steps of the horizon."""
    nodes: NodeTrajectories
    services: SeasonalProfiles
    pods: PodLoads
    expected: Expected
    """Arrivals in the trajectories."""
    unjudged: tuple[ForecastOutcomes, ...]
    """Forecasts of the sampled nodes of each pool, whose actuals will be learned from; none for a calendar day."""
    resource: ForecastResource = OF_CPU

    def peaks(self, snapshot: ClusterSnapshot, *, now: float, freed: Mapping[str, float] | None = None) -> Peaks:
        """Predicted peaks of the snapshot's nodes with their current pods, from `now` to the end of the horizon.

        A pod of unknown load counts with its request. `freed`: uid -> `ResourceUsage.freed` of a pod, also of departed
        ones. Where amounts overlap, a departed pod without it leaves its node's peak as it is.
        """
        first = min(max(int(now // STEP_SECONDS) - self.first_step, 0), self.steps)
        part = slice(first, self.steps)
        rows = np.array([*map(self.nodes.row.get, snapshot.nodes.names, repeat(-1)), -1], dtype=np.int32)
        matched = self._match(snapshot, rows)
        expected = self._recomposed(matched, part, freed or {})[rows[:-1]]
        starts_at = float((self.first_step + first) * STEP_SECONDS)
        known = np.isfinite(expected).any(axis=1)
        at = np.zeros(len(expected), dtype=np.int64)
        peak = np.full(len(expected), np.nan)
        if known.any():
            at[known] = np.argmax(np.nan_to_num(expected[known], nan=-1.0), axis=1)
            peak[known] = expected[known, at[known]]
        ratio = self.nodes.ratio[matched.on]
        highest = self.services.shapes[:, part].max(axis=1, initial=0.0)[matched.service]
        coming = matched.level * np.where(matched.short_lived, 1.0, highest * ratio)
        return Peaks(
            made_at=self.made_at,
            starts_at=starts_at,
            expected=expected,
            node_millicores=peak,
            node_at=np.where(known, starts_at + at * STEP_SECONDS, np.nan),
            relief_millicores=self._reliefs(snapshot, matched, np.append(np.where(known, first + at, -1), -1)),
            pod_millicores=coming,
            allowance_millicores=self.nodes.allowance[rows[:-1]],
            week=self._week(matched, rows[:-1], peak, coming),
        )

    def _week(self, matched: _Matched, rows: Ints, peak: Floats, coming: Floats) -> WeekPeaks:
        """The coming week; `rows` as in `_match`, without the last. Pods that left since the forecast still count."""
        pod = np.fmax(matched.week, coming)
        came = matched.added & (matched.on >= 0) & np.isfinite(pod)
        added = np.bincount(matched.on[came], weights=pod[came], minlength=len(self.nodes.week))
        node = np.fmax((self.nodes.week + added)[rows], peak)
        return WeekPeaks(node_millicores=np.where(np.isfinite(peak), node, np.nan), pod_millicores=pod)

    def service_day_profiles(self, snapshot: ClusterSnapshot) -> ServiceDayProfiles:
        """Usual days of the snapshot's services."""
        tops = np.unique(snapshot.top_owner)
        row_of = np.full(len(snapshot.owners), -1, dtype=np.int32)
        for top in tops.tolist():
            row = self.services.row.get(str(snapshot.service_of(top)), -1)
            if row >= 0 and math.isfinite(self.services.usual[row]):
                row_of[top] = row
        usual = self.services.usual[:-1, None] * self.services.shapes[:-1]
        return ServiceDayProfiles(row_of=row_of, usual=usual, days=self.services.days[:-1])

    def _match(self, snapshot: ClusterSnapshot, rows: Ints) -> _Matched:
        """`rows` (nodes + 1,): row of each snapshot node in `nodes`, -1 for an unknown one and at the end."""
        pods = snapshot.pods
        row = np.fromiter(map(self.pods.row.get, pods.uids, repeat(-1)), dtype=np.int32, count=len(pods))
        service, short_lived = self.pods.service[row], self.pods.short_lived[row]
        new = np.flatnonzero(row < 0)
        service[new], short_lived[new] = self._services_of(snapshot, pods.owner[new])
        on = rows[pods.node]
        level = self.pods.level[row]
        usual = self.services.usual[service] / self.nodes.factor[on]
        requested = self.resource.requested(snapshot)
        requested = np.where(requested > 0, requested, np.nan)
        there = snapshot.active & ~pods.terminating
        counted = there & self.pods.counted[row]
        week, usual_week = self.pods.week[row], self.services.week[service] / self.nodes.factor[on]
        return _Matched(
            row=row,
            on=on,
            service=service,
            level=np.where(np.isfinite(level), level, np.where(np.isfinite(usual), usual, requested)),
            week=np.where(np.isfinite(week), week, usual_week),
            short_lived=short_lived,
            counted=counted,
            added=there & ~counted & ~short_lived,
        )

    def _services_of(self, snapshot: ClusterSnapshot, owners: Ints) -> tuple[Ints, Bools]:
        """(service, whether its pods are short-lived) of each owner; (-1, False) if unknown."""
        service = np.full(len(snapshot.owners) + 1, -1, dtype=np.int32)
        short_lived = np.zeros(len(service), dtype=np.bool_)
        for owner in np.unique(owners[owners >= 0]).tolist():
            found = snapshot.service_of(owner)
            assert found is not None
            service[owner] = self.services.row.get(str(found), -1)
            short_lived[owner] = found.kind in SHORT_LIVED_KINDS
        return service[owners], short_lived[owners]

    def _recomposed(self, matched: _Matched, part: slice, freed: Mapping[str, float]) -> Grid:
        """(nodes + 1, steps of `part`) the trajectories with the current pods."""
        shapes, nodes, base = self.services.shapes[:, part], self.nodes, self.pods
        left = base.counted
        left[matched.row[matched.counted]] = False
        gone = np.zeros((len(nodes.trajectory), shapes.shape[1]), dtype=np.float32)
        level = base.level * self._freed(left, freed)
        lay(gone, shapes, base.node[left], base.service[left], level[left])
        gone[:-1] += self._arrived(matched, part)
        grid = np.maximum(nodes.trajectory[:, part] - nodes.gain[:, part] * gone, np.float32(0))
        came = matched.added & (matched.on >= 0) & np.isfinite(matched.level)
        on = matched.on[came]
        lay(grid, shapes, on, matched.service[came], matched.level[came] * nodes.ratio[on])
        return grid

    def _freed(self, left: Bools, freed: Mapping[str, float]) -> Floats:
        """(pods + 1,) share of the level of each pod that `left` which its node is free of."""
        out = np.ones(len(left))
        if self.resource.overlaps and left.any():
            for uid, row in self.pods.row.items():
                out[row] = freed.get(uid, 0.0)
        return out

    def _arrived(self, matched: _Matched, part: slice) -> Grid:
        """(nodes, steps of `part`) usual millicores of expected pods that have arrived, on the nodes where they were
        expected. A pod that arrived elsewhere counts as a share of each pod that is still missing."""
        expected, services, nodes = self.expected, self.services, self.nodes
        row_of = np.full(len(services.usual), -1, dtype=np.int32)
        row_of[expected.service] = np.arange(len(expected.service))
        came = np.flatnonzero(matched.added & (row_of[matched.service] >= 0))
        rows, place = np.unique(row_of[matched.service[came]], return_inverse=True)
        here = np.zeros((len(rows), len(nodes.trajectory)), dtype=np.float32)
        np.add.at(here, (place, matched.on[came]), 1.0)
        count = expected.count[rows]
        met = np.minimum(here[:, :-1], count)
        still = count - met
        more, missing = here.sum(axis=1) - met.sum(axis=1), still.sum(axis=1)
        elsewhere = np.minimum(np.divide(more, missing, out=np.zeros_like(more), where=missing > 0), 1.0)
        over = (met + still * elsewhere[:, None]) / nodes.factor[:-1].astype(np.float32)
        return np.asarray(over.T @ services.profiles(expected.service[rows], part), dtype=np.float32)

    def _reliefs(self, snapshot: ClusterSnapshot, matched: _Matched, at: NDArray[np.int64]) -> Floats:
        """(pods,) share of each in its node's trajectory at step `at` (nodes + 1,), -1 where unknown."""
        step = at[snapshot.pods.node]
        each = np.where(matched.counted, self.nodes.gain[matched.on, step], self.nodes.ratio[matched.on])
        relief = np.nan_to_num(matched.level) * self.services.shapes[matched.service, step] * each
        relief[step < 0] = np.nan
        relief[~(matched.counted | matched.added)] = 0.0
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
    evicted: Sequence[DepartedPod] = (),
    outcomes: Sequence[ForecastOutcomes] = (),
    resource: ForecastResource = OF_CPU,
) -> NodeForecasts:
    """Forecast from `now`; other arguments as for `forecast`.

    `before`: the last forecasts, from which departed pods are derived, besides those `evicted`. Without them, the usage
    of other departed pods counts as the node's own until its latest hours are without them.
    """
    policy = resource.section(policy)
    departed = _departed(before, evicted, snapshot, now)
    members = members_of(
        snapshot,
        pool_of=pool_of,
        pools=pools,
        generation=policy.generation,
        now=now,
        departed=departed,
        departed_known=before is not None,
        resource=resource,
    )
    ahead = look_ahead(history, members, policy=policy, now=now, arrivals=arrivals, outcomes=outcomes)
    services = seasonal_profiles(ahead, policy.day_weights)
    pods = pod_loads(ahead, services)
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
        unjudged=tuple(group.node_levels.unjudged for group in ahead.groups if group.expected is group.past),
        resource=resource,
    )


def _departed(
    before: NodeForecasts | None, evicted: Sequence[DepartedPod], snapshot: ClusterSnapshot, now: float
) -> tuple[DepartedPod, ...]:
    """Known pods that departed within the last day or are terminating, the newest last."""
    out = {(each.pod, each.node): each for each in (*leaving(snapshot), *evicted)}
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
