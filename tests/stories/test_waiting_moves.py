"""Plans that wait for a replacement: what they expect, and that a failed read of the cluster ends nothing."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rebalancer.cycle.run import run_cycle
from rebalancer.cycle.triggers.request import CycleRequest, RequestScope
from rebalancer.lab import Scenario
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport
from rebalancer.model.decisions.ports import ClusterReader
from rebalancer.model.errors import ConnectError
from tests.stories.scenarios.stage import Stage, a_machine, a_scenario, a_stage, burner, service

PODS = 6
PATIENT = {"planner": {"patience": "10m"}}


def two_hot_nodes() -> Scenario:
    """Each must lose several pods of the one service that can leave, of which one may be in flight."""
    hot = ("hot-1", "hot-2")
    return a_scenario(
        [a_machine(name) for name in (*hot, "a", "b", "c")],
        *(burner(f"burner-{name}", name, 7.5) for name in hot),
        service("web", dict.fromkeys(hot, PODS)),
        start_seconds=8.0,
        stop_seconds=2.0,
    )


def cycle_of(stage: Stage, name: str, *, dry_run: bool = False, **changes: Any) -> CycleReport:
    """A cycle for one node."""
    request = CycleRequest(scopes=frozenset({RequestScope(nodes=frozenset({name}))}))
    return run_cycle(replace(stage.world, **changes), stage.policy, request=request, dry_run=dry_run).report


def test_a_plan_says_what_its_moves_wait_for_and_when_they_are_expected(tmp_path: Path) -> None:
    with a_stage(two_hot_nodes(), tmp_path, **PATIENT) as stage:
        stage.lab.clock.sleep(120)
        planned = cycle_of(stage, "hot-1", dry_run=True).evictions
        assert [each.waits_for for each in planned] == [
            "",
            *["service shop/web: 1 of 1 in flight"] * (len(planned) - 1),
        ]
        assert [each.reserved.not_before for each in planned] == [None] * len(planned)  # no start-up was measured yet
        done = cycle_of(stage, "hot-1").evictions
        assert [each.pod for each in done] == [each.pod for each in planned]
        assert len(done) > 3
        took = [each.ready_at - each.at for each in stage.log.moves if each.ready_at is not None]
        stage.lab.clock.sleep(120)
        report = cycle_of(stage, "hot-2", dry_run=True)
        expected = [each.reserved.not_before for each in report.evictions]
        assert expected[0] is None
        waits = [at - report.started_at for at in expected[1:] if at is not None]
        assert len(waits) == len(expected) - 1
        # the grace period counts in full
        assert max(took) <= waits[0] <= max(took) + 60.0
        assert waits == sorted(waits)


@dataclass
class Unreadable:
    """A cluster that fails the first reads of services."""

    cluster: ClusterReader
    failures: int
    reads: int = 0

    def services(self, namespaces: Collection[str]) -> ClusterSnapshot:
        self.reads += 1
        if self.reads <= self.failures:
            raise ConnectError("the API server is away")
        return self.cluster.services(namespaces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


def test_a_cluster_that_cannot_be_read_while_a_plan_waits_does_not_end_the_cycle(tmp_path: Path) -> None:
    with a_stage(two_hot_nodes(), tmp_path, **PATIENT) as stage:
        stage.lab.clock.sleep(120)
        planned = cycle_of(stage, "hot-1", dry_run=True).evictions
        report = cycle_of(stage, "hot-1", cluster=Unreadable(stage.world.cluster, failures=3))
        assert [each.pod for each in report.evictions] == [each.pod for each in planned]
        assert {each.answered.outcome for each in report.evictions} == {Outcome.EVICTED}
