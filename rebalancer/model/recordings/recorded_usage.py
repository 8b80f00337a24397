"""Usage of a recording, cut from day blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS, DayBlock, Grid, block_units, slot_of
from rebalancer.model.notation.arrays import Bools, Floats
from rebalancer.model.recordings.recording import Offsets, RecordedUsage


def recorded_usage(
    days: Iterable[DayBlock],
    *,
    resource: str,
    start: float,
    steps: int,
    pods: Sequence[str],
    bound: Floats,
    ended: Floats,
    nodes: Sequence[str],
    absent: Bools | None = None,
) -> RecordedUsage:
    """Usage of `pods` (`namespace/name`, several may have one name, one after the other) and of `nodes`.

    `bound` and `ended` are (pods,) seconds since the epoch: of each pod the steps are kept in which it was there. Days
    in any order; slots of no day are NaN, and so are the steps of nodes in `absent`, (nodes, steps).
    """
    first, end = occupied_steps(bound, ended, start=start, steps=steps)
    offsets: Offsets = np.zeros(len(pods) + 1, dtype=np.int64)
    np.cumsum(end - first, out=offsets[1:])
    values: Grid = np.full(int(offsets[-1]), np.nan, dtype=np.float32)
    node_values: Grid = np.full((len(nodes), steps), np.nan, dtype=np.float32)
    for block in days:
        # step of the recording that the day's first slot is; negative where the day began before it
        shift = round((block.day * DAY_SECONDS - start) / STEP_SECONDS)
        low, high = max(shift, 0), min(shift + SLOTS, steps)
        if low >= high:
            continue
        rows, found = block.node_row, block.node_millicores
        here = [(at, row) for at, name in enumerate(nodes) if (row := rows.get(name)) is not None]
        if here:
            into, of = (np.array(each) for each in zip(*here, strict=True))
            node_values[into, low:high] = found[of, low - shift : high - shift]
        pod_rows, of_pods = block.pod_row, block.pod_millicores
        begin, until = np.maximum(first, low), np.minimum(end, high)
        at = offsets[:-1] + begin - first
        there = np.flatnonzero(begin < until)
        for pod, a, b, into_at in zip(
            there.tolist(), begin[there].tolist(), until[there].tolist(), at[there].tolist(), strict=True
        ):
            pod_row = pod_rows.get(pods[pod])
            if pod_row is not None:
                values[into_at : into_at + b - a] = of_pods[pod_row, a - shift : b - shift]
    if absent is not None:
        node_values[absent] = np.nan
    scale = np.float32(1.0 / block_units(resource))
    if scale != 1.0:
        values *= scale
        node_values *= scale
    return RecordedUsage(pod_values=values, pod_start=offsets, pod_first=first.astype(np.int32), node=node_values)


def occupied_steps(bound: Floats, ended: Floats, *, start: float, steps: int) -> tuple[Offsets, Offsets]:
    """(pods,) the first step in which each pod was on its node, and the step after the last; equal for none."""
    with np.errstate(invalid="ignore"):
        first = np.clip(np.floor((bound - start) / STEP_SECONDS), 0, steps)
        end = np.clip(np.ceil((ended - start) / STEP_SECONDS), 0, steps)
    first = np.where(np.isfinite(bound) | (bound == -np.inf), first, steps).astype(np.int64)
    return first, np.maximum(end.astype(np.int64), first)


def days_before(days: Iterable[DayBlock], start: float, *, most: int) -> tuple[DayBlock, ...]:
    """At most so many days before that of `start`, and of its own what was before it."""
    first, slot = slot_of(start)
    out = []
    for block in days:
        if first - most <= block.day < first:
            out.append(block)
        elif block.day == first and slot > 0:
            pods, nodes = block.pod_millicores.copy(), block.node_millicores.copy()
            pods[:, slot:], nodes[:, slot:] = np.nan, np.nan
            filled = min(slot, block.filled)
            out.append(replace(block, pod_millicores=pods, node_millicores=nodes, complete=False, filled=filled))
    return tuple(out)
