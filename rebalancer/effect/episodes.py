"""Hot spans of each node by the hot-node SLO: samples over a threshold for long enough.

The SLO is read in pieces, so a span may continue from one reading to the next. Each reading begins `overlap_seconds`
before the end of the previous one: the start of a span that has just become long enough lies in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.notation.arrays import Bools, Floats

GAP_STEPS = 3
"""Samples that may be missing within a span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSpan:
    """A node's time over the threshold, from the first sample over it."""

    node: int
    """Its column."""
    started_at: float
    ended_at: float | None
    """The first sample not over it; where samples are missing, the last one over it. None: still hot."""
    peak_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """Stretches of samples over the threshold, by node and time: (runs,) columns."""

    node: NDArray[np.int64]
    start: Floats
    confirmed: Floats
    """The sample at which it was long enough; inf for none."""
    end: Floats
    """NaN: still hot."""
    peak: Floats


def longest_gap(for_seconds: float, step_seconds: float) -> float:
    """Longest gap in the samples within a span."""
    return max(for_seconds, GAP_STEPS * step_seconds)


def overlap_seconds(for_seconds: float, step_seconds: float) -> float:
    """How long before the end of the previous reading the next one has to begin."""
    return for_seconds + longest_gap(for_seconds, step_seconds) + step_seconds


def hot_spans(
    times: Floats,
    shares: Floats,
    *,
    threshold: float | Floats,
    for_seconds: float,
    end: float,
    still_open: Sequence[HotSpan] = (),
    read_until: float | None = None,
) -> list[HotSpan]:
    """Spans that are new since the last reading or were open then, by node and time.

    `times` (times,) in seconds since the epoch, ascending and evenly spaced; `shares` (times, nodes), NaN where
    unknown; `threshold` one for all or (nodes,), NaN = never hot. Samples are complete up to `end`. A span counts once
    `for_seconds` lie between two of its samples. `still_open` and `read_until` are of the last reading (`node` is the
    column in this one): an open span keeps its start and is always in the result.
    """
    if not len(times):
        return list(still_open)
    known_until = -np.inf if read_until is None else read_until
    step = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    first = float(times[0])
    opened = {each.node: each for each in still_open}
    goes_on = np.zeros(shares.shape[1], dtype=np.bool_)
    goes_on[[each.node for each in still_open if each.started_at < first - step / 2]] = True
    runs = _runs(times, shares, threshold, goes_on, for_seconds=for_seconds, end=end, step=step)
    new = (runs.confirmed > known_until) & np.isfinite(runs.confirmed)
    spans = []
    for at in np.flatnonzero(new | np.isin(runs.node, list(opened))).tolist():
        span = HotSpan(
            node=int(runs.node[at]),
            started_at=float(runs.start[at]),
            ended_at=None if np.isnan(runs.end[at]) else float(runs.end[at]),
            peak_share=float(runs.peak[at]),
        )
        before = opened.get(span.node)
        if before is not None and (goes_on[span.node] or abs(span.started_at - before.started_at) <= step / 2):
            spans.append(_continued(opened.pop(span.node), span))
        elif new[at]:
            spans.append(span)
    # samples may have changed since: a span must not stay open for ever
    spans += [replace(each, ended_at=max(first, each.started_at)) for each in opened.values()]
    return sorted(spans, key=lambda each: (each.node, each.started_at))


def _continued(before: HotSpan, now: HotSpan) -> HotSpan:
    ended_at = None if now.ended_at is None else max(now.ended_at, before.started_at)
    return replace(before, ended_at=ended_at, peak_share=max(before.peak_share, now.peak_share))


def _runs(
    times: Floats,
    shares: Floats,
    threshold: float | Floats,
    goes_on: Bools,
    *,
    for_seconds: float,
    end: float,
    step: float,
) -> _Runs:
    """`goes_on` (nodes,): hot before the first sample, as if there were one more sample a step earlier."""
    times = np.concatenate([[times[0] - max(step, 1.0)], times])
    shares = np.concatenate([np.where(goes_on, np.inf, np.nan)[None, :], shares])
    node, at = np.nonzero(~np.isnan(shares.T))  # by node, then by time
    time, share = times[at], shares[at, node]
    with np.errstate(invalid="ignore"):
        hot = share > np.broadcast_to(np.asarray(threshold, dtype=np.float64), shares.shape[1:])[node]
    hot |= (at == 0) & goes_on[node]
    gap = longest_gap(for_seconds, step) + step * 1.001  # gap between a known sample and the next
    follows = np.zeros(len(node), dtype=np.bool_)
    follows[1:] = (node[1:] == node[:-1]) & (time[1:] - time[:-1] <= gap)
    begins = hot.copy()
    begins[1:] &= ~(follows[1:] & hot[:-1])
    starts = np.flatnonzero(begins)
    if not len(starts):
        nothing = np.zeros(0)
        return _Runs(node=np.zeros(0, dtype=np.int64), start=nothing, confirmed=nothing, end=nothing, peak=nothing)
    run = np.cumsum(begins) - 1
    inside = np.flatnonzero(hot)
    last = np.zeros(len(starts), dtype=np.int64)
    last[run[inside]] = inside  # ascending: the last assignment stays
    start = time[starts]
    long = inside[time[inside] - start[run[inside]] >= for_seconds]
    confirmed = np.full(len(starts), np.inf)
    np.minimum.at(confirmed, run[long], time[long])
    peak = np.full(len(starts), -np.inf)
    measured = inside[at[inside] > 0]
    np.maximum.at(peak, run[measured], share[measured])
    following = np.minimum(last + 1, len(node) - 1)
    cooled = (last + 1 < len(node)) & follows[following]
    has_next = (last + 1 < len(node)) & (node[following] == node[last])
    ended = np.where(cooled, time[following], time[last])
    still = ~has_next & (end - time[last] <= gap - step)
    return _Runs(node=node[starts], start=start, confirmed=confirmed, end=np.where(still, np.nan, ended), peak=peak)
