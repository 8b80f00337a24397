"""Ahead of a peak: the nodes that will be hot, and the latest start of the relief of each.

The start is as late as possible: later forecasts are better, and a move for a false alarm is harm. Between the deadline
and the time when the node would be hot lie the drain and start-up of the slowest candidate and the policy's lead time.
Change windows restrict when a pod may be evicted: the start is the latest time up to the deadline at which the pods
with open windows relieve the node enough.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.constraints.moves.scopes import service_limits
from rebalancer.constraints.moves.windows import Outlook, Windowed, next_opening
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.plan import MIN_RELIEF
from rebalancer.model.measured.peaks import Peaks
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.figures import clock_time, percent
from rebalancer.model.notation.resource_names import CPU
from rebalancer.planner.landings.targets import ROUNDING
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools, NodeThresholds
from rebalancer.policy.schema.limits import resolve
from rebalancer.policy.schema.schedule import DAY_SECONDS, Instants
from rebalancer.policy.schema.windows import SEARCH_DAYS, Window

BEFORE_CLOSE_SECONDS = 60.0
"""Least time between the start of a cycle and the close of a window, however short the policy's lead time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedHotNode:
    """A node that is predicted to become hot. Shares are of its capacity, instants in seconds since the epoch."""

    node: int
    node_name: str
    pool: str
    peak_share: float
    peak_at: float
    hot_from: float
    """Start of the first step over `high`; for a node that is predicted over it already, its peak."""
    over_from: float
    """Start of the first step over `high`, also where that has passed."""
    made_at: float
    """When the forecast was made, seconds since the epoch."""
    high: float
    target: float
    start_by: float | None
    """The latest start; None where no window opens in time, or no pod that would help may be moved."""
    start_why: str
    """Reason of `start_by`."""
    resource: str = CPU

    @property
    def why(self) -> str:
        """One sentence with the numbers."""
        return self.sentence(self.peak_share, self.peak_at, self.over_from, self.made_at)

    def sentence(self, peak_share: float, peak_at: float, over_from: float, now: float) -> str:
        """The same with the figures of a later snapshot."""
        of = "" if self.resource == CPU else f"{self.resource} "
        since = "already" if over_from <= now else f"from {clock_time(over_from)}"
        return (
            f"{of}peak {percent(peak_share)} expected at {clock_time(peak_at)}, over {percent(self.high)} {since}; "
            f"{self.start_why}"
        )

    def due(self, now: float, every: float) -> bool:
        """Whether the relief must start before the next forecast, `every` seconds after this one."""
        return self.start_by is not None and self.start_by - every <= now < self.hot_from


def predicted_hot_nodes(
    *,
    snapshot: ClusterSnapshot,
    peaks: Peaks,
    policy: RebalancerPolicy,
    node_pools: NodePools,
    admission: EvictionAdmission,
    start_up: Callable[[str], float],
    now: float,
    resource: str = CPU,
    room: Floats | None = None,
) -> list[PredictedHotNode]:
    """The Ready nodes whose peak is still to come at `now` (seconds since the epoch), and over `high`, within the
    policy's horizon: the soonest start first, then by name; those without a start come last.

    `start_up` gives the seconds that a candidate's service (`namespace/name`) usually takes to be Ready. `peaks` are of
    `resource`, and `room` (nodes,) is the whole of each node in it; None: CPU.
    """
    room = snapshot.nodes.cpu_capacity_millicores if room is None else room
    high, target, _ = _thresholds(peaks.node_millicores / room, policy, node_pools, resource)
    over_from = peaks.first_over(high * room)
    # predicted over it already, with the peak still to come: there is time until the peak
    hot_from = np.where((over_from <= now) & (peaks.node_at > now), peaks.node_at, over_from)
    ahead = (hot_from > now) & (hot_from <= now + policy.forecast.horizon)
    nodes = np.flatnonzero(ahead & snapshot.nodes.ready)
    if not len(nodes):
        return []
    search = _StartSearch(
        snapshot=snapshot, peaks=peaks, policy=policy, admission=admission, start_up=start_up, now=now
    )
    found = []
    for node in nodes.tolist():
        pool, peak_at = node_pools.names[node], float(peaks.node_at[node])
        share, top = float(peaks.node_millicores[node] / room[node]), float(high[node])
        first = float(hot_from[node])
        start = search.start(node, pool=pool, excess=float((share - target[node]) * room[node]), hot_from=first)
        each = PredictedHotNode(
            node=node,
            node_name=snapshot.nodes.names[node],
            pool=pool,
            peak_share=share,
            peak_at=peak_at,
            hot_from=first,
            over_from=float(over_from[node]),
            made_at=now,
            high=top,
            target=float(target[node]),
            start_by=start.at,
            resource=resource,
            start_why=start.why,
        )
        found.append(each)
    return sorted(found, key=_order)


