"""How many nodes a pool lacks, or has to spare, read from a recording.

Pods are placed and moved at will within their pool, as for the bound (`comparison.bound`): no eviction makes do with
fewer nodes, and rules, reaction time and pods that can't be cut into parts ask for more. A node that is added or
removed is of the pool's most common size and uses as much outside of pods that may move as such nodes do on average.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.recordings.recorded_usage import occupied_steps
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import HOUR_MINUTES, PoolCapacity
from rebalancer.replay.comparison.bound import Rooms, rooms_of
from rebalancer.strategies.interface.selection import BOUND_KINDS

HOUR_STEPS = round(HOUR_MINUTES * 60 / STEP_SECONDS)


def capacity_of(recording: Recording, pools: Sequence[str], high: Floats) -> tuple[PoolCapacity, ...]:
    """Of each pool in which nodes can be hot, by name. `pools` (nodes,): empty for none; `high` (nodes,) millicores
    over which a node is hot, NaN = never."""
    names = sorted({name for name, limit in zip(pools, high.tolist(), strict=True) if name and np.isfinite(limit)})
    if not names:
        return ()
    number = {name: at for at, name in enumerate(names)}
    group = np.array([number.get(name, -1) for name in pools], dtype=np.int64)
    found = zip(names, rooms_of(recording, high, group, groups=len(names)), strict=True)
    return tuple(_pool(recording, name, rooms, np.flatnonzero(group == number[name])) for name, rooms in found)


def _pool(recording: Recording, name: str, rooms: Rooms, members: Rows) -> PoolCapacity:
    """`members`: the pool's nodes, as the rows of `rooms`."""
    sizes, counts = np.unique(recording.nodes.cpu_capacity_millicores[members], return_counts=True)
    size = float(sizes[::-1][counts[::-1].argmax()])
    like = recording.nodes.cpu_capacity_millicores[members] == size
    there = np.isfinite(recording.usage[CPU].node[members])
    whole = _whole(recording, members, there)
    cool, full = (_mean(room[like], there[like], room.max(axis=0)) for room in (rooms.cool, rooms.full))
    short = rooms.bound().capacity
    count = int(there[like][:, whole].sum(axis=0).min()) if whole.any() else 0
    spare = np.array([count, _spare(rooms.cool.sum(axis=0) - rooms.movable, cool, whole)])
    by_requests = [count, *(_spare(left, one, whole) for left, one in _unrequested(recording, members, like, there))]
    return PoolCapacity(
        pool=name,
        nodes=count,
        node_millicores=size,
        missing=_missing(rooms, cool, full, short > 0),
        hot_node_minutes=float(short.sum()),
        short=_spans(recording.start, short),
        spare_by_usage=int(spare.min()),
        spare_by_requests=min(by_requests),
    )


def _whole(recording: Recording, members: Rows, there: Bools) -> Bools:
    """(steps,) whether the usage of every node is known that was there then."""
    begin = recording.start + STEP_SECONDS * np.arange(recording.steps)
    joined, left = recording.node_joined[members, None], recording.node_left[members, None]
    known: Bools = there | (begin < joined) | (begin + STEP_SECONDS > left)
    whole: Bools = np.all(known, axis=0) & np.any(there, axis=0)
    return whole


def _mean(room: Floats, there: Bools, most: Floats) -> Floats:
    """(steps,) of the nodes that are there, at most `most`; `most` where none is."""
    counts = there.sum(axis=0)
    mean = np.where(there, room, 0.0).sum(axis=0) / np.maximum(counts, 1)
    return np.where(counts > 0, np.minimum(mean, most), most)


def _missing(rooms: Rooms, cool: Floats, full: Floats, short: Bools) -> int | None:
    """The nodes with `cool` and `full` room (steps,) to be added so that no step is `short` of capacity; None where no
    number of them is enough."""
    if not short.any():
        return 0
    if (cool[short] <= 0).any():
        return None
    chosen = cool > 0
    rooms = Rooms(*(each[..., chosen] for each in rooms))

    def enough(added: int) -> bool:
        more = rooms._replace(
            full=np.vstack([rooms.full, np.tile(full[chosen], (added, 1))]),
            cool=np.vstack([rooms.cool, np.tile(cool[chosen], (added, 1))]),
        )
        return not more.bound().capacity.any()

    most = 1
    while not enough(most):
        most *= 2
    fewest = most // 2
    while most - fewest > 1:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if enough(middle) else (middle, most)
    return most


def _spare(left: Floats, one: Floats, whole: Bools) -> int:
    """Nodes of `one` (steps,) that `left` (steps,) holds at all times."""
    chosen = whole & (one > 0)
    return max(int(np.floor(left[chosen] / one[chosen] + 1e-9).min()), 0) if chosen.any() else 0


def _unrequested(recording: Recording, members: Rows, like: Bools, there: Bools) -> Iterator[tuple[Floats, Floats]]:
    """(steps,) of CPU, memory and pods: what requests leave free of the pool, and what pods of a node's own leave of a
    node like the most common one."""
    pods, nodes, templates = recording.pods, recording.nodes, recording.pod_templates
    chosen = np.flatnonzero(np.isin(pods.node, members))
    kinds = np.array([*(owner.kind in BOUND_KINDS for owner in recording.owners), False], dtype=np.bool_)
    bound = kinds[pods.owner[chosen]]
    first, end = occupied_steps(pods.bound[chosen], pods.ended[chosen], start=recording.start, steps=recording.steps)
    row = np.searchsorted(members, pods.node[chosen])
    used = {index: templates[index] for index in np.unique(pods.template[chosen]).tolist()}
    for allocatable, request in (
        (nodes.cpu_allocatable_millicores, {index: each.cpu_request_millicores for index, each in used.items()}),
        (nodes.memory_allocatable_bytes, {index: each.memory_request_bytes for index, each in used.items()}),
        (nodes.pods_allocatable, dict.fromkeys(used, 1.0)),
    ):
        amount = np.array([request[index] for index in pods.template[chosen].tolist()])
        taken = np.zeros((2, len(members), recording.steps + 1))
        np.add.at(taken, (bound.astype(np.int64), row, first), amount)
        np.subtract.at(taken, (bound.astype(np.int64), row, end), amount)
        of_all, of_node = taken.cumsum(axis=2)[:, :, :-1]
        free = np.where(there, allocatable[members][:, None] - of_node, 0.0)
        yield free.sum(axis=0) - of_all.sum(axis=0), _mean(free[like], there[like], free.max(axis=0))


def _spans(start: float, short: Floats) -> tuple[tuple[float, float], ...]:
    """Whole hours with a step that is short; hours in a row are one span."""
    hours = np.add.reduceat(short, np.arange(0, len(short), HOUR_STEPS)) > 0 if len(short) else np.zeros(0, np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hours.astype(np.int8), [0]])))
    seconds = HOUR_STEPS * STEP_SECONDS
    return tuple((start + begin * seconds, start + end * seconds) for begin, end in edges.reshape(-1, 2).tolist())
