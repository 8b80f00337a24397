"""Actuals of a forecast: the node's samples over the time that it covered, in steps of five minutes.

**The counterfactual peak** is that of the node's CPU plus the CPU of each evicted pod's replacement from the eviction
on; without a known replacement or sample, the pod's CPU at the eviction. It is an estimate:

- a replacement may use more or less on another node or beside other pods; on a saturated node it would have used less;
- samples of a rate window contain a departed pod for some minutes more, together with its replacement;
- pods that arrived in the freed headroom count, but would have landed elsewhere;
- of a replacement that was evicted in turn, only the CPU of the first pod counts from then on;
- a pod without replacement may have been scaled in anyway.

So the verdicts *prevented* and *false alarm* are estimates, less certain the closer the peak is to `high`. *Too late*
and *not moved* rest on samples alone.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rebalancer.forecast.series.percentiles import P95, quantile
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, Grid
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.records.forecasts import Actuals, ForecastKind, StoredForecast, Verdict

EARLY_SECONDS = 1800.0
"""A node that becomes hot at most this long before the predicted time counts as the same peak."""
WAIT_SECONDS = 2 * DAY_SECONDS
"""Samples that are missing this long after a forecast's end stay missing."""
QUARTER_STEPS = 3
NOTHING_KNOWN = Actuals(
    p95_millicores=math.nan,
    peak_millicores=math.nan,
    peak_at=math.nan,
    departed_peak_share=math.nan,
    counterfactual_peak_millicores=math.nan,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DayPart:
    """The needed series of one day."""

    filled: int
    nodes: Mapping[str, Grid]
    """Name -> (288,)"""
    pods: Mapping[str, Grid]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples of some nodes and pods. Steps are counted from the epoch."""

    days: Mapping[int, _DayPart]

    @classmethod
    def of(
        cls, days: Sequence[DayBlock], *, nodes: Collection[str], pods: Collection[str], since: float, until: float
    ) -> "Samples":
        """Read from the newest day back to that of `since`, each once; older days are not loaded."""
        found: dict[int, _DayPart] = {}
        first, last = int(since // DAY_SECONDS), int(until // DAY_SECONDS)
        for at in range(len(days) - 1, -1, -1):
            block = days[at]
            if first <= block.day <= last:
                found[block.day] = _DayPart(
                    filled=SLOTS if block.complete else block.filled,
                    nodes=_chosen(nodes, block.node_row, block.node_millicores),
                    pods=_chosen(pods, block.pod_row, block.pod_millicores),
                )
            if block.day <= first:
                break
        return cls(days=found)

    def complete(self, first: int, end: int) -> bool:
        """Whether all steps in [first, end) have been read."""
        return all(
            day in self.days and self.days[day].filled >= min(end - day * SLOTS, SLOTS) for day in _days(first, end)
        )

    def node(self, name: str, first: int, end: int) -> Floats:
        """(steps,) millicores of a node, NaN where unknown."""
        return _series({day: part.nodes for day, part in self.days.items()}, name, first, end)

    def pod(self, name: str, first: int, end: int) -> Floats:
        """(steps,) millicores of a pod, `namespace/name`; NaN where unknown."""
        return _series({day: part.pods for day, part in self.days.items()}, name, first, end)


def verify(
    forecast: StoredForecast,
    samples: Samples,
    *,
    pods_now: frozenset[str] | None,
    moved: Sequence[Eviction],
    now: float,
) -> Actuals | None:
    """Actuals of a forecast that has ended; None while its samples are incomplete.

    `pods_now`: first eight characters of the uids on the node at the forecast's end, None where unknown. `moved`:
    evictions from the node, at any time. With samples of less than half of the steps the actuals are unknown.
    """
    first, end = int(forecast.made_at // STEP_SECONDS), int(forecast.until // STEP_SECONDS)
    if not samples.complete(first, end) and now < forecast.until + WAIT_SECONDS:
        return None
    node = samples.node(forecast.node, first, end)
    if not _enough(node):
        return NOTHING_KNOWN
    moved = [each for each in moved if forecast.made_at <= each.at < forecast.until]
    counterfactual = node + _replacements(moved, samples, first, end)
    peak, at = _busiest_quarter(node)
    return Actuals(
        p95_millicores=float(quantile(node[None].astype(np.float32), P95)[0]),
        peak_millicores=peak,
        peak_at=float((first + at) * STEP_SECONDS) if math.isfinite(peak) else math.nan,
        departed_peak_share=_departed_peak_share(forecast, pods_now),
        counterfactual_peak_millicores=_busiest_quarter(counterfactual)[0],
        verdict=_verdict(forecast, node, counterfactual, first, moved=bool(moved)),
    )


def _verdict(
    forecast: StoredForecast, node: Floats, counterfactual: Floats, first: int, *, moved: bool
) -> Verdict | None:
    """None for a daily forecast, without `high`, or with too few samples."""
    if forecast.kind is not ForecastKind.AHEAD or forecast.high is None:
        return None
    limit = forecast.high * forecast.capacity_millicores
    expected = forecast.made_at if forecast.hot_from is None else forecast.hot_from - EARLY_SECONDS
    skipped = max(int(expected // STEP_SECONDS) - first, 0)
    node, counterfactual = node[skipped:], counterfactual[skipped:]
    if _busiest_quarter(node)[0] > limit:
        return Verdict.TOO_LATE if moved else Verdict.NOT_MOVED
    if not _enough(node) or not _enough(counterfactual) or math.isnan(limit):
        return None
    # without evictions both series are equal and under the limit
    return Verdict.PREVENTED if _busiest_quarter(counterfactual)[0] > limit else Verdict.FALSE_ALARM


def _replacements(moved: Sequence[Eviction], samples: Samples, first: int, end: int) -> Floats:
    """(steps,) CPU of the replacements, each from its eviction on; all NaN if the CPU of one of them is unknown."""
    total = np.zeros(end - first)
    for each in moved:
        begin = max(math.ceil(each.at / STEP_SECONDS) - first, 0)
        pod = samples.pod(each.replacement, first, end)[begin:]
        total[begin:] += np.where(np.isfinite(pod), pod, each.cpu_millicores)
    return total if np.isfinite(total).all() else np.full(end - first, np.nan)


def _departed_peak_share(forecast: StoredForecast, pods_now: frozenset[str] | None) -> float:
    if pods_now is None or not forecast.pods:
        return math.nan
    return min(sum((share for uid, share in forecast.pods if uid not in pods_now), 0.0), 1.0)


def _busiest_quarter(series: Floats) -> tuple[float, int]:
    """(mean, index of the middle step); two of three steps must be known. (NaN, 0) without any."""
    if len(series) < QUARTER_STEPS:
        return math.nan, 0
    quarters = np.lib.stride_tricks.sliding_window_view(series, QUARTER_STEPS)
    known = np.isfinite(quarters).sum(axis=1)
    means = np.divide(np.nan_to_num(quarters).sum(axis=1), known, out=np.full(len(quarters), -np.inf), where=known >= 2)
    at = int(np.argmax(means))
    return (float(means[at]), at + 1) if math.isfinite(means[at]) else (math.nan, 0)


def _enough(series: Floats) -> bool:
    """Whether at least half of the steps are known, as a percentile needs."""
    return len(series) > 0 and int(np.isfinite(series).sum()) * 2 >= len(series)


def _chosen(names: Collection[str], row: Mapping[str, int], grid: Grid) -> Mapping[str, Grid]:
    # copies: a view would keep the whole day in memory
    return {name: grid[row[name]].copy() for name in names if name in row}


def _days(first: int, end: int) -> range:
    """The UTC days that the steps lie in."""
    return range(first // SLOTS, (end - 1) // SLOTS + 1)


def _series(days: Mapping[int, Mapping[str, Grid]], name: str, first: int, end: int) -> Floats:
    out = np.full(max(end - first, 0), np.nan)
    for day in _days(first, end):
        row = days.get(day, {}).get(name)
        if row is not None:
            begin, stop = max(first - day * SLOTS, 0), min(end - day * SLOTS, SLOTS)
            at = day * SLOTS + begin - first
            out[at : at + stop - begin] = row[begin:stop]
    return out
