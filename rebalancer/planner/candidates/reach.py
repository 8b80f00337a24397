"""Whether a node can be brought under `high` at all: by everything that may go together, in this cycle or later.

What keeps a pod for a time only doesn't count: limits, cooldowns, budgets, windows, room on other nodes. What counts
are the guards, lists and levels that hold whatever happens, and placement rules that admit no other node.
"""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.cluster.snapshot import Pod
from rebalancer.model.notation.figures import percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.model import PlacementModel
from rebalancer.planner.candidates.jobs import Job

PASSING = frozenset(
    {
        Reason.NOT_READY,
        Reason.TOO_YOUNG,
        Reason.ROLLOUT_IN_PROGRESS,
        Reason.OWNER_NOT_HEALTHY,
        Reason.AUTOSCALING,
        Reason.WINDOW_CLOSED,
        Reason.POOL_FULL,
    }
)
"""Refusals of a pod that end by themselves, or when others have gone."""


def may_go(refusal: Refusal | None) -> bool:
    """Whether a pod may go, now or later, that is refused so whatever else is planned; None = it is not."""
    return refusal is None or refusal.code in PASSING


def unreachable(job: Job, pods: Sequence[Pod], placement: PlacementModel) -> dict[int, Refusal]:
    """Pod -> why it stays: without all of these, which may go, the node is still over `high` in every resource. Empty
    where it is not, or where the load of one of them isn't known. Pods that no other node admits have own reasons."""
    finding, headroom = job.finding, job.cooled
    if headroom is None or finding.best_effort:
        return {}
    over = headroom.over_high(finding.node)
    hot = over > 0
    relief = headroom.loads.relieved_by_all[[pod.index for pod in pods]][:, hot]
    if not hot.any() or np.isnan(relief).any():
        return {}
    rest, leave = over[hot], []
    for at in np.argsort(-relief.max(axis=1), kind="stable").tolist():
        if placement.may_leave(pods[at]):
            leave.append(pods[at].index)
            rest = rest - relief[at]
            if (rest <= 0).any():
                return {}
    room, high = headroom.loads.room[finding.node, hot], headroom.loads.high[finding.node, hot]
    worst = int(np.argmax(rest / room))
    resource = np.array(headroom.loads.resources)[hot][worst]
    refusal = Refusal.of(
        Reason.HIGH_UNREACHABLE,
        f"its own processes and pods that may not go use {percent((high + rest)[worst] / room[worst])} ({resource}), "
        f"high is {percent(high[worst] / room[worst])}",
    )
    return dict.fromkeys(leave, refusal)
