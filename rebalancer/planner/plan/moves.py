"""The move of one candidate: its `Eviction`, or why it may not be made now.

In this order: the pod's budget and the limits, whatever its target node; its landing; the limits once more, with the
target node known.
"""

import math
from dataclasses import dataclass

from rebalancer.constraints.admission import EvictionAdmission
from rebalancer.model.cluster.pods import FAILED, SUCCEEDED
from rebalancer.model.cluster.snapshot import ClusterSnapshot, Pod
from rebalancer.model.decisions.eviction import Eviction, InPlan
from rebalancer.model.decisions.plan import Goal
from rebalancer.model.notation.arrays import Ints, Rows
from rebalancer.model.notation.figures import counted, percent
from rebalancer.model.reason import Reason, Refusal
from rebalancer.placement.landing.model import NO_PODS
from rebalancer.placement.plugins.followers import Followers
from rebalancer.planner.candidates.jobs import Job
from rebalancer.planner.landings.landings import CheckedLanding
from rebalancer.planner.plan.plan_input import PlannedMove
from rebalancer.planner.plan.state import PlanState


@dataclass(frozen=True, slots=True)
class Refused:
    """A candidate that may not be moved now."""

    refusal: Refusal
    limited: Eviction | None = None
    """Its move, where the limits refuse it whatever its landing."""


class MoveMaker:
    """See the module."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self.checked: dict[int, CheckedLanding] = {}
        """Pod -> the landing of its move that was made last."""
        self.landings_checked = 0
        """How many landings were looked for."""

    def make(self, job: Job, pod: Pod, repeated: PlannedMove | None) -> Eviction | Refused:
        """`repeated`: the same move of the simulated plan, whose landing is known; of a given plan it isn't."""
        finding, state, landings = job.finding, self._state, self._state.landings
        known = repeated is not None and repeated.checked is not None
        move, even = self.leave(job, pod), None if known else finding.landing.even
        if even is not None and (enough := landings.even.enough(even, finding.node)) is not None:
            return Refused(enough, move.limited if isinstance(move, Refused) else None)
        if isinstance(move, Refused):
            return move
        move.reason = _reason(job, pod, state.admission.price(pod).total)
        if move.in_plan.replacement_first:
            move.reason += "; replacement first"
        if pod.phase in (SUCCEEDED, FAILED):
            return move
        if repeated is not None and repeated.checked is not None:
            landings.steer(list(repeated.taints))
            return self._to(job, pod, move, repeated.checked)
        few = job.cooled is not None and not job.any_taints
        while True:
            self.landings_checked += 1
            checked = landings.of(pod, finding, job.headroom, few_taints=few)
            if isinstance(checked, Refusal):
                return Refused(checked)
            found = self._to(job, pod, move, checked)
            # a node that starts as many replacements as it may stops no plan: others take the next ones
            shared = isinstance(found, Refused) and found.refusal.code is Reason.LIMIT_REPLACEMENTS
            if not shared or not landings.avoid(int(checked.landing.nodes[0])):
                return found

    def _to(self, job: Job, pod: Pod, move: Eviction, checked: CheckedLanding) -> Eviction | Refused:
        """The move with its target nodes, or why it may not be made with these."""
        state = self._state
        if (needed := self.needed(job, pod, checked.landing.nodes)) is not None:
            return Refused(needed)
        self.checked[pod.index], landing = checked, checked.landing
        move.target_nodes = landing.shown(state.snapshot.nodes.names)
        move.target_pool = state.input.pools[int(landing.nodes[0])]
        move.pull_bytes = state.landings.model.pull_bytes(pod, landing.nodes)
        refusal = state.admission.refuses(state.admission.scope(move))
        return move if refusal is None else Refused(refusal)

    def leave(self, job: Job, pod: Pod) -> Eviction | Refused:
        """The move without its reason and its target nodes, or why the pod may not leave now, whatever its target."""
        finding, state = job.finding, self._state
        refusal = state.budgets.refuses(pod) or self.needed(job, pod)
        if refusal is not None:
            return Refused(refusal)
        move = new_eviction(
            pod,
            state.snapshot,
            state.admission,
            node=finding.node,
            pool=finding.pool,
            cpu_millicores=float(state.input.cpu_millicores[pod.index]),
            cools=finding.goal is Goal.COOL,
            strategy=finding.strategy,
            resource=job.resource,
            once=finding.goal is Goal.REMOVE and not finding.recurs,
            room_for="" if finding.room_for is None else _full_name(state.snapshot.pod(finding.room_for)),
        )
        refusal = state.admission.refuses(move)
        return move if refusal is None else Refused(refusal, move)

    def needed(self, job: Job, pod: Pod, targets: Rows | None = None, leaving: Ints | None = None) -> Refusal | None:
        """Why a pod stays for its followers, or None. `targets` and `leaving` as in `Following.left_by`; None: any
        other node, and the candidates where all of them leave."""
        finding, state = job.finding, self._state
        if leaving is None:
            candidates = finding.candidates if finding.goal is Goal.EMPTY else NO_PODS
            leaving = candidates[state.snapshot.active[candidates] & ~state.moved[candidates]]
        left = state.landings.model.followers(pod, targets, leaving=leaving)
        return needed_by(left, state.admission, strategy=finding.strategy, pool=finding.pool)


def needed_by(left: Followers | None, admission: EvictionAdmission, *, strategy: str, pool: str) -> Refusal | None:
    """Why a pod stays for its followers, or None."""
    if left is None or admission.moves_needed_pods(strategy=strategy, pool=pool):
        return None
    return Refusal.of(Reason.NEEDED_BY_OTHERS, f"{counted(left.pods, 'pod')} in {left.where}")


def new_eviction(
    pod: Pod,
    snapshot: ClusterSnapshot,
    admission: EvictionAdmission,
    *,
    node: int,
    pool: str,
    cpu_millicores: float,
    cools: bool,
    strategy: str = "",
    resource: str = "",
    once: bool = False,
    room_for: str = "",
) -> Eviction:
    """The eviction of a pod without its reason and its target nodes, with the scopes that count it whatever these are.
    The keywords are its fields; `node` is the index of the node that it leaves."""
    assert pod.service is not None  # the guards reject bare pods
    traits = admission.traits(pod)
    move = Eviction(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=snapshot.nodes.names[node],
        pool=pool,
        service=pod.service,
        strategy=strategy,
        reason="",
        cpu_millicores=cpu_millicores,
        resource=resource,
        service_identity=traits.identity,
        level=traits.level,
        owner_uid=snapshot.owners[int(snapshot.top_owner[snapshot.pods.owner[pod.index]])].uid,
        in_plan=InPlan(
            pod_index=pod.index,
            node_index=node,
            cools=cools,
            room_for=room_for,
            once=once,
            despite_progress=admission.lifts(pod, "InProgress", strategy=strategy),
            replacement_first=admission.first.applies(pod),
        ),
    )
    return admission.scope(move)


def _full_name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"


def _reason(job: Job, pod: Pod, price: float) -> str:
    """The finding's reason, with the relief and the price where the goal is to cool."""
    finding, headroom = job.finding, job.cooled
    if headroom is None:
        return finding.reason
    parts = [
        f"{percent(each / whole)} {name}"
        for name, each, whole in zip(
            headroom.loads.resources, headroom.loads.relieved[pod.index], headroom.loads.room[finding.node], strict=True
        )
        if math.isfinite(each)
    ]
    return f"{finding.reason}; relieves the node of {', '.join(parts)}; price {price:.3g}"
