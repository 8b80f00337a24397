"""The next step of a surge: by its row, the Deployment and the pods alone."""

from typing import Any

import pytest

from rebalancer.cycle.evict.surge_steps import REMOVAL_SECONDS, WAIT, Step, next_step, refuses
from rebalancer.model.cluster.annotations import LOWEST_COST
from rebalancer.model.decisions.surges import (
    SWITCHED_OFF,
    DeploymentSeen,
    PodSeen,
    Surge,
    SurgeCall,
    SurgeState,
    SurgeView,
)
from rebalancer.model.reason import Reason
from tests.builders import an_eviction

NOW, DEADLINE = 1_000.0, 1_300.0
OURS, THEIRS = ("rebalancer",), ("kubectl-scale",)


def a_surge(state: SurgeState = SurgeState.STARTED, **fields: Any) -> Surge:
    usual: dict[str, Any] = {
        "id": 1,
        "eviction": 1,
        "namespace": "shop",
        "deployment": "web",
        "deployment_uid": "uid-web",
        "pod": "web-1",
        "pod_uid": "uid-1",
        "replicas": 1,
        "reason": "",
        "deadline_at": DEADLINE,
        "quiet_at": NOW,
    }
    return Surge(**{**usual, "state": state, **fields})


def a_pod(name: str = "web-1", **fields: Any) -> PodSeen:
    usual: dict[str, Any] = {"version": "1", "node": "hot", "ready": True, "terminating": False, "cost": None}
    return PodSeen(**{"name": name, **usual, **fields})


def a_view(*others: PodSeen, pod: PodSeen | None = a_pod(cost=LOWEST_COST), **fields: Any) -> SurgeView:  # noqa: B008
    replicas = fields.get("replicas", 1)
    usual: dict[str, Any] = {
        "uid": "uid-web",
        "version": "7",
        "replicas": replicas,
        "recreates": False,
        "paused": False,
        "up_to_date": True,
        "pods": replicas,
        "updated": replicas,
        "available": replicas,
        "managers": OURS,
    }
    return SurgeView(DeploymentSeen(**{**usual, **fields}), pod, others)


def step(surge: Surge, view: SurgeView, *, now: float = NOW, barred: str = "") -> Step:
    return next_step(surge, view, now=now, barred=barred, manager="rebalancer")


NEW = a_pod("web-2", node="cool")
STARTING = a_pod("web-2", node="cool", ready=False)
S, G, H, U, L = SurgeState.STARTED, SurgeState.GROWN, SurgeState.SHRINKING, SurgeState.UNDOING, SurgeState.LEAVING
GONE = a_pod(terminating=True)


@pytest.mark.parametrize(
    ("state", "view", "expected"),
    [
        # forward
        (S, a_view(pod=a_pod()), SurgeCall.MARK),
        (S, a_view(), SurgeCall.GROW),
        (S, a_view(replicas=2), G),
        (G, a_view(STARTING, replicas=2, available=1), None),
        (G, a_view(NEW, replicas=2), H),
        (H, a_view(NEW, replicas=2), SurgeCall.SHRINK),
        (H, a_view(NEW), None),
        (H, a_view(NEW, pod=GONE), SurgeState.MOVED),
        (H, a_view(NEW, pod=None), SurgeState.MOVED),
        # Ready, but not for minReadySeconds; not bound; about to go
        (G, a_view(NEW, replicas=2, available=1), None),
        (G, a_view(a_pod("web-2", node=""), replicas=2), None),
        (G, a_view(a_pod("web-2", terminating=True), replicas=2), None),
        # the controller has not seen the newest spec
        (G, a_view(NEW, replicas=2, up_to_date=False), None),
        # the newcomer isn't Ready any more: waited for again
        (H, a_view(STARTING, replicas=2), G),
        # the pod left by itself
        (S, a_view(pod=GONE), U),
        (G, a_view(STARTING, pod=GONE, replicas=2), H),
        (H, a_view(STARTING, pod=GONE, replicas=2), SurgeCall.SHRINK),
        # others changed the replicas
        (S, a_view(replicas=3, managers=THEIRS), L),
        (S, a_view(replicas=2, managers=THEIRS), L),
        (G, a_view(STARTING, replicas=2, managers=THEIRS), L),
        (G, a_view(STARTING, replicas=1, managers=THEIRS), L),
        (G, a_view(pod=GONE, replicas=1, managers=THEIRS), SurgeState.MOVED),
        (H, a_view(NEW, replicas=5, managers=THEIRS), L),
        # another pod was removed in its place
        (H, a_view(), U),
        # a rollout, a pause, another strategy
        (G, a_view(STARTING, replicas=2, pods=3, updated=1), U),
        (S, a_view(pods=2), U),
        (S, a_view(paused=True), U),
        (S, a_view(recreates=True), U),
        (S, a_view(pod=a_pod(cost="7")), U),
        # back
        (U, a_view(STARTING, replicas=2), SurgeCall.UNMARK),
        (U, a_view(STARTING, pod=a_pod(), replicas=2), SurgeCall.SHRINK),
        (U, a_view(pod=a_pod()), SurgeState.UNDONE),
        (U, a_view(pod=a_pod(), replicas=2, managers=THEIRS), SurgeState.UNDONE),
        (U, a_view(NEW, pod=GONE), SurgeState.MOVED),
        (L, a_view(replicas=2), SurgeCall.UNMARK),
        (L, a_view(pod=a_pod(), replicas=2), SurgeState.LEFT),
        # a Deployment that is gone
        (G, SurgeView(None, a_pod(cost=LOWEST_COST), ()), L),
        (L, SurgeView(None, a_pod(cost=LOWEST_COST), ()), SurgeCall.UNMARK),
        (U, SurgeView(None, None, ()), SurgeState.MOVED),
        # where managedFields are not known
        (G, a_view(NEW, replicas=2, managers=()), H),
    ],
)
def test_the_next_step(state: SurgeState, view: SurgeView, expected: SurgeCall | SurgeState | None) -> None:
    found = step(a_surge(state), view)
    assert (found.call or found.to) is expected
    assert (found == WAIT) is (expected is None)


