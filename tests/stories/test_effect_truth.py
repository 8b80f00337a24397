"""Did it help, and if not, why not: what is recorded, held against what the lab knows."""

import subprocess
import sys
from pathlib import Path

import pytest

from rebalancer.effect.rates import rates
from rebalancer.lab import CpuModel, workload
from rebalancer.model.records.effect import Assessment, Outcome, Step
from tests.stories.oracles.effect import Case, Rules, counts
from tests.stories.scenarios.effect import (
    EffectStage,
    Records,
    an_effect_stage,
    cool,
    heat,
    machines,
    services,
    set_ready,
)
from tests.stories.scenarios.stage import burner, service


def agrees(stage: EffectStage, records: Records) -> list[Case]:
    """Every episode, every assessment and the three rates are what the lab knows; its cases."""
    cases = stage.truth()
    for episode, each in zip(records.episodes, cases, strict=True):
        assert (episode.node, episode.pool) == (each.node, each.pool)
        assert (episode.started_at, episode.ended_at) == (each.start, each.end)
        assert (episode.discovered_at is not None, episode.miss_reason or "") == (each.found, each.miss)
        assert (episode.evictions, episode.blocked_reason or "") == (each.evictions, each.stuck)
        assert (episode.cooled, episode.peak_share) == (each.cooled, pytest.approx(each.peak_share, rel=1e-3))
    settled = records.settled()
    assert {node: str(each.outcome) for node, each in settled.items()} == {
        each.node: each.outcome for each in cases if each.outcome
    }
    for each in cases:
        if each.parts is not None:
            closes(settled[each.node], each)
    for episode, each in zip(records.episodes, cases, strict=True):
        if each.miss == "belowThreshold":
            both = f"measured at most {_percent(each.ours)}, high is {_percent(stage.high_of(each.pool))}; "
            assert episode.detail == f"{both}by the hot-node SLO {_percent(each.peak_share)} over 75%"
    (line,) = rates(records.days, ())
    truth = counts(cases)
    assert (line.discovery.part, line.discovery.whole) == (truth.found, truth.hot)
    assert (line.eviction.part, line.eviction.whole) == (truth.acted, truth.found)
    assert (line.effectiveness.part, line.effectiveness.whole) == (truth.cooled, truth.assessed)
    assert line.counts.reasons == truth.reasons
    return cases


def by_node(cases: list[Case]) -> dict[str, Case]:
    """One for each."""
    found = {each.node: each for each in cases}
    assert len(found) == len(cases)
    return found


def _percent(share: float | None) -> str:
    assert share is not None
    return f"{share * 100:.1f}".removesuffix(".0") + "%"


def closes(made: Assessment, case: Case) -> None:
    """The account's parts are those of the lab, and hardly anything is left unexplained."""
    found, parts = made.breakdown, case.parts
    assert found is not None
    assert parts is not None
    change = found.after - found.before
    assert abs(found.residual) < 0.05 * abs(change)
    shares = (found.before, found.after, found.evicted, found.departed, found.arrived, found.returned)
    truth = (parts.before, parts.after, parts.evicted, parts.left, parts.landed, parts.came_back, parts.grew)
    expected = pytest.approx([1000.0 * each for each in truth], abs=0.02 * abs(change))
    assert [*shares, found.remaining_change + found.pool_growth] == expected


@pytest.mark.timeout(300)
def test_what_kept_the_pods_is_what_was_put_in_their_way(tmp_path: Path) -> None:
    pools = {
        "plain": Rules(),
        "night": Rules(closed=True),
        "single": Rules(),
        "budget": Rules(),
        "tight": Rules(evictions_at_most=1),
        "full": Rules(),
        "denied": Rules(denied=True),
        "fixed": Rules(untouchable=True),
        "paused": Rules(paused=True),
        "dust": Rules(),
        "empty": Rules(),
    }
    nodes = [each for pool in pools if pool not in ("tight", "empty") for each in machines(pool, "hot", "cool")]
    workloads = [
        *services("plain"),
        *services("night"),
        *services("single", ("hot",)),
        *services("budget", pdb={"min_available": 2}),
        *services("tight", prefix="tight-one"),
        *services("tight", ("warm", "cool"), prefix="tight-two"),
        *services("full"),
        service("filler", {"full-cool": 1}, cpu=0.5, cpu_request="14200m"),
        *services("denied"),
        *services("fixed"),
        *services("paused"),
        service("dust", {"dust-hot": 75}, cpu=0.04, cpu_request="10m", memory_request="10Mi"),
    ]
    nodes += machines("tight", "hot", "warm", "cool")
    nodes += machines("empty", "hot", overhead_cores=13.0)
    with an_effect_stage(tmp_path, nodes, workloads, pools) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            for pool in pools:
                if pool != "empty":  # its machine alone makes it hot
                    heat(stage.lab, f"{pool}-hot", 10.8 if pool == "tight" else 9.8)
            heat(stage.lab, "tight-warm", 10.2)  # one eviction doesn't take it under `high` either
            daemon.live(22)
        cases = by_node(agrees(stage, stage.records()))
    assert {node: each.stuck for node, each in cases.items() if each.stuck} == {
        "night-hot": "windows",
        "single-hot": "guards",
        "budget-hot": "disruptionBudgets",
        "tight-warm": "limits",
        "full-hot": "noTargetNode",
        "denied-hot": "lists",
        "fixed-hot": "levels",
        "paused-hot": "paused",
        "dust-hot": "poorSelection",
        "empty-hot": "noCandidates",
    }
    assert {node: each.outcome for node, each in cases.items() if each.outcome} == {
        "plain-hot": "cooled",
        "tight-hot": "tooFewEvicted",
    }
    assert (cases["plain-hot"].evictions, cases["tight-hot"].evictions) == (3, 1)


