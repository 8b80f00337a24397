"""What is looked at again after evictions: written before the call, made when it is due, and learned from."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rebalancer.cycle.evict.scheduled_assessments import assessments_of
from rebalancer.cycle.observe.observation import Observation
from rebalancer.effect.feedback import open_breakers, relief_factors
from rebalancer.evaluation.assessments import AssessmentBatch, derive_feedback, remember, run_due_assessments
from rebalancer.forecast.series.pod_cpu import MissingReplica
from rebalancer.model.cluster.owners import Service
from rebalancer.model.decisions.eviction import Eviction, TargetNode
from rebalancer.model.decisions.eviction import Outcome as Became
from rebalancer.model.decisions.plan import CycleReport, NodeLine, Trigger
from rebalancer.model.errors import ConnectError
from rebalancer.model.records.effect import Assessment, EffectRecords, Outcome, Step
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.safety import EffectivenessBreaker
from rebalancer.store import SqlRecords, open_records
from rebalancer.strategies import Findings
from tests.builders import NOW, ANode, APod, a_node, a_pod, a_policy, cluster, found_in, set_fields, usage_of, view_of
from tests.builders import an_eviction as eviction_of
from tests.prometheus.fakes import Clock
from tests.strategies.builders.finding import observation_of

SETTLE, HOUR, DAY = 900.0, 3600.0, 86_400.0
NODES = [a_node("hot", cpu=10_000.0, used=8_500.0), a_node("cool", cpu=10_000.0, used=2_000.0)]
PODS = [
    a_pod("web-1", "hot", owner="web", used=2_000.0),
    a_pod("web-2", "hot", owner="web", used=1_500.0),
    a_pod("db-1", "hot", owner="db", used=3_000.0),
    a_pod("new", "hot", owner="db"),  # its CPU isn't known
]


def seen_at(
    now: float,
    nodes: Sequence[ANode] = NODES,
    pods: Sequence[APod] = PODS,
    policy: RebalancerPolicy | None = None,
    **usage: Any,
) -> Observation:
    policy = policy or a_policy()
    snapshot = cluster(nodes, pods)
    view = view_of(snapshot, usage_of(snapshot, nodes, pods, **usage), policy, now=now)
    return observation_of(view, now=now)


def an_eviction(name: str, outcome: Became = Became.EVICTED, *, node: str = "hot") -> Eviction:
    service = name.partition("-")[0]
    given = {"pod": name, "uid": f"uid-shop-{name}", "node": node, "cpu_millicores": 1000.0, "outcome": outcome}
    return eviction_of(service=f"shop/{service}", target_nodes=(TargetNode("cool", 1.0),), **given)


def a_report(*evictions: Eviction, dry_run: bool = False, cycle: str = "c1") -> CycleReport:
    report = CycleReport(id=cycle, cluster="test", trigger=Trigger.ALERT, dry_run=dry_run, started_at=NOW)
    report.evictions = list(evictions)
    return report


def found_by(seen: Observation, policy: RebalancerPolicy) -> list[Findings]:
    return found_in(seen.snapshot, seen.usage, policy)


def expected_of(*evictions: Eviction, policy: RebalancerPolicy | None = None, **fields: Any) -> list[Assessment]:
    policy = policy or a_policy()
    seen = seen_at(NOW)
    report = a_report(*evictions, dry_run=fields.pop("dry_run", False), cycle=fields.pop("cycle", "c1"))
    return assessments_of(report, seen, found_by(seen, policy), policy, **{"now": NOW, **fields})


# ---- what will be due


def test_each_node_is_looked_at_after_settling_after_an_hour_and_after_a_day() -> None:
    rows = expected_of(an_eviction("web-1"), policy=a_policy(effect={"settlingTime": "20m"}))
    assert [(each.step, each.last_eviction_at, each.due_at - NOW) for each in rows] == [
        (Step.SETTLED, NOW, 1200.0),
        (Step.HOUR, NOW, HOUR),
        (Step.DAY, NOW, DAY),
    ]
    assert {(each.cycle, each.node, each.pool, each.strategy, each.trigger) for each in rows} == {
        ("c1", "hot", "general", "LowNodeUtilization", "alert")
    }


def test_the_shares_are_what_was_measured_and_what_is_left_without_the_pods() -> None:
    row = expected_of(an_eviction("web-1"), an_eviction("web-2"))[0]
    assert (row.before_share, row.planned_share) == (pytest.approx(0.85), pytest.approx(0.5))
    assert (row.high, row.target, row.capacity) == (0.75, 0.65, 10_000.0)


def test_all_pods_of_the_node_are_written_down_and_those_that_went_are_marked() -> None:
    row = expected_of(an_eviction("web-1"))[0]
    assert [(each.uid, each.pod, each.evicted) for each in row.pods] == [
        ("uid-shop-web-1", "shop/web-1", True),
        ("uid-shop-web-2", "shop/web-2", False),
        ("uid-shop-db-1", "shop/db-1", False),
        ("uid-shop-new", "shop/new", False),
    ]
    assert [each.amount for each in row.pods[:3]] == [2_000.0, 1_500.0, 3_000.0]
    assert math.isnan(row.pods[3].amount)


@pytest.mark.parametrize(
    ("outcome", "counts"), [(Became.PLANNED, True), (Became.UNKNOWN, True), (Became.FAILED, False)]
)
def test_what_may_have_happened_counts(outcome: Became, counts: bool) -> None:
    row = expected_of(an_eviction("web-1"), an_eviction("web-2", outcome))[0]
    assert [each.evicted for each in row.pods[:2]] == [True, counts]


def test_where_everything_was_refused_nothing_is_due_and_nothing_counted() -> None:
    rows = expected_of(an_eviction("web-1", Became.REFUSED))
    assert [(each.assessed_at, each.outcome, each.pods) for each in rows] == [(NOW, None, ())] * 3
    assert rows[0].detail == "nothing was evicted after all"


def test_a_dry_run_is_not_looked_at() -> None:
    assert expected_of(an_eviction("web-1", Became.PLANNED), dry_run=True) == []


def test_before_a_call_only_its_own_node_is_asked_for() -> None:
    assert expected_of(an_eviction("web-1"), nodes={"cool"}) == []
    assert len(expected_of(an_eviction("web-1"), nodes={"hot"})) == 3


def test_what_was_found_by_requests_is_not_measured_in_cpu() -> None:
    marks = {"high": {"pods": 3}, "target": {"pods": 2}, "low": {"pods": 1}}
    pool = {"name": "general", "selector": {}, "requestThresholds": marks}
    policy = a_policy(pools=[pool], strategies=[{"name": "LowNodeUtilization", "args": {"source": "Requests"}}])
    seen = seen_at(NOW, policy=policy)
    found = found_by(seen, policy)
    assert [each.node for each in found[0].findings] == [0]
    assert assessments_of(a_report(an_eviction("web-1")), seen, found, policy, now=NOW) == []


def test_a_cycle_that_was_stopped_expects_nothing() -> None:
    assert assessments_of(a_report(), seen_at(NOW), [], a_policy(), now=NOW) == []


# ---- when it is due


@pytest.fixture
def records(tmp_path: Path, empty_database: Path) -> Iterator[SqlRecords]:
    path = shutil.copy(empty_database, tmp_path / "db")
    with open_records(url=f"sqlite:///{path}", cluster="test", clock=Clock(NOW - DAY)) as opened:
        yield opened


@pytest.fixture
def effect(records: SqlRecords) -> EffectRecords:
    found: EffectRecords = records.effect()
    found.expect(expected_of(an_eviction("web-1")))
    return found


def look(
    effect: EffectRecords, now: float, nodes: Sequence[ANode], pods: Sequence[APod], **fields: Any
) -> AssessmentBatch:
    replacements: Mapping[str, str] = fields.pop("replacements", {})
    missing: Sequence[MissingReplica] = fields.pop("missing", ())
    seen = seen_at(now, nodes, pods, **fields)
    return run_due_assessments(
        effect,
        seen.snapshot,
        seen.usage,
        replacements=lambda _: replacements,
        missing=lambda _: missing,
        policy=a_policy(),
        now=now,
    )


def afterwards(used: float, *more: APod, **fields: float) -> tuple[list[ANode], list[APod]]:
    """The hot node without the pod that was evicted, the others as they were, or as `fields` say."""
    others = [replace(each, used=fields.get(each.name.replace("-", "_"), each.used)) for each in PODS[1:]]
    return [a_node("hot", cpu=10_000.0, used=used), NODES[1]], [*others, *more]


def test_nothing_is_made_before_it_is_due(effect: EffectRecords) -> None:
    assert look(effect, NOW + SETTLE - 1, *afterwards(6_500.0)) == AssessmentBatch()


def test_a_node_that_cooled_is_recorded_as_cooled(effect: EffectRecords) -> None:
    (made,) = look(effect, NOW + SETTLE, *afterwards(6_500.0)).made
    assert (made.step, made.outcome, made.late) == (Step.SETTLED, Outcome.COOLED, False)
    assert (made.assessed_at, made.after_share) == (NOW + SETTLE, pytest.approx(0.65))
    assert made.breakdown is not None
    assert (made.breakdown.evicted, made.breakdown.residual) == (2_000.0, pytest.approx(0.0))
    (read_back,) = [each for each in effect.assessments(0.0, NOW + 1) if each.assessed_at is not None]
    assert replace(read_back, pods=()) == replace(made, pods=())


def test_what_was_made_is_not_made_again(effect: EffectRecords) -> None:
    look(effect, NOW + SETTLE, *afterwards(6_500.0))
    assert look(effect, NOW + SETTLE + 60, *afterwards(9_500.0)) == AssessmentBatch()
    assert effect.assessments(0.0, NOW + 1)[0].outcome is Outcome.COOLED


def test_all_three_steps_are_made_in_their_time(effect: EffectRecords) -> None:
    for after in (SETTLE, HOUR, DAY):
        assert [each.due_at - NOW for each in look(effect, NOW + after, *afterwards(6_500.0)).made] == [after]
    assert effect.due(NOW + 10 * DAY) == []


def test_a_pod_that_came_is_to_blame_where_it_took_the_room(effect: EffectRecords) -> None:
    newcomer = a_pod("other", "hot", used=1_800.0)
    (made,) = look(effect, NOW + SETTLE, *afterwards(8_300.0, newcomer)).made
    assert (made.outcome, made.breakdown.arrived if made.breakdown else 0) == (Outcome.NEW_PODS_ARRIVED, 1_800.0)


@pytest.mark.parametrize(
    ("left", "wanted"), [("hot", Outcome.REPLACEMENTS_RETURNED), ("elsewhere", Outcome.NEW_PODS_ARRIVED)]
)
def test_a_replacement_came_back_only_to_the_node_that_its_own_predecessor_left(
    effect: EffectRecords, left: str, wanted: Outcome
) -> None:
    again = a_pod("web-9", "hot", owner="web", used=2_000.0)
    nodes, pods = afterwards(8_500.0, again)
    (made,) = look(effect, NOW + SETTLE, nodes, pods, replacements={"uid-shop-web-9": left}).made
    assert made.outcome is wanted


def test_a_node_whose_pods_carry_the_load_of_a_missing_replica_has_not_grown(effect: EffectRecords) -> None:
    gone = replace(an_eviction("web-1"), service=Service(kind="ReplicaSet", namespace="shop", name="web"))
    set_fields(gone, planned_at=NOW)
    missing = [MissingReplica(gone, NOW + SETTLE)]
    # by its record web-1 used 1,000m: web-2 uses that besides its own 1,500m
    (made,) = look(effect, NOW + SETTLE, *afterwards(7_500.0, web_2=2_500.0), missing=missing).made
    assert made.breakdown is not None
    assert (made.breakdown.surplus, made.breakdown.remaining_change) == (1_000.0, 0.0)
    assert made.outcome is Outcome.REPLACEMENTS_NOT_READY


def test_the_rest_that_grew_is_to_blame_where_it_did(effect: EffectRecords) -> None:
    (made,) = look(effect, NOW + SETTLE, *afterwards(8_200.0, db_1=4_700.0)).made
    grew = made.breakdown.remaining_change if made.breakdown else 0
    assert (made.outcome, grew) == (Outcome.REMAINING_PODS_GREW, 1_700.0)


def test_what_a_later_cycle_evicted_did_not_leave_by_itself(effect: EffectRecords) -> None:
    later = expected_of(an_eviction("web-2"), cycle="c2", now=NOW + 600)
    effect.expect(later)
    nodes, pods = afterwards(5_000.0)
    (made,) = look(effect, NOW + SETTLE, nodes, pods[1:]).made
    assert made.breakdown is not None
    assert (made.breakdown.evicted, made.breakdown.departed) == (3_500.0, 0.0)


def morning(
    records: SqlRecords, effect: EffectRecords, *, grows: float, untouched: int, pool: str = "general", **later: ANode
) -> Assessment:
    """The assessment of the hot node, and of nodes without evictions, when everything uses `grows` times as much. The
    replacement of 2 cores is on the other node of `NODES`, whose pool is `pool`. `later`: other nodes by then."""
    others = [a_node(f"n{number}", cpu=10_000.0, used=3_000.0) for number in range(untouched)]
    report = replace(a_report(an_eviction("web-1")), finished_at=NOW + 1)
    report.evictions = []
    report.nodes = [
        NodeLine(name=each.name, pool="general", cpu_before=(each.used or 0.0) / each.cpu, cpu_planned=None, high=0.75)
        for each in [*NODES, *others]
    ]
    records.begin(report)
    records.finish(report)
    nodes = [a_node("hot", cpu=10_000.0, used=6_500.0 * grows)]
    nodes += [a_node("cool", cpu=10_000.0, used=4_000.0 * grows, labels={"pool": pool})]
    nodes += [replace(each, used=(each.used or 0.0) * grows) for each in others]
    nodes = [later.get(each.name, each) for each in nodes] + [each for name, each in later.items() if name == "new"]
    pods = [replace(each, used=each.used * grows) for each in [*PODS[1:], replace(PODS[0], name="web-9", node="cool")]]
    replaced = {"uid-shop-web-9": "hot"}
    (made,) = look(effect, NOW + SETTLE, nodes, pods, replacements=replaced).made
    return made


@pytest.mark.parametrize(("grows", "outcome"), [(1.2, Outcome.POOL_GREW), (0.8, Outcome.COOLED), (1.0, Outcome.COOLED)])
def test_growth_of_untouched_nodes_is_taken_out_of_the_relief(
    records: SqlRecords, effect: EffectRecords, grows: float, outcome: Outcome
) -> None:
    made = morning(records, effect, grows=grows, untouched=6)
    account = made.breakdown
    assert account is not None
    # all that stayed on the node
    assert account.pool_growth == pytest.approx(6_500.0 * (grows - 1.0))
    assert (account.remaining_change, account.residual) == (pytest.approx(0.0), pytest.approx(0.0))
    assert made.outcome is outcome
    known = [replace(made, cycle=f"c{number}") for number in range(5)]
    assert relief_factors(known) == {"general": pytest.approx(1.0)}


def test_a_pool_that_grew_opens_no_circuit_breaker(records: SqlRecords, effect: EffectRecords) -> None:
    made = morning(records, effect, grows=1.2, untouched=6)
    known = [replace(made, cycle=f"c{number}") for number in range(30)]
    assert open_breakers(known, EffectivenessBreaker(), now=NOW + SETTLE + 1) == {}
    taken = [replace(each, outcome=Outcome.NEW_PODS_ARRIVED) for each in known]
    assert set(open_breakers(taken, EffectivenessBreaker(), now=NOW + SETTLE + 1)) == {"general"}


@pytest.mark.parametrize(("grows", "outcome"), [(1.2, Outcome.POOL_GREW), (0.8, Outcome.COOLED), (1.0, Outcome.COOLED)])
@pytest.mark.parametrize("untouched", [0, 1, 2])
def test_with_few_untouched_nodes_the_growth_is_that_of_all_nodes_together(
    records: SqlRecords, effect: EffectRecords, grows: float, outcome: Outcome, untouched: int
) -> None:
    made = morning(records, effect, grows=grows, untouched=untouched)
    assert made.breakdown is not None
    assert (made.breakdown.pool_growth, made.breakdown.growth_unknown) == (pytest.approx(6_500.0 * (grows - 1)), False)
    assert made.outcome is outcome
    known = [replace(made, cycle=f"c{number}") for number in range(5)]
    assert relief_factors(known) == {"general": pytest.approx(1.0)}


UNKNOWN_GROWTH = [
    {"new": a_node("new", cpu=10_000.0, used=100.0)},
    {"cool": a_node("cool", cpu=10_000.0, used=np.nan)},
    {"pool": "other"},
]


@pytest.mark.parametrize("case", UNKNOWN_GROWTH, ids=["a node has joined", "a node isn't known", "moved to a pool"])
def test_growth_that_is_not_known_is_not_learned_as_failed_relief(
    records: SqlRecords, effect: EffectRecords, case: dict[str, Any]
) -> None:
    made = morning(records, effect, grows=1.5, untouched=1, **case)
    assert made.breakdown is not None
    assert (made.breakdown.pool_growth, made.breakdown.growth_unknown) == (0.0, True)
    known = [replace(made, cycle=f"c{number}") for number in range(5)]
    assert relief_factors(known) == {}
    read = effect.assessments(0.0, NOW + DAY, step=Step.SETTLED)
    assert [each.breakdown.growth_unknown for each in read if each.breakdown is not None] == [True]


@pytest.mark.parametrize(("after_due", "late"), [(SETTLE, False), (SETTLE + 1, True)])
def test_one_that_is_made_long_after_it_was_due_is_late(effect: EffectRecords, after_due: float, late: bool) -> None:
    (made,) = look(effect, NOW + SETTLE + after_due, *afterwards(6_500.0)).made
    assert made.late is late


UNKNOWN_USAGE = [
    {"node_cpu_millicores": np.array([np.nan, 2_000.0])},
    {"warnings": ("a store is away",)},
    {"pod_cpu_millicores": np.full(3, np.nan)},
]


@pytest.mark.parametrize("usage", UNKNOWN_USAGE)
def test_a_node_that_is_not_known_is_looked_at_again_for_an_hour(effect: EffectRecords, usage: dict[str, Any]) -> None:
    nodes, pods = afterwards(8_000.0)
    for after in (0.0, 600.0, HOUR - 1):
        found = look(effect, NOW + SETTLE + after, nodes, pods, **usage)
        assert [each for each in found.made if each.step is Step.SETTLED] == []
        assert found.notes == ("not assessed yet, their load isn't known: hot",)
    made = [each for each in look(effect, NOW + SETTLE + HOUR, nodes, pods, **usage).made if each.step is Step.SETTLED]
    assert [each.outcome for each in made] == [Outcome.UNKNOWN]


def test_one_that_is_known_again_in_time_is_made(effect: EffectRecords) -> None:
    nodes, pods = afterwards(6_500.0)
    look(effect, NOW + SETTLE, nodes, pods, **UNKNOWN_USAGE[0])
    (made,) = look(effect, NOW + SETTLE + 120, nodes, pods).made
    assert (made.outcome, made.late) == (Outcome.COOLED, False)


def test_a_node_that_is_gone_is_unknown_after_an_hour(effect: EffectRecords) -> None:
    assert look(effect, NOW + SETTLE, [NODES[1]], []).made == ()
    found = look(effect, NOW + SETTLE + HOUR, [NODES[1]], []).made
    assert [(each.step, each.outcome) for each in found] == [(Step.SETTLED, Outcome.UNKNOWN)]


def test_where_the_pods_are_still_there_nothing_is_counted(effect: EffectRecords) -> None:
    """The call timed out, or the program died before it: by the row it may have happened."""
    assert look(effect, NOW + SETTLE, NODES, PODS) == AssessmentBatch()
    row = effect.assessments(0.0, NOW + 1)[0]
    assert (row.assessed_at, row.outcome, row.pods) == (NOW + SETTLE, None, ())
    assert effect.due(NOW + SETTLE) == []


def test_a_pod_that_is_still_leaving_is_on_its_way(effect: EffectRecords) -> None:
    nodes, pods = afterwards(8_500.0, replace(PODS[0], terminating=True))
    (made,) = look(effect, NOW + SETTLE, nodes, pods).made
    assert made.outcome is not None


class Away:
    """A database that is away for some of the questions."""

    def __init__(self, inner: EffectRecords, *names: str) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            raise ConnectError("the database is away")
        return getattr(self._inner, name)


@pytest.mark.parametrize("name", ["due", "assessments", "expect", "made"])
def test_a_database_that_is_away_costs_nothing_but_time(effect: EffectRecords, name: str) -> None:
    away: Any = Away(effect, name)
    found = look(away, NOW + SETTLE, *afterwards(6_500.0))
    assert found == AssessmentBatch(notes=("evictions are not assessed: the database is away",))
    assert len(look(effect, NOW + SETTLE + 60, *afterwards(6_500.0)).made) == 1


# ---- what is learned


def outcomes(records: SqlRecords, *results: Outcome, node: str = "hot") -> list[Assessment]:
    """One cycle after the other, an hour apart until NOW, evicted one pod each, and came to that."""
    effect, out = records.effect(), []
    for number, outcome in enumerate(results):
        at = NOW - (len(results) - number) * HOUR
        report = replace(a_report(an_eviction("web-1", node=node), cycle=f"{node}{number}"), started_at=at)
        records.begin(report)
        moved = report.evictions[0]
        set_fields(moved, record=records.planned(report, moved))
        records.outcome(moved)
        due = replace(expected_of(an_eviction("web-1"))[0], cycle=report.id, node=node, last_eviction_at=at)
        times = {"due_at": at + SETTLE, "assessed_at": at + SETTLE}
        done = replace(due, **times, outcome=outcome, after_share=0.8)
        effect.expect([due])
        effect.made([done])
        out.append(done)
    return out


def test_a_service_whose_moves_did_not_help_stays_for_a_while(records: SqlRecords) -> None:
    made = outcomes(records, Outcome.REMAINING_PODS_GREW, Outcome.REMAINING_PODS_GREW)
    learned = derive_feedback(records.effect(), a_policy(), made=made[1:], now=NOW)
    ledger = records.ledger(clock=Clock(NOW))
    remember(ledger, learned, a_policy())
    (memory,) = ledger.backoffs()
    assert (memory.service_identity, memory.node, memory.count, memory.until) == ("shop/web", "hot", 1, NOW + HOUR)
    remember(ledger, derive_feedback(records.effect(), a_policy(), now=NOW + 60), a_policy())
    assert [each.count for each in ledger.backoffs()] == [1]


def test_a_pool_that_rests_is_known_after_a_restart(records: SqlRecords) -> None:
    outcomes(records, *[Outcome.NEW_PODS_ARRIVED] * 10)
    policy = a_policy()
    assert set(derive_feedback(records.effect(), policy, now=NOW - HOUR + SETTLE + 1).open_breakers) == {"general"}
    assert derive_feedback(records.effect(), policy, now=NOW + SETTLE).open_breakers == {}
    gentle = a_policy(safety={"circuitBreaker": {"effect": {"sampleSize": 11}}})
    assert derive_feedback(records.effect(), gentle, now=NOW - HOUR + SETTLE + 1).open_breakers == {}
