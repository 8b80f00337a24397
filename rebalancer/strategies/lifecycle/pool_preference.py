"""PoolPreference: pods go back to a better pool that has had room for them for long enough.

A node's room is as old as the oldest of the cycles in a row that saw it there, by requests. A node that was new, not
Ready, cordoned or about to go had none. kube-scheduler decides where a replacement lands: a pod moves only if that is
on such a node. Pods that fell back after their service was moved stay for a time that grows with each return of the
last day.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from rebalancer.constraints.pauses.backoff import backoff_seconds
from rebalancer.model.decisions.past import Past, RequestedSample
from rebalancer.model.decisions.plan import LandingRule
from rebalancer.model.notation import figures
from rebalancer.model.notation.arrays import Bools, Floats, Ints, Rows
from rebalancer.model.notation.figures import clock_time, counted
from rebalancer.model.reason import Reason, Refusal
from rebalancer.policy.schema.strategies.lifecycle import PoolPreference
from rebalancer.policy.schema.types import format_duration
from rebalancer.strategies.interface.requests import Requests
from rebalancer.strategies.interface.selection import (
    Places,
    by_names,
    cheapest_first,
    fills,
    groups,
    pods_in_scope,
    some_pods,
)
from rebalancer.strategies.interface.view import Findings, StrategyView

CLOCK_SLACK_SECONDS = 5.0
"""Greatest difference between the API server's clock and the ledger's, rounding to whole seconds included."""
EPS = 1e-6


def find(view: StrategyView) -> Findings:
    """For each node one finding for the pods that have room on the same nodes of better pools."""
    strategy, snapshot, pods = view.strategy, view.snapshot, view.snapshot.pods
    assert isinstance(strategy, PoolPreference)
    args, rank = strategy.args, np.append(_ranks(view, strategy.args.order), 0)  # -1, on no node, selects the last
    going = np.zeros(len(rank), dtype=np.bool_)
    going[list(view.projection.leaving)] = True
    behind = (rank > 0) & (rank < len(args.order)) & ~going
    able = pods_in_scope(view, args) & fills(snapshot) & behind[pods.node] & (pods.owner >= 0)
    if not able.any():
        return Findings(findings=())
    requests, returns = Requests(snapshot), _Returns(view)
    better = _BetterNodes(view, strategy, rank[:-1], requests)
    # the sets of nodes that pods may go to, each once, with its number
    targets: dict[bytes, tuple[int, Bools]] = {}
    target_of, stays = np.full(len(pods), -1, dtype=np.int32), dict[int, Refusal]()
    for group in groups(pods.template, rank[pods.node], members=np.flatnonzero(able)):
        only = better.of(group)
        if isinstance(only, Refusal):
            stays |= dict.fromkeys(group.tolist(), only)
        elif only is not None:
            target_of[group] = targets.setdefault(only.tobytes(), (len(targets), only))[0]
            barred = returns.barred(group)
            target_of[list(barred)] = -1
            stays |= barred
    landings = [(better.reason(only), LandingRule(only=only)) for _, only in targets.values()]
    findings = []
    for there in groups(pods.node, target_of, members=np.flatnonzero(target_of >= 0)):
        reason, landing = landings[int(target_of[there[0]])]
        findings.append(some_pods(view, cheapest_first(snapshot, there), reason, landing=landing))
    return Findings(findings=tuple(by_names(snapshot, findings)), stays=stays, notes=_notes(strategy, stays))


def _ranks(view: StrategyView, order: tuple[str, ...]) -> Ints:
    """(nodes,) place of the node's pool in the order; its length for other nodes."""
    places = {name: at for at, name in enumerate(order)}
    return np.array([places.get(name, len(order)) for name in view.node_pools.names], dtype=np.int32)


class _BetterNodes:
    """The nodes of better pools that have had room for pods for long enough. Pods with equal rules and requests have
    one answer."""

    def __init__(self, view: StrategyView, strategy: PoolPreference, rank: Ints, requests: Requests) -> None:
        closed = np.zeros(len(rank), dtype=np.bool_)
        closed[list(view.projection.closed)] = True
        self._snapshot, self._args, self._rank, self._requests = view.snapshot, strategy.args, rank, requests
        self._places, self._open = Places(view.snapshot, np.zeros(len(rank), dtype=np.bool_)), ~closed
        self._cool = ~view.base.hot
        chosen = np.flatnonzero(rank < len(strategy.args.order) - 1)
        self._room = _RoomAges(view, requests, chosen, gap=strategy.look_gap)
        self._known: dict[tuple[int, int, tuple[tuple[str, float], ...]], Bools | Refusal | None] = {}

    def of(self, group: Rows) -> Bools | Refusal | None:
        """(nodes,) those for pods of one template in pools of one rank, or why there are none; None where no node of a
        better pool admits them."""
        pods, args = self._snapshot.pods, self._args
        takes = self._places.of(self._snapshot.pod_templates[int(pods.template[group[0]])])
        here, asked = int(self._rank[pods.node[group[0]]]), self._largest(group)
        key = id(takes), here, tuple(sorted(asked.items()))  # `Places` keeps its masks
        if key not in self._known:
            better = takes & (self._rank < here)
            ages = np.where(better & self._open & self._cool, self._room.of(asked), -1.0)
            only = ages >= args.after_room_for
            self._known[key] = only if only.any() else self._refusal(better, ages) if better.any() else None
        return self._known[key]

    def reason(self, only: Bools) -> str:
        """Why pods go to these nodes."""
        pools = self._names(only)
        return f"pool {pools} has had room for {format_duration(self._args.after_room_for)} or longer"

    def _names(self, nodes: Bools) -> str:
        return " or ".join(self._args.order[at] for at in np.unique(self._rank[nodes]).tolist())

    def _largest(self, group: Rows) -> dict[str, float]:
        """Resource -> the most that one of the pods requests: one that was resized in place differs from its
        template."""
        asked = dict(self._requests.of(int(group[0])))
        for name in ("cpu", "memory"):
            if (most := float(self._requests.amount(name)[group].max())) > 0:
                asked[name] = most
        return asked

    def _refusal(self, better: Bools, ages: Floats) -> Refusal:
        pools, age = self._names(better), float(ages.max())
        if not (better & self._open).any():
            return Refusal.of(Reason.NO_BETTER_NODE, f"the nodes of pool {pools} are about to go, or may be removed")
        if age < 0:
            return Refusal.of(Reason.NO_BETTER_NODE, f"no node of pool {pools} has room for it")
        so_far = f"{figures.age(age)} of {format_duration(self._args.after_room_for)}"
        return Refusal.of(Reason.NO_BETTER_NODE, f"pool {pools} has had room for it for {so_far}")


