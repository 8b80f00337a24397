"""PodLifeTime: pods that exceed a maximum age. A new pod on any node is enough."""

import numpy as np

from rebalancer.model.decisions.plan import LandingRule
from rebalancer.model.notation import figures
from rebalancer.policy.schema.strategies.lifecycle import LifeTimeArgs
from rebalancer.policy.schema.types import format_duration
from rebalancer.strategies.interface.selection import by_name, groups, in_states, pods_in_scope, some_pods
from rebalancer.strategies.interface.view import Findings, StrategyView


def find(view: StrategyView) -> Findings:
    """One finding for each node with such pods, oldest first; the node with the oldest comes first. Finished pods count
    only when `states` name them."""
    args = view.strategy.args
    assert isinstance(args, LifeTimeArgs)
    snapshot, pods = view.snapshot, view.snapshot.pods
    age = view.now - pods.created
    mask = pods_in_scope(view, args) & (age > args.max_pod_life_time)
    if args.states:
        mask &= in_states(snapshot, args.states, init_containers=args.including_init_containers)
    else:
        mask &= snapshot.active
    # with `states` the pods are expected not to run well
    broken = ~pods.ready if args.states else np.zeros(len(pods), dtype=np.bool_)
    found = []
    ranked = by_name(snapshot, np.flatnonzero(mask))
    ranked = ranked[np.argsort(-age[ranked], kind="stable")]
    for oldest in groups(pods.node, broken.astype(np.int32), members=ranked):
        count, longest = len(oldest), format_duration(args.max_pod_life_time)
        what = "1 pod is" if count == 1 else f"{count} pods are"
        reason = f"{what} older than {longest}, the oldest {figures.age(age[oldest[0]])}"
        # an old pod goes, whatever happened to its predecessors
        rule, ill = LandingRule(elsewhere=args.other_node), bool(broken[oldest[0]])
        finding = some_pods(view, oldest, reason, recurs=True, landing=rule, broken=ill)
        found.append((-float(age[oldest[0]]), snapshot.nodes.names[finding.node], finding))
    found.sort(key=lambda each: each[:2])
    return Findings(findings=tuple(finding for _, _, finding in found))
