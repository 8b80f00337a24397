"""Where the practice cluster's scheduler puts pods. What its scores are is tested in `tests/placement`."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rebalancer.lab import Lab, LabClock, Scenario, node, scenario, workload
from rebalancer.lab.controlplane.cluster import Cluster
from rebalancer.lab.controlplane.sampling import Sampler, visiting_order
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]

GIB = 2**30
NOTHING = {"start_seconds": 2.0, "stop_seconds": 1.0}


def placed(spec: Scenario, *, seed: int = 1) -> Cluster:
    """A cluster right after its first round: everything that can be scheduled is."""
    return Cluster(scenario=spec, clock=LabClock(speed=1.0), seed=seed)


def where(cluster: Cluster, name: str) -> Counter[str]:
    return Counter(pod["spec"].get("nodeName", "") for pod in cluster.pods(workload=name))


def message(cluster: Cluster, name: str) -> str:
    (pod,) = cluster.pods(workload=name)
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    return str(condition["message"])


def nodes(names: str, **fields: Any) -> list[Any]:
    return [node(name, **{"cpu": 8, "memory": "32Gi", **fields}) for name in names]


def test_a_pod_goes_where_least_is_requested_whatever_is_used() -> None:
    heavy = workload("heavy", place={"a": 1, "b": 1}, cpu_request="4", memory_request="16Gi", cpu=0.0)
    busy = workload("busy", place={"c": 1}, cpu=7.5)
    late = workload("late", replicas=1, cpu_request="1", memory_request="4Gi")
    cluster = placed(scenario(nodes=nodes("abc"), workloads=[heavy, busy, late]))
    assert where(cluster, "late") == {"c": 1}


def test_replicas_spread_by_default_over_nodes_and_zones() -> None:
    zones = {"a": "x", "b": "x", "c": "y", "d": "y"}
    machines = [node(name, cpu=32, memory="128Gi", zone=zone) for name, zone in zones.items()]
    web = workload("web", replicas=4, cpu_request="100m", memory_request="128Mi")
    assert where(placed(scenario(nodes=machines, workloads=[web])), "web") == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_default_spreading_outweighs_what_requests_prefer() -> None:
    filler = workload("filler", place={"b": 1}, cpu_request="1", memory_request="4Gi")
    web = workload("web", place={"a": 1}, replicas=2, cpu_request="100m", memory_request="128Mi")
    other = workload("other", replicas=1, cpu_request="100m", memory_request="128Mi")
    cluster = placed(scenario(nodes=nodes("ab"), workloads=[filler, web, other]))
    assert where(cluster, "web") == {"a": 1, "b": 1}
    assert where(cluster, "other") == {"a": 1}


def test_a_hard_constraint_of_the_pod_itself_is_obeyed() -> None:
    hard = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
    }
    web = workload("web", place={"a": 1}, replicas=4, cpu_request="100m", topology_spread=(hard,))
    cluster = placed(scenario(nodes=[*nodes("a"), *nodes("b", cpu=1)], workloads=[web]))
    assert where(cluster, "web") == {"a": 2, "b": 2}


def test_an_image_of_a_gibibyte_heaps_pods_where_it_is() -> None:
    """On one of two nodes it scores 100 * (600 - 23) / (1000 - 23) = 59; room by requests scores less apart."""
    web = workload("web", replicas=1, image="web:1", cpu_request="100m", memory_request="128Mi")
    filler = workload("filler", place={"a": 1}, cpu_request="1", memory_request="4Gi")

    def at(size: str) -> Counter[str]:
        machines = [*nodes("a", images={"web:1": size}), *nodes("b")]
        return where(placed(scenario(nodes=machines, workloads=[filler, web])), "web")

    assert at("1200Mi") == {"a": 1}
    assert at("20Mi") == {"b": 1}


def test_the_image_that_a_placed_pod_brought_draws_the_next_one() -> None:
    job = {"kind": "Job", "image": "sim:1", "image_size": "1200Mi", "cpu_request": "100m", "memory_request": "128Mi"}
    there, coming = workload("one", place={"a": 1}, **job), workload("two", replicas=1, **job)
    assert where(placed(scenario(nodes=nodes("ab"), workloads=[there, coming])), "two") == {"a": 1}


@pytest.mark.parametrize("holder", ["newcomer", "incumbent"])
def test_anti_affinity_of_either_pod_keeps_both_apart(holder: str) -> None:
    def apart(other: str) -> dict[str, Any]:
        term = {
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": other}},
            "topologyKey": "kubernetes.io/hostname",
        }
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}

    incumbent = workload("incumbent", place={"a": 1}, **(apart("newcomer") if holder == "incumbent" else {}))
    filler = workload("filler", place={"b": 1}, cpu_request="6", memory_request="24Gi")
    fields = apart("incumbent") if holder == "newcomer" else {}
    newcomer = workload("newcomer", replicas=1, cpu_request="100m", **fields)
    free = placed(scenario(nodes=nodes("ab"), workloads=[filler, workload("newcomer", replicas=1, cpu_request="100m")]))
    assert where(free, "newcomer") == {"a": 1}
    cluster = placed(scenario(nodes=nodes("ab"), workloads=[incumbent, filler, newcomer]))
    assert where(cluster, "newcomer") == {"b": 1}


def test_of_two_pods_that_wait_the_more_important_one_is_placed() -> None:
    first = workload("a-first", replicas=1, cpu_request="6", priority=0)
    important = workload("important", replicas=1, cpu_request="6", priority=100)
    cluster = placed(scenario(nodes=nodes("a"), workloads=[first, important]))
    assert (where(cluster, "important"), where(cluster, "a-first")) == ({"a": 1}, {"": 1})


def test_gated_pods_and_pods_of_another_scheduler_wait_until_they_are_ours(start: Start) -> None:
    gated = workload("gated", replicas=1, gates=("example.com/wait",))
    foreign = workload("foreign", replicas=1, scheduler_name="another")
    lab = start(three_nodes(gated, foreign))
    (pod,) = lab.cluster.pods(workload="gated")
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    content = {"Content-Type": "application/merge-patch+json"}
    body = {"spec": {"schedulingGates": None}}
    assert Client(lab.url)(path, method="PATCH", body=body, headers=content).code == 200
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 1)
    assert lab.log.entries("ready")[0].name == pod["metadata"]["name"]
    assert where(lab.cluster, "foreign") == {"": 1}


def test_a_nominated_node_is_taken_where_the_pod_fits() -> None:
    filler = workload("filler", place={"c": 1}, cpu_request="4")
    cluster = placed(scenario(nodes=nodes("abc"), workloads=[filler]))
    spec = {"containers": [{"name": "x", "resources": {"requests": {"cpu": "1"}}}]}
    pod = {"metadata": {"name": "x", "namespace": "default"}, "spec": spec}
    cluster.store.create("pods", {**pod, "status": {"phase": "Pending", "nominatedNodeName": "c"}})
    cluster.step()
    assert cluster.store.get("pods", "default", "x")["spec"]["nodeName"] == "c"


def test_host_ports_keep_pods_apart() -> None:
    web = workload("web", replicas=3, host_ports=(8080,))
    assert where(placed(scenario(nodes=nodes("ab"), workloads=[web])), "web") == {"a": 1, "b": 1, "": 1}


def test_what_an_init_container_needs_is_what_the_pod_needs() -> None:
    init = {"name": "init", "image": "init:1", "resources": {"requests": {"cpu": "9"}}}
    cluster = placed(
        scenario(nodes=nodes("a"), workloads=[workload("web", replicas=1, cpu_request="1", init_containers=(init,))])
    )
    assert message(cluster, "web") == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_pod_that_fits_nowhere_says_why_in_the_schedulers_words() -> None:
    machines = [
        *nodes("a", pool="x", cpu=1, memory="1Gi"),
        *nodes("b", pool="x", cpu=1),
        *nodes("c", pool="x", unschedulable=True),
        *nodes("d", pool="x", taints=({"key": "dedicated", "value": "gpu"},)),
        *nodes("e", pool="other"),
    ]
    big = workload("big", replicas=1, cpu_request="2", memory_request="2Gi", node_selector={"pool": "x"})
    text = message(placed(scenario(nodes=machines, workloads=[big])), "big")
    assert text == (
        "0/5 nodes are available: 1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient cpu."
    )


def test_a_pod_that_found_no_room_is_placed_when_there_is_some(start: Start) -> None:
    lab = start(three_nodes(workload("big", replicas=1, cpu_request="9")))
    lab.cluster.add_node(node("large", cpu=16))
    lab.cluster.wait_until(lambda: len(lab.log.entries("ready")) == 1)
    assert lab.log.entries("bound")[0].node == "large"


def test_an_untolerated_soft_taint_turns_pods_away_but_not_all(start: Start) -> None:
    web = workload("web", replicas=1, cpu_request="100m")
    lab = start(three_nodes(**NOTHING))
    for name in "ab":
        lab.cluster.taint(name, "rebalancer.dev/steer", value="hot", effect="PreferNoSchedule")
    lab.cluster.add_workload(web)
    lab.cluster.wait_until(lambda: bool(lab.log.entries("bound")))
    assert lab.log.entries("bound")[0].node == "c"
    lab.cluster.cordon("c")
    lab.cluster.add_workload(workload("more", replicas=1, cpu_request="100m"))
    lab.cluster.wait_until(lambda: len(lab.log.entries("bound")) == 2)
    assert lab.log.entries("bound")[1].node in ("a", "b")


def test_equal_nodes_are_chosen_by_the_seed() -> None:
    spec = scenario(nodes=nodes("abcdefgh"), workloads=[workload("web", replicas=1, cpu_request="1")])
    chosen = [next(iter(where(placed(spec, seed=seed), "web"))) for seed in range(12)]
    assert chosen == [next(iter(where(placed(spec, seed=seed), "web"))) for seed in range(12)]
    assert len(set(chosen)) > 2


# ---- the other scheduler


def test_a_scheduler_that_differs_packs_where_the_default_spreads() -> None:
    there = workload("there", place={"a": 1}, cpu_request="4", memory_request="16Gi")
    web = workload("web", replicas=2, cpu_request="500m", memory_request="1Gi")
    spec = {"nodes": nodes("ab"), "workloads": [there, web]}
    assert where(placed(scenario(**spec)), "web") == {"a": 1, "b": 1}
    assert where(placed(scenario(**spec, scheduler="differs")), "web") == {"a": 2}


def test_a_scheduler_that_differs_looks_at_few_nodes() -> None:
    """The fullest node is the last: one that looks at four of eight doesn't see it for the first pod."""
    there = workload("there", place={"h": 1}, cpu_request="4", memory_request="16Gi")
    web = workload("web", replicas=1, cpu_request="500m", memory_request="1Gi")
    cluster = placed(scenario(nodes=nodes("abcdefgh"), workloads=[there, web], scheduler="differs"))
    assert set(where(cluster, "web")) <= set("abcd")


