"""One finding in progress: its candidates and the order in which they are tried.

With n the evictions of the cheapest set that reaches the target, the best candidate takes at least the n-th part of the
excess at the lowest price, with what it takes more as a part of the price: no pod is larger to land than it need be.
Where none takes as much the largest comes first. Reliefs are compared in coarse steps, so that a few millicores never
outweigh a price. Of equal prices priority, QoS and age decide, and then the name.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.cluster.objects import QOS_RANK
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.plan import MIN_RELIEF, Finding, Goal
from rebalancer.model.notation.arrays import Bools, Floats, Ints
from rebalancer.model.notation.figures import percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.planner.landings.targets import TargetHeadroom

OVERSHOOT_STEP = 0.25
OVERSHOOT_PRICE = 0.25
"""Price of a step, in ordinary evictions."""
RELIEF_STEPS = 10


@dataclass(slots=True, kw_only=True)
class Job:
    """See the module."""

    finding: Finding
    headroom: TargetHeadroom | None
    """Of the strategy's loads; None where it balances nothing."""
    left: list[Pod] = field(default_factory=list)
    """Undecided candidates, best first."""
    waiting: dict[int, tuple[Pod, Refusal]] = field(default_factory=dict)
    """Candidates that only a short wait bars, with what bars them."""
    expected: list[Pod] = field(default_factory=list)
    """Those of `waiting` that the plan counts on: other candidates only take what these leave."""
    sorted: bool = False
    """Whether `left` is in order."""
    ties: dict[int, int] = field(default_factory=dict)
    """Candidate -> its place among those of equal relief."""
    turn: float = 0.0
    """Once it is sorted: nodes with a smaller one come first."""
    skipped: list[int] = field(default_factory=list)
    """Candidates that a simulated plan refused: not checked as long as its script holds."""
    tainting: list[Pod] = field(default_factory=list)
    """Candidates whose landing needs many soft taints: tried again when nothing else is left."""
    any_taints: bool = False
    """Whether they are tried again."""
    misses: int = 0
    """Candidates without a landing since the last move."""
    to_go: dict[int, Pod] = field(default_factory=dict)
    """Pods still on a node that is being emptied, in the order of the simulation."""
    moved: int = 0
    """How many of the pods that `Finding.wanted` counts have moved."""

    @property
    def cooled(self) -> TargetHeadroom | None:
        """The headroom by which the node is cooled; None where that isn't the goal."""
        return self.headroom if self.finding.goal is Goal.COOL else None

    @property
    def resource(self) -> str:
        """The measured resource that the node is to be relieved of; empty for requests, and for other goals."""
        headroom = self.cooled
        return self.finding.resource if headroom is not None and headroom.loads.measured else ""

    def put_first(self, pod: int) -> bool:
        """Try the pod next; False where it is decided, or waits."""
        first = [each for each in self.left if each.index == pod]
        if first:
            self.left, self.sorted = first + [each for each in self.left if each.index != pod], False
        return bool(first)

    def drop(self, pod: int) -> None:
        """Its pod was moved or refused."""
        self.left = [each for each in self.left if each.index != pod]
        self.waiting.pop(pod, None)

    def end(self) -> list[Pod]:
        """Drop all undecided candidates: the goal is reached. Returns them."""
        undecided = [*self.left, *(pod for pod, _ in self.waiting.values())]
        self.left, self.waiting, self.expected = [], {}, []
        return undecided

    def postpone(self) -> None:
        """Let all undecided candidates wait with those that wait already."""
        why = next(iter(self.waiting.values()))[1]
        for pod in self.left:
            self.waiting[pod.index] = (pod, why)
        self.left = []

    def resume(self) -> None:
        """Go on with those that waited."""
        self.left += [pod for pod, _ in self.waiting.values()]
        self.waiting, self.expected, self.sorted, self.misses = {}, [], False, 0


def excess(job: Job) -> Floats:
    """(resources,) load over target that stays once the expected candidates have left."""
    headroom = job.cooled
    assert headroom is not None
    over = headroom.excess(job.finding.node)
    for pod in job.expected:
        over = over - headroom.relief[pod.index]
    return over


def wanted_pods(finding: Finding) -> Ints:
    """The pods that `Finding.wanted` counts."""
    return finding.candidates if finding.among is None else finding.among


def relief_refusals(job: Job) -> dict[int, Refusal]:
    """Candidate -> why its move wouldn't serve the goal. Only cooling goes by relief."""
    headroom, finding = job.cooled, job.finding
    if headroom is None:
        if finding.goal is not Goal.COOL:
            return {}
        nothing = Refusal.of(Reason.NO_RELIEF, f"{finding.strategy} gives no loads to relieve its nodes of")
        return dict.fromkeys(finding.candidates.tolist(), nothing)
    relief, _ = reliefs(headroom.loads.relieved[finding.candidates], headroom.excess(finding.node))
    reached = headroom.reached(finding.node)
    out = {}
    for index, share in zip(finding.candidates.tolist(), relief.tolist(), strict=True):
        if reached:
            out[index] = Refusal.of(Reason.GOAL_REACHED)
        elif math.isnan(share):
            out[index] = Refusal.of(Reason.NO_POD_USAGE)
        elif share < MIN_RELIEF:
            out[index] = Refusal.of(Reason.NO_RELIEF, f"{percent(share)} of the excess")
    return out


