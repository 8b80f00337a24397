"""One finding being worked on: which of its candidates may go, and in which order they are tried."""

import math
from dataclasses import dataclass, field

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.plan import Finding, Goal, Ints
from rebalancer.model.reason import Reason, Refusal
from rebalancer.model.snapshot import ClusterSnapshot, Pod
from rebalancer.planner.order import order_key, reliefs
from rebalancer.planner.targets import TargetRoom

MIN_RELIEF = 0.02
"""A move that takes away less than this share of the excess is harm for nothing."""


@dataclass(slots=True, kw_only=True)
class Job:
    """See the module."""

    finding: Finding
    room: TargetRoom | None
    """Of what its strategy balances, if anything."""
    left: list[Pod] = field(default_factory=list)
    """Candidates that are not decided yet, best first."""
    to_go: dict[int, Pod] = field(default_factory=dict)
    """Of a node that is being emptied: what is still on it, in the order in which it was tried."""
    taken: int = 0
    """So many of those that `wanted` counts are moved."""

    @property
    def cooled(self) -> TargetRoom | None:
        """The room by which the node is cooled; None where that isn't the goal."""
        return self.room if self.finding.goal is Goal.COOL else None


def counted(finding: Finding) -> Ints:
    """The pods that `wanted` counts."""
    return finding.candidates if finding.among is None else finding.among


def useless(job: Job) -> dict[int, Refusal]:
    """Candidate -> why its move would be none to the goal. Only cooling asks for what a move brings."""
    room, finding = job.cooled, job.finding
    if room is None:
        if finding.goal is not Goal.COOL:
            return {}
        nothing = Refusal.of(Reason.NO_RELIEF, f"{finding.strategy} doesn't say what its nodes are to be relieved of")
        return dict.fromkeys(finding.candidates.tolist(), nothing)
    relief, _ = reliefs(room.loads.relieved[finding.candidates], room.excess(finding.node))
    reached, full = room.reached(finding.node), not room.low.any()
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
    """Why none of the candidates that are left has to go any more."""
    finding, room = job.finding, job.cooled
    if room is not None and room.reached(finding.node):
        return Refusal.of(Reason.GOAL_REACHED)
    if finding.goal is Goal.REMOVE and finding.wanted is not None and job.taken >= finding.wanted:
        return Refusal.of(Reason.ENOUGH_GO, f"{job.taken} of {finding.wanted}")
    return None


def in_order(job: Job, admission: EvictionAdmission) -> list[Pod]:
    """The candidates that are left, best first. What has been moved since may have changed the order."""
    room = job.cooled
    if room is None or job.finding.in_order:
        return job.left
    relief, overshoot = reliefs(room.loads.relieved[[pod.index for pod in job.left]], room.excess(job.finding.node))
    keys = [
        order_key(pod, share, over, admission.traits(pod).cost)
        for pod, share, over in zip(job.left, relief.tolist(), overshoot.tolist(), strict=True)
    ]
    return [job.left[at] for _, at in sorted((key, at) for at, key in enumerate(keys))]


def largest_first(pods: list[Pod], snapshot: ClusterSnapshot) -> list[Pod]:
    """By requests: what is hardest to place is tried while there is most room."""
    asked, memory = snapshot.pods.cpu_request_millicores, snapshot.pods.memory_request_bytes
    return sorted(pods, key=lambda pod: (-float(asked[pod.index]), -float(memory[pod.index]), pod.namespace, pod.name))