def test_a_scheduler_that_differs_prefers_by_an_old_view_but_never_overfills() -> None:
    """It saw `a` as the fuller node; that the big pod is gone it learns later, that `a` is full it must not miss."""
    there = workload("there", kind="Pod", place={"a": 1}, cpu_request="4", memory_request="16Gi")
    first = workload("first", replicas=1, cpu_request="100m", memory_request="128Mi")
    cluster = placed(scenario(nodes=nodes("ab"), workloads=[there, first], scheduler="differs"))
    cluster.store.remove("pods", "default", "there")
    cluster.add_workload(workload("other", place={"b": 1}, cpu_request="4", memory_request="16Gi"))
    cluster.add_workload(workload("late", replicas=1, cpu_request="100m", memory_request="128Mi"))
    cluster.step()
    assert where(cluster, "late") == {"a": 1}
    cluster.add_workload(workload("fill", place={"a": 1}, cpu_request="7", memory_request="1Gi"))
    cluster.add_workload(workload("big", replicas=1, cpu_request="2", memory_request="1Gi"))
    cluster.step()
    assert where(cluster, "big") == {"b": 1}


# ---- sampling


def test_up_to_a_hundred_nodes_are_all_looked_at() -> None:
    feasible, order = np.ones(100, dtype=np.bool_), np.arange(100)
    assert sorted(Sampler().sample(feasible, order).tolist()) == list(range(100))