def goal_reached(job: Job) -> Refusal | None:
    """Why no candidate that is left has to leave any more."""
    finding, headroom = job.finding, job.cooled
    if headroom is not None and headroom.reached(finding.node):
        return Refusal.of(Reason.GOAL_REACHED)
    if finding.goal is Goal.REMOVE and finding.wanted is not None and job.moved >= finding.wanted:
        return Refusal.of(Reason.ENOUGH_EVICTED, f"{job.moved} of {finding.wanted}")
    return None


def in_order(job: Job, admission: EvictionAdmission) -> list[Pod]:
    """The candidates that are left, best first. Moves since may have changed the order."""
    headroom = job.cooled
    if headroom is None or job.finding.in_order:
        return job.left
    if any(pod.index not in job.ties for pod in job.left):
        job.ties = {pod.index: place for place, pod in enumerate(sorted(job.left, key=tie_key))}
    over, prices = excess(job), np.array([admission.price(pod).total for pod in job.left])
    relief, overshoot = reliefs(headroom.loads.relieved[[pod.index for pod in job.left]], over)
    less, step = relief_steps(relief, overshoot, 1.0 / max(_of_cheapest_set(job, over, relief, prices), 1))
    paid = np.where(less, prices, prices + OVERSHOOT_PRICE * step)
    ties = np.array([job.ties[pod.index] for pod in job.left])
    order = np.lexsort((ties, paid, np.where(less, step, 0.0), less))
    return [job.left[at] for at in order.tolist()]


def _of_cheapest_set(job: Job, over: Floats, relief: Floats, prices: Floats) -> int:
    """Evictions that reach the target: those of the largest pods, or of the pods with the most relief for their price
    where these are cheaper together. `relief` as of `reliefs`, `prices` (pods,)."""
    few = fewest(job, job.left, over)
    if few > len(job.left):
        return few
    largest = np.argsort(-relief, kind="stable")[:few]
    cheapest = np.argsort(-relief / np.maximum(prices, 1e-9), kind="stable")
    enough = np.cumsum(relief[cheapest]) >= 1.0
    if not enough.any():
        return few
    many = int(np.argmax(enough)) + 1
    return many if prices[cheapest[:many]].sum() < prices[largest].sum() else few


def fewest(job: Job, pods: Sequence[Pod], load: Floats | None = None) -> int:
    """The fewest of these pods whose moves bring the node to its target; more than there are where all don't. `load`
    (resources,) over the target; None = the excess."""
    headroom = job.cooled
    assert headroom is not None
    load = headroom.excess(job.finding.node) if load is None else load
    over = load > 0
    if not over.any():
        return 0
    if not pods:
        return 1
    loads = headroom.relief[[pod.index for pod in pods]][:, over] / load[over]
    if loads.shape[1] == 1:
        # the largest first
        reached = np.cumsum(np.sort(loads[:, 0])[::-1]) >= 1.0
        return int(reached.argmax()) + 1 if reached.any() else len(pods) + 1
    order = np.argsort(-np.minimum(loads, 1.0).mean(axis=1), kind="stable")
    enough = (np.cumsum(loads[order], axis=0) >= 1.0).all(axis=1)
    return int(np.argmax(enough)) + 1 if enough.any() else len(pods) + 1


def size(job: Job) -> float:
    """Load of the best candidate that is left, as a share of its node."""
    headroom = job.cooled
    if headroom is None or not job.left:
        return 0.0
    shares = headroom.loads.relieved[job.left[0].index] / headroom.loads.room[job.finding.node]
    return float(np.nan_to_num(shares).max())


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


def relief_steps(share: Floats, overshoot: Floats, part: float) -> tuple[Bools, Floats]:
    """(pods,) whether each takes less than `part`, and the step of its relief; smaller is better. `part`: the share of
    the excess that the smallest pod of choice takes; `share`, `overshoot` as of `reliefs`."""
    less: Bools = share < part * (1 - 1e-9)
    over = overshoot if part >= 1.0 else (share - part) / part
    return less, np.where(less, -np.ceil(share * RELIEF_STEPS), np.floor(over / OVERSHOOT_STEP))


def tie_key(pod: Pod) -> tuple[int, int, float, str, str]:
    """Smaller is better, between pods of equal relief and price."""
    return pod.priority, QOS_RANK.get(pod.template.qos, 2), -pod.created, pod.namespace, pod.name


def largest_first(pods: list[Pod], snapshot: ClusterSnapshot) -> list[Pod]:
    """By requests: the pods that are hardest to place come first."""
    cpu, memory = snapshot.pods.cpu_request_millicores, snapshot.pods.memory_request_bytes
    return sorted(pods, key=lambda pod: (-float(cpu[pod.index]), -float(memory[pod.index]), pod.namespace, pod.name))
