"""Room for pending pods, from the pod that waits to the one that is bound."""

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from rebalancer.cli.output.cycle import print_cycle
from rebalancer.lab import Lab, Scenario
from rebalancer.lab.scenarios.steps import AddNode, AddWorkload, RollOut
from rebalancer.model.cluster.steering import ROOM, SOFT_TAINT
from rebalancer.model.decisions.next_hour import others_sentence
from tests.stories.scenarios.repairing import strategy
from tests.stories.scenarios.stage import GENEROUS, Stage, a_machine, a_scenario, a_stage, burner, messages, service
from tests.stories.test_approvals import run_approved
from tests.stories.test_proposals import kept

MAKE_ROOM = strategy("MakeRoom")
GUARDS = {"minReplicas": 1, "minAge": "1m"}


def taints_of(lab: Lab, name: str) -> list[str]:
    """Values of our taint on the node."""
    with lab.cluster.lock:
        taints = lab.cluster.store.get("nodes", "", name)["spec"].get("taints", [])
    return [each.get("value", "") for each in taints if each["key"] == SOFT_TAINT]


def test_a_pod_of_a_rolling_update_gets_the_room_back_that_was_taken(tmp_path: Path) -> None:
    """db-1 is deleted for the update; a smaller pod that waited takes a part of its room. Later a node joins that is
    large enough for the small one alone."""
    greedy = service("greedy", {}, replicas=1, cpu=0.2, cpu_request="2")
    cluster = a_scenario(
        ["n1", "n2"],
        service("db", {"n1": 1, "n2": 1}, kind="StatefulSet", cpu=1.0, cpu_request="8"),
        burner("filler-1", "n1", 1.0, cpu_request="7"),
        burner("filler-2", "n2", 1.0, cpu_request="7"),
        steps=(
            AddWorkload(at_seconds=60.0, workload=greedy),
            RollOut(at_seconds=120.0, workload="db", namespace="shop", kind="StatefulSet", image="db:2"),
            AddNode(at_seconds=200.0, node=a_machine("n3", cpu=4)),
        ),
    )
    with a_stage(cluster, tmp_path, strategies=[MAKE_ROOM], guards=GUARDS, limits=GENEROUS) as stage:
        lab = stage.lab
        lab.clock.sleep(320.0)
        assert [each.name.split("-")[0] for each in stage.log if each.event == "bound"] == ["greedy"]
        held = False
        for _ in range(10):
            report = stage.turn()
            held |= taints_of(lab, "n2") == [ROOM]
            if report.evictions:
                (move,) = report.evictions
                (finding, node) = report.findings[0]
                assert (len(report.findings), node, finding.room_for is not None) == (1, "n2", True)
                assert "room for shop/db-1, pending for" in move.reason
        bound = {
            each.name.split("-")[0] if each.name.startswith("greedy") else each.name: each.node
            for each in stage.log
            if each.event == "bound"
        }
        assert [each.name.split("-")[0] for each in stage.log.evicted] == ["greedy"]
        assert bound["greedy"] == "n3"
        assert bound["db-1"] == "n2"
        assert held
        assert taints_of(lab, "n2") == []


def a_large_pod_waits(**fields: Any) -> Scenario:
    """It needs 8 cores; 5 are free on each node. Of n1 a pod of 3 may go, of n2 none."""
    large = service("large", {}, replicas=1, cpu=0.2, cpu_request="8", **fields)
    return a_scenario(
        ["n1", "n2"],
        burner("filler-1", "n1", 1.0, cpu_request="8"),
        burner("filler-2", "n2", 1.0, cpu_request="11"),
        service("web", {"n1": 1}, cpu=0.2, cpu_request="3"),
        steps=(AddWorkload(at_seconds=60.0, workload=large),),
    )


def names(stage: Stage, event: str) -> list[str]:
    return [f"{each.name.split('-')[0]} {each.node}" for each in stage.log if each.event == event]


def test_the_room_is_held_from_the_move_until_the_pod_is_bound(tmp_path: Path) -> None:
    with a_stage(a_large_pod_waits(), tmp_path, strategies=[MAKE_ROOM], guards=GUARDS, limits=GENEROUS) as stage:
        lab = stage.lab
        stage.turn(150.0)
        assert stage.reports[-1].evictions == []  # pending for less than two minutes
        report = stage.turn(60.0)
        assert [each.service.name for each in report.evictions] == ["web"]
        assert others_sentence(report) == "1 eviction makes room for 1 pending pod"
        assert report.soft_tainted == {"n1": ROOM}
        assert taints_of(lab, "n1") == [ROOM]
        assert stage.turn(5.0).evictions == []  # the pod that was moved is still terminating
        assert taints_of(lab, "n1") == [ROOM]
        stage.turn(120.0)
        assert names(stage, "bound") == ["web n2", "large n1"]
        stage.turn()
        assert taints_of(lab, "n1") == []
        assert len(stage.log.evicted) == 1


def test_a_room_of_a_plan_that_is_approved_is_made_exactly(tmp_path: Path) -> None:
    approved = {**MAKE_ROOM, "mode": "Approve"}
    with a_stage(a_large_pod_waits(), tmp_path, strategies=[approved], guards=GUARDS, limits=GENEROUS) as stage:
        (proposal,) = stage.turn(210.0).proposals
        assert stage.log.evicted == []
        kept(stage).approve(proposal.id, by="ann")
        (report,) = run_approved(stage)
        assert [each.service.name for each in report.evictions] == ["web"]
        stage.lab.clock.sleep(120.0)
        assert names(stage, "bound") == ["web n2", "large n1"]


def test_a_pod_without_room_is_named_in_the_cycle(tmp_path: Path) -> None:
    guards = {**GUARDS, "minReplicas": 2}
    with a_stage(a_large_pod_waits(), tmp_path, strategies=[MAKE_ROOM], guards=guards, limits=GENEROUS) as stage:
        report = stage.turn(210.0)
        assert report.evictions == []
        assert len(report.findings) == 1
        (message,) = messages(report, "large")
        assert message.startswith("no room is made for it: n1: shop/web-")
        page = io.StringIO()
        print_cycle(Console(file=page, width=250), report, all_nodes=False)
        assert "NoRoomMade" in page.getvalue()
        assert taints_of(stage.lab, "n1") == []
