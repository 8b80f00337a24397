"""Selection of nodes and pods for strategies, and findings about single pods."""

from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.annotations import opts_out, run_by_kubelet
from rebalancer.model.cluster.match import selector_matches
from rebalancer.model.cluster.objects import QOS_RANK, PodTemplate
from rebalancer.model.cluster.pods import PHASES
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding, Goal, LandingRule
from rebalancer.model.notation import figures
from rebalancer.model.notation.arrays import Bools, Rows
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.cluster.nodes import NodeTable
from rebalancer.placement.plugins.node_rules import StaticFilter
from rebalancer.policy.schema.strategies.base import PodArgs
from rebalancer.strategies.interface.loads import gone
from rebalancer.strategies.interface.view import StrategyView

ANYWHERE = LandingRule()
MANY = 500

BOUND_KINDS = ("DaemonSet", "Node")
"""Kinds of owners whose pods are bound to their node."""


def nodes_in_scope(view: StrategyView) -> Bools:
    """(nodes,) nodes of the strategy's pools, within `only`."""
    mask: Bools = view.in_chosen_pools
    if view.only is not None:
        asked = np.zeros(len(mask), dtype=np.bool_)
        asked[list(view.only)] = True
        mask &= asked
    return mask


def pods_in_scope(view: StrategyView, args: PodArgs) -> Bools:
    """(pods,) pods on those nodes that `args` choose, not terminating; finished ones included."""
    pods = view.snapshot.pods
    on_nodes = np.append(nodes_in_scope(view), False)  # -1, on no node, selects the last
    return on_nodes[pods.node] & ~pods.terminating & chosen_pods(view.snapshot, args)


def chosen_pods(snapshot: ClusterSnapshot, args: PodArgs) -> Bools:
    """(pods,) pods that `args` choose by namespace and labels, wherever they are."""
    include, exclude = args.namespaces.include, args.namespaces.exclude
    inside = np.fromiter(
        (
            any(fnmatchcase(name, glob) for glob in include) and not any(fnmatchcase(name, glob) for glob in exclude)
            for name in snapshot.namespaces
        ),
        np.bool_,
        len(snapshot.namespaces),
    )
    mask: Bools = inside[snapshot.pods.namespace] if len(inside) else np.zeros(len(snapshot.pods), dtype=np.bool_)
    if not args.label_selector.is_empty:
        selector, templates = args.label_selector.compiled(), snapshot.pod_templates
        selected = np.zeros(len(templates), dtype=np.bool_)
        for template in np.unique(snapshot.pods.template[mask]).tolist():
            selected[template] = selector_matches(selector, templates.outline(template).labels)
        mask &= selected[snapshot.pods.template]
    return mask


def settling(view: StrategyView) -> dict[int, Refusal]:
    """Node index -> how long it still waits: a whole rate window must lie behind its last eviction."""
    out: dict[int, Refusal] = {}
    # the latest move last: its waiting time counts
    for move in sorted(gone(view.snapshot, view.recent, leaving=True), key=lambda each: each.at):
        node = view.snapshot.node_index.get(move.node)
        age = view.now - move.at
        # the ledger's clock may be a little ahead; a move far in the future is dated by another clock
        if node is not None and abs(age) < view.usage.window_seconds:
            waits = figures.age(view.usage.window_seconds - max(age, 0.0))
            out[node] = Refusal.of(Reason.SETTLING, f"{waits} to go", next_at=move.at + view.usage.window_seconds)
    return out


def groups(*keys: NDArray[np.int32], members: Rows) -> Iterator[Rows]:
    """Groups of members (indices into the keys' columns) with equal keys, by ascending keys, in their order."""
    if not len(members):
        return
    order = np.lexsort([key[members] for key in reversed(keys)])
    ranked = members[order]
    differs = np.logical_or.reduce([np.diff(key[ranked]) != 0 for key in keys])
    starts = [0, *(np.flatnonzero(differs) + 1).tolist(), len(ranked)]
    for first, end in pairwise(starts):
        yield ranked[first:end]


