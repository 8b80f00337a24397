"""StatefulSets change their template pod by pod, from the last to the first."""

from collections.abc import Callable
from typing import Any

from rebalancer.lab import Lab, workload
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]


def ledger(**fields: Any) -> Any:
    return workload(
        "ledger", namespace="shop", kind="StatefulSet", place={"a": 1, "b": 1, "c": 1}, cpu_request="500m", **fields
    )


def status(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = lab.cluster.store.get("statefulsets", "shop", "ledger")["status"]
    return found


def finish(lab: Lab, first: str) -> None:
    """Wait until the revision `first` is history and every pod is Ready."""
    lab.cluster.wait_until(
        lambda: (
            status(lab)["currentRevision"] == status(lab)["updateRevision"] != first
            and status(lab)["readyReplicas"] == 3
        )
    )


def test_a_rollout_goes_from_the_last_pod_to_the_first_and_waits_for_each(start: Start) -> None:
    lab = start(three_nodes(ledger()))
    before = status(lab)
    assert (before["currentRevision"], before["updatedReplicas"]) == (before["updateRevision"], 3)
    lab.cluster.roll_out("shop", "ledger", image="registry.example/shop/ledger:2.0")
    finish(lab, before["currentRevision"])
    events = [(entry.event, entry.name) for entry in lab.log.entries() if entry.event in ("terminating", "ready")]
    assert events == [
        (event, name) for name in ("ledger-2", "ledger-1", "ledger-0") for event in ("terminating", "ready")
    ]
    after = status(lab)
    assert after["updateRevision"] != before["updateRevision"]
    assert after["currentReplicas"] == 3
    images = {pod["spec"]["containers"][0]["image"] for pod in lab.cluster.pods(workload="ledger")}
    assert images == {"registry.example/shop/ledger:2.0"}


def test_the_status_tells_how_far_a_rollout_is(start: Start) -> None:
    lab = start(three_nodes(ledger(start_seconds=60.0)))
    first = status(lab)["currentRevision"]
    lab.cluster.roll_out("shop", "ledger")
    lab.cluster.wait_until(lambda: status(lab)["updatedReplicas"] == 1)
    halfway = status(lab)
    assert (halfway["currentRevision"], halfway["currentReplicas"]) == (first, 2)
    assert halfway["updateRevision"] != first
    owner = lab.cluster.store.get("statefulsets", "shop", "ledger")
    assert halfway["observedGeneration"] == owner["metadata"]["generation"] == 2


def test_a_pod_that_never_gets_ready_stops_the_rollout(start: Start) -> None:
    lab = start(three_nodes(ledger()))
    owner = lab.cluster.store.get("statefulsets", "shop", "ledger")
    template = {**owner["spec"]["template"], "metadata": {**owner["spec"]["template"]["metadata"]}}
    template["metadata"]["annotations"] = {"lab.rebalancer.dev/behaviour": '{"ready":false}'}
    body = {"spec": {"template": template}}
    path = "/apis/apps/v1/namespaces/shop/statefulsets/ledger"
    content = {"Content-Type": "application/merge-patch+json"}
    assert Client(lab.url)(path, method="PATCH", body=body, headers=content).code == 200
    lab.cluster.wait_until(lambda: "ledger-2" in [entry.name for entry in lab.log.entries("started")])
    lab.clock.sleep(30)
    assert [entry.name for entry in lab.log.entries("terminating")] == ["ledger-2"]
    assert status(lab)["updatedReplicas"] == 1
    assert status(lab)["currentRevision"] != status(lab)["updateRevision"]


def test_an_evicted_pod_comes_back_with_the_newest_template_and_the_rollout_goes_on(start: Start) -> None:
    lab = start(three_nodes(ledger(start_seconds=30.0)))
    first = status(lab)["currentRevision"]
    lab.cluster.roll_out("shop", "ledger", image="ledger:2")
    client = Client(lab.url)
    client.evict(next(pod for pod in lab.cluster.pods() if pod["metadata"]["name"] == "ledger-0"))
    finish(lab, first)
    assert sorted(entry.name for entry in lab.log.entries("terminating")) == ["ledger-0", "ledger-1", "ledger-2"]
