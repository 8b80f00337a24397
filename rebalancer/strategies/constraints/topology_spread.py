"""RemovePodsViolatingTopologySpreadConstraint: pods in a domain that exceeds the maximum skew of their constraint.

Counted as kube-scheduler counts: all matching pods of the namespace, evictable or not; the domains of all nodes that
count by the constraint's policies, empty ones too. Only pods with the constraint are evicted, and no more than needed,
assuming that pending pods land in the emptiest domains.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.pods import PENDING
from rebalancer.model.cluster.scheduler import SchedulerProfile
from rebalancer.model.decisions.plan import Evenness, Finding, LandingRule
from rebalancer.model.notation.arrays import Bools, Floats, Ints, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.cluster.board import Board
from rebalancer.placement.plugins.spread import Constraint, EligibleNodes, compile_spread
from rebalancer.policy.schema.strategies.constraints import TopologySpreadArgs
from rebalancer.strategies.interface.selection import Places, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

HARD = "DoNotSchedule"
AT_A_TIME = 1000
"""Findings of one cycle, the worst first."""
AS_SCHEDULED = SchedulerProfile()
"""Any profile: a pod's own constraints are the same in all."""


@dataclass(slots=True, kw_only=True)
class _Group:
    """One distinct constraint, and the pods with it."""

    constraint: Constraint
    hard: bool
    carriers: list[int]
    """Numbers of the pods' kinds."""
    places: Bools
    """(nodes,) nodes that could take one of the pods."""
    there: Rows
    """Domains with a node that counts."""
    domain: Ints
    """(nodes,) index of the node's domain in `there`; -1 where the node doesn't count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Overfull:
    """A domain with too many pods of a group."""

    order: tuple[object, ...]
    pods: Rows
    """Evictable ones."""
    nodes: Rows
    """Nodes that count, one entry for each pod of the group."""
    given: int
    """Number of `among` to evict; 0 where no placement would repair the skew."""
    among: Ints
    said: str
    rule: LandingRule


def find(view: StrategyView) -> Findings:
    """One finding for each constraint and node of an overfull domain; the fullest domains first, in a domain the nodes
    with most of the group."""
    args = view.strategy.args
    assert isinstance(args, TopologySpreadArgs)
    snapshot = view.snapshot
    board = Board(snapshot)
    pods = _ByKind(view, args, board)
    overfull = [
        each
        for group in _groups(board, args.constraints, view.projection.is_closed)
        for each in _overfull(view, group, pods)
    ]
    found: list[Finding] = []
    skipped: dict[int, Refusal] = {}
    for each in sorted(overfull, key=lambda each: each.order):
        if not each.given:
            for node in np.unique(snapshot.pods.node[each.pods]).tolist():
                skipped.setdefault(node, Refusal.of(Reason.NO_TARGET_NODE, each.said))
        elif len(found) < AT_A_TIME:
            found += _findings(view, each)
    return Findings(findings=tuple(found[:AT_A_TIME]), skipped=skipped)


def _findings(view: StrategyView, overfull: _Overfull) -> list[Finding]:
    """One for each node, those with most of the group first."""
    names = view.snapshot.nodes.names
    of_group = np.bincount(overfull.nodes, minlength=len(names)).tolist()
    found = []
    for on_node in groups(view.snapshot.pods.node, members=overfull.pods):
        candidates = cheapest_first(view.snapshot, on_node)
        finding = some_pods(view, candidates, overfull.said, landing=overfull.rule, wanted=overfull.given)
        found.append(replace(finding, among=overfull.among))
    return sorted(found, key=lambda each: (-of_group[each.node], names[each.node]))


class _ByKind:
    """Pods in scope, nodes of the pods that stay, and number of pending pods, by kind."""

    def __init__(self, view: StrategyView, args: TopologySpreadArgs, board: Board) -> None:
        pods = view.snapshot.pods
        self._pods, self._starts = board.kinds.active(pods_in_scope(view, args))
        staying, self._staying_starts = board.kinds.active(~pods.terminating)
        self._nodes: Rows = pods.node[staying].astype(np.int64)
        waiting = np.flatnonzero((pods.node < 0) & (pods.phase == PENDING) & ~pods.terminating & ~pods.gated)
        self._waiting = np.bincount(board.kinds.numbers_of(waiting), minlength=len(board.kinds))

    def of(self, kinds: list[int]) -> Rows:
        """The pods of these kinds in scope."""
        return _joined(self._pods, self._starts, kinds)

    def nodes(self, kinds: list[int]) -> Rows:
        """The nodes of the pods of these kinds that aren't terminating, in scope or not; one entry for each pod."""
        return _joined(self._nodes, self._staying_starts, kinds)

    def waiting(self, kinds: list[int]) -> int:
        """Number of pending pods of these kinds."""
        return int(self._waiting[kinds].sum())


