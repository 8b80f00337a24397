"""Node series composed from the history of the pods that are on each node now, plus the node's own usage.

A pod's history counts on its current node, wherever it ran before. Days are read once, one after another: 150,000 pods
are 165 MiB a day.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from rebalancer.forecast.series.imputation import MissingSteps, impute
from rebalancer.forecast.series.load_profiles import ServiceLoadProfiles, sampled
from rebalancer.forecast.series.membership import Members
from rebalancer.forecast.series.runs import sums_of_runs
from rebalancer.forecast.series.window import Window
from rebalancer.model.measured.history import SLOTS, DayBlock, Grid
from rebalancer.model.notation.arrays import Bools, Ints

CHUNK_PODS = 1024
FULL_SHARE = 0.97
"""Share of capacity from which a node is saturated: the demand of its pods may be higher than their usage."""
OWN_GROWTH, OWN_SLACK = 2.0, 0.01
"""A node's own usage is steady. At steps with pods that have departed since, it is limited to twice its latest level
plus 1 % of the capacity; the rest is attributed to those pods."""
LATEST_STEPS, LAST_STEPS = 24, 3


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Usage that the nodes would have had in the last days with their current pods."""

    window: Window
    series: Grid
    """(nodes, days, 288) millicores, NaN where unknown."""
    own_share: NDArray[np.float64]
    """(nodes,) share of `series` that was measured on the current pods and the node; the rest is imputed."""
    short_lived: Grid
    """(pools, days, 288) millicores of all short-lived pods, NaN where unknown."""
    profiles: ServiceLoadProfiles
    pod_daily: NDArray[np.float64]
    """(pods, days) mean millicores of each pod in `series`; of a short-lived one while it ran. NaN where unknown."""
    pod_days: NDArray[np.float64]
    """(pods,) samples of each pod outside saturated steps, in days."""
    day_shares: NDArray[np.float64]
    """(days,) share of each day's steps with samples."""


def compose(blocks: Iterable[DayBlock], members: Members, window: Window) -> Composition:
    """Compose the series of each node. `blocks` may be lazy: each is read once."""
    sums = _Sums(members, window)
    for block in blocks:
        overlap = window.overlap(block.day)
        if overlap is not None:
            sums.add(block, *overlap)
    return sums.composition()


