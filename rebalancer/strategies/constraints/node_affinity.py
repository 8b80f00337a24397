"""RemovePodsViolatingNodeAffinity: pods on a node that no longer matches their node selector or node affinity.

A violated required rule is enough. For a preferred rule a pod is evicted only where a node that is better by the rule's
weights is certain to take it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rebalancer.model.cluster.objects import NodeAffinity, PodTemplate
from rebalancer.model.decisions.plan import Finding, LandingRule
from rebalancer.model.notation.arrays import Bools, Floats, Rows
from rebalancer.placement.cluster.nodes import NodeTable
from rebalancer.placement.plugins.node_rules import StaticFilter
from rebalancer.policy.schema.strategies.constraints import NodeAffinityArgs
from rebalancer.strategies.interface.selection import by_names, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def find(view: StrategyView) -> Findings:
    """One finding for each template and node: violated required rules first, then by node name."""
    args = view.strategy.args
    assert isinstance(args, NodeAffinityArgs)
    snapshot = view.snapshot
    nodes = snapshot.nodes
    rules = StaticFilter(nodes, NodeTable(nodes), nodes.taints)
    members = np.flatnonzero(pods_in_scope(view, args) & snapshot.active)
    on_node = snapshot.pods.node
    misplaced: list[Rows] = [members[:0]]
    worse: list[Rows] = [members[:0]]
    wishes: dict[int, _Wish] = {}
    for pods in groups(snapshot.pods.template, members=members):
        number = int(snapshot.pods.template[pods[0]])
        template = snapshot.pod_templates[number]
        allowed = rules.node_affinity(template)
        right = allowed[on_node[pods]]
        if REQUIRED in args.node_affinity_type and not right.all():
            misplaced.append(pods[~right])
        if PREFERRED in args.node_affinity_type and (points := rules.preferred(_affinity(template))) is not None:
            takes = allowed & rules.tolerated(template.tolerations) & ~nodes.unschedulable & nodes.ready
            wish = wishes[number] = _Wish(points, takes, best=float(np.max(points[takes], initial=-np.inf)))
            worse.append(pods[right & (points[on_node[pods]] < wish.best)])
    required = list(_misplaced(view, np.concatenate(misplaced)))
    preferred = list(_badly_placed(view, np.concatenate(worse), wishes))
    return Findings(findings=(*by_names(snapshot, required), *by_names(snapshot, preferred)))


@dataclass(frozen=True, slots=True)
class _Wish:
    """The preferred rules of a template."""

    points: Floats
    """(nodes,) sum of the weights of the rules that the node matches."""
    takes: Bools
    """(nodes,) nodes that could take the pods."""
    best: float
    """Most points of these."""


def _misplaced(view: StrategyView, pods: Rows) -> Iterator[Finding]:
    """Pods on nodes that violate their required rules, by template and node."""
    snapshot = view.snapshot
    reasons: dict[int, str] = {}
    for group in groups(snapshot.pods.template, snapshot.pods.node, members=pods):
        template = int(snapshot.pods.template[group[0]])
        reason = reasons.get(template)
        if reason is None:
            affinity = _affinity(snapshot.pod_templates[template])
            rule = "node affinity" if affinity is not None and affinity.required is not None else "node selector"
            reason = reasons[template] = f"the pod's {rule} doesn't match the node (any more)"
        yield some_pods(view, cheapest_first(snapshot, group), reason)


def _badly_placed(view: StrategyView, pods: Rows, wishes: Mapping[int, _Wish]) -> Iterator[Finding]:
    """Pods on nodes with fewer points than others, by template and node. `wishes`: by template."""
    snapshot = view.snapshot
    known: dict[tuple[int, float], tuple[str, LandingRule]] = {}
    for group in groups(snapshot.pods.template, snapshot.pods.node, members=pods):
        template = int(snapshot.pods.template[group[0]])
        wish = wishes[template]
        here = float(wish.points[snapshot.pods.node[group[0]]])
        found = known.get((template, here))
        if found is None:
            reason = f"{here:g} points by its preferred node affinity, other nodes have up to {wish.best:g}"
            found = known[template, here] = reason, LandingRule(only=wish.takes & (wish.points > here))
        yield some_pods(view, cheapest_first(snapshot, group), found[0], landing=found[1])


def _affinity(template: PodTemplate) -> NodeAffinity | None:
    return template.affinity.node_affinity if template.affinity is not None else None