def first_starts(of_resources: Sequence[Sequence[PredictedHotNode]]) -> list[PredictedHotNode]:
    """One of each node: the soonest start of all resources, in the order of `predicted_hot_nodes`."""
    if len(of_resources) == 1:
        return list(of_resources[0])
    found: dict[int, PredictedHotNode] = {}
    for each in sorted((each for some in of_resources for each in some), key=_order):
        found.setdefault(each.node, each)
    return list(found.values())


def _order(each: PredictedHotNode) -> tuple[float, str]:
    return (math.inf if each.start_by is None else each.start_by, each.node_name)


def _thresholds(peak_shares: Floats, policy: RebalancerPolicy, node_pools: NodePools, resource: str) -> NodeThresholds:
    """Of the pools in which a strategy evaluates real usage."""
    cooling = [each for each in policy.strategies if each.by_cpu]
    pools = [
        index
        for index, pool in enumerate(node_pools.pools)
        if any(each.pools is None or pool.name in each.pools for each in cooling)
    ]
    if resource != CPU:
        return node_pools.resource_thresholds(resource, pools)
    return node_pools.thresholds(peak_shares, pools)


def _changes(window: Window, *, opens: bool) -> str:
    """Text of a window's opening (or closing) for moves."""
    if window.kind == "Allow":
        return f"the window '{window.shown}' {'opens' if opens else 'closes'}"
    return f"the deny window '{window.shown}' {'ends' if opens else 'begins'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    at: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """The pods of one node that may be evicted while their windows are open."""

    relief: Mapping[Windowed, float]
    """Windows -> millicores of the pods with these windows."""
    service: Mapping[Windowed, str]
    """Windows -> one of the services, for the message."""
    takes: float
    """Seconds until the slowest pod has terminated and its replacement is Ready."""
    rounds: int
    """Least number of cycles, given the limit of replacements in flight for a service."""


class _StartSearch:
    """Search for the latest starts of all nodes."""

    def __init__(
        self,
        *,
        snapshot: ClusterSnapshot,
        peaks: Peaks,
        policy: RebalancerPolicy,
        admission: EvictionAdmission,
        start_up: Callable[[str], float],
        now: float,
    ) -> None:
        self._snapshot, self._peaks, self._admission, self._now = snapshot, peaks, admission, now
        self._start_up = start_up
        self._next_opening = cache(lambda of: next_opening(admission.windows, of, now=now))
        self._policy, self._limits = policy, policy.limits
        self._cooldowns = policy.safety.cooldowns
        self._every = policy.forecast.interval
        self._margin = policy.safety.in_flight.margin
        self._lead = policy.forecast.lead_time
        self._before_close = max(self._lead, BEFORE_CLOSE_SECONDS)
        # far behind the horizon, so that a span cut there doesn't look closed before a deadline; the next opening after
        # a missed deadline mostly lies in it too
        self._outlook = Outlook(admission.windows, now=now, end=now + SEARCH_DAYS[0] * DAY_SECONDS)

    def start(self, node: int, *, pool: str, excess: float, hot_from: float) -> _Start:
        """The latest start for a node whose peak is `excess` millicores over its target."""
        candidates = self._candidates(node, pool=pool, excess=excess)
        if not candidates.relief:
            return _Start(at=None, why="nothing on it may be moved that would help")
        deadline = hot_from - candidates.takes - self._margin - self._lead - self._earlier(candidates)
        in_time = self._in_time(candidates, excess=excess, deadline=deadline)
        return in_time or self._afterwards(candidates, deadline=deadline, hot_from=hot_from)

    def _candidates(self, node: int, *, pool: str, excess: float) -> _Candidates:
        relief: dict[Windowed, float] = {}
        service: dict[Windowed, str] = {}
        takes = 0.0
        of_service: dict[str, list[float]] = {}
        at_once: dict[str, int] = {}
        on_it = self._snapshot.pods_on(node)
        reliefs = self._peaks.relief_millicores[on_it]
        # NaN compares false; the planner applies the same minimum
        for index, each in zip(on_it.tolist(), reliefs.tolist(), strict=True):
            if not each >= MIN_RELIEF * excess:
                continue
            pod = self._snapshot.pod(index)
            if self._admission.protected(pod, pool=pool) is not None:
                continue
            of = Windowed(pool, self._admission.traits(pod).level, self._admission.own_windows(pod))
            relief[of] = relief.get(of, 0.0) + each
            name = str(pod.service)
            service.setdefault(of, name)
            takes = max(takes, pod.template.grace_seconds + self._start_up(name))
            of_service.setdefault(name, []).append(each)
            at_once[name] = self._at_once(pod)
        rounds = rounds_needed(of_service, at_once, excess=excess, per_round=self._limits.per_cycle)
        return _Candidates(relief=relief, service=service, takes=takes, rounds=rounds)

    def _at_once(self, pod: Pod) -> int:
        limits = service_limits(self._policy, self._admission.traits(pod).identity)
        if limits.in_flight is None:
            return self._limits.per_cycle
        desired, _ = self._snapshot.replicas(int(self._snapshot.pods.owner[pod.index]))
        return max(resolve(limits.in_flight, desired, limits.in_flight_at_least), 1)

    def _earlier(self, candidates: _Candidates) -> float:
        """Seconds of the rounds before the last. A round starts after a forecast, when those of the round before
        have landed and no cooldown holds."""
        cooldowns = self._cooldowns
        each = max(self._every, candidates.takes, cooldowns.node, cooldowns.service, cooldowns.service_node)
        return (candidates.rounds - 1) * each

    def _moments(self, of: Windowed, earlier: float) -> tuple[Instants, Instants]:
        """(from, until) when a move may begin, both included: it ends some time before the windows close, where they
        are open for so long."""
        begins, ends = self._outlook.open_spans(of)
        return begins, np.maximum(begins, ends - self._before_close - earlier)

    def _in_time(self, candidates: _Candidates, *, excess: float, deadline: float) -> _Start | None:
        """The latest start up to the deadline with enough relief, else with the most; None where no window is open."""
        groups = []
        for of, relief in candidates.relief.items():
            begins, until = self._moments(of, self._earlier(candidates))
            before = begins <= deadline
            groups.append((of, relief, begins[before], np.minimum(until[before], deadline)))
        # the possible relief falls only where a span ends
        times = np.unique(np.concatenate([until for _, _, _, until in groups]))
        if not len(times):
            return None
        offered = np.zeros(len(times))
        for _, relief, begins, until in groups:
            inside = np.searchsorted(begins, times, "right") > np.searchsorted(until, times, "left")
            offered += np.where(inside, relief, 0.0)
        wanted = min(excess, float(offered.max())) * (1 - ROUNDING)
        chosen = int(np.flatnonzero(offered >= wanted)[-1])
        at, share = float(times[chosen]), float(offered[chosen]) / excess
        short = "" if share >= 1 - ROUNDING else f"; only {math.floor(share * 100)}% of the excess may be moved then"
        if at >= deadline:
            return _Start(at=at, why=f"to be relieved by {clock_time(at)}{short}")
        of = _largest([of for of, _, _, until in groups if at in until], candidates.relief)
        begins, ends = self._outlook.open_spans(of)
        closes = float(ends[np.searchsorted(begins, at, "right") - 1])
        window = self._outlook.decided_by(of, closes, opens=False)
        ends_it = _changes(window, opens=False)
        why = f"to be relieved by {clock_time(at)}, before {ends_it} at {clock_time(closes)}{short}"
        return _Start(at=at, why=why)

    def _afterwards(self, candidates: _Candidates, *, deadline: float, hot_from: float) -> _Start:
        """The first possible start after the deadline; none where the node is hot by then."""
        opening = {of: float(begins[0]) for of in candidates.relief if len(begins := self._outlook.open_spans(of)[0])}
        at = min(opening.values(), default=math.inf)
        if at <= self._now:
            return _Start(at=at, why=f"late: it should have begun by {clock_time(deadline)}")
        if math.isinf(at):
            return self._far_off(candidates)
        of = _largest([of for of, first in opening.items() if first == at], candidates.relief)
        window = self._outlook.decided_by(of, at, opens=True)
        if at >= hot_from:
            return self._too_late(at, window)
        opens = _changes(window, opens=True)
        why = f"late: it should begin by {clock_time(deadline)}, but {opens} at {clock_time(at)}"
        return _Start(at=at, why=why)

    def _far_off(self, candidates: _Candidates) -> _Start:
        """The result where no window opens for days."""
        of = _largest(list(candidates.relief), candidates.relief)
        found = self._next_opening(of)
        if found is not None:
            return self._too_late(*found)
        broken = (
            of.annotation is not None and self._admission.windows.state_of_service(of.annotation, now=self._now).broken
        )
        what = "can't be understood" if broken else "don't open within 400 days"
        return _Start(at=None, why=f"no window opens in time: those of {candidates.service[of]} {what}")

    def _too_late(self, at: float, window: Window) -> _Start:
        return _Start(at=None, why=f"no window opens in time: {_changes(window, opens=True)} at {clock_time(at)}")


def rounds_needed(
    of_service: Mapping[str, list[float]], at_once: Mapping[str, int], *, excess: float, per_round: int
) -> int:
    """Number of rounds that relieve `excess`, when each takes the largest pods that may be evicted at once."""
    left = {name: sorted(each, reverse=True) for name, each in of_service.items()}
    rounds, relieved = 0, 0.0
    while relieved < excess * (1 - ROUNDING) and any(left.values()):
        rounds += 1
        may = [(each, name) for name, pods in left.items() for each in pods[: at_once[name]]]
        for each, name in sorted(may, reverse=True)[:per_round]:
            relieved += each
            left[name].remove(each)
    return max(rounds, 1)


def _largest(among: Sequence[Windowed], relief: Mapping[Windowed, float]) -> Windowed:
    """The windows with the most relief; ties by name."""
    return max(among, key=lambda of: (relief[of], of.level, of.annotation or ""))
