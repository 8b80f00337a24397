"""Our cordons: put with their mark before the first eviction, lifted by whoever has to, and never anybody else's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.commands.contexts import acting_context
from rebalancer.bootstrap.process.settings import Settings
from rebalancer.cycle.context import CycleContext, NullProgress
from rebalancer.cycle.plan.cordons import cordon_requests, cordoned_by_others, lasting
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.soft_taints import our_cordons
from rebalancer.kube.snapshot.times import rfc3339
from rebalancer.lab import Lab
from rebalancer.model.cluster.objects import Taint
from rebalancer.model.cluster.steering import DRAINING, HOT, MAINTENANCE, SOFT_TAINT
from rebalancer.model.decisions.plan import CycleReport, Finding, Goal
from rebalancer.model.reason import Reason
from rebalancer.policy import RebalancerPolicy
from rebalancer.strategies import Findings
from tests.builders import NOW, ANode, a_node, a_policy
from tests.evaluation.test_assessments import seen_at
from tests.stories.readers import Log, ours_on
from tests.stories.scenarios.stage import START, TURN_SECONDS, a_scenario, burner, codes, service, stories_policy

MAINTAIN = {"name": "NodeMaintenance", "args": {"nodes": ["old"], "waveLabel": None}}
DRAIN = {"name": "HighNodeUtilization", "args": {"maxConcurrentNodes": 1, "cordonAfterDrain": "10m"}}
COOL = {"name": "LowNodeUtilization"}


class Runs:
    """One lab and its database; each `begin` is a process of its own."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self._settings = Settings(
            database=f"sqlite:///{folder / 'rebalancer.db'}", kubeconfig=str(lab.write_kubeconfig(folder / "config"))
        )

    @contextmanager
    def begin(self, *strategies: dict[str, Any], steer: bool = True, **sections: Any) -> Iterator["Run"]:
        said = stories_policy(self.lab, strategies=list(strategies), **sections)
        policy = RebalancerPolicy.model_validate(said)
        world = acting_context(policy, self._settings, progress=NullProgress(), clock=self.lab.clock, taints=steer)
        with world as made:
            yield Run(self.lab, policy, made)

    def cordoned(self) -> set[str]:
        """By whomever."""
        with self.lab.cluster.lock:
            return {each["metadata"]["name"] for each in self.lab.cluster.nodes() if each["spec"].get("unschedulable")}

    def left_on(self, node: str) -> int:
        with self.lab.cluster.lock:
            return sum(each["spec"].get("nodeName") == node for each in self.lab.cluster.store.sorted("pods"))


class Run:
    def __init__(self, lab: Lab, policy: RebalancerPolicy, world: CycleContext) -> None:
        self._lab, self._policy, self._world = lab, policy, world

    def turn(self, *, dry_run: bool = False) -> CycleReport:
        """Let time pass, then one cycle."""
        self._lab.clock.sleep(TURN_SECONDS)
        return run_cycle(self._world, self._policy, dry_run=dry_run).report


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """`old` is the emptiest of three nodes; the others have room for what is on it."""
    cluster = a_scenario(
        ("old", "a", "b"),
        service("web", {"old": 1, "a": 1, "b": 1}),
        service("api", {"old": 1, "a": 1, "b": 1}),
        burner("alone", "b", 0.1),
        service("filler", {"a": 1, "b": 1}, cpu=5.0, cpu_request="7"),
    )
    with Lab.start(cluster, stepped=True, start_time=START) as lab:
        yield Runs(lab, tmp_path)


# ---- maintenance


def test_a_node_in_maintenance_is_cordoned_before_its_pods_leave_and_stays_so_when_we_end(runs: Runs) -> None:
    with runs.begin(MAINTAIN) as run:
        report = run.turn()
        assert (report.cordons_before, report.cordons, report.soft_tainted) == ({}, {"old": MAINTENANCE}, {})
        assert ours_on(runs.lab) == {"old": MAINTENANCE}
        assert report.progress == {"drained": 0, "draining": 1, "pending": 0}
        assert any("maintenance" in note for note in report.notes)
        for _ in range(4):
            report = run.turn()
        assert runs.left_on("old") == 0
        assert report.progress == {"drained": 1, "draining": 0, "pending": 0}
    log = Log.of(runs.lab)
    tainted = next(each.at for each in log if each.event == "tainted" and each.key == SOFT_TAINT)
    assert tainted <= min(each.at for each in log.evicted)
    assert runs.cordoned() == {"old"}
    assert ours_on(runs.lab) == {"old": MAINTENANCE}


