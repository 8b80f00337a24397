"""RemovePodsViolatingInterPodAntiAffinity: pods that share a topology domain against required anti-affinity.

Either of two such pods of one namespace may be evicted. Pods with most conflicts are chosen first, so that few go; a
pod in conflict with a chosen one is its substitute, evicted only where the chosen one stays. Of pods that all exclude
each other (a service's own anti-affinity) all but one go.

Between namespaces only the pod that has the term may be evicted: a term that selects other namespaces must not evict
their pods. And only because of a pod that could be evicted itself: a bare pod can be bound to any node, again and
again, so it must not evict the pods whose terms select it.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding
from rebalancer.model.notation.arrays import Rows
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.plugins.affinity import Terms
from rebalancer.policy.schema.strategies.constraints import AntiAffinityArgs
from rebalancer.strategies.interface.selection import can_move, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

SUBSTITUTES_AT_MOST = 20
"""Substitutes of one pod in one cycle."""


@dataclass(slots=True)
class _Conflict:
    """Pods in one domain, by their part in one term. Chosen pods are removed from it."""

    where: str
    """The domain, as key=value."""
    holders: set[int] = field(default_factory=set)
    """Pods with the term that it doesn't select."""
    selected: set[int] = field(default_factory=set)
    """Selected pods without the term; where `foreign`, with it too."""
    both: set[int] = field(default_factory=set)
    foreign: bool = False
    """The holders are of one namespace, the selected pods of others. Only holders may be chosen."""

    @property
    def parts(self) -> tuple[set[int], set[int], set[int]]:
        return self.holders, self.selected, self.both

    @property
    def mutual(self) -> bool:
        """Every pod excludes every other."""
        return not (self.foreign or self.holders or self.selected)

    @property
    def choices(self) -> tuple[set[int], ...]:
        """The parts whose pods may be chosen."""
        return self.parts[:1] if self.foreign else self.parts

    def without(self, gone: Set[int] = frozenset()) -> "_Conflict":
        """The same between the other pods."""
        holders, selected, both = (part - gone for part in self.parts)
        return _Conflict(self.where, holders, selected, both, self.foreign)

    def against(self, pod: int) -> int:
        """Number of pods in conflict with a pod that may be chosen; 0 for another."""
        if self.foreign:
            return len(self.selected) if pod in self.holders else 0
        if pod in self.both:
            return len(self.holders) + len(self.selected) + len(self.both) - 1
        return len(self.both) + len(self.selected if pod in self.holders else self.holders)

    def against_part(self, part: set[int]) -> tuple[set[int], ...]:
        """The parts that a pod of `part` is in conflict with."""
        if part is self.both:
            return self.parts
        return self.both, self.selected if part is self.holders else self.holders

    def partners(self, pod: int) -> set[int]:
        """The pods in conflict with a pod."""
        if pod in self.both:
            return (self.holders | self.selected | self.both) - {pod}
        return self.both | (self.selected if pod in self.holders else self.holders)

    def instead_of(self, pod: int) -> set[int]:
        """The pods that may be chosen in place of a pod."""
        return set() if self.foreign and pod in self.holders else self.partners(pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Solves some conflicts: `wanted` of `among` go."""

    chosen: list[int]
    substitutes: list[int]
    """Substitutes, evicted where a chosen pod stays."""
    wanted: int
    among: list[int]
    reason: str


def find(view: StrategyView) -> Findings:
    """Findings by node; pods with most conflicts come first."""
    args = view.strategy.args
    assert isinstance(args, AntiAffinityArgs)
    snapshot = view.snapshot
    conflicts = list(_conflicts(snapshot))
    may_go = pods_in_scope(view, args)
    involved = sorted({pod for each in conflicts for part in each.parts for pod in part if may_go[pod]})
    if not involved:
        return Findings(findings=())
    cheapest = cheapest_first(snapshot, np.array(involved, dtype=np.int64)).tolist()
    tasks = _tasks(snapshot, conflicts, {pod: index for index, pod in enumerate(cheapest)})
    return Findings(findings=tuple(finding for task in tasks for finding in _findings(view, task)))


def _conflicts(snapshot: ClusterSnapshot) -> Iterator[_Conflict]:
    """One for each term and domain with pods in conflict. Terminating pods don't count."""
    board = Board(snapshot)
    pods = snapshot.pods
    there, starts = board.kinds.active(~pods.terminating)

    def members(kinds: set[int]) -> Rows:
        return np.concatenate([*(there[starts[kind] : starts[kind + 1]] for kind in sorted(kinds)), there[:0]])

    for key, holders, selected in Terms(board).required_anti():
        if not selected.weights:
            continue
        domains = board.nodes.domains(key)
        have, are = set(holders.weights), set(selected.weights)
        parts = [members(kinds) for kinds in (have - are, are - have, have & are)]
        at = [domains.at[pods.node[part]] for part in parts]
        held, chosen, both = (np.bincount(each, minlength=len(domains.values) + 1) for each in at)
        pairs = held * (chosen + both) + both * chosen + both * (both - 1) // 2
        pairs[-1] = 0  # nodes without the label share no domain
        found = {number: _Conflict(f"{key}={domains.values[number]}") for number in np.flatnonzero(pairs).tolist()}
        for position, (part, number_of) in enumerate(zip(parts, at, strict=True)):
            hit = pairs[number_of] > 0
            for pod, number in zip(part[hit].tolist(), number_of[hit].tolist(), strict=True):
                found[number].parts[position].add(pod)
        for each in found.values():
            yield from _by_namespace(snapshot, each)


def _by_namespace(snapshot: ClusterSnapshot, conflict: _Conflict) -> Iterator[_Conflict]:
    """The conflicts inside each namespace, and of each with the pods of others."""
    everyone = sorted(set().union(*conflict.parts))
    inside = groups(snapshot.pods.namespace, members=np.array(everyone, dtype=np.int64))
    spaces = [set(pods.tolist()) for pods in inside]
    if len(spaces) == 1:
        yield conflict
        return
    movable = {pod for pod, moves in zip(everyone, can_move(snapshot, everyone), strict=True) if moves}
    of_all = set(everyone)
    selected = movable & (conflict.selected | conflict.both)
    for space in spaces:
        own = conflict.without(of_all - space)
        if any(own.against(pod) for pod in space):
            yield own
        holders, others = movable & space & (conflict.holders | conflict.both), selected - space
        if holders and others:
            yield _Conflict(conflict.where, holders, others, foreign=True)


def _tasks(snapshot: ClusterSnapshot, conflicts: Sequence[_Conflict], rank: Mapping[int, int]) -> list[_Task]:
    """Tasks, pods with most conflicts first. `rank`: pods that may go, with their order."""
    chosen = _needed(conflicts, _chosen([each.without() for each in conflicts], rank))
    turn = {pod: at for at, pod in enumerate(chosen)}
    crowds: dict[frozenset[int], str] = {}
    for each in conflicts:
        if each.mutual:
            crowd = frozenset(each.both)
            crowds[crowd] = min(crowds.get(crowd, each.where), each.where)
    found: list[tuple[tuple[int, str], _Task]] = []
    for crowd, where in crowds.items():
        first = sorted(crowd & turn.keys(), key=turn.__getitem__)
        if first:
            task = _Task(
                chosen=first,
                substitutes=sorted(crowd & (rank.keys() - turn.keys()), key=rank.__getitem__),
                wanted=len(crowd) - 1,
                among=sorted(crowd),
                reason=f"{len(crowd)} pods share {where}, though by required anti-affinity each excludes the others",
            )
            found.append(((turn[first[0]], where), task))
    one_sided = _by_pod([each for each in conflicts if not each.mutual])
    for pod in chosen:
        mine = one_sided.get(pod, ())
        if left := [each for each in mine if each.against(pod)]:
            instead = set().union(*(each.instead_of(pod) for each in mine))
            found.append(((turn[pod], ""), _goes(snapshot, pod, left, instead, rank)))
        _take_out(pod, mine)
    return [task for _, task in sorted(found, key=lambda each: each[0])]


def _by_pod(conflicts: Sequence[_Conflict]) -> dict[int, list[_Conflict]]:
    out: dict[int, list[_Conflict]] = defaultdict(list)
    for each in conflicts:
        for part in each.parts:
            for pod in part:
                out[pod].append(each)
    return out


def _take_out(pod: int, conflicts: Iterable[_Conflict]) -> None:
    for each in conflicts:
        for part in each.parts:
            part.discard(pod)


def _chosen(conflicts: Sequence[_Conflict], rank: Mapping[int, int]) -> list[int]:
    """Pods whose eviction solves all conflicts, as far as pods in `rank` can: each time one with most remaining
    conflicts, of equal ones the first by rank. They are removed from `conflicts`."""
    of_pod = _by_pod(conflicts)
    # pods with the same parts in the same conflicts have equally many, so only the first is compared
    roles: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, each in enumerate(conflicts):
        for role, part in enumerate(each.choices):
            for pod in part & rank.keys():
                roles[pod].append((number, role))
    alike: dict[tuple[tuple[int, int], ...], list[int]] = defaultdict(list)
    for pod in sorted(roles, key=rank.__getitem__, reverse=True):
        alike[tuple(roles[pod])].append(pod)

    def entry(pods: list[int]) -> tuple[int, int, list[int]]:
        return -sum(each.against(pods[-1]) for each in of_pod[pods[-1]]), rank[pods[-1]], pods

    heap = [entry(pods) for pods in alike.values()]
    heapq.heapify(heap)
    out = []
    while heap:
        key, _, pods = heapq.heappop(heap)
        now = entry(pods)
        if now[0] != key:
            heapq.heappush(heap, now)
        elif key:
            pod = pods.pop()
            out.append(pod)
            _take_out(pod, of_pod[pod])
            if pods:
                heapq.heappush(heap, (key, rank[pods[-1]], pods))
    return out


def _needed(conflicts: Sequence[_Conflict], chosen: Sequence[int]) -> list[int]:
    """The chosen pods without which a conflict would remain: later choices can make earlier ones superfluous."""
    going = set(chosen)
    staying = [each.without(going) for each in conflicts]
    of_pod: dict[int, list[set[int]]] = defaultdict(list)
    for each, rest in zip(conflicts, staying, strict=True):
        for part, others in zip(each.parts, rest.parts, strict=True):
            for pod in part & going:
                of_pod[pod].append(others)
    against = {id(part): rest.against_part(part) for rest in staying for part in rest.choices}
    needed = []
    for pod in chosen:
        if any(any(against.get(id(part), ())) for part in of_pod[pod]):
            needed.append(pod)
        else:
            for part in of_pod[pod]:
                part.add(pod)
    return needed


def _goes(
    snapshot: ClusterSnapshot, pod: int, conflicts: Sequence[_Conflict], instead: set[int], rank: Mapping[int, int]
) -> _Task:
    """One pod goes, or else those of `instead`."""
    partners: set[int] = set().union(*(each.partners(pod) for each in conflicts))
    substitutes = heapq.nsmallest(SUBSTITUTES_AT_MOST, instead & rank.keys(), key=rank.__getitem__)
    many = f"{len(partners)} pods" if len(partners) > 1 else str(snapshot.pod(next(iter(partners))))
    where = min(each.where for each in conflicts)
    return _Task(
        chosen=[pod],
        substitutes=substitutes,
        wanted=1,
        # of two, one is enough, whichever it was
        among=[pod, *substitutes] if len(partners | instead) == 1 else [pod],
        reason=f"{snapshot.pod(pod)} shares {where} with {many}, which required anti-affinity forbids",
    )


def _findings(view: StrategyView, task: _Task) -> Iterator[Finding]:
    """One for each node; on a node where all pods can replace each other, substitutes are among its candidates."""
    node_of = view.snapshot.pods.node
    rounds = [task.chosen, task.substitutes]
    everyone, among = [*task.chosen, *task.substitutes], np.array(task.among, dtype=np.int32)
    if len({int(node_of[pod]) for pod in everyone}) == 1 and set(everyone) <= set(task.among):
        rounds = [everyone]
    for pods in rounds:
        on_node: dict[int, list[int]] = {}
        for pod in pods:
            on_node.setdefault(int(node_of[pod]), []).append(pod)
        for those in on_node.values():
            finding = some_pods(view, np.array(those), task.reason, wanted=task.wanted)
            yield replace(finding, among=among)