def _joined(rows: Rows, starts: list[int], kinds: list[int]) -> Rows:
    slices = [rows[starts[kind] : starts[kind + 1]] for kind in kinds]
    return slices[0] if len(slices) == 1 else np.concatenate([*slices, rows[:0]])


def _groups(board: Board, modes: tuple[str, ...], closed: Bools) -> Iterator[_Group]:
    """The distinct constraints of all pods: same namespace, selector, key, figures and nodes that count. `closed`
    (nodes,) as in `Projection`."""
    places, masks = Places(board.snapshot, closed), EligibleNodes(board)
    table: dict[object, _Group] = {}
    content: dict[int, bytes] = {}
    numbered: dict[tuple[str, int], tuple[Rows, Ints]] = {}
    for number in board.kinds.spreading:
        kind = board.kinds[number]
        template = board.kinds.template_of(kind)
        if not any(each.when_unsatisfiable in modes for each in template.topology_spread):
            continue
        spread = compile_spread(
            board,
            kind,
            template,
            AS_SCHEDULED,
            masks=masks,
            fits_affinity=places.rules.node_affinity(template),
            tolerated=places.rules.tolerated(template.tolerations),
        )
        takes = places.of(template)
        hard = [(True, each) for each in spread.hard if HARD in modes]
        soft = [(False, each) for each in spread.soft if len(modes) > 1 or HARD not in modes]
        for must, each in hard + soft:
            if number not in each.group.weights:
                continue  # its eviction would change nothing
            if id(each.eligible) not in content:
                content[id(each.eligible)] = (
                    each.eligible.tobytes()
                )  # `masks` keeps the array alive, so its id is unique
            key = (must, each.key, each.max_skew, each.min_domains, each.group.key, content[id(each.eligible)])
            group = table.get(key)
            if group is not None:
                group.carriers.append(number)
                group.places = group.places | takes if group.places is not takes else takes
                continue
            if (each.key, id(each.eligible)) not in numbered:
                numbered[each.key, id(each.eligible)] = _numbered(each)
            there, domain = numbered[each.key, id(each.eligible)]
            table[key] = _Group(constraint=each, hard=must, carriers=[number], places=takes, there=there, domain=domain)
    yield from table.values()


def _numbered(constraint: Constraint) -> tuple[Rows, Ints]:
    """`there` and `domain` of a group."""
    there = np.flatnonzero(constraint.there)
    compact = np.full(len(constraint.there), -1, dtype=np.int32)
    compact[there] = np.arange(len(there))
    return there, np.where(constraint.eligible, compact[constraint.domains.at], -1).astype(np.int32)