def test_another_process_carries_on_with_a_maintenance_and_lets_go_of_who_is_no_longer_chosen(runs: Runs) -> None:
    with runs.begin(MAINTAIN) as run:
        run.turn()
    with runs.begin(MAINTAIN) as run:
        report = run.turn()
        assert report.cordons_before == report.cordons == {"old": MAINTENANCE}
    assert runs.cordoned() == {"old"}
    with runs.begin(COOL) as run:
        report = run.turn()
        assert (report.cordons_before, report.cordons) == ({"old": MAINTENANCE}, {})
        assert runs.cordoned() == set()
        assert ours_on(runs.lab) == {}


def test_a_maintenance_is_not_lifted_while_nothing_may_be_decided(runs: Runs) -> None:
    with runs.begin(MAINTAIN) as run:
        run.turn()
    runs.lab.faults.set(partial="the store could not be reached")
    with runs.begin(COOL) as run:
        report = run.turn()
        assert report.stopped is not None
        assert report.cordons_before == report.cordons == {"old": MAINTENANCE}
        runs.lab.faults.clear()
        run.turn()
    assert runs.cordoned() == set()


def test_who_does_not_stay_cordons_for_maintenance(runs: Runs) -> None:
    with runs.begin(MAINTAIN, steer=False) as run:
        run.turn()
    assert ours_on(runs.lab) == {"old": MAINTENANCE}


def test_who_does_not_stay_drains_nothing(runs: Runs) -> None:
    with runs.begin(DRAIN, steer=False) as run:
        report = run.turn()
        assert Reason.NOT_CORDONED in {each.code for each in report.refusals}
    assert runs.cordoned() == set()


# ---- somebody else's


def test_a_node_that_people_cordoned_is_emptied_and_neither_marked_nor_uncordoned(runs: Runs) -> None:
    runs.lab.cluster.cordon("old")
    with runs.begin(MAINTAIN) as run:
        for _ in range(4):
            assert run.turn().cordons == {}
        assert runs.left_on("old") == 0
    with runs.begin(COOL) as run:
        run.turn()
    assert runs.cordoned() == {"old"}
    assert [each for each in Log.of(runs.lab) if each.key == SOFT_TAINT] == []


def test_a_node_that_people_uncordon_is_cordoned_again_while_it_is_chosen(runs: Runs) -> None:
    with runs.begin(MAINTAIN) as run:
        run.turn()
        runs.lab.cluster.cordon("old", on=False)
        report = run.turn()
        assert (report.cordons_before, report.cordons) == ({}, {"old": MAINTENANCE})
        assert runs.cordoned() == {"old"}


# ---- draining


def test_a_node_that_is_drained_is_cordoned_and_let_go_when_we_end(runs: Runs) -> None:
    with runs.begin(DRAIN) as run:
        report = run.turn()
        assert report.cordons == {"old": DRAINING}
        assert {each.node for each in report.evictions} == {"old"}
        for _ in range(3):
            run.turn()
        assert runs.left_on("old") == 0
        assert runs.cordoned() == {"old"}
    assert runs.cordoned() == set()
    assert ours_on(runs.lab) == {}


def test_an_emptied_node_that_nobody_removes_is_let_go_after_its_time(runs: Runs) -> None:
    with runs.begin(DRAIN) as run:
        turns = 0
        while runs.cordoned() or not turns:
            run.turn()
            turns += 1
            assert turns < 20
    assert turns * TURN_SECONDS >= 600.0


def leave_behind(runs: Runs, node: str, value: str) -> None:
    """What a process that was killed has left: a node cordoned with our mark."""
    cluster = runs.lab.cluster

    def dated(made: dict[str, Any]) -> None:
        made["spec"]["taints"][-1]["timeAdded"] = rfc3339(runs.lab.clock.now())

    cluster.taint(node, SOFT_TAINT, value=value, effect="PreferNoSchedule")
    with cluster.lock:
        cluster.store.change("nodes", cluster.store.get("nodes", "", node), dated)
    cluster.cordon(node)


def test_after_a_kill_the_next_process_carries_on_with_a_drain(runs: Runs) -> None:
    leave_behind(runs, "old", DRAINING)
    with runs.begin(DRAIN) as run:
        report = run.turn()
        assert report.cordons_before == report.cordons == {"old": DRAINING}
        assert len(report.evictions) > 0


def test_after_a_kill_the_next_process_lets_go_of_what_it_does_not_want(runs: Runs) -> None:
    leave_behind(runs, "a", DRAINING)
    leave_behind(runs, "b", MAINTENANCE)
    with runs.begin(COOL) as run:
        report = run.turn()
        assert (report.cordons_before, report.cordons) == ({"a": DRAINING, "b": MAINTENANCE}, {})
        assert runs.cordoned() == set()


