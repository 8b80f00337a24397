"""What the Eviction API answers, and what follows from an eviction."""

from collections.abc import Callable
from typing import Any

import pytest

from rebalancer.lab import Lab, PdbSpec, workload
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]


def guarded(pdb: dict[str, Any], *, replicas: int = 2, **more: Any) -> Any:
    return three_nodes(
        workload("api", namespace="pay", place={"a": replicas}, cpu_request="100m", pdb=PdbSpec(**pdb), **more)
    )


def budget(lab: Lab) -> dict[str, Any]:
    status: dict[str, Any] = lab.cluster.store.all("poddisruptionbudgets")[0]["status"]
    return status


def test_an_eviction_within_the_budget_is_201_and_spends_its_room(start: Start) -> None:
    lab = start(guarded({"max_unavailable": 1}))
    first, second = lab.cluster.pods(workload="api")
    client = Client(lab.url)
    assert budget(lab)["disruptionsAllowed"] == 1
    answer = client.evict(first)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    assert budget(lab)["disruptionsAllowed"] == 0
    assert client.evict(second).code == 429


def test_a_refusal_by_a_budget_is_429_with_its_cause(start: Start) -> None:
    lab = start(guarded({"min_available": 2}))
    answer = Client(lab.url).evict(lab.cluster.pods(workload="api")[0])
    assert answer.code == 429
    (cause,) = answer.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert "needs 2 healthy pods and has 2 currently" in cause["message"]
    assert [entry.code for entry in lab.log.evictions()] == [429]


@pytest.mark.parametrize(
    ("pdb", "replicas", "allowed"),
    [
        ({"min_available": "50%"}, 3, 1),
        ({"max_unavailable": "30%"}, 3, 1),
        ({"max_unavailable": 0}, 3, 0),
        ({"min_available": 1}, 3, 2),
    ],
)
def test_numbers_and_percentages_of_a_budget(start: Start, pdb: dict[str, Any], replicas: int, allowed: int) -> None:
    status = budget(start(guarded(pdb, replicas=replicas)))
    assert status["disruptionsAllowed"] == allowed
    assert status["expectedPods"] == replicas
    assert status["observedGeneration"] == 1


def test_several_budgets_on_one_pod_are_500(start: Start) -> None:
    lab = start(guarded({"max_unavailable": 1}))
    second = {"metadata": {"name": "second"}, "spec": {"maxUnavailable": 1, "selector": {}}}
    client = Client(lab.url)
    assert client("/apis/policy/v1/namespaces/pay/poddisruptionbudgets", method="POST", body=second).code == 201
    answer = client.evict(lab.cluster.pods(workload="api")[0])
    assert answer.code == 500
    assert "more than one PodDisruptionBudget" in answer.body["message"]


def test_a_stale_uid_is_409_and_has_spent_the_room_all_the_same(start: Start) -> None:
    lab = start(guarded({"max_unavailable": 1}), speed=1.0)
    pod = lab.cluster.pods(workload="api")[0]
    client = Client(lab.url)
    answer = client.evict(pod, uid="not-this-one")
    assert (answer.code, answer.body["reason"]) == (409, "Conflict")
    assert client.evict(pod).code == 429
    assert lab.cluster.pods(workload="api")[0]["metadata"].get("deletionTimestamp") is None


def test_a_pod_that_is_gone_is_404(lab: Lab, client: Client) -> None:
    pod = {"metadata": {"name": "gone", "namespace": "shop", "uid": "x"}}
    assert client.evict(pod).code == 404


def test_a_dry_run_answers_201_and_does_nothing(start: Start) -> None:
    lab = start(guarded({"max_unavailable": 1}))
    client = Client(lab.url)
    for pod in lab.cluster.pods(workload="api"):
        assert client.evict(pod, dry_run=True).code == 201
    assert budget(lab)["disruptionsAllowed"] == 1
    assert lab.log.evictions() == ()
    assert len(lab.log.evictions(dry_run=True)) == 2


