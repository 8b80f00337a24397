"""Three strategies a second time, pod by pod: what their searches over columns must equal."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.plan import Finding
from rebalancer.placement.cluster.nodes import NodeTable
from rebalancer.placement.plugins.node_rules import StaticFilter
from rebalancer.strategies import StrategyView
from rebalancer.strategies.constraints.remove_duplicates import PINNED_KINDS
from rebalancer.strategies.interface.selection import Places


class Found(NamedTuple):
    """A finding in comparable form."""

    node: str
    pods: tuple[str, ...]
    reason: str
    wanted: int | None = None
    only: tuple[bool, ...] | None = None
    domain: tuple[int, ...] | None = None
    count: tuple[float, ...] | None = None


def found(snapshot: ClusterSnapshot, findings: Iterable[Finding]) -> list[Found]:
    """Findings in comparable form, in their order."""
    return [
        Found(
            snapshot.nodes.names[each.node],
            tuple(snapshot.pods.names[pod] for pod in each.candidates.tolist()),
            each.reason,
            each.wanted,
            None if each.landing.only is None else tuple(each.landing.only.tolist()),
            None if each.landing.even is None else tuple(each.landing.even.domain.tolist()),
            None if each.landing.even is None else tuple(each.landing.even.count.tolist()),
        )
        for each in findings
    ]


def _cheapest(snapshot: ClusterSnapshot, pods: Iterable[int]) -> list[int]:
    columns = snapshot.pods
    return sorted(
        pods,
        key=lambda pod: (
            columns.priority[pod],
            -columns.created[pod],
            snapshot.namespaces[columns.namespace[pod]],
            columns.names[pod],
        ),
    )


def _by_node(snapshot: ClusterSnapshot, groups: Mapping[Any, list[int]]) -> list[tuple[Any, list[int]]]:
    """Groups with their pods in order, by the names of node, namespace and first pod."""
    columns = snapshot.pods

    def key(entry: tuple[Any, list[int]]) -> tuple[str, str, str]:
        first = entry[1][0]
        return (
            snapshot.nodes.names[columns.node[first]],
            snapshot.namespaces[columns.namespace[first]],
            columns.names[first],
        )

    return sorted(((each, _cheapest(snapshot, pods)) for each, pods in groups.items()), key=key)


def node_affinity(view: StrategyView) -> list[Found]:
    """RemovePodsViolatingNodeAffinity with both types of rules."""
    snapshot, nodes = view.snapshot, view.snapshot.nodes
    rules = StaticFilter(nodes, NodeTable(nodes), nodes.taints)
    required: dict[tuple[int, int], list[int]] = {}
    preferred: dict[tuple[int, int], list[int]] = {}
    for pod in range(len(snapshot.pods)):
        node, number = int(snapshot.pods.node[pod]), int(snapshot.pods.template[pod])
        if not snapshot.active[pod] or snapshot.pods.terminating[pod] or not view.in_chosen_pools[node]:
            continue
        template = snapshot.pod_templates[number]
        if not rules.node_affinity(template)[node]:
            required.setdefault((number, node), []).append(pod)
        elif (wish := _points(rules, view, number)) is not None and wish[0][node] < wish[2]:
            preferred.setdefault((number, node), []).append(pod)
    out = []
    for (number, node), pods in _by_node(snapshot, required):
        affinity = snapshot.pod_templates[number].affinity
        by_affinity = affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.required
        rule = "node affinity" if by_affinity else "node selector"
        out.append(_found(snapshot, node, pods, f"the pod's {rule} doesn't match the node (any more)"))
    for (number, node), pods in _by_node(snapshot, preferred):
        wish = _points(rules, view, number)
        assert wish is not None
        points, takes, best = wish
        reason = f"{points[node]:g} points by its preferred node affinity, other nodes have up to {best:g}"
        only = tuple(bool(open_) and points[at] > points[node] for at, open_ in enumerate(takes))
        out.append(_found(snapshot, node, pods, reason)._replace(only=only))
    return out


def _points(rules: StaticFilter, view: StrategyView, number: int) -> tuple[list[float], list[bool], float] | None:
    template, nodes = view.snapshot.pod_templates[number], view.snapshot.nodes
    points = rules.preferred(template.affinity.node_affinity if template.affinity is not None else None)
    if points is None:
        return None
    fits, tolerated = rules.node_affinity(template), rules.tolerated(template.tolerations)
    takes = [
        bool(fits[at] and tolerated[at] and nodes.ready[at] and not nodes.unschedulable[at]) for at in range(len(nodes))
    ]
    open_points = [float(points[at]) for at, each in enumerate(takes) if each]
    return points.tolist(), takes, max(open_points, default=-math.inf)


def service_spread(view: StrategyView, feature: str) -> list[Found]:
    """ServiceSpread by a feature."""
    snapshot, nodes = view.snapshot, view.snapshot.nodes
    pods, owners = snapshot.pods, snapshot.owners
    groups: dict[tuple[str, int], list[int]] = {}
    for pod in range(len(pods)):
        value = snapshot.pod_templates[int(pods.template[pod])].labels.get(feature)
        if not value or not snapshot.active[pod] or pods.terminating[pod] or pods.owner[pod] < 0:
            continue
        groups.setdefault((value, int(view.node_pools.of_node[pods.node[pod]])), []).append(pod)
    out: list[tuple[int, Found]] = []
    for (_, pool), members in groups.items():
        takes = nodes.ready & ~nodes.unschedulable & ~view.projection.is_closed & (view.node_pools.of_node == pool)
        if pool < 0 or not takes.any() or len({int(snapshot.top_owner[pods.owner[pod]]) for pod in members}) < 2:
            continue
        fair = math.ceil(len(members) / int(takes.sum()))
        on = {node: [pod for pod in members if pods.node[pod] == node] for node in range(len(nodes))}
        places = [node for node in range(len(nodes)) if takes[node] or on[node]]
        for node, there in on.items():
            services = sorted(
                (f"{owners[top].namespace}/{owners[top].name}", top)
                for top in {int(snapshot.top_owner[pods.owner[pod]]) for pod in there}
            )
            over = len(there) - fair
            if over <= 0 or len(services) < 2:
                continue
            names = ", ".join([name for name, _ in services][:3]) + (", …" if len(services) > 3 else "")
            reason = f"{len(services)} services that share {feature} ({names}) have {len(there)} pods here, {fair}"
            finding = _found(snapshot, node, _cheapest(snapshot, there), f"{reason} would be even")
            out.append(
                (
                    over,
                    finding._replace(
                        wanted=over,
                        only=tuple(takes.tolist()),
                        domain=tuple(places.index(at) if at in places else -1 for at in range(len(nodes))),
                        count=tuple(float(len(on[at])) for at in places),
                    ),
                )
            )
    return _most_first(snapshot, out)


def remove_duplicates(view: StrategyView) -> list[Found]:
    """RemoveDuplicates."""
    snapshot, places = view.snapshot, Places(view.snapshot, view.projection.is_closed)
    pods, nodes = snapshot.pods, range(len(snapshot.nodes))
    groups: dict[tuple[int, frozenset[str]], list[int]] = {}
    for pod in range(len(pods)):
        owner = int(pods.owner[pod])
        if (
            owner >= 0
            and snapshot.owners[owner].kind not in PINNED_KINDS
            and pods.phase[pod] not in (SUCCEEDED, FAILED)
        ):
            images = frozenset(snapshot.pod_templates[int(pods.template[pod])].images)
            groups.setdefault((owner, images), []).append(pod)
    out: list[tuple[int, Found]] = []
    for (number, _), members in groups.items():
        masks = [places.of(snapshot.pod_templates[int(pods.template[pod])]) for pod in members]
        takes = [any(bool(mask[node]) for mask in masks) for node in nodes]
        if sum(takes) < 2:
            continue
        fair = math.ceil(len(members) / sum(takes))
        on = {node: [pod for pod in members if pods.node[pod] == node and not pods.terminating[pod]] for node in nodes}
        owner = snapshot.owners[number]
        for node, there in on.items():
            if len(there) <= fair or not view.in_chosen_pools[node]:
                continue
            reason = (
                f"{len(there)} pods of {owner.kind} {owner.namespace}/{owner.name} share the node, "
                f"{fair} would be fair: {len(members)} pods, {sum(takes)} nodes that could take them"
            )
            finding = _found(snapshot, node, _cheapest(snapshot, there), reason)._replace(
                wanted=len(there) - fair,
                only=tuple(takes),
                domain=tuple(at if takes[at] or on[at] else -1 for at in nodes),
                count=tuple(float(len(on[at])) for at in nodes),
            )
            out.append((len(there) - fair, finding))
    return _most_first(snapshot, out)


def _most_first(snapshot: ClusterSnapshot, out: list[tuple[int, Found]]) -> list[Found]:
    space = {name: snapshot.namespaces[snapshot.pods.namespace[at]] for at, name in enumerate(snapshot.pods.names)}
    out.sort(key=lambda each: (-each[0], each[1].node, space[each[1].pods[0]], each[1].pods[0]))
    return [each for _, each in out]


def _found(snapshot: ClusterSnapshot, node: int, pods: list[int], reason: str) -> Found:
    return Found(snapshot.nodes.names[node], tuple(snapshot.pods.names[pod] for pod in pods), reason)