def test_a_drain_that_can_not_be_finished_is_undone(runs: Runs) -> None:
    leave_behind(runs, "b", DRAINING)  # nobody makes its bare pod again
    with runs.begin(DRAIN) as run:
        for _ in range(2):
            report = run.turn()
            assert "b" not in report.cordons
        assert "b" not in runs.cordoned()
    assert "b" not in {each.node for each in Log.of(runs.lab).evicted}


def test_a_node_that_can_not_be_emptied_says_why(runs: Runs) -> None:
    """In a plan it is only one that isn't cordoned: the simulation knows why."""
    leave_behind(runs, "b", DRAINING)
    with runs.begin(DRAIN) as run:
        report = run.turn()
    because = {each.message for each in report.refusals if each.node == "b" and each.code is Reason.NODE_NOT_DRAINABLE}
    assert any("alone" in each for each in because)


def test_a_node_that_may_not_be_cordoned_keeps_all_its_pods(runs: Runs) -> None:
    runs.lab.faults.set(denied=(("patch", "nodes"),))
    with runs.begin(DRAIN) as run:
        report = run.turn()
        assert any("none is cordoned" in note for note in report.notes)
        assert codes(report) >= {Reason.NOT_CORDONED}
        runs.lab.faults.clear()
    assert Log.of(runs.lab).evicted == []


def test_steering_that_is_switched_off_keeps_nobody_from_draining(runs: Runs) -> None:
    with runs.begin(DRAIN, softTaint={"mode": "Off"}) as run:
        report = run.turn()
        assert (report.cordons, report.soft_tainted) == ({"old": DRAINING}, {})


def test_a_dry_run_assumes_the_cordons_and_touches_no_node(runs: Runs) -> None:
    with runs.begin(DRAIN) as run:
        report = run.turn(dry_run=True)
        assert report.cordons == {"old": DRAINING}
        assert {each.node for each in report.evictions} == {"old"}
        assert runs.cordoned() == set()
        assert ours_on(runs.lab) == {}


# ---- what is wanted


def marked(name: str, value: str, *, cordoned: bool = True, added: str = "2027-01-15T08:00:00Z") -> ANode:
    ours = Taint(key=SOFT_TAINT, value=value, effect="PreferNoSchedule", time_added=added)
    return a_node(name, taints=(ours,), unschedulable=cordoned)


def test_a_cordon_is_ours_only_with_our_mark_and_a_mark_only_with_its_cordon() -> None:
    nodes = [
        marked("draining", DRAINING),
        marked("maintained", MAINTENANCE),
        marked("undone", MAINTENANCE, cordoned=False),
        marked("theirs", HOT),
        a_node("theirs too", unschedulable=True),
        a_node("free"),
    ]
    seen = seen_at(NOW, nodes, [])
    assert set(our_cordons(seen.snapshot)) == {"draining", "maintained"}
    assert cordoned_by_others(seen).tolist() == [False, False, False, True, True, False]


def test_where_nobody_can_be_asked_maintenance_lasts_and_a_drain_until_it_is_too_old() -> None:
    nodes = [
        marked("fresh", DRAINING, added="2027-01-15T08:00:00Z"),
        marked("old", DRAINING, added="1990-01-01T00:00:00Z"),
        marked("maintained", MAINTENANCE, added="1990-01-01T00:00:00Z"),
        marked("hot", HOT, cordoned=False),
    ]
    assert lasting(seen_at(NOW, nodes, []), a_policy()) == {"fresh": DRAINING, "maintained": MAINTENANCE}


def finding(node: int) -> Finding:
    return Finding(strategy="s", node=node, pool="general", reason="", candidates=[], goal=Goal.EMPTY)  # type: ignore[arg-type]


def test_of_two_that_want_a_node_cordoned_maintenance_counts_and_theirs_is_nobodys() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c"), a_node("theirs", unschedulable=True), a_node("new")]
    seen = seen_at(NOW, nodes, [])
    drains = Findings(
        findings=(finding(0), finding(1), finding(3), finding(4)),
        cordons={0: DRAINING, 1: DRAINING, 2: DRAINING, 3: DRAINING},
    )
    maintains = Findings(findings=(), cordons={1: MAINTENANCE, 3: MAINTENANCE})
    want = cordon_requests(seen, [drains, maintains])
    assert want.sure == {"b": MAINTENANCE, "c": DRAINING}
    assert want.drained == {"a": DRAINING}
    assert want.value_of.keys() == {"a", "b", "new"}
    assert cordon_requests(seen, [maintains, drains]).sure == want.sure
