"""Images on nodes: what a node reports, and how long a pull takes."""

from collections.abc import Callable
from typing import Any

from rebalancer.lab import Lab, LabClock, NodeSpec, node, scenario, workload
from rebalancer.lab.controlplane.cluster import Cluster
from rebalancer.lab.scenarios.build import MOST_REPORTED, image_entry, reported_images
from tests.lab.conftest import Client

Start = Callable[..., Lab]

GIB = 2**30


def images(lab: Lab, name: str) -> dict[str, int]:
    found = lab.cluster.store.get("nodes", "", name)["status"]["images"]
    return {image["names"][0]: image["sizeBytes"] for image in found}


def test_a_node_reports_its_own_images_and_those_of_its_pods(start: Start) -> None:
    web = workload("web", place={"a": 2}, image="registry.example:5000/web", image_size="1200Mi")
    lab = start(scenario(nodes=[node("a", images={"base:3": 1000}), node("b")], workloads=[web]))
    assert images(lab, "a") == {"registry.example:5000/web:latest": 1200 * 2**20, "base:3": 1000}
    assert images(lab, "b") == {}


def test_a_pull_takes_time_where_the_image_is_missing() -> None:
    """An hour for the image, a second for the rest: the next thing to happen tells which it was."""
    web = workload("web", replicas=1, image="web:1", image_size=GIB, cpu_request="100m")

    def wait_of(spec: NodeSpec, **fields: Any) -> float:
        timing = {"start_seconds": 1.0, "pull_bytes_per_second": GIB / 3600.0, **fields}
        cluster = Cluster(scenario=scenario(nodes=[spec], workloads=[web], **timing), clock=LabClock(speed=1.0), seed=1)
        due = cluster.step()
        assert due is not None
        return due - cluster.clock.now()

    assert 3000 < wait_of(node("a")) <= 3601
    assert wait_of(node("a", images={"web:1": GIB})) < 600
    assert wait_of(node("a", images={"web:2": GIB})) > 3000
    assert wait_of(node("a"), pull_bytes_per_second=None) < 600


def test_a_node_pulls_an_image_once(start: Start) -> None:
    web = workload("web", place={"a": 1}, image="web:1", image_size=GIB, cpu_request="100m")
    timing = {"pull_bytes_per_second": GIB / 10.0, "start_seconds": 2.0, "stop_seconds": 1.0}
    lab = start(scenario(nodes=[node("a"), node("b")], workloads=[web], **timing))
    lab.cluster.cordon("a")
    client = Client(lab.url)
    for count in (1, 2):
        client.evict(lab.cluster.pods()[0])
        lab.cluster.wait_until(lambda count=count: len(lab.log.entries("ready")) == count)
    assert images(lab, "b") == {"web:1": GIB}
    assert [(each.node, each.detail) for each in lab.log.entries("pulled")] == [("b", "web:1")]


def test_an_image_of_unknown_size_is_not_reported_and_takes_no_time(start: Start) -> None:
    web: Any = workload("web", place={"a": 1}, image="web:1")
    lab = start(scenario(nodes=[node("a")], workloads=[web], pull_bytes_per_second=1.0, start_seconds=2.0))
    Client(lab.url).evict(lab.cluster.pods()[0])
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 1)
    assert images(lab, "a") == {}


def test_a_node_reports_its_largest_images_only() -> None:
    reported = reported_images([image_entry(f"image-{size}:1", size) for size in range(MOST_REPORTED + 5)])
    assert [image["sizeBytes"] for image in reported] == list(range(MOST_REPORTED + 4, 4, -1))
