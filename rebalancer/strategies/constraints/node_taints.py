"""RemovePodsViolatingNodeTaints: pods on a node with a taint that they don't tolerate.

NoSchedule taints count, PreferNoSchedule ones by option; NoExecute is handled by the taint manager. Kubernetes' own
taints (`node.kubernetes.io/`: cordons, pressure) change with the node's state, and an autoscaler drains the nodes that
it taints: these count only when `includedTaints` names them. Taints of rebalancer never count.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rebalancer.model.cluster.match import tolerates
from rebalancer.model.cluster.objects import Taint, Toleration
from rebalancer.model.cluster.steering import SOFT_TAINT
from rebalancer.model.decisions.plan import LandingRule
from rebalancer.model.notation.arrays import Rows
from rebalancer.policy.schema.strategies.constraints import NodeTaintsArgs
from rebalancer.projection.leaving import is_of_leaving
from rebalancer.strategies.interface.selection import by_node, cheapest_first, groups, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView

SOFT = "PreferNoSchedule"
STATE_PREFIX = "node.kubernetes.io/"


def find(view: StrategyView) -> Findings:
    """One finding for each node and taint, by the node's name."""
    args = view.strategy.args
    assert isinstance(args, NodeTaintsArgs)
    snapshot = view.snapshot
    taints = [tuple(each for each in held if _counts(each, args)) for held in snapshot.nodes.taints]
    tainted = np.append(np.array([bool(each) for each in taints], dtype=np.bool_), False)
    members = np.flatnonzero(pods_in_scope(view, args) & snapshot.active & tainted[snapshot.pods.node])
    alike: dict[tuple[int, Taint, tuple[Toleration, ...] | None], list[Rows]] = {}
    for pods in groups(snapshot.pods.node, snapshot.pods.template, members=members):
        node, template = int(snapshot.pods.node[pods[0]]), snapshot.pod_templates[int(snapshot.pods.template[pods[0]])]
        wrong = [each for each in taints[node] if not tolerates(template.tolerations, each)]
        if wrong:
            soft = all(each.effect == SOFT for each in wrong)  # kube-scheduler may choose such a node again
            alike.setdefault((node, wrong[0], template.tolerations if soft else None), []).append(pods)
    found = []
    for (_, taint, tolerations), parts in alike.items():
        pods = cheapest_first(snapshot, np.concatenate(parts))
        only = None if tolerations is None else _free_of(taints, tolerations)
        what = "a pod doesn't" if len(pods) == 1 else f"{len(pods)} pods don't"
        reason = f"the node has a taint that {what} tolerate: {_shown(taint)}"
        found.append(some_pods(view, pods, reason, landing=LandingRule(only=only)))
    found.sort(key=lambda each: by_node(snapshot, each))
    return Findings(findings=tuple(found))


def _counts(taint: Taint, args: NodeTaintsArgs) -> bool:
    if taint.effect not in (("NoSchedule", SOFT) if args.include_prefer_no_schedule else ("NoSchedule",)):
        return False
    names = (taint.key, f"{taint.key}={taint.value}")
    if taint.key == SOFT_TAINT or any(name in args.excluded_taints for name in names):
        return False
    if args.included_taints:
        return any(name in args.included_taints for name in names)
    return not (taint.key.startswith(STATE_PREFIX) or is_of_leaving(taint.key))


def _free_of(taints: Sequence[tuple[Taint, ...]], tolerations: Sequence[Toleration]) -> NDArray[np.bool_]:
    """(nodes,) nodes without an untolerated taint that counts."""
    return np.array([all(tolerates(tolerations, each) for each in held) for held in taints], dtype=np.bool_)


def _shown(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
