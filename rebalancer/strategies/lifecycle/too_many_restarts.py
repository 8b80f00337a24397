"""RemovePodsHavingTooManyRestarts: pods whose containers restart too often."""

import numpy as np

from rebalancer.model.decisions.plan import LandingRule
from rebalancer.policy.schema.strategies.lifecycle import RestartsArgs
from rebalancer.strategies.interface.selection import by_name, in_states, one_pod, pods_in_scope
from rebalancer.strategies.interface.view import Findings, StrategyView


def find(view: StrategyView) -> Findings:
    """One finding for each pod, the most restarts first."""
    args = view.strategy.args
    assert isinstance(args, RestartsArgs)
    snapshot = view.snapshot
    restarts = snapshot.pods.restarts.astype(np.int64)
    if args.including_init_containers:
        restarts += snapshot.pods.init_restarts
    mask = pods_in_scope(view, args) & snapshot.active & (restarts >= args.pod_restart_threshold)
    if args.states:
        mask &= in_states(snapshot, args.states, init_containers=args.including_init_containers)
    pods = by_name(snapshot, np.flatnonzero(mask))
    pods = pods[np.argsort(-restarts[pods], kind="stable")]
    return Findings(
        findings=tuple(
            one_pod(
                view,
                pod,
                f"its containers restarted {restarts[pod]} times, {args.pod_restart_threshold} are too many",
                landing=LandingRule(elsewhere=args.other_node),
                broken=not snapshot.pods.ready[pod],  # a pod that is Ready again does its work for now
            )
            for pod in pods.tolist()
        )
    )