def _overfull(view: StrategyView, group: _Group, by_kind: _ByKind) -> Iterator[_Overfull]:
    """The overfull domains of one constraint; then the same as substitutes, for domains that can't give their part."""
    each, there, domain = group.constraint, group.there, group.domain
    kinds = list(each.group.weights)
    nodes = by_kind.nodes(kinds)
    nodes = nodes[domain[nodes] >= 0]
    count = np.bincount(domain[nodes], minlength=len(there)).astype(np.float64)
    enough = len(there) >= each.min_domains
    if not len(there) or count.max() - (count.min() if enough else 0.0) <= each.max_skew:
        return
    of_node = view.snapshot.pods.node
    pods = by_kind.of(group.carriers)
    pods = pods[domain[of_node[pods]] >= 0]
    spare = np.bincount(domain[of_node[pods]], minlength=len(there)).astype(np.float64)
    takes = np.bincount(domain[group.places & (domain >= 0)], minlength=len(there)) > 0
    count, given, after = _evened_out(
        count,
        spare,
        takes,
        waiting=by_kind.waiting(kinds),
        skew=each.max_skew,
        enough=enough,
        hard=group.hard,
    )
    least = float(count.min()) if enough else 0.0
    fewest = f"{least:g} elsewhere" if enough else f"{len(there)} of minDomains {each.min_domains} exist"
    rule = LandingRule(even=Evenness(domain=domain, count=count, skew=each.max_skew))
    over = count - least - each.max_skew
    of_pod = domain[of_node[pods]]
    everyone = pods[over[of_pod] > 0].astype(np.int32)
    total = int(given.sum())
    # where nothing helps, the domains that stay overfull are reported
    reported = over > 0 if total else after - (float(after.min()) if enough else 0.0) > each.max_skew
    for number in np.flatnonzero(reported & (spare > 0)).tolist():
        inside = pods[of_pod == number]
        names = view.snapshot.pods.names
        leader = min(inside.tolist(), key=names.__getitem__)
        value, whose = each.domains.values[there[number]], _whose(view, leader)
        first = _Overfull(
            order=(
                False,
                -over[number],
                each.key,
                value,
                whose,
                names[leader],
                each.max_skew,
                each.min_domains,
                group.hard,
            ),
            pods=inside,
            nodes=nodes,
            given=int(given[number]),
            among=inside.astype(np.int32),
            said=f"{whose} has {count[number]:g} pods in {each.key}={value}, {fewest}, maxSkew is {each.max_skew}",
            rule=rule,
        )
        if given[number] or not total:
            yield first
        if given[number] < spare[number] and total > given[number]:
            yield replace(first, order=(True, *first.order[1:]), given=total, among=everyone)


def _evened_out(
    count: Floats, spare: Floats, takes: Bools, *, waiting: int, skew: int, enough: bool, hard: bool
) -> tuple[Floats, NDArray[np.int64], Floats]:
    """(domains,) three times: pods with the pending ones placed, pods to give, pods afterwards.

    `spare` (domains,): evictable pods; `takes` (domains,): whether the domain has a node for them; `enough`: minDomains
    is met, otherwise kube-scheduler counts the emptiest as 0. The fullest gives to the emptiest until both are within
    the skew, as far as kube-scheduler permits.
    """
    count = count.copy()
    given = np.zeros(len(count), dtype=np.int64)
    after = count.copy()
    while takes.any():
        to = int(np.argmin(np.where(takes, after, np.inf)))
        least = after.min() if enough else 0.0
        if hard and after[to] + 1 - least > skew:
            break
        if waiting:
            waiting -= 1
            count[to] += 1
            after[to] += 1
            continue
        fullest = int(np.argmax(np.where(given < spare, after, -np.inf)))
        if given[fullest] >= spare[fullest] or after[fullest] - least <= skew or after[fullest] - after[to] < 2:
            break
        given[fullest] += 1
        after[fullest] -= 1
        after[to] += 1
    return count, given, after


def _whose(view: StrategyView, pod: int) -> str:
    """The service of a pod, or the pod where it has none."""
    snapshot = view.snapshot
    service = snapshot.service_of(int(snapshot.pods.owner[pod]))
    return str(service) if service is not None else str(snapshot.pod(pod))
