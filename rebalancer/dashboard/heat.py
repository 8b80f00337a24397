"""The heat of pools: what cycles measured of their hottest nodes in the last hours, and what is forecast."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rebalancer.bootstrap.wiring.active import Active
from rebalancer.dashboard.nodes import NodeView, known
from rebalancer.dashboard.sources import Archive
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.resource_names import CPU
from rebalancer.model.records.cycles import PoolEviction, PoolMeasurement
from rebalancer.web.pages.overview import PoolHeat
from rebalancer.web.pages.views import NodeLine

HEAT_SECONDS = 6 * 3600.0
AHEAD_SECONDS = 3 * 3600.0
POOLS_AT_ONCE = 2
KEPT_SECONDS = 300.0
"""The usage history is read again so often: a day of 5,000 nodes takes a tenth of a second."""

Point = tuple[float, float | None]
"""(seconds since the epoch, share)."""


class MeasuredPools:
    """The measurements of the last HEAT_SECONDS, for any thread. A cycle's are written once, when it ends."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._lock = threading.Lock()
        self._known: dict[str, tuple[PoolMeasurement, ...]] = {}

    def latest(self, now: float) -> Sequence[PoolMeasurement]:
        """By the start of their cycles. Raises ConnectError."""
        since = now - HEAT_SECONDS
        with self._lock:
            had = self._known
        fresh: dict[str, list[PoolMeasurement]] = {}
        for each in self._archive.pool_measurements(since, known=had):
            fresh.setdefault(each.cycle, []).append(each)
        kept = {cycle: of for cycle, of in had.items() if of[0].at >= since}
        kept |= {cycle: tuple(of) for cycle, of in fresh.items()}
        with self._lock:
            self._known = kept
        return sorted((each for of in kept.values() for each in of), key=lambda each: (each.at, each.cycle))


class KeptPools:
    """What the usage history has of the pools' hottest nodes, in means of 5 minutes, for any thread."""

    def __init__(self, current: Callable[[], Active]) -> None:
        self._current = current
        self._lock = threading.Lock()
        self._made: tuple[float, Mapping[str, Sequence[Point]]] | None = None

    def before(self, view: NodeView, now: float) -> Mapping[str, Sequence[Point]]:
        """Pool -> points of the last HEAT_SECONDS; empty without a history. It may be KEPT_SECONDS old: cycles measure
        what is newer."""
        with self._lock:
            made = self._made
        if made is None or not 0 <= now - made[0] < KEPT_SECONDS:
            made = (now, self._read(view, now))
            with self._lock:
                self._made = made
        return made[1]

    def _read(self, view: NodeView, now: float) -> Mapping[str, Sequence[Point]]:
        forecast_loop, since = self._current().forecast_loop, now - HEAT_SECONDS
        out: dict[str, list[Point]] = {}
        if forecast_loop is None:
            return out
        for day in range(int(since // DAY_SECONDS), int(now // DAY_SECONDS) + 1):
            block = forecast_loop.keepers[CPU].nodes_of(day)
            if block is None:
                continue
            times = day * DAY_SECONDS + (np.arange(SLOTS) + 0.5) * STEP_SECONDS
            inside = (times >= since) & (times <= now)
            for pool, rows, room in _rows_by_pool(view, block[0]):
                highest = _highest(np.asarray(block[1][rows][:, inside] / room[:, None], dtype=np.float64))
                found = zip(times[inside].tolist(), highest.tolist(), strict=True)
                out.setdefault(pool, []).extend((at, share) for at, share in found if np.isfinite(share))
        return out


def _rows_by_pool(view: NodeView, names: Sequence[str]) -> Iterator[tuple[str, list[int], Floats]]:
    """(pool, rows of its nodes in `names`, their millicores)."""
    rows: dict[str, list[tuple[int, float]]] = {}
    for row, name in enumerate(names):
        line = view.by_name.get(name)
        if line is not None and line.capacity_millicores:
            rows.setdefault(line.pool, []).append((row, line.capacity_millicores))
    for pool, of in rows.items():
        yield pool, [row for row, _ in of], np.array([room for _, room in of])


def _highest(shares: Floats) -> Floats:
    """(steps,) of (nodes, steps): the highest known share, -inf where none is."""
    highest: Floats = np.where(np.isnan(shares), -np.inf, shares).max(axis=0)
    return highest


def heat_of_pools(
    view: NodeView,
    kept: Mapping[str, Sequence[Point]],
    measured: Sequence[PoolMeasurement],
    evictions: Sequence[PoolEviction],
    *,
    now: float,
) -> tuple[PoolHeat, ...]:
    """Of the POOLS_AT_ONCE pools whose hottest nodes are closest to their high, or highest over it. `kept` are their
    points from before the first cycle."""
    hottest: dict[str, NodeLine] = {}
    for line in view.lines:
        if line.pool and line.share is not None:
            other = hottest.get(line.pool)
            if other is None or line.share > (other.share or 0.0):
                hottest[line.pool] = line
    order = sorted(hottest.values(), key=lambda line: (-_closeness(line), line.pool))
    return tuple(_heat(view, line, kept, measured, evictions, now=now) for line in order[:POOLS_AT_ONCE])


def _closeness(line: NodeLine) -> float:
    return (line.share or 0.0) / (line.high or 1.0)


def _heat(
    view: NodeView,
    hottest: NodeLine,
    kept: Mapping[str, Sequence[Point]],
    measured: Sequence[PoolMeasurement],
    evictions: Sequence[PoolEviction],
    *,
    now: float,
) -> PoolHeat:
    of_pool = [each for each in measured if each.pool == hottest.pool]
    # the hottest of a few nodes, as a cycle for an alert evaluates them, is not that of the pool
    enough = max((each.nodes for each in of_pool), default=0) / 2
    since = now - HEAT_SECONDS
    cycles: list[Point] = [(each.at, each.hottest) for each in of_pool if each.nodes > enough]
    first = cycles[0][0] if cycles else now
    past = [*(point for point in kept.get(hottest.pool, ()) if since <= point[0] < first), *cycles]
    if view.measured_at is not None and view.measured_at > (past[-1][0] if past else 0.0):
        past.append((view.measured_at, hottest.share))
    return PoolHeat(
        pool=hottest.pool,
        high=hottest.high,
        target=hottest.target,
        past=tuple(past),
        ahead=_ahead(view, hottest.pool, now=now),
        evictions=tuple((each.at, f"{each.pod} from {each.node}") for each in evictions if each.pool == hottest.pool),
        now=now,
        since=since,
        until=now + AHEAD_SECONDS,
    )


def _ahead(view: NodeView, pool: str, *, now: float) -> tuple[Point, ...]:
    """The highest forecast share of the pool's nodes in each step from now on."""
    grid, starts_at = view.expected.ahead, view.expected.starts_at
    members = [line for line in view.lines if line.pool == pool and line.capacity_millicores and line.name in view.row]
    if grid is None or not members:
        return ()
    first = max(int((now - starts_at) // STEP_SECONDS), 0)
    last = max(int((now + AHEAD_SECONDS - starts_at) // STEP_SECONDS), 0)
    of_pool = grid[[view.row[line.name] for line in members], first:last]
    highest = _highest(of_pool / np.array([[line.capacity_millicores] for line in members]))
    return tuple((starts_at + (first + step) * STEP_SECONDS, known(share)) for step, share in enumerate(highest))
