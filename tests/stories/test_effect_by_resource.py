"""An eviction for memory: an alert that means it, the assessment by it, and the backoff after two that did not help."""

from dataclasses import replace
from pathlib import Path

import pytest

from rebalancer.cli.output.cycle_document import cycle_document
from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.alert_requests import ActionableEpisode, AlertedNodes, resolve_episode, with_alerts
from rebalancer.evaluation.assessments import derive_feedback, remember
from rebalancer.model.decisions.alerts import Alert, AlertEpisode
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.records.effect import Assessment, EffectRecords, Outcome, Step
from rebalancer.policy.pools import NodePools
from rebalancer.store import open_records
from tests.evaluation.test_assessments_in_the_lab import look_again
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, codes, service
from tests.stories.test_resources import pools, shares_of

MEMORY = {"high": 75, "target": 65, "low": 60}


def alert_about(stage: Stage, node: str, **annotations: str) -> CycleReport:
    """One cycle for an alert on a node."""
    world, now = stage.world, stage.lab.clock.now()
    alert = Alert(
        fingerprint="f",
        firing=True,
        labels={"alertname": "NodeMemoryHigh", "node": node},
        annotations={f"rebalancer_{name}": value for name, value in annotations.items()},
        starts_at=now - 60,
    )
    snapshot = world.cluster.snapshot()
    nodes = AlertedNodes(
        snapshot, NodePools.of(stage.policy.pools, snapshot.nodes).by_node, world.records.recent_moves(now - 3600)
    )
    episode = AlertEpisode(id=1, alert=alert, received_at=now - 30, next_at=now)
    found = resolve_episode(episode, nodes, stage.policy, now=now)
    assert isinstance(found, ActionableEpisode), found.reason
    request = with_alerts(None, [found])
    assert request is not None
    return run_cycle(world, stage.policy, request=request, dry_run=False).report


def assessed(stage: Stage, effect: EffectRecords) -> list[Assessment]:
    """What is made after the settling time, of the last eviction."""
    stage.lab.clock.sleep(stage.policy.effect.settling_time + 60)
    return [each for each in look_again(stage, effect).made if each.step is Step.SETTLED]


def test_a_memory_alert_relieves_its_node_of_memory_and_that_is_assessed_by_memory(tmp_path: Path) -> None:
    """`hot` is at 70% of its memory: under the pool's high, over the alert's."""
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in ("hot", "b", "c")],
        service("large", {"hot": 5, "b": 1}, cpu=0.5, memory="2240Mi"),
    )
    sections = {
        "pools": pools(memory=MEMORY),
        "alerts": {"rules": [{"alert": "NodeMemoryHigh"}]},
        "limits": {"cluster": {"evictions": [{"max": 10, "per": "1m"}]}},
    }
    with a_stage(cluster, tmp_path, **sections) as stage:
        stage.lab.clock.sleep(120)
        _, before = shares_of(stage.lab)
        assert stage.cycle().findings == []
        with open_records(url=stage.settings.database, cluster=stage.policy.cluster, clock=stage.lab.clock) as records:
            effect = records.effect()
            stage.world = replace(stage.world, effect=effect)
            report = alert_about(stage, "hot", resource="memory", high="60", target="50")
            document = cycle_document(report)
            (made,) = assessed(stage, effect)
            kept = records.reading().evictions_from("hot", limit=10)
        _, after = shares_of(stage.lab)
        assert {each.target for each in stage.log.moves} <= {"b", "c"}
    [(finding, _)] = report.findings
    assert finding.reason.startswith("real memory 68.4% is over high 60% (alert NodeMemoryHigh), to be cooled to 50%")
    assert [each["share"] for each in document["findings"]] == [pytest.approx(before["hot"])]
    assert (document["findings"][0]["resource"], document["findings"][0]["cpuShare"]) == ("memory", None)
    assert {each["name"]: each["hotBy"] for each in document["nodes"]}["hot"] == ["memory"]
    assert {each.resource for each in kept} == {"memory"}
    assert all(each.amounts["memory"].share == pytest.approx(2240 / 16384) for each in kept)
    assert (made.resource, made.outcome, made.target) == ("memory", Outcome.COOLED, 0.5)
    assert made.before_share == pytest.approx(before["hot"])
    assert made.after_share == pytest.approx(after["hot"])
    assert made.after_share == pytest.approx(made.planned_share)
    assert made.detail.startswith("memory 68.4% to 41%, target 50% (evicted -27.3")
    assert made.breakdown is not None
    assert made.breakdown.evicted == pytest.approx(2 * 2240 * 2**20)
    assert abs(made.breakdown.residual) < 1.0


def test_evictions_for_memory_that_do_not_help_lead_to_backoff_by_memory(tmp_path: Path) -> None:
    """New pods take the memory that evictions freed, twice."""
    cluster = a_scenario(
        [a_machine(name, memory="16Gi") for name in ("hot", "b", "c")],
        service("large", {"hot": 6}, cpu=0.5, memory="1536Mi"),
        burner("cache", "hot", 0.1, memory="4Gi"),
    )
    with (
        a_stage(cluster, tmp_path, pools=pools(memory=MEMORY)) as stage,
        open_records(url=stage.settings.database, cluster=stage.policy.cluster, clock=stage.lab.clock) as records,
    ):
        effect, ledger = records.effect(), stage.ledger
        assert ledger is not None
        stage.world = replace(stage.world, effect=effect)
        stage.lab.clock.sleep(300)
        outcomes = []
        for number in range(2):
            for _ in range(5):
                if stage.turn().evictions:
                    break
            stage.lab.cluster.add_workload(burner(f"newcomer-{number}", "hot", 0.1, memory="3Gi"))
            made = assessed(stage, effect)
            outcomes += [(each.resource, each.outcome) for each in made]
            learned = derive_feedback(effect, stage.policy, made=made, now=stage.lab.clock.now())
            remember(ledger, learned, stage.policy)
        assert outcomes == [("memory", Outcome.NEW_PODS_ARRIVED)] * 2
        (backoff,) = ledger.backoffs()
        report = stage.turn()
    assert (backoff.service_identity, backoff.node, backoff.resource) == ("shop/large", "hot", "memory")
    assert backoff.reason == "its node did not cool by memory twice within a day after its eviction: newPodsArrived"
    assert report.findings[0][0].resource == "memory"
    assert codes(report, "large-") == {"EvictionBackoff"}