@pytest.mark.timeout(300)
def test_what_came_of_it_is_what_the_story_made_of_it(tmp_path: Path) -> None:
    pools = {name: Rules(evictions_at_most=3) for name in ("plain", "newcomer", "twins")}
    nodes = [each for pool in pools for each in machines(pool, "hot", "cool")]
    workloads = [each for pool in pools for each in services(pool)]
    workloads.append(
        workload("twin", namespace="burn", kind="Pod", place={"twins-hot": 1, "twins-cool": 1}, cpu=CpuModel(total=2.0))
    )
    workloads.append(burner("leaver", "plain-hot", 0.5))
    with an_effect_stage(tmp_path, nodes, workloads, pools) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            for pool in pools:
                heat(stage.lab, f"{pool}-hot", 8.8 if pool == "twins" else 9.8)
            daemon.live(6)
            assert {each.node for each in stage.lab.log.evictions(code=201)} == {f"{pool}-hot" for pool in pools}
            stage.lab.cluster.add_workload(workload("newcomer", namespace="burn", place={"newcomer-hot": 1}, cpu=1.2))
            (twin,) = stage.lab.cluster.pods(node="twins-cool", namespace="burn")
            with stage.lab.cluster.lock:
                stage.lab.cluster.store.remove("pods", "burn", twin["metadata"]["name"])
                stage.lab.cluster.store.remove("pods", "burn", "leaver")
            daemon.live(16)
        cases = by_node(agrees(stage, stage.records()))
    assert {node: each.outcome for node, each in cases.items()} == {
        "plain-hot": "cooled",
        "newcomer-hot": "newPodsArrived",
        "twins-hot": "remainingPodsGrew",
    }
    parts = {node: each.parts for node, each in cases.items()}
    assert all(each is not None for each in parts.values())
    assert [
        round(value, 1)
        for each in (parts["plain-hot"], parts["newcomer-hot"], parts["twins-hot"])
        if each is not None
        for value in (each.evicted, each.left, each.landed, each.grew)
    ] == pytest.approx([3.0, 0.5, 0.0, 0.0, 3.0, 0.0, 1.2, 0.0, 3.0, 0.0, 0.0, 1.0], abs=0.11)


@pytest.mark.timeout(300)
def test_a_pod_that_comes_back_is_named(tmp_path: Path) -> None:
    """The scheduler packs, and we think that it spreads."""
    pools = {"packed": Rules(evictions_at_most=3)}
    nodes = machines("packed", "hot", "cool")
    workloads = [
        *(service(f"packed-{name}", {"packed-hot": 2}, node_selector={"pool": "packed"}) for name in "abc"),
        service("filler", {"packed-hot": 2}, cpu=0.1, cpu_request="2"),
    ]
    with an_effect_stage(
        tmp_path, nodes, workloads, pools, scenario={"scheduler": "differs"}, softTaint={"mode": "Off"}
    ) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            heat(stage.lab, "packed-hot", 6.8, cpu_request="1")
            daemon.live(20)
        cases = by_node(agrees(stage, stage.records()))
    assert (cases["packed-hot"].evictions, cases["packed-hot"].outcome) == (3, "replacementsReturned")


@pytest.mark.timeout(300)
def test_where_every_node_is_warm_the_pool_is_full(tmp_path: Path) -> None:
    nodes, pools = machines("warm", "hot", "one", "two"), {"warm": Rules()}
    workloads = [
        *services("warm", ("hot", "one", "two")),
        *(burner(f"burner-{name}", f"warm-{name}", 5.5) for name in ("one", "two")),
    ]
    with an_effect_stage(tmp_path, nodes, workloads, pools) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            heat(stage.lab, "warm-hot")
            daemon.live(12)
        cases = by_node(agrees(stage, stage.records()))
    assert cases["warm-hot"].stuck == "poolFull"


@pytest.mark.timeout(300)
def test_a_node_that_is_hot_again_too_soon_is_left_to_cool_down(tmp_path: Path) -> None:
    nodes, pools = machines("again", "hot", "cool"), {"again": Rules()}
    workloads = [
        service(f"again-{name}", {"again-hot": 2, "again-cool": 1}, node_selector={"pool": "again"}) for name in "abc"
    ]
    with an_effect_stage(tmp_path, nodes, workloads, pools, cooldown_seconds=6 * 3600.0) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            heat(stage.lab, "again-hot", 6.8)
            daemon.live(18)
            cool(stage.lab, "again-hot")
            heat(stage.lab, "again-hot", 9.8)
            daemon.live(14)
        cases = agrees(stage, stage.records())
    assert [(each.outcome, each.stuck) for each in cases] == [("cooled", ""), ("", "cooldowns")]