def one_pod(
    view: StrategyView, pod: int, reason: str, *, landing: LandingRule | None = None, broken: bool = False
) -> Finding:
    """A finding to evict one pod."""
    return some_pods(view, np.array([pod]), reason, landing=landing, broken=broken)


def some_pods(
    view: StrategyView,
    pods: Rows,
    reason: str,
    *,
    wanted: int | None = None,
    recurs: bool = False,
    landing: LandingRule | None = None,
    broken: bool = False,
) -> Finding:
    """A finding to evict pods of one node, best first."""
    node = int(view.snapshot.pods.node[pods[0]])
    return Finding(
        strategy=view.strategy.name,
        node=node,
        pool=view.node_pools.names[node],
        reason=reason,
        candidates=pods.astype(np.int32),
        goal=Goal.REMOVE,
        wanted=wanted,
        recurs=recurs,
        landing=landing or ANYWHERE,
        broken=broken,
    )


def by_name(snapshot: ClusterSnapshot, pods: Rows) -> Rows:
    """The pods by namespace and name, independent of the order in which they were listed."""
    names, spaces, space = snapshot.pods.names, snapshot.namespaces, snapshot.pods.namespace
    if len(pods) < MANY:
        few = sorted(pods.tolist(), key=lambda pod: (spaces[space[pod]], names[pod]))
        return np.array(few, dtype=np.int64)
    named = np.array(sorted(pods.tolist(), key=names.__getitem__), dtype=np.int64)
    # then stably by namespace: comparing pairs would take three times as long
    rank = np.argsort(np.argsort(np.array(spaces)))
    many: Rows = named[np.argsort(rank[space[named]], kind="stable")]
    return many


def cheapest_first(snapshot: ClusterSnapshot, pods: Rows, *, by_qos: bool = False) -> Rows:
    """Lowest priority first, then with `by_qos` BestEffort before Burstable, then the youngest, then by name."""
    if len(pods) < 2:
        return pods
    ranked, columns = by_name(snapshot, pods), snapshot.pods
    keys = [-columns.created[ranked], columns.priority[ranked]]
    if by_qos:
        templates = [snapshot.pod_templates[template] for template in columns.template[ranked].tolist()]
        keys.insert(1, np.array([QOS_RANK.get(template.qos, 2) for template in templates]))
    order: Rows = ranked[np.lexsort(keys)]
    return order


def by_node(snapshot: ClusterSnapshot, finding: Finding) -> tuple[str, str, str]:
    """Sort key of a finding: names of its node, and of its first candidate's namespace and pod."""
    pods, first = snapshot.pods, int(finding.candidates[0])
    return snapshot.nodes.names[finding.node], snapshot.namespaces[pods.namespace[first]], pods.names[first]


def by_names(
    snapshot: ClusterSnapshot, findings: Sequence[Finding], most_first: Sequence[float] | None = None
) -> list[Finding]:
    """Findings in the order of `by_node`, at once for many. `most_first` (findings,): larger ones come first, whatever
    their names."""
    pods = snapshot.pods
    first = [int(each.candidates[0]) for each in findings]
    node_names = map(snapshot.nodes.names.__getitem__, [each.node for each in findings])
    spaces = map(snapshot.namespaces.__getitem__, pods.namespace[first].tolist())
    names = map(pods.names.__getitem__, first)
    if most_first is None:
        keys: list[tuple[object, ...]] = list(zip(node_names, spaces, names, strict=True))
    else:
        keys = list(zip([-each for each in most_first], node_names, spaces, names, strict=True))
    return [findings[at] for at in sorted(range(len(keys)), key=keys.__getitem__)]


