"""ResourceQuotas: a replacement that one would refuse is not counted on (issue 16, 9)."""

from typing import Any

import pytest

from rebalancer.constraints.moves.quotas import QuotaRoom
from rebalancer.model.cluster.pods import SUCCEEDED
from rebalancer.model.cluster.quota import QuotaScope, ResourceQuota
from rebalancer.model.reason import Reason
from tests.builders import (
    GIB,
    APod,
    a_door,
    a_node,
    a_pod,
    a_policy,
    an_eviction,
    carry_out,
    cluster,
    planner_for,
    replicas,
    usage_of,
)


def a_quota(free: dict[str, float], *scopes: QuotaScope, namespace: str = "shop") -> ResourceQuota:
    return ResourceQuota(namespace=namespace, name="team", free=free, scopes=scopes)


def refused(quota: ResourceQuota, pods: list[APod] | None = None, **fields: Any) -> str | None:
    """The sentence about the first of the pods, by default one of a ReplicaSet with 500m and 1 GiB."""
    snapshot = cluster([a_node("n1")], pods or [a_pod("web-0", "n1", owner="web", **fields)], quotas=(quota,))
    refusal = QuotaRoom(snapshot).refuses(0)
    assert refusal is None or refusal.code is Reason.QUOTA_EXCEEDED
    return None if refusal is None else refusal.message.partition(": ")[2]


@pytest.mark.parametrize(
    ("resource", "enough", "little"),
    [
        ("requests.cpu", 500.0, 499.0),
        ("cpu", 500.0, 499.0),
        ("limits.cpu", 500.0, 499.0),
        ("requests.memory", GIB, GIB - 1),
        ("memory", GIB, GIB - 1),
        ("pods", 1.0, 0.0),
        ("count/pods", 1.0, 0.0),
        ("requests.example.com/gpu", 2.0, 1.0),
    ],
)
def test_a_replacement_needs_room_beside_the_pod_that_still_terminates(
    resource: str, enough: float, little: float
) -> None:
    gpu = {"template": {"extendedRequests": {"example.com/gpu": 2.0}}}
    assert refused(a_quota({resource: enough}), **gpu) is None
    assert str(refused(a_quota({resource: little}), **gpu)).startswith(f"team has {little:g} of {resource} left, ")


@pytest.mark.parametrize(
    ("quota", "fields"),
    [
        *((a_quota({resource: 0.0}), {}) for resource in ("services", "count/secrets", "requests.storage")),
        (a_quota({"persistentvolumeclaims": 0.0}), {}),
        (a_quota({"pods": 0.0}), {"phase": SUCCEEDED}),
        (a_quota({"pods": 0.0}, namespace="other"), {}),
    ],
)
def test_what_pods_do_not_use_finished_pods_and_other_namespaces_refuse_none(
    quota: ResourceQuota, fields: dict[str, Any]
) -> None:
    assert refused(quota, **fields) is None


def test_a_stateful_sets_replacement_takes_the_place_of_its_predecessor() -> None:
    assert refused(a_quota({"pods": 0.0, "requests.cpu": 0.0}), owner_kind="StatefulSet") is None
    grown = [
        a_pod("web-0", "n1", owner="web", owner_kind="StatefulSet", cpu=500.0),
        a_pod("web-1", "n1", owner="web", owner_kind="StatefulSet", cpu=800.0, age=60.0),
    ]
    assert refused(a_quota({"requests.cpu": 300.0}), grown) is None
    assert refused(a_quota({"requests.cpu": 299.0}), grown) == "team has 299 of requests.cpu left, 300 are needed"


def test_the_newest_sibling_says_what_the_replacement_will_request() -> None:
    pods = [
        a_pod("web-0", "n1", owner="web", cpu=500.0),
        a_pod("web-1", "n1", owner="web", cpu=2_000.0, age=60.0),
        a_pod("web-2", "n1", owner="web", cpu=9_000.0, age=30.0, terminating=True),
        a_pod("api-0", "n1", owner="api", cpu=9_000.0, age=30.0),
    ]
    assert refused(a_quota({"requests.cpu": 2_000.0}), pods) is None
    assert refused(a_quota({"requests.cpu": 1_999.0}), pods) == "team has 1999 of requests.cpu left, 2000 are needed"


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        (QuotaScope(name="BestEffort"), False),
        (QuotaScope(name="NotBestEffort"), True),
        (QuotaScope(name="Terminating"), False),
        (QuotaScope(name="NotTerminating"), True),
        (QuotaScope(name="PriorityClass", operator="In", values=("high",)), True),
        (QuotaScope(name="PriorityClass", operator="NotIn", values=("high",)), False),
        (QuotaScope(name="PriorityClass", operator="Exists"), True),
        (QuotaScope(name="PriorityClass", operator="DoesNotExist"), False),
        (QuotaScope(name="SomethingNew"), True),
    ],
)
def test_only_quotas_whose_scopes_match_count(scope: QuotaScope, counts: bool) -> None:
    found = refused(a_quota({"pods": 0.0}, scope), template={"priorityClass": "high"})
    assert (found is not None) == counts


ELSEWHERE = {"topologyKey": "zone", "namespaces": ["other"]}
ANYWHERE = {"topologyKey": "zone", "namespaceSelector": {}}
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))


@pytest.mark.parametrize(
    ("affinity", "counts"),
    [
        ({}, False),
        ({"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}, False),
        ({"podAffinity": {REQUIRED: [ELSEWHERE]}}, True),
        ({"podAntiAffinity": {REQUIRED: [ANYWHERE]}}, True),
        ({"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": ELSEWHERE}]}}, True),
    ],
)
def test_a_quota_of_affinity_to_other_namespaces_counts_only_pods_with_such_terms(
    affinity: dict[str, Any], counts: bool
) -> None:
    """With no room it forbids such terms in its namespace, and nothing else."""
    scope = QuotaScope(name="CrossNamespacePodAffinity")
    assert (refused(a_quota({"pods": 0.0}, scope), template={"affinity": affinity}) is not None) == counts


def test_a_quota_is_not_waited_for() -> None:
    snapshot = cluster([a_node("n1"), a_node("n2")], replicas("web", {"n1": 2}), quotas=(a_quota({"pods": 1.0}),))
    admission = a_door(snapshot, a_policy())
    moves = [
        admission.scope(an_eviction(pod=f"web-{at}", uid=f"uid-shop-web-{at}", pod_index=at, node_index=0))
        for at in range(2)
    ]
    assert admission.passes(moves[1], within=120.0)
    assert admission.reserve(moves[0]) is None
    assert not admission.passes(moves[1], within=120.0)


def test_a_plan_counts_its_own_moves_against_the_quota() -> None:
    nodes = [a_node("hot", used=14_000.0), a_node("a", used=1_000.0), a_node("b", used=1_000.0)]
    pods = [*replicas("web", {"hot": 3}, used=2_000.0), a_pod("asks", "hot", cpu=14_000.0)]
    snapshot = cluster(nodes, pods, quotas=(a_quota({"pods": 1.0}),))
    outcome = carry_out(planner_for(snapshot, usage_of(snapshot, nodes, pods), a_policy()), snapshot)
    assert len(outcome.moves) == 1
    assert [outcome.refusals[name] for name in ("web-0", "web-1", "web-2") if name not in outcome.pods] == [
        "QuotaExceeded"
    ] * 2
