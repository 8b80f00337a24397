"""Replacement first: a service of one replica is moved, and is never without a Ready pod."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from rebalancer.lab import HpaSpec, Lab, PdbSpec, Scenario
from rebalancer.lab.objects.kinds import Obj
from rebalancer.model.cluster.annotations import DELETION_COST
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport
from tests.stories.scenarios.stage import (
    GENEROUS,
    Stage,
    a_machine,
    a_run,
    a_scenario,
    a_stage,
    burner,
    codes,
    messages,
    service,
)
from tests.stories.scenarios.surges import Readiness, as_before, living, marked, replicas
from tests.stories.test_approvals import end_of, kept, run_approved

KEY, VALUE = "example.com/upgrade", "kernel"
FIRST: dict[str, Any] = {"minAge": "1m", "replacementFirst": [{"namespaces": ["shop"]}]}
LOOK_SECONDS = 2.0


def one_hot_node(**fields: Any) -> Scenario:
    """Only the service `single` can cool it."""
    single = {"cpu": 4.0, "pdb": PdbSpec(min_available=1), **fields}
    return a_scenario(("hot", "cool", "free"), burner("burner", "hot", 9.0), service("single", {"hot": 1}, **single))


def passes(stage: Stage, seconds: float, *, until: Callable[[], bool] = lambda: False) -> bool:
    """Let time pass as the daemon does: it looks at the surges every two seconds. Whether `until` was true."""
    assert stage.world.surges is not None
    for _ in range(int(seconds / LOOK_SECONDS)):
        stage.lab.clock.sleep(LOOK_SECONDS)
        stage.world.surges.turn()
        if until():
            return True
    return False


def over(stage: Stage) -> Callable[[], bool]:
    """Whether no surge is open."""
    surges = stage.world.surges
    assert surges is not None
    return lambda: surges.turn() == 0


def test_fifty_services_of_one_replica_are_moved_and_none_is_ever_without_a_ready_pod(tmp_path: Path) -> None:
    names = [f"s{number:02}" for number in range(50)]
    old = [a_machine(f"old-{number}", annotations={KEY: VALUE}) for number in range(5)]
    singles = [
        service(name, {f"old-{number % 5}": 1}, cpu=0.5, pdb=PdbSpec(min_available=1) if number % 2 else None)
        for number, name in enumerate(names)
    ]
    policy: dict[str, Any] = {
        "strategies": [{"name": "NodeMaintenance", "args": {"annotation": f"{KEY}={VALUE}", "maxConcurrentNodes": 5}}],
        "guards": FIRST,
        "limits": {**GENEROUS, "service": {"inFlight": 1}},
    }
    with a_stage(a_scenario([*old, *(f"new-{number}" for number in range(4))], *singles), tmp_path, **policy) as stage:
        lab = stage.lab
        watch = Readiness(lab).begin(*names)
        for _ in range(20):
            stage.turn(10.0)
            passes(stage, 80.0)
            on = {each["spec"].get("nodeName", "") for name in names for each in living(lab, name)}
            if all(node.startswith("new-") for node in on):
                break
        assert on == {f"new-{number}" for number in range(4)}
        assert watch.least == dict.fromkeys(names, 1)
        assert all(as_before(lab, name) for name in names)
        moved = [each for report in stage.reports for each in report.evictions]
        assert sorted(each.service.name for each in moved) == names
        # each is no disruption: no budget was asked
        assert lab.log.evictions() == ()
        stage.turn(10.0)
        assert stage.ledger.open_evictions() == []
        found = {each.pod: each for each in stage.ledger.evicted(0.0)}
        assert {each.replaced.replacement_node[:4] for each in found.values()} == {"new-"}
        assert not any(each.replaced.late or each.replaced.closed_reason for each in found.values())


def test_the_move_is_in_flight_in_the_background_and_lands_with_its_replacement(tmp_path: Path) -> None:
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        report = stage.turn()
        (move,) = report.evictions
        assert (move.answered.outcome, move.answered.in_background) == (Outcome.EVICTED, True)
        assert move.reason.endswith("; replacement first")
        assert (replicas(stage.lab, "single"), marked(stage.lab, "single")) == (2, [move.pod])
        # its node is not relieved a second time while it measures hot
        again = stage.cycle()
        assert again.evictions == []
        assert codes(again, "single") <= {"EvictionInProgress", "RolloutInProgress", "OwnerNotHealthy"}
        assert passes(stage, 120.0, until=over(stage))
        stage.turn()
        assert stage.ledger.open_evictions() == []
        (landed,) = stage.ledger.evicted(0.0)
        (new,) = living(stage.lab, "single")
        assert (landed.replaced.replacement_uid, landed.replaced.closed_reason) == (new["metadata"]["uid"], "")
        assert landed.replaced.replacement_node in ("cool", "free")


@pytest.mark.parametrize("in_flight", [1, None])
def test_the_new_pod_stays_while_the_old_one_is_about_to_go(in_flight: int | None, tmp_path: Path) -> None:
    """Its node is to be drained too, and the snapshot shows two Ready pods of two."""
    old = a_machine("old", annotations={KEY: VALUE})
    policy: dict[str, Any] = {
        "strategies": [{"name": "NodeMaintenance", "args": {"annotation": f"{KEY}={VALUE}", "maxConcurrentNodes": 5}}],
        "guards": {**FIRST, "minAge": "0s"},
        "limits": {**GENEROUS, "service": {"inFlight": in_flight}},
    }
    scenario = a_scenario([old, "new-0", "new-1"], service("single", {"old": 1}, cpu=0.5))
    with a_stage(scenario, tmp_path, **policy) as stage:
        lab, store = stage.lab, stage.lab.cluster.store
        watch = Readiness(lab).begin("single")
        (move,) = stage.turn().evictions
        lab.clock.sleep(75.0)
        (new,) = [each for each in living(lab, "single") if each["metadata"]["uid"] != move.uid]
        node = store.get("nodes", "", new["spec"]["nodeName"])
        store.change("nodes", node, lambda each: each["metadata"].setdefault("annotations", {}).update({KEY: VALUE}))
        # the surge can't go on when the cycle observes, and can from its first change on
        store.subscribe(lambda _: lab.faults.set(denied=()))
        lab.faults.set(denied=(("get", "deployments"),))
        report = stage.cycle()
        assert report.evictions == []
        assert any("shop/single is moved by replacement first" in each for each in messages(report, "single"))
        assert lab.faults.state.denied == ()
        assert passes(stage, 60.0, until=over(stage))
        # then it is moved as the old one was, by a cycle that began without a surge
        assert stage.turn().evictions == []
        (again,) = stage.turn().evictions
        assert (again.uid, again.answered.in_background) == (new["metadata"]["uid"], True)
        assert passes(stage, 120.0, until=over(stage))
        assert watch.least == {"single": 1}
        assert lab.log.evictions() == ()


def test_a_replacement_that_is_not_ready_in_time_is_taken_back_and_backed_off(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=3600.0), tmp_path, guards=FIRST) as stage:
        watch = Readiness(stage.lab).begin("single")
        (move,) = stage.turn().evictions
        deadline = move.reserved.deadline_at
        assert passes(stage, 900.0, until=over(stage))
        assert 0.0 <= stage.lab.clock.now() - deadline <= 2 * LOOK_SECONDS
        stage.lab.clock.sleep(30.0)
        assert as_before(stage.lab, "single")
        assert living(stage.lab, "single")[0]["metadata"]["uid"] == move.uid
        report = stage.cycle()
        why = "replacement first was undone: the additional pod was not Ready in time"
        assert any(why in note for note in report.notes)
        (closed,) = stage.ledger.evicted(0.0)
        assert closed.replaced.closed_reason == why
        (backoff,) = stage.ledger.backoffs()
        assert (backoff.service_identity, backoff.node, backoff.reason) == ("shop/single", "hot", why)
        assert codes(report, "single") == {"EvictionBackoff"}
        assert watch.least == {"single": 1}


def by_hand(lab: Lab, plural: str, name: str, change: Callable[[Obj], None]) -> None:
    """Somebody changes an object."""
    with lab.cluster.written_by("kubectl/v1.36"):
        new = deepcopy(lab.cluster.store.get(plural, "shop", name))
        change(new)
        lab.cluster.store.update(plural, new)


@pytest.mark.parametrize("count", [1, 3])
def test_replicas_that_somebody_else_changed_are_left_as_they_are(count: int, tmp_path: Path) -> None:
    def scaled(deployment: Obj) -> None:
        deployment["spec"]["replicas"] = count
        entry = {"manager": "kubectl-scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        deployment["metadata"]["managedFields"] = [entry]

    with a_stage(one_hot_node(start_seconds=60.0), tmp_path, guards=FIRST) as stage:
        (move,) = stage.turn().evictions
        by_hand(stage.lab, "deployments", "single", scaled)
        assert passes(stage, 60.0, until=over(stage))
        stage.lab.clock.sleep(120.0)
        assert as_before(stage.lab, "single", count)
        assert move.uid in {each["metadata"]["uid"] for each in living(stage.lab, "single")}
        stage.turn()
        (closed,) = stage.ledger.evicted(0.0)
        assert (
            f"the replicas of its Deployment were changed to {count} (kubectl-scale)" in closed.replaced.closed_reason
        )


def test_a_policy_without_it_undoes_what_is_open(tmp_path: Path) -> None:
    with Lab.start(one_hot_node(start_seconds=60.0), stepped=True, start_time=1_790_000_000.0) as lab:
        with a_run(lab, tmp_path, guards=FIRST) as stage:
            (move,) = stage.turn().evictions
        assert replicas(lab, "single") == 2
        with a_run(lab, tmp_path, guards={"minAge": "1m"}) as stage:
            report = stage.cycle()
            assert as_before(lab, "single")
            assert living(lab, "single")[0]["metadata"]["uid"] == move.uid
            assert any("replacement first was switched off" in note for note in report.notes)
            assert codes(stage.turn(), "single") <= {"MinReplicas", "EvictionBackoff"}


def test_a_process_that_stops_undoes_what_is_open_and_begins_nothing(tmp_path: Path) -> None:
    with a_stage(one_hot_node(start_seconds=60.0), tmp_path, guards=FIRST) as stage:
        watch = Readiness(stage.lab).begin("single")
        (move,) = stage.turn().evictions
        assert replicas(stage.lab, "single") == 2
        assert stage.world.surges is not None
        stage.world.surges.undo(seconds=10.0)
        stage.lab.clock.sleep(2.0)
        assert as_before(stage.lab, "single")
        assert living(stage.lab, "single")[0]["metadata"]["uid"] == move.uid
        assert watch.least == {"single": 1}
        assert stage.world.surges.begin(move, server_dry_run=False).outcome is Outcome.REFUSED
        assert as_before(stage.lab, "single")


def test_a_surge_that_a_process_left_is_finished_by_the_next_one(tmp_path: Path) -> None:
    with Lab.start(one_hot_node(), stepped=True, start_time=1_790_000_000.0) as lab:
        with a_run(lab, tmp_path, guards=FIRST) as stage:
            (move,) = stage.turn().evictions
        lab.clock.sleep(120.0)
        with a_run(lab, tmp_path, guards=FIRST) as stage:
            stage.turn()
            assert as_before(lab, "single")
            assert living(lab, "single")[0]["metadata"]["uid"] != move.uid
            stage.turn()
            assert stage.ledger.open_evictions() == []


def refused(stage: Stage) -> CycleReport:
    report = stage.turn()
    assert report.evictions == []
    assert replicas(stage.lab, "single") == 1 if stage.lab.cluster.store.find("deployments", "shop", "single") else True
    return report


def test_without_an_opt_in_it_is_refused_as_ever(tmp_path: Path) -> None:
    with a_stage(one_hot_node(), tmp_path) as stage:
        assert codes(refused(stage), "single") == {"MinReplicas"}


def paused(deployment: Obj) -> None:
    deployment["spec"]["paused"] = True


def recreates(deployment: Obj) -> None:
    deployment["spec"]["strategy"] = {"type": "Recreate"}


@pytest.mark.parametrize(
    ("fields", "code", "detail"),
    [
        ({"kind": "StatefulSet"}, "SurgeOwner", "shop/single is a StatefulSet"),
        ({"kind": "ReplicaSet"}, "SurgeOwner", "shop/single is a ReplicaSet"),
        ({"host_ports": (8080,)}, "SurgeHostPort", "8080"),
        ({"hpa": HpaSpec(max_replicas=3, utilization=5000)}, "SurgeAutoscaler", "single"),
    ],
)
def test_a_pod_that_cannot_be_moved_so_is_refused_with_its_reason(
    fields: dict[str, Any], code: str, detail: str, tmp_path: Path
) -> None:
    with a_stage(one_hot_node(**fields), tmp_path, guards=FIRST) as stage:
        report = refused(stage)
        assert codes(report, "single") == {code}
        assert any(detail in each for each in messages(report, "single"))


@pytest.mark.parametrize(("change", "code"), [(paused, "SurgePaused"), (recreates, "SurgeStrategy")])
def test_a_deployment_that_cannot_be_scaled_for_it_is_refused(
    change: Callable[[Obj], None], code: str, tmp_path: Path
) -> None:
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        by_hand(stage.lab, "deployments", "single", change)
        assert codes(refused(stage), "single") == {code}


def test_a_deletion_cost_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        (pod,) = living(stage.lab, "single")
        by_hand(
            stage.lab,
            "pods",
            pod["metadata"]["name"],
            lambda new: new["metadata"].setdefault("annotations", {}).update({DELETION_COST: "7"}),
        )
        assert codes(refused(stage), "single") == {"SurgeDeletionCost"}
        assert marked(stage.lab, "single") == [pod["metadata"]["name"]]


def test_a_quota_without_room_for_one_more_refuses_it(tmp_path: Path) -> None:
    quota = {
        "metadata": {"namespace": "shop", "name": "few"},
        "spec": {"hard": {"pods": "1"}},
        "status": {"hard": {"pods": "1"}, "used": {"pods": "1"}},
    }
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        stage.lab.cluster.store.create("resourcequotas", quota)
        assert codes(refused(stage), "single") == {"QuotaExceeded"}


def test_a_volume_that_pods_of_two_nodes_cannot_use_refuses_it(tmp_path: Path) -> None:
    volumes = ({"name": "data", "persistentVolumeClaim": {"claimName": "data"}},)
    claim = {"kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data"}
    disk = {"accessModes": ["ReadWriteOnce"], "claimRef": claim, "csi": {"driver": "disk.example.com"}}
    guards = {**FIRST, "persistentVolumes": True}
    with a_stage(one_hot_node(volumes=volumes), tmp_path, guards=guards) as stage:
        store = stage.lab.cluster.store
        for plural in ("persistentvolumes", "persistentvolumeclaims"):
            for each in store.all(plural):
                store.remove(plural, each["metadata"].get("namespace", ""), each["metadata"]["name"])
        store.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": disk, "status": {"phase": "Bound"}})
        assert codes(refused(stage), "single") == {"SurgeVolume"}


@pytest.mark.parametrize("denied", [("patch", "pods"), ("update", "deployments/scale")])
def test_a_permission_that_is_missing_refuses_it_and_leaves_nothing(denied: tuple[str, str], tmp_path: Path) -> None:
    with a_stage(one_hot_node(), tmp_path, guards=FIRST) as stage:
        stage.lab.faults.set(denied=(denied,))
        report = stage.turn()
        (move,) = report.evictions
        assert (move.answered.outcome, move.answered.code) == (Outcome.REFUSED, "SurgeForbidden")
        assert report.interrupted is None
        assert as_before(stage.lab, "single")
        assert stage.ledger.open_evictions() == []


def scaled_up(stage: Stage) -> None:
    by_hand(stage.lab, "deployments", "single", lambda deployment: deployment["spec"].update(replicas=2))


def budgeted(stage: Stage) -> None:
    (pod, _) = living(stage.lab, "single")
    spec = {"minAvailable": 2, "selector": {"matchLabels": dict(pod["metadata"]["labels"])}}
    stage.lab.cluster.store.create(
        "poddisruptionbudgets", {"metadata": {"namespace": "shop", "name": "all"}, "spec": spec}
    )


@pytest.mark.parametrize(
    ("nodes", "change", "named"),
    [
        ({"hot": 1}, scaled_up, "would be moved by an eviction, and the plan shows replacement first"),
        ({"hot": 1, "cool": 1}, budgeted, "would be moved by replacement first, and the plan shows an eviction"),
    ],
)
def test_an_approved_move_is_made_in_the_way_that_was_approved_or_not_at_all(
    nodes: dict[str, int], change: Callable[[Stage], None], named: str, tmp_path: Path
) -> None:
    scenario = a_scenario(("hot", "cool", "free"), burner("burner", "hot", 9.0), service("single", nodes, cpu=4.0))
    with a_stage(scenario, tmp_path, guards=FIRST, mode="Approve") as stage:
        (proposal,) = stage.turn().proposals
        (planned,) = proposal.plan.evictions
        assert planned.replacement_first == planned.reason.endswith("; replacement first") == (len(nodes) == 1)
        kept(stage).approve(proposal.id, by="ann")
        change(stage)
        stage.lab.clock.sleep(120.0)
        before = replicas(stage.lab, "single")
        run_approved(stage)
        assert end_of(stage, proposal).reason == f"{planned.full_name} {named}"
        assert stage.lab.log.evictions() == ()
        assert as_before(stage.lab, "single", before)
