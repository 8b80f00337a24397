"""What is looked at again after evictions, in a cluster whose truth is known."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.cycle.evict.scheduled_assessments import assessments_of
from rebalancer.cycle.observe.observation import find, observe
from rebalancer.evaluation.assessments import AssessmentBatch, run_due_assessments
from rebalancer.lab import workload
from rebalancer.model.decisions.eviction import Outcome as Became
from rebalancer.model.records.effect import EffectRecords, Outcome, Step
from rebalancer.store import SqlRecords, open_records
from tests.stories.scenarios.stage import Stage, a_scenario, a_stage, burner, service

HOUR, DAY = 3600.0, 86_400.0


def three_services() -> Any:
    """On `hot` 13 of 16 cores are used, 3 of them by pods that may go."""
    return a_scenario(
        ("hot", "a", "b"),
        burner("burner", "hot", 9.8),
        *(service(name, {"hot": 1, "a": 1, "b": 1}) for name in ("web", "api", "db")),
    )


def evict_some(stage: Stage, effect: EffectRecords) -> list[str]:
    """One cycle, as the daemon runs it; uids of the pods that went."""
    seen = observe(stage.world, stage.policy, writes=False)  # time stands still: the cycle sees the same
    found = find(seen, stage.policy)
    report = stage.cycle()
    effect.expect(assessments_of(report, seen, found, stage.policy, now=stage.lab.clock.now()))
    return [each.uid for each in report.evictions if each.answered.outcome is Became.EVICTED]


def look_again(stage: Stage, effect: EffectRecords) -> AssessmentBatch:
    seen = observe(stage.world, stage.policy, writes=True)
    ledger = stage.ledger
    return run_due_assessments(
        effect,
        seen.snapshot,
        seen.usage,
        replacements=ledger.replacements,
        policy=stage.policy,
        now=stage.lab.clock.now(),
    )


@pytest.fixture
def lab_records(tmp_path: Path) -> Iterator[Callable[[Stage], EffectRecords]]:
    opened: list[SqlRecords] = []

    def of(stage: Stage) -> EffectRecords:
        url = stage.settings.database
        opened.append(open_records(url=url, cluster=stage.policy.cluster, clock=stage.lab.clock))
        return opened[-1].effect()

    yield of
    for each in opened:
        each.close()


def test_in_the_lab_a_node_cools_and_the_account_closes(
    tmp_path: Path, lab_records: Callable[[Stage], EffectRecords]
) -> None:
    with a_stage(three_services(), tmp_path) as stage:
        effect = lab_records(stage)
        stage.lab.clock.sleep(120)
        before = stage.lab.truth.node_cpu_share()["hot"]
        gone = evict_some(stage, effect)
        assert len(gone) == 3
        for _ in range(4):
            stage.lab.clock.sleep(230)
            look_again(stage, effect)
        (made,) = [each for each in effect.assessments(0.0, 2e9) if each.assessed_at is not None]
        after = stage.lab.truth.node_cpu_share()["hot"]
        replacements = stage.ledger.replacements(0.0)
        assert replacements == {each.new_uid: "hot" for each in stage.log.moves}
        assert stage.ledger.replacements(stage.lab.clock.now() + 1) == {}
    assert made.breakdown is not None
    assert (made.step, made.outcome, made.late) == (Step.SETTLED, Outcome.COOLED, False)
    assert made.before_share == pytest.approx(before, rel=1e-4)
    assert made.after_share == pytest.approx(after, rel=1e-4)
    assert made.planned_share == pytest.approx(after, rel=1e-4)
    assert made.breakdown.evicted == pytest.approx(3_000.0, rel=1e-3)
    change = made.breakdown.after - made.breakdown.before
    assert abs(made.breakdown.residual) < 0.05 * abs(change)


def test_what_was_due_while_no_daemon_ran_is_made_after_the_restart_and_is_late(
    tmp_path: Path, lab_records: Callable[[Stage], EffectRecords]
) -> None:
    with a_stage(three_services(), tmp_path) as stage:
        stage.lab.clock.sleep(120)
        evict_some(stage, lab_records(stage))
        stage.lab.cluster.add_workload(workload("newcomer", namespace="other", place={"hot": 2}, cpu=1.2))
        stage.lab.clock.sleep(5 * HOUR)  # and whoever knew of it is gone
        found = look_again(stage, lab_records(stage))
        assert [(each.step, each.late, each.outcome) for each in found.made] == [
            (Step.SETTLED, True, Outcome.NEW_PODS_ARRIVED),
            (Step.HOUR, True, Outcome.NEW_PODS_ARRIVED),
        ]
        assert found.made[0].breakdown is not None
        assert found.made[0].breakdown.arrived == pytest.approx(2_400.0, rel=1e-3)
        stage.lab.clock.sleep(DAY - 5 * HOUR)
        assert [(each.step, each.late) for each in look_again(stage, lab_records(stage)).made] == [(Step.DAY, False)]
