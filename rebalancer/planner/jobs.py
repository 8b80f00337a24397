"""One finding in progress: its candidates and the order in which they are tried.

Candidates are ordered by relief against the excess, then by the cost of the move. One pod that covers the excess
is better than several, and among those the one that overshoots least; otherwise the largest. Reliefs are compared in
coarse steps, so that a few millicores never outweigh priority, QoS or age. The last tie-break is the name.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.objects import QOS_RANK
from rebalancer.model.plan import MIN_RELIEF, Finding, Goal
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Ints, Pod
from rebalancer.planner.targets import TargetHeadroom

Floats = NDArray[np.float64]

OVERSHOOT_STEP = 0.25
RELIEF_STEPS = 10


@dataclass(slots=True, kw_only=True)
class Job:
    """See the module."""

    finding: Finding
    headroom: TargetHeadroom | None
    """Of the strategy's loads; None where it balances nothing."""
    left: list[Pod] = field(default_factory=list)
    """Undecided candidates, best first."""
    to_go: dict[int, Pod] = field(default_factory=dict)
    """Pods still on a node that is being emptied, in the order of the trial."""
    taken: int = 0
    """How many of the pods that `wanted` counts have moved."""

    @property
    def cooled(self) -> TargetHeadroom | None:
        """The headroom by which the node is cooled; None where that isn't the goal."""
        return self.headroom if self.finding.goal is Goal.COOL else None


def counted(finding: Finding) -> Ints:
    """The pods that `Finding.wanted` counts."""
    return finding.candidates if finding.among is None else finding.among


def useless(job: Job) -> dict[int, Refusal]:
    """Candidate -> why its move wouldn't serve the goal. Only cooling goes by relief."""
    headroom, finding = job.cooled, job.finding
    if headroom is None:
        if finding.goal is not Goal.COOL:
            return {}
        nothing = Refusal.of(Reason.NO_RELIEF, f"{finding.strategy} gives no loads to relieve its nodes of")
        return dict.fromkeys(finding.candidates.tolist(), nothing)
    relief, _ = reliefs(headroom.loads.relieved[finding.candidates], headroom.excess(finding.node))
    reached, full = headroom.reached(finding.node), not headroom.low.any()
    out = {}
    for index, share in zip(finding.candidates.tolist(), relief.tolist(), strict=True):
        if reached:
            out[index] = Refusal.of(Reason.GOAL_REACHED)
        elif math.isnan(share):
            out[index] = Refusal.of(Reason.NO_POD_USAGE)
        elif share < MIN_RELIEF:
            out[index] = Refusal.of(Reason.NO_RELIEF, f"{share:.1%} of the excess")
        elif full:
            out[index] = Refusal.of(Reason.POOL_FULL)
    return out


def goal_reached(job: Job) -> Refusal | None:
    """Why no candidate that is left has to leave any more."""
    finding, headroom = job.finding, job.cooled
    if headroom is not None and headroom.reached(finding.node):
        return Refusal.of(Reason.GOAL_REACHED)
    if finding.goal is Goal.REMOVE and finding.wanted is not None and job.taken >= finding.wanted:
        return Refusal.of(Reason.ENOUGH_EVICTED, f"{job.taken} of {finding.wanted}")
    return None


def in_order(job: Job, admission: EvictionAdmission) -> list[Pod]:
    """The candidates that are left, best first. Moves since may have changed the order."""
    headroom = job.cooled
    if headroom is None or job.finding.in_order:
        return job.left
    relief, overshoot = reliefs(
        headroom.loads.relieved[[pod.index for pod in job.left]], headroom.excess(job.finding.node)
    )
    keys = [
        order_key(pod, share, over, admission.traits(pod).cost)
        for pod, share, over in zip(job.left, relief.tolist(), overshoot.tolist(), strict=True)
    ]
    return [job.left[at] for _, at in sorted((key, at) for at, key in enumerate(keys))]


def reliefs(loads: Floats, excess: Floats) -> tuple[Floats, Floats]:
    """(pods,) the share of a node's excess that each pod's load would take away, and by how much it overshoots.

    `loads` (pods, resources), `excess` (resources,). The share, 0..1, is the mean over the resources that exceed, each
    counted up to 1; the overshoot is the largest load/excess less 1.
    """
    over = excess > 0
    if not over.any():
        return np.zeros(len(loads)), np.zeros(len(loads))
    ratio = loads[:, over] / excess[over]
    return np.minimum(ratio, 1.0).mean(axis=1), ratio.max(axis=1) - 1.0


def order_key(
    pod: Pod, share: float, overshoot: float, cost: float
) -> tuple[int, int, float, int, int, float, str, str]:
    """Smaller is better. `cost` is that of the service level."""
    step = (0, math.floor(overshoot / OVERSHOOT_STEP)) if share >= 1.0 else (1, -math.ceil(share * RELIEF_STEPS))
    return (*step, cost, pod.priority, QOS_RANK.get(pod.template.qos, 2), -pod.created, pod.namespace, pod.name)


def largest_first(pods: list[Pod], snapshot: ClusterSnapshot) -> list[Pod]:
    """By requests: the pods that are hardest to place come first."""
    asked, memory = snapshot.pods.cpu_request_millicores, snapshot.pods.memory_request_bytes
    return sorted(pods, key=lambda pod: (-float(asked[pod.index]), -float(memory[pod.index]), pod.namespace, pod.name))
