"""RemoveFailedPods: failed pods that still exist; their owners have replaced them."""

import numpy as np

from rebalancer.model.cluster.pods import FAILED
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.notation import figures
from rebalancer.policy.schema.strategies.lifecycle import FailedPodsArgs
from rebalancer.strategies.interface.selection import by_name, one_pod, pods_in_scope, with_exit_codes, with_reasons
from rebalancer.strategies.interface.view import Findings, StrategyView


def find(view: StrategyView) -> Findings:
    """One finding for each pod, the oldest first."""
    args = view.strategy.args
    assert isinstance(args, FailedPodsArgs)
    snapshot, pods = view.snapshot, view.snapshot.pods
    age = view.now - pods.created
    mask = pods_in_scope(view, args) & (pods.phase == FAILED) & (age >= args.min_pod_lifetime)
    init = args.including_init_containers
    if args.reasons:
        mask &= with_reasons(snapshot, args.reasons, init_containers=init)
    if args.exit_codes:
        mask &= with_exit_codes(snapshot, args.exit_codes, init_containers=init)
    if args.exclude_owner_kinds:
        kept = np.array([owner.kind in args.exclude_owner_kinds for owner in snapshot.owners] + [False], dtype=np.bool_)
        mask &= ~kept[pods.owner]
    failed = by_name(snapshot, np.flatnonzero(mask))
    failed = failed[np.argsort(-age[failed], kind="stable")]
    return Findings(
        findings=tuple(
            one_pod(view, pod, f"failed{_why(snapshot, pod)}, {figures.age(age[pod])} old", broken=True)
            for pod in failed.tolist()
        )
    )


def _why(snapshot: ClusterSnapshot, pod: int) -> str:
    status = snapshot.statuses[snapshot.pods.status[pod]]
    said = status.reason or next(iter((*status.containers, *status.init_containers)), "")
    return f" ({said})" if said else ""
