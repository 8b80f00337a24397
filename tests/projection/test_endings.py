"""Pods whose end is known: no others are moved for their load."""

import math
from typing import Any

import pytest

from rebalancer.model.cluster.owners import Owner
from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.reason import Reason
from tests.builders import (
    NOW,
    APod,
    Outcome,
    a_node,
    a_pod,
    a_policy,
    cluster,
    found_in,
    plan_all,
    projection_of,
    replicas,
    usage_of,
)


def batch(name: str, **fields: Any) -> APod:
    return a_pod(name, "hot", owner=fields.pop("job", "job"), owner_kind="Job", used=6_000.0, **fields)


def hot_by(pod: APod) -> tuple[Outcome, Any]:
    """The plan, and what was found of a node that the pod takes from 50 % to 87 %."""
    nodes, pods = [a_node("hot"), a_node("cool", used=0.0)], [*replicas("web", {"hot": 4}, used=2_000.0), pod]
    snapshot = cluster(nodes, pods)
    (found,) = found_in(snapshot, usage_of(snapshot, nodes, pods), a_policy())
    return plan_all(nodes, pods), found


@pytest.mark.parametrize("ends", [NOW + 30.0, NOW + 600.0])
def test_a_node_that_is_hot_until_a_job_ends_is_left_alone(ends: float) -> None:
    outcome, found = hot_by(batch("job-1", ends=ends))
    assert outcome.moves == []
    skipped = found.skipped[0]
    assert (skipped.code, skipped.next_at) == (Reason.COOLS_BY_ITSELF, ends)
    assert "shop/job-1 ends by 2027-01-15 08:" in skipped.message
    assert skipped.message.endswith("with 6000m")


@pytest.mark.parametrize("ends", [NOW + 601.0, NOW - 121.0, math.nan])
def test_one_that_runs_on_is_a_reason(ends: float) -> None:
    """Also one that should have ended long ago."""
    outcome, found = hot_by(batch("job-1", ends=ends))
    assert len(outcome.moves) == 2
    assert found.skipped == {}


def end_of(pod: APod, *others: APod, **fields: Any) -> float:
    """In seconds from now."""
    return float(projection_of(cluster([a_node("hot")], [pod, *others], **fields)).ends[0]) - NOW


def test_a_job_ends_at_its_deadline() -> None:
    owner = Owner(kind="Job", namespace="shop", name="job", uid="u", ends=NOW + 120.0)
    assert end_of(batch("job-1"), owners=[owner]) == 120.0
    assert end_of(batch("job-1", ends=NOW + 60.0), owners=[owner]) == 60.0


def runs(*seconds: float) -> tuple[list[Owner], list[APod]]:
    """A CronJob with finished runs that took so long, and one that began five minutes ago."""
    owners = [Owner(kind="CronJob", namespace="shop", name="nightly", uid="c")]
    owners += [
        Owner(kind="Job", namespace="shop", name=f"nightly-{n}", uid=f"j{n}", parent=0) for n in range(len(seconds) + 1)
    ]
    done = [
        batch(f"run-{n}", job=f"nightly-{n + 1}", age=7_200.0, phase=SUCCEEDED, unready_since=NOW - 7_200.0 + took)
        for n, took in enumerate(seconds)
    ]
    return owners, [batch("now", job="nightly-0", age=300.0), *done]


@pytest.mark.parametrize(
    ("took", "left"),
    [
        ((500.0, 700.0, 600.0), 400.0),
        ((500.0, 700.0), math.nan),
        ((100.0, 200.0, 250.0), math.nan),
        ((500.0, 700.0, math.nan), math.nan),
    ],
    ids=["the longest of three", "too few", "it takes longer", "one of unknown length"],
)
def test_a_run_ends_after_the_longest_of_those_before(took: tuple[float, ...], left: float) -> None:
    owners, pods = runs(*took)
    found = end_of(*pods, owners=owners)
    assert found == left or (math.isnan(found) and math.isnan(left))


def test_a_terminating_pod_counts_until_its_grace_period_ends() -> None:
    leaving = [
        a_pod("slow", "hot", owner="slow", used=6_000.0, terminating=True, ends=NOW + end) for end in (30, 3_600)
    ]
    soon, late = (hot_by(pod) for pod in leaving)
    assert (len(soon[0].moves), soon[1].skipped[0].code) == (0, Reason.COOLS_BY_ITSELF)
    assert len(late[0].moves) == 2


def test_a_terminating_pod_that_does_not_go_counts_again() -> None:
    outcome, found = hot_by(a_pod("stuck", "hot", owner="x", used=6_000.0, terminating=True, ends=NOW - 3_600.0))
    assert len(outcome.moves) == 2
    assert found.skipped == {}


def test_of_equal_pods_the_one_with_the_short_grace_period_goes() -> None:
    nodes = [a_node("hot", used=13_000.0), a_node("cool", used=0.0)]
    pods = [
        a_pod("slow", "hot", owner="aa", used=2_800.0, template={"graceSeconds": 3_600.0}),
        a_pod("web", "hot", owner="web", used=2_800.0),
        a_pod("asks", "hot", cpu=12_000.0),
    ]
    outcome = plan_all(nodes, pods, a_policy(guards={"minReplicas": 1}))
    assert (outcome.pods, outcome.refusals["slow"]) == (["web"], "GoalReached")