@pytest.mark.parametrize("state", [S, G])
def test_it_is_undone_where_the_policy_has_it_no_more_or_the_deadline_has_passed(state: SurgeState) -> None:
    view = a_view(STARTING, replicas=1 if state is S else 2, available=1)
    assert step(a_surge(state), view, barred=SWITCHED_OFF).reason == SWITCHED_OFF
    assert step(a_surge(state), view, now=DEADLINE - 1.0).to is not U
    assert "in time" in step(a_surge(state), view, now=DEADLINE).reason


def test_a_newcomer_that_is_ready_at_the_deadline_is_not_undone() -> None:
    assert step(a_surge(G), a_view(NEW, replicas=2), now=DEADLINE + 1.0).to is H


def test_a_pod_that_is_never_removed_is_given_up() -> None:
    surge, view = a_surge(H), a_view(NEW)
    assert step(surge, view, now=DEADLINE + REMOVAL_SECONDS - 1.0) == WAIT
    assert step(surge, view, now=DEADLINE + REMOVAL_SECONDS).to is U


@pytest.mark.parametrize("state", [U, L])
def test_it_is_over_only_when_no_call_can_be_under_way(state: SurgeState) -> None:
    surge = a_surge(state, quiet_at=NOW + 1.0)
    assert step(surge, a_view(pod=a_pod())) == WAIT
    assert step(surge, a_view(pod=a_pod()), now=NOW + 1.0).to in (SurgeState.UNDONE, SurgeState.LEFT)


def test_who_changed_the_replicas_is_in_the_reason() -> None:
    changed = "the replicas of its Deployment were changed to 3"
    assert step(a_surge(G), a_view(replicas=3, managers=THEIRS)).reason == f"{changed} (kubectl-scale)"
    assert step(a_surge(G), a_view(replicas=3, managers=())).reason == f"{changed} (not by rebalancer)"


@pytest.mark.parametrize(
    ("view", "code"),
    [
        (a_view(pod=a_pod()), None),
        (SurgeView(None, a_pod(), ()), Reason.SERVER_GONE),
        (a_view(pod=None), Reason.SERVER_GONE),
        (a_view(pod=a_pod(node="cool")), Reason.SERVER_GONE),
        (a_view(pod=GONE), Reason.TERMINATING),
        (a_view(pod=a_pod(ready=False)), Reason.NOT_READY),
        (a_view(pod=a_pod(in_progress=True)), Reason.EVICTION_IN_PROGRESS),
        (a_view(pod=a_pod(cost="0")), Reason.SURGE_DELETION_COST),
        (a_view(a_pod("web-2", cost="5"), pod=a_pod(), replicas=2), Reason.SURGE_DELETION_COST),
        (a_view(a_pod("web-0", cost=LOWEST_COST, terminating=True), pod=a_pod()), None),
        (a_view(pod=a_pod(), paused=True), Reason.SURGE_PAUSED),
        (a_view(pod=a_pod(), recreates=True), Reason.SURGE_STRATEGY),
        (a_view(pod=a_pod(), up_to_date=False), Reason.ROLLOUT_IN_PROGRESS),
        (a_view(pod=a_pod(), pods=2), Reason.ROLLOUT_IN_PROGRESS),
    ],
)
def test_right_before_it_begins_it_is_refused_by_what_is_there_now(view: SurgeView, code: Reason | None) -> None:
    refusal = refuses(view, an_eviction(node="hot"))
    assert (None if refusal is None else refusal.code) is code


def test_replicas_that_another_manager_has_set_as_well_are_left_to_it() -> None:
    view = a_view(NEW, replicas=2, managers=("argocd-controller", "rebalancer"))
    assert step(a_surge(G), view).to is SurgeState.LEAVING
    assert step(a_surge(G), a_view(NEW, replicas=2, managers=("rebalancer",))).to is H


def test_a_replica_set_has_time_after_a_scale_back_that_was_late() -> None:
    late = DEADLINE + 2 * REMOVAL_SECONDS
    back = a_surge(H, quiet_at=late + 100.0)
    assert step(back, a_view(NEW, replicas=1), now=late + 1.0) == WAIT
    over = late + 100.0 + REMOVAL_SECONDS
    assert step(back, a_view(NEW, replicas=1, up_to_date=False), now=over) == WAIT
    assert step(back, a_view(NEW, replicas=1), now=over).to is U