def test_of_more_nodes_a_part_is_looked_at_and_the_next_pod_goes_on_where_it_stopped() -> None:
    sampler, order = Sampler(), np.arange(240)
    feasible = np.ones(240, dtype=np.bool_)
    feasible[:5] = False
    assert sampler.sample(feasible, order).tolist() == list(range(5, 122))  # 49 % of 240 are 117
    assert sampler.sample(feasible, order)[0] == 122


def test_the_order_takes_one_node_of_each_zone_in_turn() -> None:
    labels = [{"topology.kubernetes.io/zone": zone} for zone in "aaabbc"]
    assert visiting_order(labels).tolist() == [0, 3, 5, 1, 4, 2]


def test_a_pod_on_a_large_cluster_can_miss_the_best_node() -> None:
    """150 nodes, one of them empty and last in the round: a sample of 100 doesn't have it."""
    machines = [node(f"n{number:03}", cpu=8) for number in range(150)]
    full = workload("full", place={f"n{number:03}": 1 for number in range(149)}, cpu_request="1", memory_request="1Gi")
    web = workload("web", replicas=1, cpu_request="1", memory_request="1Gi")
    cluster = placed(scenario(nodes=machines, workloads=[full, web]))
    (name,) = where(cluster, "web")
    assert name < "n100"