class _RoomAges:
    """How long nodes have had room, by what was requested on them at earlier cycles and is now."""

    def __init__(self, view: StrategyView, requests: Requests, chosen: Rows, *, gap: float) -> None:
        """`chosen`: indices of the nodes that are asked about; others have none."""
        self._requests, self._chosen, nodes = requests, chosen, view.snapshot.nodes
        self._size, self._names = len(nodes), [nodes.names[node] for node in chosen.tolist()]
        self._looks: list[RequestedSample] = []
        """Newest first, up to the first longer gap."""
        before = view.now
        for sample in reversed((view.past or Past()).requested):
            if before - sample.at > gap:
                break
            self._looks.append(sample)
            before = sample.at
        self._ages = np.array([0.0, *(view.now - each.at for each in self._looks)])
        since = (nodes.created[chosen] - CLOCK_SLACK_SECONDS).tolist()
        there = [
            # an older node of the same name is another one
            [name in each.nodes and start <= each.at for name, start in zip(self._names, since, strict=True)]
            for each in self._looks
        ]
        self._there = np.array([[True] * len(chosen), *there], dtype=np.bool_)
        self._free: dict[str, Floats] = {}
        self._known: dict[tuple[tuple[str, float], ...], Floats] = {}

    def of(self, asked: Mapping[str, float]) -> Floats:
        """(nodes,) seconds for which a node has had room for a pod that requests this; -1 where it has none."""
        key = tuple(sorted(asked.items()))
        if key not in self._known:
            fits = self._there.copy()
            for name, amount in asked.items():
                fits &= self._left(name) >= amount - EPS
            looks = np.logical_and.accumulate(fits, axis=0).sum(axis=0)
            out = self._known[key] = np.full(self._size, -1.0)
            out[self._chosen] = np.where(looks > 0, self._ages[looks - 1], -1.0)
        return self._known[key]

    def _left(self, name: str) -> Floats:
        """(cycles, chosen nodes) what wasn't requested of a resource, now first; as now where a cycle didn't look."""
        if name not in self._free:
            now = dict(zip(self._names, self._requests.on_nodes(name)[self._chosen].tolist(), strict=True))
            earlier = [
                [each.nodes.get(node, {}).get(name, amount) for node, amount in now.items()] for each in self._looks
            ]
            self._free[name] = self._requests.allocatable(name)[self._chosen] - np.array([[*now.values()], *earlier])
        return self._free[name]


class _Returns:
    """How often services were moved to a better pool in the last day, and which pods fell back after that."""

    def __init__(self, view: StrategyView) -> None:
        self._view = view
        self._moves: dict[str, list[float]] = defaultdict(list)
        for each in (view.past or Past()).moves:
            if each.strategy == view.strategy.name:
                self._moves[each.owner_uid].append(each.reserved.planned_at)

    def barred(self, group: Rows) -> dict[int, Refusal]:
        """Pod -> until when it stays. Moves of a service within the backoff's first time are one return."""
        snapshot, now = self._view.snapshot, self._view.now
        out: dict[int, Refusal] = {}
        for pod in group.tolist() if self._moves else ():
            owner = int(snapshot.pods.owner[pod])
            moves = self._moves.get(snapshot.owners[int(snapshot.top_owner[owner])].uid, ())
            before = [at for at in moves if at <= snapshot.pods.created[pod] + CLOCK_SLACK_SECONDS]
            if not before:
                continue
            times = _rounds(before, self._view.backoff.initial)
            due = max(before) + backoff_seconds(self._view.backoff, times)
            if due > now:
                detail = f"{counted(times, 'return')} of its service within a day, next at {clock_time(due)}"
                out[pod] = Refusal.of(Reason.REPEATED_EVICTION, detail, next_at=due)
        return out


def _rounds(moves: Iterable[float], apart: float) -> int:
    """How many of the moves begin a round: that many seconds after the beginning of the one before."""
    count, began = 0, -math.inf
    for at in sorted(moves):
        if at >= began + apart:
            count, began = count + 1, at
    return count


def _notes(strategy: PoolPreference, stays: Mapping[int, Refusal]) -> tuple[str, ...]:
    back = sum(each.code is Reason.REPEATED_EVICTION for each in stays.values())
    waiting = len(stays) - back
    out = []
    if waiting:
        wanted = format_duration(strategy.args.after_room_for)
        out.append(f"{strategy.name}: no room for {wanted} in a better pool yet: {counted(waiting, 'pod')}")
    if back:
        out.append(f"{strategy.name}: fallen back after a return, left alone for a time: {counted(back, 'pod')}")
    return tuple(out)