class _Sums:
    """Running sums over the days."""

    def __init__(self, members: Members, window: Window) -> None:
        self.members, self.window = members, window
        nodes, steps = len(members.nodes), window.steps
        self.steady = ~members.short_lived
        self.measured = np.zeros((nodes, steps), dtype=np.float32)
        """(nodes, steps) sum of the samples of the current pods."""
        self.known = np.zeros((nodes, steps), dtype=np.uint16)
        """(nodes, steps) number of pods with a sample."""
        self.whole: Grid = np.full((nodes, steps), np.nan, dtype=np.float32)
        """(nodes, steps) samples of the nodes, less their short-lived pods."""
        self.full = np.zeros((nodes, steps), dtype=np.bool_)
        """(nodes, steps) whether the node was saturated."""
        self.covered = np.zeros(steps, dtype=np.bool_)
        """(steps,) whether any pod has a sample."""
        self.left = np.zeros(steps, dtype=np.bool_)
        """(steps,) whether departed pods have samples on that day."""
        self.shown = np.zeros((len(members.pods), window.days), dtype=np.float64)
        """(pods, days) sums of samples."""
        self.count = np.zeros(len(members.pods), dtype=np.float64)
        """(pods,) number of samples."""
        self.seen = np.zeros(len(members.pods), dtype=np.bool_)
        self.again = np.array([members.index[pod] for pod in members.departed if pod in members.index], dtype=np.int32)
        """Pods whose name a departed pod had on another node."""
        self.short_lived: Grid = np.full((len(members.pools), steps), np.nan, dtype=np.float32)
        self.profiles = ServiceLoadProfiles(len(members.services), steps)
        self.gaps: list[MissingSteps] = []
        self._service_of_departed: dict[str, int] = {}
        """Of the day that was added last."""

    def add(self, block: DayBlock, columns: slice, at: slice) -> None:
        """Add one day: its steps `columns` are the steps `at` of the window."""
        rows = np.array([block.node_row.get(name, -1) for name in self.members.nodes], dtype=np.int64)
        there = rows >= 0
        self.whole[there, at] = block.node_millicores[rows[there], columns]
        limit = (FULL_SHARE * self.members.capacity_millicores).astype(np.float32)
        with np.errstate(invalid="ignore"):
            self.full[:, at] = self.whole[:, at] >= limit[:, None]
        index = self.members.index
        pod_of_row = np.fromiter(map(index.get, block.pods, repeat(-1)), dtype=np.int32, count=len(block.pods))
        gone = np.flatnonzero(pod_of_row < 0)
        self.left[at] = len(gone) > 0
        service = np.full(len(pod_of_row), -1, dtype=np.int32)
        service[pod_of_row >= 0] = self.members.service[pod_of_row[pod_of_row >= 0]]
        service[gone] = self._services_of_departed([block.pods[row] for row in gone.tolist()])
        self._without_departed(block, pod_of_row, columns, at)
        self._add_pods(block, pod_of_row, columns, at)
        self._learn(block, pod_of_row, service, columns, at)
        self._add_short_lived(block, pod_of_row, service, columns, at)

    def _services_of_departed(self, pods: list[str]) -> list[int]:
        """Index of the service of each, -1 if unknown; most were there on the day before."""
        before, of_name = self._service_of_departed, self.members.service_of_name
        found = [of_name(pod) if (known := before.get(pod)) is None else known for pod in pods]
        self._service_of_departed = dict(zip(pods, found, strict=True))
        return found

    def _without_departed(self, block: DayBlock, pod_of_row: Ints, columns: slice, at: slice) -> None:
        """Subtract the usage of departed pods from that of their nodes."""
        departed = self.members.departed
        if not departed:
            return
        gone = [row for row in np.flatnonzero(pod_of_row < 0).tolist() if block.pods[row] in departed]
        rows = np.concatenate([np.array(gone, dtype=np.int64), np.flatnonzero(np.isin(pod_of_row, self.again))])
        if not len(rows):
            return
        nodes, ends = zip(*(departed[block.pods[row]] for row in rows.tolist()), strict=True)
        there = np.arange(at.start, at.stop) < np.array(ends)[:, None] - self.window.start_step
        values = np.where(there, np.nan_to_num(block.pod_millicores[rows, columns]), np.float32(0))
        np.subtract.at(self.whole[:, at], np.array(nodes), values)

    def _add_pods(self, block: DayBlock, pod_of_row: Ints, columns: slice, at: slice) -> None:
        members, width = self.members, at.stop - at.start
        days = slice(at.start // SLOTS, (at.stop - 1) // SLOTS + 1)
        turns = [max(day * SLOTS - at.start, 0) for day in range(days.start, days.stop)]
        parts = [slice(*ends) for ends in pairwise([*turns, width])]
        row_of_pod = np.full(len(members.pods), -1, dtype=np.int64)
        row_of_pod[pod_of_row[pod_of_row >= 0]] = np.flatnonzero(pod_of_row >= 0)
        missing_rows: list[tuple[Ints, Bools]] = []
        gone = np.flatnonzero(pod_of_row < 0)[:CHUNK_PODS]
        covered = np.isfinite(block.pod_millicores[gone, columns]).any(axis=0)
        any_pods = len(block.pods) > 0
        ever_full = np.asarray(self.full[:, at].any(axis=1))
        pods = np.flatnonzero(self.steady).astype(np.int32)
        for first in range(0, len(pods), CHUNK_PODS):
            chunk = pods[first : first + CHUNK_PODS]
            rows, on = row_of_pod[chunk], members.node[chunk]
            values = (
                block.pod_millicores[np.maximum(rows, 0)][:, columns]
                if any_pods
                else np.empty((len(chunk), width), dtype=np.float32)
            )
            values[rows < 0] = np.nan
            totals = _sums(values, parts)
            incomplete = np.flatnonzero(np.isnan(totals).any(axis=1))  # a sum with NaN is NaN
            holes = np.isnan(values[incomplete])
            values[incomplete] = np.where(holes, np.float32(0), values[incomplete])
            totals[incomplete] = _sums(values[incomplete], parts)
            self.seen[np.delete(chunk, incomplete)] = True
            self.seen[chunk[incomplete]] |= ~holes.all(axis=1)
            covered |= True if len(incomplete) < len(chunk) else ~holes.all(axis=0)
            starts = np.flatnonzero(np.diff(on, prepend=-1))
            self.measured[on[starts], at] += sums_of_runs(values, starts)
            self.known[on[starts], at] += np.diff(np.append(starts, len(chunk)))[:, None].astype(np.uint16)
            np.subtract.at(self.known[:, at], on[incomplete], holes.astype(np.uint16))
            clipped = np.flatnonzero(ever_full[on])
            if len(clipped):
                missing = np.zeros((len(chunk), width), dtype=np.bool_)
                missing[incomplete] = holes
                missing[clipped] |= self.full[on[clipped], at]
                totals = _sums(np.where(missing, np.float32(0), values), parts)
                incomplete = np.flatnonzero(missing.any(axis=1))
                holes = missing[incomplete]
            self.shown[chunk, days] += totals
            self.count[chunk] += width
            self.count[chunk[incomplete]] -= holes.sum(axis=1)
            if len(incomplete):
                missing_rows.append((chunk[incomplete], holes))
        self.covered[at] = covered
        # steps without samples of any pod are not imputed
        self.gaps += [MissingSteps.of(pods_of, at, missing & covered) for pods_of, missing in missing_rows]

    def _learn(self, block: DayBlock, pod_of_row: Ints, service: Ints, columns: slice, at: slice) -> None:
        """Update the load profiles of one replica on the reference machine from unsaturated nodes."""
        members = self.members
        if not len(members.services):
            return
        rows = sampled(np.where(members.short_lived_services[service], np.int32(-1), service))
        values = block.pod_millicores[rows, columns]
        self.profiles.note(at, np.isfinite(values), service[rows])
        pods = pod_of_row[rows]
        current = np.flatnonzero(pods >= 0)
        on = members.node[pods[current]]
        other = members.factor[on] != 1
        values[current[other]] *= members.factor[on[other]][:, None]
        clipped = np.flatnonzero(np.asarray(self.full[:, at].any(axis=1))[on])
        values[current[clipped]] = np.where(self.full[on[clipped], at], np.float32(np.nan), values[current[clipped]])
        self.profiles.add(at, values, service[rows])

    def _add_short_lived(self, block: DayBlock, pod_of_row: Ints, service: Ints, columns: slice, at: slice) -> None:
        members = self.members
        mine = np.flatnonzero(pod_of_row >= 0)
        short = np.zeros(len(service), dtype=np.bool_)
        short[mine] = members.short_lived[pod_of_row[mine]]
        if len(members.services):
            short |= (pod_of_row < 0) & (service >= 0) & members.short_lived_services[service]
        rows = np.flatnonzero(short)
        rows = rows[np.argsort(service[rows], kind="stable")]
        samples = block.pod_millicores[rows, columns]
        values = np.nan_to_num(samples)
        pods = pod_of_row[rows]
        here = pods >= 0  # no part of the node's own usage
        np.subtract.at(self.whole[:, at], members.node[pods[here]], values[here])
        self.shown[pods[here], at.start // SLOTS] += values[here].sum(axis=1)
        self.count[pods[here]] += np.isfinite(samples[here]).sum(axis=1)
        total = np.zeros((len(members.pools), at.stop - at.start), dtype=np.float32)
        if len(rows):
            starts = np.flatnonzero(np.diff(service[rows], prepend=-1))
            total += self._pool_shares()[service[rows[starts]]].T @ sums_of_runs(values, starts)
        total[:, ~self.covered[at]] = np.nan
        self.short_lived[:, at] = total

    def _pool_shares(self) -> NDArray[np.float32]:
        """(services, pools) share of each pool in a service's pods; without pods now, in proportion to capacity."""
        members, pools = self.members, len(self.members.pools)
        pooled = members.pool >= 0
        room = np.bincount(members.pool[pooled], weights=members.capacity_millicores[pooled], minlength=pools)
        counts = np.zeros((len(members.services), pools))
        pool = members.pool[members.node]
        there = (members.service >= 0) & (pool >= 0)
        np.add.at(counts, (members.service[there], pool[there]), 1.0)
        counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, room)
        return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-9), dtype=np.float32)

    def composition(self) -> Composition:
        """Composition of all days."""
        members, window = self.members, self.window
        shown = np.stack([self.shown.sum(axis=1), self.count])
        filled, by_profile, imputed = impute(self.gaps, members, self.profiles, shown, self.covered)
        wanted = np.bincount(members.node[self.steady], minlength=len(members.nodes))
        own = self._own_of_nodes(wanted)
        unsampled = (self.known == 0) & ~by_profile
        unknown = unsampled & (np.isnan(self.whole) | ((wanted > 0)[:, None] & ~self.covered))
        series = self.measured
        measured = (series + own).sum(axis=1, dtype=np.float64)
        # at saturated steps the gaps hold all pods of the node: the larger of estimated demand and usage
        series = np.where(self.full, np.maximum(series, filled), series + filled)
        series += own
        if members.resource.overlaps:
            series = np.maximum(series, np.float32(0))
        total = series.sum(axis=1, dtype=np.float64)
        series[unknown] = np.nan
        return Composition(
            window=window,
            series=series.reshape(len(members.nodes), window.days, SLOTS),
            own_share=np.minimum(np.divide(measured, total, out=np.ones(len(members.nodes)), where=total > 0), 1.0),
            short_lived=self.short_lived.reshape(len(members.pools), window.days, SLOTS),
            profiles=self.profiles,
            pod_daily=self._pod_daily(imputed),
            pod_days=self.count / SLOTS,
            day_shares=self.covered.reshape(window.days, SLOTS).mean(axis=1),
        )

    def _pod_daily(self, imputed: Grid) -> NDArray[np.float64]:
        """(pods, days) as in `Composition`; `imputed` are the sums for the gaps."""
        steps = self.covered.reshape(self.window.days, SLOTS).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):  # 0/0 where nothing is known
            daily: NDArray[np.float64] = (self.shown + imputed) / steps
            short = self.members.short_lived
            daily[short] = (self.shown[short].sum(axis=1) / self.count[short])[:, None]
        return daily

    def _own_of_nodes(self, wanted: NDArray[np.int64]) -> Grid:
        """(nodes, steps) usage of the node besides its pods."""
        rest = self.whole - self.measured
        if not self.members.resource.overlaps:
            rest = np.maximum(rest, np.float32(0))
        doubtful = self.left[None, :] | (self.known < wanted[:, None])
        enough = wanted
        if self.members.departed_known:
            # without other departed pods a pod that has just started and has no sample yet may be missing
            enough = np.bincount(self.members.node[self.steady & self.seen], minlength=len(wanted))
        own = np.where(self.known >= enough[:, None], rest, np.float32(np.nan))
        # a recently departed pod is in most of the latest steps, but not in the last ones
        latest = np.fmin(_latest_median(own, LATEST_STEPS), _latest_median(own, LAST_STEPS))
        slack = (OWN_SLACK * self.members.capacity_millicores).astype(np.float32)
        latest = np.nan_to_num(latest)
        most = np.maximum(latest, latest * np.float32(OWN_GROWTH)) + slack
        rest = np.where(doubtful, np.minimum(rest, most[:, None]), rest)
        return np.asarray(np.where(np.isnan(rest), latest[:, None], rest), dtype=np.float32)


def _sums(values: Grid, parts: Sequence[slice]) -> Grid:
    """(rows, parts) sums over the columns of each part."""
    ones = np.ones(values.shape[1], dtype=np.float32)  # a matrix product is faster than a sum
    return np.stack([values[:, part] @ ones[part] for part in parts], axis=1)


def _latest_median(values: Grid, steps: int) -> NDArray[np.float32]:
    """(nodes,) median of the last `steps` known values of each row at most; NaN without any."""
    known = np.isfinite(values)
    newest_first = np.cumsum(known[:, ::-1], axis=1, dtype=np.int32)[:, ::-1]
    kept = np.where(known & (newest_first <= steps), values, np.float32(np.nan))
    ordered = np.sort(kept[:, -_reach(kept) :], axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    middle = np.maximum(count - 1, 0) // 2
    return np.asarray(ordered[np.arange(len(ordered)), middle], dtype=np.float32)


def _reach(kept: Grid) -> int:
    """Number of last columns that hold all known values."""
    columns = np.flatnonzero(np.isfinite(kept).any(axis=0))
    return max(kept.shape[1] - int(columns[0]), 1) if len(columns) else 1
