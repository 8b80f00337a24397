"""Pools and strategies in dry run beside others that act: what is planned, recorded and evicted."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.lab import Scenario
from rebalancer.model.decisions.eviction import Eviction, Outcome
from rebalancer.model.decisions.plan import CycleReport, Trigger
from rebalancer.model.errors import ConnectError
from rebalancer.policy.modes import mode_of
from rebalancer.store import SqlRecords
from tests.stories.scenarios.stage import GENEROUS, Stage, a_machine, a_scenario, a_stage, burner, service

POOLS = ("a", "b")
LIMITS = {**GENEROUS, "service": {"inFlight": 100}}
THRESHOLDS = {"high": 75, "target": 65, "low": 50}
OLD = {"maxPodLifeTime": "30m", "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "old"}}}
STRATEGIES = ({"name": "LowNodeUtilization"}, {"name": "PodLifeTime", "args": OLD})


def pools(**modes: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "selector": {"matchLabels": {"pool": name}}, "thresholds": THRESHOLDS}
        | ({"mode": modes[name]} if name in modes else {})
        for name in POOLS
    ]


def two_pools() -> Scenario:
    """Each pool has a hot node with movable pods, an idle one, and old pods."""
    machines = [a_machine(f"{pool}{number}", labels={"pool": pool}) for pool in POOLS for number in (1, 2, 3)]
    stay = {"node_selector": {"pool": "a"}}, {"node_selector": {"pool": "b"}}
    return a_scenario(
        machines,
        burner("heat-a", "a1", 9.0),
        burner("heat-b", "b1", 9.0),
        service("web-a", {"a1": 6, "a2": 1}, **stay[0]),
        service("web-b", {"b1": 6, "b2": 1}, **stay[1]),
        service("old", {"a3": 1, "b3": 1, "a2": 1, "b2": 1}, cpu=0.1, age_seconds=7200.0),
    )


@contextmanager
def a_run(folder: Path, *, strategies: tuple[dict[str, Any], ...] = STRATEGIES[:1], **modes: str) -> Iterator[Stage]:
    sections = {"limits": LIMITS, "planner": {"patience": "0s"}}
    with a_stage(two_pools(), folder, pools=pools(**modes), strategies=[*strategies], **sections) as stage:
        stage.lab.clock.sleep(300.0)
        yield stage


def price_alone(folder: Path) -> float:
    """Of the evictions from pool a, where that is the only part of the policy."""
    with a_stage(two_pools(), folder, pools=pools()[:1], strategies=[*STRATEGIES[:1]], limits=LIMITS) as stage:
        stage.lab.clock.sleep(300.0)
        score = stage.cycle().score
        assert score is not None
        return score.price


def by_pool(report: CycleReport, *, dry_run: bool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in report.evictions:
        if each.reserved.dry_run == dry_run:
            found.setdefault(each.pool, []).append(each.uid)
    return found


def test_a_pool_in_dry_run_is_planned_and_recorded_and_the_other_one_acts(tmp_path: Path) -> None:
    with a_run(tmp_path, b="DryRun") as stage:
        report = stage.cycle()
        real, planned = by_pool(report, dry_run=False), by_pool(report, dry_run=True)
        assert set(real) == {"a"}
        assert set(planned) == {"b"}
        assert {each.uid for each in stage.log.evicted} == set(real["a"])
        (dry,) = {(each.answered.outcome, each.answered.detail) for each in report.evictions if each.reserved.dry_run}
        assert dry == (Outcome.PLANNED, "dry run of pool b")
        # the ledger counts and waits for the real ones alone
        assert {each.uid for each in stage.ledger.open_evictions()} == set(real["a"])
        # neither node of the pool is hot for another reason than the dry run
        assert report.remaining == []
        assert report.score is not None
        assert report.score.price == pytest.approx(price_alone(tmp_path / "alone"))
        # nor is the dry run an eviction in the report of the effect
        records = stage.world.records
        assert isinstance(records, SqlRecords)
        seen = records.effect().node_observations(["a1", "b1"], report.started_at, report.started_at + 1)
        of_node = {node: (each.dry_run, each.evictions) for node, (each,) in seen.items()}
        assert of_node == {"a1": (False, len(real["a"])), "b1": (True, len(planned["b"]))}
        stage.turn()
        assert not any(each.name.startswith("web-b") for each in stage.log.evicted)


def test_the_part_that_acts_evicts_what_it_would_alone(tmp_path: Path) -> None:
    def names(folder: str, **modes: str) -> set[str]:
        with a_run(tmp_path / folder, **modes) as stage:
            stage.cycle()
            return {each.name.rsplit("-", 1)[0] + each.node for each in stage.log.evicted}

    both = names("both")
    assert names("one", b="DryRun") == {each for each in both if each.startswith("web-a")}
    assert names("none", a="DryRun", b="DryRun") == set()


def test_a_dry_run_takes_no_limit_from_a_real_eviction(tmp_path: Path) -> None:
    sections = {"limits": {**LIMITS, "perCycle": 2}, "planner": {"patience": "0s"}}
    with a_stage(two_pools(), tmp_path, pools=pools(a="DryRun"), strategies=[*STRATEGIES[:1]], **sections) as stage:
        stage.lab.clock.sleep(300.0)
        report = stage.cycle()
        # the hotter or first node isn't preferred: the limit goes to the pool that acts
        assert len(by_pool(report, dry_run=False)["b"]) == 2
        assert by_pool(report, dry_run=True) == {}
        codes = {each.code for each in report.refusals if each.node == "a1" and each.name.startswith("web-a")}
        assert "LimitCycle" in codes


def test_a_plan_lists_what_a_run_evicts_and_says_what_is_in_dry_run(tmp_path: Path) -> None:
    with a_run(tmp_path, a="DryRun") as stage:
        plan = run_cycle(stage.world, stage.policy, dry_run=True).report
        said = {each.uid for each in plan.evictions if not each.answered.detail}
        assert {each.answered.detail for each in plan.evictions} == {"", "dry run of pool a"}
        stage.cycle()
        assert {each.uid for each in stage.log.evicted} == said


def test_a_strategy_in_dry_run_evicts_nothing_beside_one_that_acts(tmp_path: Path) -> None:
    dry = ({**STRATEGIES[1], "mode": "DryRun"}, STRATEGIES[0])
    with a_run(tmp_path, strategies=dry) as stage:
        report = stage.cycle()
        details = {each.strategy: each.answered.detail for each in report.evictions if each.reserved.dry_run}
        assert details == {"PodLifeTime": "dry run of strategy PodLifeTime"}
        assert {each.strategy for each in report.evictions if not each.reserved.dry_run} == {"LowNodeUtilization"}
        assert not any(each.name.startswith("old") for each in stage.log.evicted)
        # no pod is in the plan twice
        assert len({each.uid for each in report.evictions}) == len(report.evictions)


def test_a_pool_in_dry_run_gets_neither_taint_nor_cordon(tmp_path: Path) -> None:
    with a_run(tmp_path, a="DryRun", b="DryRun") as stage:
        stage.cycle()
        assert not [each for each in stage.lab.log.entries() if each.event in ("tainted", "cordoned")]
        assert stage.world.soft_taint_controller.held == {}


class WithoutDryRuns:
    """A database that fails at the records of dry runs."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def planned(self, report: CycleReport, eviction: Eviction) -> int:
        raise ConnectError("the disk is full")