def can_move(snapshot: ClusterSnapshot, pods: Sequence[int]) -> list[bool]:
    """Of each pod, whether an eviction would bring it elsewhere by what its creator wrote: it has a controller, is not
    bound to its node, and is not opted out. A pod that can't move gives no reason to move pods of other namespaces."""
    columns, templates = snapshot.pods, snapshot.pod_templates
    owners = [snapshot.owners[owner].kind if owner >= 0 else "Pod" for owner in columns.owner[list(pods)].tolist()]
    stays = {
        template: run_by_kubelet(notes := templates[template].annotations)
        or opts_out(notes, templates[template].labels)
        for template in set(columns.template[list(pods)].tolist())
    }
    return [
        kind not in ("Pod", *BOUND_KINDS) and not stays[int(columns.template[pod])]
        for kind, pod in zip(owners, pods, strict=True)
    ]


# ---- pods by their state


def in_states(snapshot: ClusterSnapshot, states: Collection[str], *, init_containers: bool) -> Bools:
    """(pods,) pods with one of `states`: phase, status reason, or reason of a waiting or terminated container."""
    phase = np.array([name in states for name in PHASES], dtype=np.bool_)
    out: Bools = phase[snapshot.pods.phase] | with_reasons(snapshot, states, init_containers=init_containers)
    return out


def with_reasons(snapshot: ClusterSnapshot, reasons: Collection[str], *, init_containers: bool) -> Bools:
    """(pods,) pods with one of `reasons`, of the pod or of a container."""
    said = [
        status.reason in reasons
        or any(each in reasons for each in (*status.containers, *(status.init_containers if init_containers else ())))
        for status in snapshot.statuses
    ]
    return np.array(said, dtype=np.bool_)[snapshot.pods.status]


def with_exit_codes(snapshot: ClusterSnapshot, codes: Collection[int], *, init_containers: bool) -> Bools:
    """(pods,) pods with a container that exited with one of `codes`."""
    said = [
        any(each in codes for each in (*status.exit_codes, *(status.init_exit_codes if init_containers else ())))
        for status in snapshot.statuses
    ]
    return np.array(said, dtype=np.bool_)[snapshot.pods.status]


# ---- nodes to drain, and nodes that take pods


def fills(snapshot: ClusterSnapshot) -> Bools:
    """(pods,) pods that keep their node from being drained: bound, not finished, no DaemonSet, mirror or static pods.
    Terminating pods are included."""
    bound = np.array([*(owner.kind in BOUND_KINDS for owner in snapshot.owners), False], dtype=np.bool_)
    pods = snapshot.pods
    out: Bools = snapshot.active & ~bound[pods.owner]  # -1, without an owner, selects the last
    # only for pods without an owner: decoding every template is slow
    ownerless = np.flatnonzero(out & (pods.owner < 0))
    for template in np.unique(pods.template[ownerless]).tolist():
        if run_by_kubelet(snapshot.pod_templates[template].annotations):
            out[ownerless[pods.template[ownerless] == template]] = False
    return out


def counted(snapshot: ClusterSnapshot, chosen: Bools) -> NDArray[np.int64]:
    """(nodes,) number of chosen pods on each node."""
    return np.bincount(snapshot.pods.node[chosen], minlength=len(snapshot.nodes))


class Places:
    """Nodes that admit pods of a template, full or not."""

    def __init__(self, snapshot: ClusterSnapshot, closed: Bools) -> None:
        """`closed` (nodes,) as in `Projection`."""
        nodes = snapshot.nodes
        self.rules = StaticFilter(nodes, NodeTable(nodes), nodes.taints)
        self._open = nodes.ready & ~nodes.unschedulable & ~closed
        self._masks: dict[tuple[int, int], Bools] = {}

    def of(self, template: PodTemplate) -> Bools:
        """(nodes,) Ready, not cordoned, not leaving, and admitted by node affinity and hard taints. Templates with
        the same rules share one mask."""
        fits, tolerated = self.rules.node_affinity(template), self.rules.tolerated(template.tolerations)
        key = (id(fits), id(tolerated))  # the filter keeps its masks
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._open & fits & tolerated
        return mask