@pytest.mark.timeout(300)
def test_what_a_server_refuses_and_what_only_was_tried_stays_where_it_is(tmp_path: Path) -> None:
    nodes = machines("plain", "one", "two", "cool")
    workloads = [*services("plain", ("one", "cool"), prefix="one"), *services("plain", ("two", "cool"), prefix="two")]
    with an_effect_stage(tmp_path, nodes, workloads, {"plain": Rules()}) as stage:
        with stage.daemon(dry_run=True) as daemon:
            daemon.live(4)
            heat(stage.lab, "plain-one")
            daemon.live(8)
            cool(stage.lab, "plain-one")
            daemon.live(2)
        stage.lab.faults.set(denied=(("create", "pods/eviction"),))
        with stage.daemon() as daemon:
            heat(stage.lab, "plain-two")
            daemon.live(12)
        cases = agrees(stage, stage.records())
    assert [(each.node, each.stuck) for each in cases] == [("plain-one", "dryRun"), ("plain-two", "serverRefused")]


@pytest.mark.timeout(300)
def test_every_miss_has_the_reason_that_it_was_given(tmp_path: Path) -> None:
    pools = {"plain": Rules(), "dull": Rules(high=0.9, target=0.8), "alone": Rules(covered=False)}
    nodes = machines("plain", "hot", "cool", "brief", "blind", "night", "later", "aside", "lost", "y", "z")
    nodes += [*machines("dull", "hot"), *machines("alone", "hot")]
    at_once = ("dull-hot", "alone-hot", "plain-blind", "plain-aside", "plain-lost")
    # what the lab's Prometheus doesn't show now it doesn't show of the past either: nothing is read meanwhile
    with an_effect_stage(tmp_path, nodes, services("plain"), pools, debounce_seconds=480.0, reads=False) as stage:
        lab = stage.lab
        with stage.daemon(overlooked=["plain-aside"]) as daemon:
            daemon.live(4)
            lab.faults.set(missing=("plain-blind",))
            set_ready(lab, "plain-lost", ready=False)
            heat(lab, "plain-hot")
            for node in (*at_once, "plain-brief"):
                heat(lab, node, 13.0)
            daemon.live(6)
            cool(lab, "plain-brief")
            daemon.live(6)
            for node in at_once:
                cool(lab, node)
            daemon.live(12)
            lab.faults.clear()
            set_ready(lab, "plain-lost", ready=True)
            heat(lab, "plain-night", 13.0)
            daemon.live(2)
        heat(lab, "plain-later", 13.0)
        lab.clock.sleep(900.0)
        cool(lab, "plain-night")
        cool(lab, "plain-later")
        lab.clock.sleep(300.0)
        with stage.daemon() as daemon:
            daemon.live(4)
        cases = by_node(agrees(stage, stage.records()))
    assert {node: each.miss for node, each in cases.items()} == {
        "plain-hot": "",
        "plain-brief": "stabilizationWindow",
        "plain-blind": "noMetrics",
        "plain-night": "daemonDown",
        "plain-later": "daemonDown",
        "plain-aside": "notEvaluated",
        "plain-lost": "notReady",
        "dull-hot": "belowThreshold",
        "alone-hot": "notCovered",
    }
    assert cases["plain-hot"].cooled


@pytest.mark.timeout(300)
def test_what_is_due_during_an_outage_is_made_after_the_restart_and_is_late(tmp_path: Path) -> None:
    with an_effect_stage(tmp_path, machines("plain", "hot", "cool"), services("plain"), {"plain": Rules()}) as stage:
        with stage.daemon() as daemon:
            daemon.live(4)
            heat(stage.lab, "plain-hot")
            daemon.live(6)
            assert len(stage.lab.log.evictions(code=201)) == 3
        assert stage.made == []
        stage.lab.clock.sleep(1500.0)
        with stage.daemon() as daemon:
            daemon.look()
        assert [(each.step, each.late, each.outcome) for each in stage.made] == [
            (Step.SETTLED, True, Outcome.COOLED),
        ]
        records = stage.records()
        # it shows the time since the outage began, so it is no effectiveness
        assert [(each.node, each.evictions, each.cooled) for each in records.episodes] == [("plain-hot", 3, None)]
        # the others are not forgotten
        assert [each.step for each in records.assessments if each.assessed_at is None] == [Step.HOUR, Step.DAY]


def test_the_truth_comes_without_the_room_that_it_judges() -> None:
    code = "import sys, tests.stories.oracles.effect; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "rebalancer.lab.loads.truth" in loaded
    judged = ("rebalancer.effect", "rebalancer.model.records.effect", "rebalancer.daemon", "rebalancer.store")
    assert [name for name in loaded if name.startswith(judged)] == []
