"""A recording in parts that don't influence each other, each with nodes of its own.

Nodes belong to one part where they are in one pool, where pods of one template or one service may be on both, and where
a budget, an affinity, a spread, a quota or a claim concerns pods of both. What a policy counts over the whole cluster
is checked afterwards, when the runs are merged. Two things differ from a run over the whole: kube-scheduler samples
nodes by the number of all nodes, and a cycle that one part starts, or a wait in it, is none of the others.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rebalancer.model.cluster.match import (
    labels_match,
    node_selector_matches,
    pairs_of,
    selector_matches,
    untolerated_taint,
)
from rebalancer.model.cluster.nodes import Nodes
from rebalancer.model.cluster.objects import LabelSelector, PodAffinity, PodTemplate
from rebalancer.model.cluster.owners import Owner
from rebalancer.model.measured.history import DayBlock
from rebalancer.model.notation.arrays import Bools, Ints
from rebalancer.model.recordings.recording import RecordedUsage, Recording, is_passing
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.pools import NodePools
from rebalancer.replay.simulation.loads import FIXED_KINDS, top_owners


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a recording."""

    recording: Recording
    nodes: Ints
    """Index of each of its nodes in the whole recording, ascending."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The parts of a recording."""

    parts: tuple[Part, ...]
    """In the order of their first nodes."""
    whole_because: str = ""
    """Why it is one part; empty where there are several."""


def split(recording: Recording, policies: Sequence[RebalancerPolicy]) -> Split:
    """The parts for runs with `policies`: every pool of each is in one part. Nodes in no pool that share no pods with
    others are added to the part with the fewest pods.

    Raises ConfigError where a node is in two pools of a policy.
    """
    whole = Split(parts=(Part(recording=recording, nodes=np.arange(len(recording.nodes), dtype=np.int32)),))
    if because := next(filter(None, map(_counted_together, policies)), ""):
        return replace(whole, whole_because=because)
    pools = [NodePools.of(policy.pools, recording.nodes) for policy in policies]
    joined = _Joined(len(recording.nodes))
    for each in pools:
        for index in range(len(each.pools)):
            joined.join(each.members(index))
    labels = {policy.safety.service_identity.label for policy in policies} - {None}
    anchors = _join_pods(recording, joined, identity_labels=sorted(map(str, labels)))
    component = joined.labels()
    in_pool = (
        np.logical_or.reduce([each.of_node >= 0 for each in pools]) if pools else np.ones(len(component), np.bool_)
    )
    found = np.unique(component[in_pool])
    if len(found) < 2:
        several = any(len(each.pools) > 1 for each in pools)
        because = "its pools share nodes, pods or budgets" if several else "it has no other pool"
        return replace(whole, whole_because=because)
    pods = recording.pods
    # a pod that was never bound is with those of its template
    home = np.where(pods.node >= 0, pods.node, anchors[pods.template])
    of_pod = np.where(home >= 0, component[np.maximum(home, 0)], found[0])
    size = Counter(of_pod.tolist())
    smallest = min(found.tolist(), key=lambda each: size[each])
    others = ~np.isin(component, found)
    component[others] = smallest
    of_pod[~np.isin(of_pod, found)] = smallest
    # in the order of their first nodes
    order = sorted(found.tolist(), key=lambda each: int(np.argmax(component == each)))
    return Split(parts=tuple(_part(recording, component == each, of_pod == each) for each in order))


def _counted_together(policy: RebalancerPolicy) -> str:
    """What of a policy needs the whole cluster in every decision; empty for nothing."""
    limits = policy.limits
    shared = {"limits.global": limits.global_, "limits.cluster": limits.cluster, "limits.namespace": limits.namespace}
    shared |= {f"the limits of level {level.name}": level.limits for level in policy.service_levels.levels}
    for name, each in shared.items():
        if isinstance(each.in_flight, str) or any(isinstance(rate.max, str) for rate in each.evictions):
            return f"{name} has a percentage of what all parts have"
    for strategy in policy.strategies:
        if hasattr(strategy.args, "max_concurrent_nodes"):
            return f"maxConcurrentNodes of {strategy.name} counts nodes of all parts"
    return ""


# ---- which nodes belong together


class _Joined:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: int) -> None:
        self._parent = list(range(nodes))

    def _root(self, node: int) -> int:
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def join(self, nodes: Iterable[int]) -> None:
        """All of `nodes` are in one set."""
        roots = {self._root(int(node)) for node in nodes}
        for root in roots:
            self._parent[root] = min(roots)

    def labels(self) -> Ints:
        """(nodes,) the least node of each one's set."""
        return np.array([self._root(node) for node in range(len(self._parent))], dtype=np.int32)


