"""The next step of a surge, from its row and from what is there: nothing else is remembered.

    Started -> Grown -> Shrinking -> Moved
       └─────────┴─────────┴──> Undoing -> Undone, or Leaving -> Left

A ReplicaSet that is scaled down removes pods that are not Ready first, then those of the lowest deletion cost: so a
newcomer that isn't Ready goes by itself, and one that is Ready stays.
"""

from typing import NamedTuple

from rebalancer.model.cluster.annotations import LOWEST_COST
from rebalancer.model.decisions.eviction import Eviction
from rebalancer.model.decisions.surges import DeploymentSeen, PodSeen, Surge, SurgeCall, SurgeState, SurgeView
from rebalancer.model.reason import Reason, Refusal

REMOVAL_SECONDS = 60.0
"""After its deadline a surge waits so long for the ReplicaSet to remove the pod."""


class Step(NamedTuple):
    """One call, or a new state; neither: wait."""

    call: SurgeCall | None = None
    to: SurgeState | None = None
    reason: str = ""


WAIT = Step()


def refuses(view: SurgeView, eviction: Eviction) -> Refusal | None:
    """Why the surge of a reserved eviction can't begin, or None."""
    deployment, pod = view.deployment, view.pod
    if deployment is None or pod is None or pod.node != eviction.node:
        return Refusal.of(Reason.SERVER_GONE, "it, or its Deployment, has changed since the plan")
    if pod.terminating:
        return Refusal.of(Reason.TERMINATING)
    if pod.in_progress and not eviction.in_plan.despite_progress:
        return Refusal.of(Reason.EVICTION_IN_PROGRESS)
    if not pod.ready:
        return Refusal.of(Reason.NOT_READY)
    if any(each.cost is not None and not each.terminating for each in (pod, *view.others)):
        return Refusal.of(Reason.SURGE_DELETION_COST)
    return _unfit(deployment)


def next_step(surge: Surge, view: SurgeView, *, now: float, barred: str, manager: str) -> Step:
    """The next step. `barred`: why it must not go on, such as a pause, or empty; `manager`: our name in
    managedFields."""
    deployment = view.deployment
    if surge.state in (SurgeState.UNDOING, SurgeState.LEAVING) or deployment is None:
        return _back(surge, view, now=now, manager=manager)
    ours, gone = _is_ours(surge, deployment, manager), _alive(view.pod) is None
    if surge.state is not SurgeState.STARTED and not ours:
        if surge.state is SurgeState.SHRINKING and deployment.replicas == surge.replicas and not gone:
            return _removed(surge, view, deployment, now=now)
        return Step(to=SurgeState.MOVED) if gone else Step(to=SurgeState.LEAVING, reason=_changed(surge, deployment))
    match surge.state:
        case SurgeState.STARTED:
            return _started(surge, view, deployment, now=now, barred=barred, ours=ours)
        case SurgeState.GROWN if not gone:
            return _grown(surge, view, deployment, now=now, barred=barred)
        case SurgeState.GROWN:
            return Step(to=SurgeState.SHRINKING)
    # scaled back only while the newcomer is Ready: it is waited for again
    return Step(SurgeCall.SHRINK) if gone or _others_ready(surge, view) else Step(to=SurgeState.GROWN)


def _started(surge: Surge, view: SurgeView, deployment: DeploymentSeen, *, now: float, barred: str, ours: bool) -> Step:
    pod = _alive(view.pod)
    if ours:
        return Step(to=SurgeState.GROWN)  # the answer was lost
    if deployment.replicas != surge.replicas:
        return Step(to=SurgeState.LEAVING, reason=_changed(surge, deployment))
    if pod is None:
        return _undo("the pod left before the Deployment was scaled up")
    if barred:
        return _undo(barred)
    if now >= surge.deadline_at:
        return _undo("the Deployment could not be scaled up in time")
    if (refusal := _unfit(deployment)) is not None:
        return _undo(refusal.message)
    if pod.cost not in (None, LOWEST_COST):
        return _undo("the pod got another deletion cost")
    return Step(SurgeCall.MARK if pod.cost is None else SurgeCall.GROW)


def _grown(surge: Surge, view: SurgeView, deployment: DeploymentSeen, *, now: float, barred: str) -> Step:
    if barred:
        return _undo(barred)
    if deployment.up_to_date and deployment.pods > deployment.updated:
        return _undo("a rollout of its Deployment began")
    if deployment.up_to_date and deployment.available > surge.replicas and _others_ready(surge, view):
        return Step(to=SurgeState.SHRINKING)
    return _undo("the additional pod was not Ready in time") if now >= surge.deadline_at else WAIT


def _removed(surge: Surge, view: SurgeView, deployment: DeploymentSeen, *, now: float) -> Step:
    """The Deployment is scaled back, and the pod is still there."""
    there = 1 + sum(_alive(each) is not None for each in view.others)
    if deployment.up_to_date and there <= surge.replicas:
        return _undo("another pod was removed in its place")
    late = now >= max(surge.deadline_at, surge.quiet_at) + REMOVAL_SECONDS
    return _undo("its ReplicaSet did not remove it") if late and deployment.up_to_date else WAIT


def _back(surge: Surge, view: SurgeView, *, now: float, manager: str) -> Step:
    """Leave no mark, and with UNDOING no additional pod. The end waits for calls whose answer was lost."""
    deployment, pod = view.deployment, _alive(view.pod)
    if surge.state not in (SurgeState.UNDOING, SurgeState.LEAVING):
        return Step(to=SurgeState.LEAVING, reason="its Deployment is gone")
    if pod is not None and pod.cost == LOWEST_COST:
        return Step(SurgeCall.UNMARK)
    undoing = surge.state is SurgeState.UNDOING
    if undoing and deployment is not None and _is_ours(surge, deployment, manager):
        return Step(SurgeCall.SHRINK)
    if now < surge.quiet_at:
        return WAIT
    if pod is None:
        return Step(to=SurgeState.MOVED)
    return Step(to=SurgeState.UNDONE if undoing else SurgeState.LEFT)


def _unfit(deployment: DeploymentSeen) -> Refusal | None:
    if deployment.recreates:
        return Refusal.of(Reason.SURGE_STRATEGY)
    if deployment.paused:
        return Refusal.of(Reason.SURGE_PAUSED)
    if not deployment.up_to_date or not deployment.pods == deployment.updated == deployment.replicas:
        return Refusal.of(Reason.ROLLOUT_IN_PROGRESS)
    return None


def _is_ours(surge: Surge, deployment: DeploymentSeen, manager: str) -> bool:
    """Whether it has one replica more, and by us alone as far as that is known: our scaling takes the field from all
    others, so one who has it too has set it since."""
    return deployment.replicas == surge.replicas + 1 and deployment.managers in ((), (manager,))


def _alive(pod: PodSeen | None) -> PodSeen | None:
    return None if pod is None or pod.terminating else pod


def _others_ready(surge: Surge, view: SurgeView) -> bool:
    """Whether as many others are Ready as the Deployment had replicas."""
    return sum(each.ready and bool(each.node) and not each.terminating for each in view.others) >= surge.replicas


def _undo(reason: str) -> Step:
    return Step(to=SurgeState.UNDOING, reason=reason)


def _changed(surge: Surge, deployment: DeploymentSeen) -> str:
    who = ", ".join(deployment.managers) or "not by rebalancer"
    return f"the replicas of its Deployment were changed to {deployment.replicas} ({who})"
