"""`explain` and the node page say what differs in the next minutes."""

from typing import Any

from rebalancer.model.cluster.objects import Taint
from tests.builders import NOW, a_node, a_pod, replicas
from tests.planner.test_explain import of_node, of_pod, scene_of

LEAVING: dict[str, Any] = {"taints": (Taint("karpenter.sh/disrupted", "", "NoSchedule"),)}


def test_where_nothing_differs_nothing_is_said() -> None:
    scene = scene_of([a_node("n1"), a_node("n2")], replicas("web", {"n1": 1, "n2": 1}, used=500.0))
    assert (of_pod(scene, "web-0").soon, of_node(scene, "n1").soon) == ((), ())


def test_a_pod_on_a_leaving_node_and_its_siblings() -> None:
    nodes = [a_node("here"), a_node("away", **LEAVING)]
    scene = scene_of(nodes, replicas("web", {"here": 1, "away": 1}, used=500.0))
    assert of_pod(scene, "web-0").soon == (
        "1 of 2 pods of shop/web stay Ready: 1 on leaving nodes, such as away (taint karpenter.sh/disrupted)",
    )
    assert of_pod(scene, "web-1").soon == ("its node is about to go (taint karpenter.sh/disrupted)",)
    assert of_node(scene, "away").soon == ("it is about to go (taint karpenter.sh/disrupted), and 1 pod with it",)
    assert of_node(scene, "here").soon == ("1.0 displaced pods are expected on it, with 500m in all",)


def test_a_pod_that_ends() -> None:
    job = a_pod("job-1", "n1", owner="job", owner_kind="Job", used=500.0, ends=NOW + 120.0)
    going = a_pod("old", "n1", owner="old", used=500.0, terminating=True)
    scene = scene_of([a_node("n1"), a_node("n2")], [job, going])
    assert of_pod(scene, "job-1").soon == ("it ends by 2027-01-15 08:02 UTC",)
    assert of_pod(scene, "old").soon == ("it is terminating",)
    assert of_node(scene, "n1").soon == ("2 pods on it will have ended",)


def test_a_disturbance_is_said_of_its_nodes() -> None:
    lost = [a_node(f"lost-{n}", ready=False, unready_since=NOW - 60.0) for n in range(3)]
    (said,) = of_node(scene_of([a_node("n1"), *lost], []), "n1").soon
    assert said.endswith("within minutes: 3 of 4 nodes in the cluster, 25% stop evictions")