class _Feasible:
    """The nodes that a template's rules allow. Taints that come and go are left out."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._taints = [tuple(taint for taint in taints if not is_passing(taint.key)) for taints in nodes.taints]
        self._known: dict[str, Ints] = {}

    def of(self, template: PodTemplate, *, tainted: bool = False, anywhere: bool = False) -> Ints:
        """Indices of the nodes; `tainted`: also of those with taints, `anywhere`: of all."""
        affinity = template.affinity.node_affinity if template.affinity is not None else None
        required = None if affinity is None or anywhere else affinity.required
        selector = {} if anywhere else template.node_selector
        key = repr((sorted(selector.items()), required, None if tainted else template.tolerations))
        if key not in self._known:
            self._known[key] = np.array(
                [
                    node
                    for node, (name, labels) in enumerate(zip(self._nodes.names, self._nodes.labels, strict=True))
                    if labels_match(selector, labels)
                    and (required is None or node_selector_matches(required, labels, name))
                    and (tainted or untolerated_taint(template.tolerations, self._taints[node]) is None)
                ],
                dtype=np.int32,
            )
        return self._known[key]


def _join_pods(recording: Recording, joined: _Joined, *, identity_labels: Sequence[str]) -> Ints:
    """Join the nodes that pods hold together. Returns (templates,) a node of each template; -1 where it has none, or
    its pods stay on their nodes."""
    pods, feasible = recording.pods, _Feasible(recording.nodes)
    fixed = np.array([owner.kind in FIXED_KINDS for owner in recording.owners] + [False])[pods.owner]
    anchors = np.full(len(recording.pod_templates), -1, dtype=np.int32)
    uses = np.unique(np.column_stack([pods.template, pods.namespace, pods.owner])[~fixed], axis=0)
    for template in np.unique(uses[:, 0]).tolist():
        decoded = recording.pod_templates[template]
        nodes = feasible.of(decoded)
        for each in decoded.topology_spread:
            anywhere, tainted = each.node_affinity_policy == "Ignore", each.node_taints_policy == "Ignore"
            nodes = np.union1d(nodes, feasible.of(decoded, tainted=tainted or anywhere, anywhere=anywhere))
        if len(nodes):
            joined.join(nodes)
            anchors[template] = nodes[0]
    # where they were counts too: labels and taints may have been others then
    moved = ~fixed & (pods.node >= 0)
    for template, node in np.unique(np.column_stack([pods.template, pods.node])[moved], axis=0).tolist():
        if anchors[template] < 0:
            anchors[template] = node
        joined.join((anchors[template], node))
    together = defaultdict[object, list[int]](list)
    for key, template in _groups(recording, uses.tolist(), identity_labels):
        if anchors[template] >= 0:
            together[key].append(int(anchors[template]))
    for nodes_of_group in together.values():
        joined.join(nodes_of_group)
    return anchors


def _groups(
    recording: Recording, uses: Sequence[tuple[int, int, int]], identity_labels: Sequence[str]
) -> Iterator[tuple[object, int]]:
    """(group, template) for all that holds templates together. `uses` are (template, namespace, owner)."""
    templates, tops = recording.pod_templates, top_owners(recording.owners).tolist()
    quotas = {quota.namespace for quota in recording.today.quotas}
    selected = _Selected(recording, uses)
    for template, namespace, owner in uses:
        name, decoded = recording.namespaces[namespace], templates[template]
        if owner >= 0:
            yield ("owner", tops[owner]), template
        if name in quotas:
            yield ("quota", name), template
        for label in identity_labels:
            if label in decoded.labels:
                yield ("identity", label, decoded.labels[label]), template
        for volume in decoded.volumes:
            if volume.persistent_volume_claim is not None:
                yield ("claim", name, volume.persistent_volume_claim.get("claimName")), template
        for group, selector, namespaces in _selectors(decoded, namespace):
            key = (group, namespaces, repr(selector))
            yield key, template
            for other in selected.by(selector, namespaces):
                yield key, other
    numbers = {name: index for index, name in enumerate(recording.namespaces)}
    for at, budget in enumerate(recording.budgets):
        if budget.namespace in numbers:
            for template in selected.by(budget.selector, (numbers[budget.namespace],)):
                yield ("budget", at), template


def _selectors(
    template: PodTemplate, namespace: int
) -> Iterator[tuple[str, LabelSelector | None, tuple[int, ...] | None]]:
    """(kind, selector, namespaces; None = all) of the pods that a template's rules look at."""
    for spread in template.topology_spread:
        yield "spread", spread.label_selector, (namespace,)
    affinity = template.affinity
    for each in () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity):
        own = each or PodAffinity()
        for term in (*own.required, *(weighted.pod_affinity_term for weighted in own.preferred)):
            here = not term.namespaces and term.namespace_selector is None
            yield "affinity", term.label_selector, (namespace,) if here else None


