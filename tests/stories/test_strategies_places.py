"""Pods on nodes that they shouldn't be on: node affinity, required and preferred, and taints."""

from pathlib import Path

from rebalancer.lab import NodeSpec
from rebalancer.lab.scenarios.steps import LabelNode, Taint
from tests.stories.oracles.violations import SSD, could_be_better, misplaced, node_of, not_tolerated, running, uids
from tests.stories.scenarios.repairing import NEVER_EVICT, NO_BUDGET, OPTED_OUT, a_repair, strategy
from tests.stories.scenarios.stage import a_machine, a_scenario, service

ONE_AT_A_TIME = {"max_unavailable": 1}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def disks() -> list[NodeSpec]:
    return [a_machine(f"{disk}{number}", labels={"disk": disk}) for disk in ("ssd", "hdd") for number in (1, 2, 3)]


# ---- RemovePodsViolatingNodeAffinity


def test_pods_leave_a_node_that_lost_its_label(tmp_path: Path) -> None:
    cluster = a_scenario(
        disks(),
        service("db", {"ssd1": 3, "ssd2": 1}, node_selector=SSD, pdb=ONE_AT_A_TIME),
        service("queue", {"ssd1": 1, "ssd3": 1}, node_selector=SSD, kind="StatefulSet"),
        service("web", {"ssd1": 1, "hdd1": 1}),
        service("kept", {"ssd1": 2}, node_selector=SSD, annotations=NEVER_EVICT),
        service("frozen", {"ssd1": 2}, node_selector=SSD, pdb={"max_unavailable": 0}),
        # nothing has this label any more
        service("lost", {"ssd1": 2}, node_selector={"rack": "7"}),
        steps=[
            LabelNode(at_seconds=60.0, node="ssd1", labels={"disk": "hdd"}),
        ],
    )
    with a_repair(cluster, tmp_path, misplaced, strategy("RemovePodsViolatingNodeAffinity")) as repair:
        assert misplaced(repair.lab) == {"lost"}
        repair.repairs(
            {"db": 3, "queue": 1}, stuck=("kept", "frozen", "lost"), unmoved=("web", "kept", "frozen", "lost")
        )
        assert repair.fewest_ready("db") == 3
        assert (repair.refused("kept"), repair.refused("frozen")) == (OPTED_OUT, NO_BUDGET)
        assert repair.refused("lost") == {"NoTargetNode"}
        assert repair.refused("web") == set()


def test_a_preference_moves_as_many_as_there_is_room_for_and_the_others_stay(tmp_path: Path) -> None:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    likes_ssd = {"nodeAffinity": {PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [expression]}}]}}
    cluster = a_scenario(
        disks(),
        # 4 cores are free on two of the ssd nodes, none on the third
        service("filler", {"ssd1": 1, "ssd2": 1}, cpu=1.0, cpu_request="11000m", node_selector=SSD),
        service("block", {"ssd3": 1}, cpu=1.0, cpu_request="15000m"),
        service("cache", {"hdd1": 3, "hdd2": 1}, affinity=likes_ssd, cpu_request="4000m", pdb=ONE_AT_A_TIME),
        service("kept", {"hdd3": 2}, affinity=likes_ssd, annotations=NEVER_EVICT),
    )
    both = strategy("RemovePodsViolatingNodeAffinity", nodeAffinityType=[REQUIRED, PREFERRED])
    with a_repair(cluster, tmp_path, could_be_better, both) as repair:
        assert could_be_better(repair.lab) == {"cache", "kept"}
        stays = uids(running(repair.lab, "kept"))
        repair.until_only("kept")
        assert sorted(each.target for each in repair.moved()) == ["ssd1", "ssd2"]
        left = uids(running(repair.lab, "cache"))
        repair.then_nothing_moves("kept")
        assert repair.moved_twice() == []
        repair.all_landed_as_planned()
        repair.the_api_server_refused_nothing()
        assert repair.fewest_ready("cache") == 3
        # the two that stay on the other disks are still wanted elsewhere, and are refused with the reason
        assert sum(node_of(pod).startswith("hdd") for pod in running(repair.lab, "cache")) == 2
        assert uids(running(repair.lab, "cache")) == left
        assert "NoBetterNode" in repair.refused("cache")
        assert uids(running(repair.lab, "kept")) == stays
        assert repair.refused("kept") == OPTED_OUT


# ---- RemovePodsViolatingNodeTaints

GPU = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}


def test_pods_leave_nodes_with_taints_that_they_do_not_tolerate(tmp_path: Path) -> None:
    cluster = a_scenario(
        [*(a_machine(f"n{number}") for number in range(1, 7)), a_machine("rack7", labels={"rack": "7"})],
        service("web", {"n1": 3, "n2": 1}, pdb=ONE_AT_A_TIME),
        service("mail", {"n2": 2, "n4": 1}, kind="StatefulSet"),
        service("train", {"n1": 2}, tolerations=[GPU]),
        service("kept", {"n1": 2}, annotations=NEVER_EVICT),
        service("frozen", {"n2": 2}, pdb={"max_unavailable": 0}),
        # this node alone has what they ask for
        service("tied", {"rack7": 2}, node_selector={"rack": "7"}),
        service("here", {"n3": 2}),
        steps=[
            Taint(at_seconds=60.0, node="n1", key="dedicated", value="gpu"),
            Taint(at_seconds=60.0, node="rack7", key="dedicated", value="gpu"),
            Taint(at_seconds=60.0, node="n2", key="retires", value="soon", effect="PreferNoSchedule"),
        ],
    )
    taints = strategy("RemovePodsViolatingNodeTaints", includePreferNoSchedule=True)
    with a_repair(cluster, tmp_path, not_tolerated, taints) as repair:
        repair.lab.cluster.cordon("n3")
        repair.repairs(
            {"web": 4, "mail": 2}, stuck=("kept", "frozen", "tied"), unmoved=("train", "kept", "frozen", "tied", "here")
        )
        assert {each.target for each in repair.moved()} <= {"n4", "n5", "n6"}
        assert repair.fewest_ready("web") == 3
        assert (repair.refused("kept"), repair.refused("frozen")) == (OPTED_OUT, NO_BUDGET)
        assert repair.refused("tied") == {"NoTargetNode"}
        assert repair.refused("train") == repair.refused("here") == set()
