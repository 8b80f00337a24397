"""Verification of forecasts: they are recorded, and compared with the actuals when they are over.

The leader keeps each node's first forecast of a UTC day, and those that it starts a cycle for; a day later the node's
samples give the actuals. No decision depends on it, so a database that fails is a note, and the next call goes on.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rebalancer.forecast import Forecasts
from rebalancer.forecast.evaluation.actuals import Samples, verify
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import RebalancerError
from rebalancer.model.measured.history import DAY_SECONDS, History
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.records.forecasts import ForecastKind, ForecastRecords, StoredForecast, VerifiedForecast
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, fixed_high

UID_CHARACTERS = 8
LEAST_SHARE = 0.001
"""Pods with a smaller share of the peak are not recorded."""
IN_TIME_SECONDS = 7200.0
"""For so long after a forecast's end the pods on a node still show what changed until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRun:
    """The forecasts verified in one run."""

    judged: tuple[VerifiedForecast, ...] = ()
    notes: tuple[str, ...] = ()
    """Why not everything was, in sentences."""


def record_daily_forecasts(
    records: ForecastRecords,
    forecasts: Forecasts,
    snapshot: ClusterSnapshot,
    *,
    policy: RebalancerPolicy,
    peaks: Peaks | None,
    now: float,
) -> tuple[str, ...]:
    """Record each node's forecast, unless it has one of this UTC day; notes on failures.

    `forecasts` and `peaks` (None: which pods a peak is made of isn't known) are of `snapshot`, made at `now`. May be
    called with every forecast: it is cheap when nothing is new.
    """
    try:
        known = records.kept(ForecastKind.DAILY, now)
        records.keep(
            _kept(
                forecasts, snapshot, policy, peaks, now, kind=ForecastKind.DAILY, wanted=lambda name: name not in known
            )
        )
    except RebalancerError as error:
        return (f"forecasts are not kept: {error}",)
    return ()


def record_acted_forecasts(
    records: ForecastRecords,
    forecasts: Forecasts,
    snapshot: ClusterSnapshot,
    *,
    policy: RebalancerPolicy,
    peaks: Peaks | None,
    hot_from: Mapping[str, float],
    now: float,
) -> tuple[str, ...]:
    """Record the forecasts that a cycle is started for, before it evicts; see `record_daily_forecasts`.

    `hot_from`: node -> when it is expected to become hot.
    """
    if not hot_from:
        return ()
    try:
        records.keep(
            _kept(
                forecasts,
                snapshot,
                policy,
                peaks,
                now,
                kind=ForecastKind.AHEAD,
                wanted=lambda name: name in hot_from,
                hot_from=hot_from,
            )
        )
    except RebalancerError as error:
        return (f"forecasts are not kept: {error}",)
    return ()


def verify_due(records: ForecastRecords, history: History, snapshot: ClusterSnapshot, *, now: float) -> VerificationRun:
    """Verify the forecasts that are over, as far as their samples are available.

    Reads no more days of `history` than they speak of, one after another, and none when nothing is due.
    """
    try:
        due = records.due(now)
        if not due:
            return VerificationRun()
        since = min(forecast.made_at for _, forecast in due)
        until = max(forecast.until for _, forecast in due)
        moved = records.evicted_pods(since, until)
        nodes = {forecast.node for _, forecast in due}
        replacements = {each.replacement for node in nodes for each in moved.get(node, ()) if each.replacement}
        samples = Samples.of(history.days, nodes=nodes, pods=replacements, since=since, until=until)
        truths = []
        for number, forecast in due:
            actuals = verify(
                forecast,
                samples,
                pods_now=_pods_on(snapshot, forecast.node) if _in_time(snapshot, forecast) else None,
                moved=moved.get(forecast.node, ()),
                now=now,
            )
            if actuals is not None:
                truths.append((number, forecast, actuals))
        records.judge([(number, actuals) for number, _, actuals in truths])
    except RebalancerError as error:
        return VerificationRun(notes=(f"forecasts are not judged: {error}",))
    return VerificationRun(
        judged=tuple(VerifiedForecast(forecast=forecast, actuals=actuals) for _, forecast, actuals in truths)
    )


def _kept(
    forecasts: Forecasts,
    snapshot: ClusterSnapshot,
    policy: RebalancerPolicy,
    peaks: Peaks | None,
    now: float,
    *,
    kind: ForecastKind,
    wanted: Callable[[str], bool],
    hot_from: Mapping[str, float] | None = None,
) -> list[StoredForecast]:
    """Forecasts of the wanted nodes with a known peak."""
    nodes = snapshot.nodes
    pools = NodePools.of(policy.pools, nodes).names
    highs = {pool.name: fixed_high(pool) for pool in policy.pools}
    found = []
    for node, one in enumerate(forecasts.nodes):
        if not wanted(one.node) or math.isnan(one.peak_millicores):
            continue
        found.append(
            StoredForecast(
                kind=kind,
                node=one.node,
                pool=pools[node],
                made_at=now,
                until=now + DAY_SECONDS,
                predictor=policy.forecast.predictor,
                peak_millicores=one.peak_millicores,
                peak_at=one.peak_at,
                margin_millicores=one.margin,
                capacity_millicores=float(nodes.cpu_capacity_millicores[node]),
                high=highs.get(pools[node]),
                days_used=one.days_used,
                confidence=one.confidence,
                pods=() if peaks is None else _pods_of(snapshot, peaks, node),
                hot_from=None if hot_from is None else hot_from[one.node],
            )
        )
    return found


def _pods_of(snapshot: ClusterSnapshot, peaks: Peaks, node: int) -> tuple[tuple[str, float], ...]:
    """(first characters of the uid, share of the peak), largest first; none where the peak isn't known."""
    on_it, peak = snapshot.pods_on(node), float(peaks.node_millicores[node])
    found = [
        (snapshot.pods.uids[pod][:UID_CHARACTERS], round(relief / peak, 4))
        for pod, relief in zip(on_it.tolist(), peaks.relief_millicores[on_it].tolist(), strict=True)
        if peak > 0 and relief >= LEAST_SHARE * peak  # a NaN is neither
    ]
    return tuple(sorted(found, key=lambda each: (-each[1], each[0])))


def _in_time(snapshot: ClusterSnapshot, forecast: StoredForecast) -> bool:
    return snapshot.taken <= forecast.until + IN_TIME_SECONDS


def _pods_on(snapshot: ClusterSnapshot, name: str) -> frozenset[str]:
    """First characters of the uids of the pods that are on a node and not finished; none on one that is gone."""
    node = snapshot.node_index.get(name)
    if node is None:
        return frozenset()
    return frozenset(
        snapshot.pods.uids[pod][:UID_CHARACTERS] for pod in snapshot.pods_on(node).tolist() if snapshot.active[pod]
    )