class _Selected:
    """Templates by what selects them."""

    def __init__(self, recording: Recording, uses: Sequence[tuple[int, int, int]]) -> None:
        self._templates = recording.pod_templates
        self._near = defaultdict[tuple[int | None, tuple[str, str] | None], set[int]](set)
        """(namespace; None = any, label; None = any) -> templates."""
        self._known: dict[tuple[str, tuple[int, ...] | None], list[int]] = {}
        for template, namespace, _ in uses:
            for pair in (None, *self._templates[template].labels.items()):
                self._near[namespace, pair].add(template)
                self._near[None, pair].add(template)

    def by(self, selector: LabelSelector | None, namespaces: tuple[int, ...] | None) -> list[int]:
        """Templates that the selector selects in the namespaces."""
        if selector is None:
            return []
        key = (repr(selector), namespaces)
        if key not in self._known:
            pair = next(iter(pairs_of(selector)), None)
            near = set().union(*(self._near[each, pair] for each in (namespaces or (None,))))
            self._known[key] = [
                each for each in sorted(near) if selector_matches(selector, self._templates[each].labels)
            ]
        return self._known[key]


# ---- one part


def _part(recording: Recording, in_part: Bools, pods: Bools) -> Part:
    nodes = np.flatnonzero(in_part).astype(np.int32)
    rows = np.flatnonzero(pods).astype(np.int32)
    new_node = np.full(len(in_part) + 1, -1, dtype=np.int32)
    new_node[nodes] = np.arange(len(nodes))
    new_pod = np.full(len(pods) + 1, -1, dtype=np.int32)
    new_pod[rows] = np.arange(len(rows))
    whole = recording.pods
    owners, new_owner = _needed_owners(recording.owners, whole.owner[rows])
    templates, template = np.unique(whole.template[rows], return_inverse=True)
    kept = replace(
        whole.take(rows),
        owner=new_owner[whole.owner[rows]],
        template=template.astype(np.int32),
        node=new_node[whole.node[rows]],
        replaced=new_pod[whole.replaced[rows]],
    )
    namespaces = {recording.namespaces[index] for index in np.unique(kept.namespace).tolist()}
    full_names = {
        f"{recording.namespaces[namespace]}/{name}"
        for namespace, name in zip(kept.namespace.tolist(), kept.names, strict=True)
    }
    node_names = {recording.nodes.names[node] for node in nodes.tolist()}
    made = replace(
        recording,
        nodes=recording.nodes.take(nodes),
        node_joined=recording.node_joined[nodes],
        node_left=recording.node_left[nodes],
        node_ready=recording.node_ready[nodes],
        node_unschedulable=recording.node_unschedulable[nodes],
        owners=owners,
        pod_templates=recording.pod_templates.only(templates.tolist()),
        pods=kept,
        usage={name: _only_usage(usage, nodes, rows) for name, usage in recording.usage.items()},
        readings=None if recording.readings is None else recording.readings.only(new_node, new_pod),
        budgets=tuple(budget for budget in recording.budgets if budget.namespace in namespaces),
        before={
            name: tuple(_only_block(block, node_names, full_names) for block in blocks)
            for name, blocks in recording.before.items()
        },
    )
    return Part(recording=made, nodes=nodes)


def _needed_owners(owners: Sequence[Owner], used: Ints) -> tuple[tuple[Owner, ...], Ints]:
    """The owners of these pods with all their parents, and (owners + 1,) the new index of each; the last, of none, is
    -1."""
    needed = set(np.unique(used[used >= 0]).tolist())
    waiting = list(needed)
    while waiting:
        parent = owners[waiting.pop()].parent
        if parent >= 0 and parent not in needed:
            needed.add(parent)
            waiting.append(parent)
    new = np.full(len(owners) + 1, -1, dtype=np.int32)
    new[sorted(needed)] = np.arange(len(needed))
    return tuple(replace(owners[at], parent=int(new[owners[at].parent])) for at in sorted(needed)), new


def _only_usage(usage: RecordedUsage, nodes: Ints, pods: Ints) -> RecordedUsage:
    counts = np.diff(usage.pod_start)
    wanted = np.zeros(len(counts), dtype=np.bool_)
    wanted[pods] = True
    return RecordedUsage(
        pod_values=usage.pod_values[np.repeat(wanted, counts)],
        pod_start=np.concatenate([[0], np.cumsum(counts[pods])]),
        pod_first=usage.pod_first[pods],
        node=usage.node[nodes],
    )


def _only_block(block: DayBlock, nodes: Collection[str], pods: Collection[str]) -> DayBlock:
    """The rows of some nodes and pods."""
    rows = [row for row, name in enumerate(block.pods) if name in pods]
    node_rows = [row for row, name in enumerate(block.nodes) if name in nodes]
    return replace(
        block,
        pods=tuple(block.pods[row] for row in rows),
        pod_millicores=block.pod_millicores[rows],
        nodes=tuple(block.nodes[row] for row in node_rows),
        node_millicores=block.node_millicores[node_rows],
    )