def test_where_the_dry_run_fails_the_evictions_that_were_made_are_reported(tmp_path: Path) -> None:
    with a_run(tmp_path, b="DryRun") as stage:
        records: Any = WithoutDryRuns(stage.world.records)
        report = run_cycle(replace(stage.world, records=records), stage.policy, dry_run=False).report
        assert {each.uid for each in report.evictions} == {each.uid for each in stage.log.evicted} != set()
        assert "the parts in mode DryRun are not planned: the disk is full" in report.notes
        assert report.finished_at is not None


@pytest.mark.parametrize("seed", range(4))
def test_with_random_modes_no_pod_of_a_part_that_does_not_act_is_evicted(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    evicted = planned = 0
    with a_run(tmp_path, strategies=STRATEGIES) as stage:
        for _ in range(12):
            stage.policy = with_modes(stage.policy, random)
            before = len(stage.log.evicted)
            stage.lab.clock.sleep(150.0)
            request = random.choice((CycleRequest(trigger=Trigger.PERIODIC), alerted(random)))
            report = run_cycle(stage.world, stage.policy, request=request, dry_run=False).report
            gone = {each.uid for each in stage.log.evicted[before:]}
            for each in report.evictions:
                wanting = [one for one in stage.policy.strategies if one.name == each.strategy]
                in_dry_run = any(mode_of(stage.policy, one, each.node[0]) != "Act" for one in wanting)
                assert each.reserved.dry_run == in_dry_run
                assert (each.uid in gone) == (not in_dry_run)
                evicted, planned = evicted + (each.uid in gone), planned + in_dry_run
            assert gone <= {each.uid for each in report.evictions}
    assert evicted
    assert planned


def with_modes(policy: Any, random: Random) -> Any:
    def some(parts: Any) -> Any:
        return tuple(
            each.model_copy(update={"mode": random.choice(("DryRun", "Approve", "Act", "Act"))}) for each in parts
        )

    return policy.model_copy(update={"pools": some(policy.pools), "strategies": some(policy.strategies)})


def alerted(random: Random) -> CycleRequest:
    strategy, pool = random.choice(("LowNodeUtilization", "PodLifeTime")), random.choice("ab")
    scope = RequestScope(strategy=strategy, nodes=frozenset({f"{pool}1", f"{pool}3"}))
    return CycleRequest(trigger=Trigger.ALERT, scopes=frozenset({scope}))