def test_a_pending_pod_ignores_budgets(start: Start) -> None:
    lab = start(guarded({"min_available": 3}, node_selector={"nowhere": "yes"}, replicas=3))
    victim = lab.cluster.pods(workload="api")[0]
    client = Client(lab.url)
    path = f"/api/v1/namespaces/pay/pods/{victim['metadata']['name']}?gracePeriodSeconds=0"
    client(path, method="DELETE")
    lab.cluster.wait_until(lambda: len(lab.cluster.pods(workload="api")) == 3)
    (pending,) = [pod for pod in lab.cluster.pods(workload="api") if pod["status"]["phase"] == "Pending"]
    assert client.evict(pending).code == 201


def test_the_replacement_is_made_at_once_and_lands_by_requests_while_the_old_one_still_counts(
    lab: Lab, client: Client
) -> None:
    victim = lab.cluster.pods(workload="web")[0]
    client.evict(victim)
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 1 and len(lab.log.entries("deleted")) == 1)
    (created,), (bound,), (deleted,) = (lab.log.entries(event) for event in ("created", "bound", "deleted"))
    assert created.at <= bound.at <= deleted.at
    assert bound.node in ("b", "c")
    assert deleted.uid == victim["metadata"]["uid"]


def test_a_stateful_set_waits_until_the_old_one_is_gone_and_uses_its_name_again(start: Start) -> None:
    lab = start(three_nodes(workload("db", kind="StatefulSet", place={"a": 1, "b": 1}, cpu_request="1")))
    victim = lab.cluster.pods(workload="db")[0]
    Client(lab.url).evict(victim)
    lab.cluster.wait_until(lambda: bool(lab.log.entries("ready")))
    (created,), (deleted,) = lab.log.entries("created"), lab.log.entries("deleted")
    assert created.name == victim["metadata"]["name"] == deleted.name
    assert created.uid != deleted.uid
    assert created.at >= deleted.at


def test_a_daemon_set_comes_back_to_its_node(start: Start) -> None:
    lab = start(three_nodes(workload("agent", kind="DaemonSet", cpu_request="100m")))
    victim = lab.cluster.pods(node="b")[0]
    Client(lab.url).evict(victim)
    lab.cluster.wait_until(lambda: bool(lab.log.entries("ready")))
    assert lab.log.entries("bound")[0].node == "b"


def test_a_bare_pod_does_not_come_back(start: Start) -> None:
    lab = start(three_nodes(workload("shell", kind="Pod", place={"a": 1})))
    Client(lab.url).evict(lab.cluster.pods()[0])
    lab.cluster.wait_until(lambda: bool(lab.log.entries("deleted")))
    assert lab.cluster.pods() == []


def test_an_evicted_job_pod_counts_as_a_failure(start: Start) -> None:
    lab = start(three_nodes(workload("report", kind="Job", place={"a": 1})))
    Client(lab.url).evict(lab.cluster.pods()[0])
    lab.cluster.wait_until(lambda: bool(lab.log.entries("ready")))
    assert lab.cluster.store.all("jobs")[0]["status"]["failed"] == 1


def test_a_budget_that_selects_everything_guards_every_pod_of_its_namespace(start: Start) -> None:
    web = workload("web", place={"a": 2})
    guard = workload("guard", place={"b": 1}, pdb={"max_unavailable": 0, "selector": {}})
    lab = start(three_nodes(web, guard))
    answer = Client(lab.url).evict(lab.cluster.pods(workload="web")[0])
    assert (answer.code, answer.body["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
    (pdb,) = lab.cluster.store.all("poddisruptionbudgets")
    assert pdb["status"]["currentHealthy"] == 3


def test_nothing_fits_and_the_pod_says_why(start: Start) -> None:
    lab = start(three_nodes(workload("big", replicas=1, cpu_request="9")))
    (pod,) = lab.cluster.pods()
    (why,) = pod["status"]["conditions"]
    assert (why["reason"], why["message"]) == (
        "Unschedulable",
        "0/3 nodes are available: 3 Insufficient cpu.",
    )


def test_an_answer_that_comes_too_late_was_an_eviction_all_the_same(lab: Lab, client: Client) -> None:
    lab.faults.set(eviction_delay_seconds=0.5)
    victim = lab.cluster.pods()[0]
    assert client.evict(victim).code == 201
    (eviction,), (request,) = lab.log.evictions(code=201), lab.log.requests()
    assert request.real_at - eviction.real_at >= 0.5
