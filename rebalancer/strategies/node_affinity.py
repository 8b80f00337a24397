"""RemovePodsViolatingNodeAffinity: pods on a node that no longer matches their node selector or node affinity.

A violated required rule is enough. For a preferred rule a pod is evicted only where a node that is better by the rule's
weights is certain to take it.
"""

import numpy as np

from rebalancer.model.objects import NodeAffinity, PodTemplate
from rebalancer.model.plan import Finding, LandingRule
from rebalancer.placement.filters import StaticFilter
from rebalancer.placement.nodes import NodeTable
from rebalancer.policy.schema.strategies import NodeAffinityArgs
from rebalancer.strategies.selection import Rows, by_node, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.view import Findings, StrategyView

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
    required: list[Finding] = []
    preferred: list[Finding] = []
    for pods in groups(snapshot.pods.template, members=members):
        template = snapshot.pod_templates[int(snapshot.pods.template[pods[0]])]
        allowed = rules.node_affinity(template)
        wrong = ~allowed[snapshot.pods.node[pods]]
        if REQUIRED in args.node_affinity_type and wrong.any():
            required += _misplaced(view, pods[wrong], template)
        if PREFERRED in args.node_affinity_type and (points := rules.preferred(_affinity(template))) is not None:
            takes = allowed & rules.tolerated(template.tolerations) & ~nodes.unschedulable & nodes.ready
            best = float(np.max(points[takes], initial=-np.inf))
            worse = pods[~wrong & (points[snapshot.pods.node[pods]] < best)]
            rules_for: dict[float, LandingRule] = {}
            for group in groups(snapshot.pods.node, members=cheapest_first(snapshot, worse)):
                here = float(points[snapshot.pods.node[group[0]]])
                reason = f"{here:g} points by its preferred node affinity, other nodes have up to {best:g}"
                rule = rules_for.get(here) or rules_for.setdefault(here, LandingRule(only=takes & (points > here)))
                preferred.append(some_pods(view, group, reason, landing=rule))
    for found in (required, preferred):
        found.sort(key=lambda each: by_node(snapshot, each))
    return Findings(findings=(*required, *preferred))


def _misplaced(view: StrategyView, pods: Rows, template: PodTemplate) -> list[Finding]:
    """Pods of one template on nodes that violate its required rules."""
    affinity = _affinity(template)
    rule = "node affinity" if affinity is not None and affinity.required is not None else "node selector"
    reason = f"the pod's {rule} doesn't match the node (any more)"
    return [
        some_pods(view, group, reason)
        for group in groups(view.snapshot.pods.node, members=cheapest_first(view.snapshot, pods))
    ]


def _affinity(template: PodTemplate) -> NodeAffinity | None:
    return template.affinity.node_affinity if template.affinity is not None else None
