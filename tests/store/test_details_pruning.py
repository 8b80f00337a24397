"""Details are dropped by age, and thinned out before; what limits need, what is due and a day's counts stay."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.limits import Scope
from rebalancer.model.records.effect import Outcome as CameOfIt
from rebalancer.store import SqlRecords
from rebalancer.store.db.effect_tables import NODE_MEASUREMENTS
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import CYCLES, METADATA, REFUSALS
from rebalancer.store.retention import pruning
from rebalancer.store.retention.details import (
    DETAILS_SECONDS_AT_LEAST,
    HISTORY_SECONDS,
    MEASUREMENT_RETENTION_SECONDS,
    THINNED_AT_ONCE,
    keep_for,
)
from rebalancer.store.retention.pruning import EVERY_SECONDS, Pruned, prune_in
from tests.store.builders import (
    CLUSTER,
    NOW,
    SteppingClock,
    build_eviction,
    build_finding,
    build_line,
    build_refusal,
    rate,
)
from tests.store.readers import cycle_report
from tests.store.scenarios import ledger_cluster
from tests.store.scenarios.ledger_cluster import OTHER, Cluster
from tests.store.test_effect import a_day, an_assessment, an_episode, an_hour

DAY, HOUR = 86_400.0, 3600.0
KEEP = 30 * DAY
OF_A_CYCLE = {"cycles": 1, "cycle_nodes": 1, "node_measurements": 1, "findings": 1, "refusals": 1}


@dataclass
class Details:
    """The details of all clusters in a database."""

    engine: Engine
    clock: SteppingClock
    records: SqlRecords

    def keep(self, seconds: float = KEEP, cluster: str = CLUSTER) -> None:
        keep_for(self.engine, cluster, seconds)

    def rows(self) -> dict[str, int]:
        """Table -> rows, of those that have some."""

        def work(connection: Any) -> dict[str, int]:
            found = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in METADATA.sorted_tables
            }
            return {name: count for name, count in found.items() if count}

        return read(self.engine, work)

    def cycles(self) -> set[str]:
        return set(read(self.engine, lambda connection: connection.execute(select(CYCLES.c.id)).scalars().all()))

    def drop(self, older_than: float | None = None) -> dict[str, int]:
        """By hand; the simulation must have the same result."""
        seen = self.prune(older_than, dry_run=True)
        done = self.prune(older_than)
        assert seen == done
        return dict(done.details)

    def prune(self, older_than: float | None = None, *, dry_run: bool = False) -> Pruned:
        return prune_in(self.engine, clock=self.clock, older_than=older_than, dry_run=dry_run)


@pytest.fixture
def details(engine: Engine, clock: SteppingClock, records: SqlRecords) -> Details:
    return Details(engine, clock, records)


def lines_of(records: SqlRecords, cycle: str) -> dict[str, tuple[float, bool]]:
    """Node -> (share, hot) of the rows of `node_lines`."""
    report = cycle_report(records, cycle)
    assert report is not None
    return {line["node"]: (line["cpu_before"], line["hot"]) for line in report["nodes"]}


def a_cycle(records: SqlRecords, cycle: str, *, at: float, evicts: bool = False, dry_run: bool = False) -> None:
    """A hot node that is found, one that is cool, and a refusal."""
    cool = [build_line(name=name, before=0.5, planned=0.5, high=0.8) for name in ("cool", "refused", "warm")]
    outcome = Outcome.PLANNED if dry_run else Outcome.EVICTED
    ledger_cluster.a_cycle(
        records,
        cycle,
        at=at,
        dry_run=dry_run,
        nodes=[build_line(hot=True, high=0.8, planned=0.91), *cool],
        findings=[(build_finding(), "n1")],
        refusals=[build_refusal(node="refused")],
        evictions=[build_eviction(outcome=outcome)] if evicts else [],
    )


def test_a_cycle_goes_with_all_its_rows_once_it_is_too_old(details: Details) -> None:
    a_cycle(details.records, "old", at=NOW)
    a_cycle(details.records, "young", at=NOW + 1)
    details.keep()
    details.clock.sleep(KEEP)
    # both are thinned out: nothing is lost but what is never read
    assert details.drop() == {"node_measurements": 2}
    details.clock.sleep(1)
    assert details.drop() == {"cycles": 1, "findings": 1, "cycle_nodes": 2, "refusals": 1}
    assert details.cycles() == {"young"}
    assert details.drop() == {}


def test_of_a_cycle_that_was_never_thinned_out_everything_goes_at_once(details: Details) -> None:
    a_cycle(details.records, "old", at=NOW)
    details.keep()
    details.clock.sleep(KEEP + 1)
    assert details.drop() == OF_A_CYCLE
    assert details.rows() == {"effect_state": 1}


def test_a_cluster_without_a_time_for_details_keeps_them(details: Details, blue: Cluster, green: Cluster) -> None:
    a_cycle(details.records, "old", at=NOW)
    a_cycle(green.records, "theirs", at=NOW)
    details.keep(KEEP, OTHER)
    details.clock.sleep(400 * DAY)
    details.drop()
    assert details.cycles() == {"old", "cycle-of-blue"}
    # a time is given by hand, for all
    details.drop(90 * DAY)
    assert details.cycles() == set()


def test_each_cluster_keeps_its_details_for_as_long_as_it_says(details: Details, blue: Cluster, green: Cluster) -> None:
    details.keep(10 * DAY)
    details.keep(10 * DAY, OTHER)
    details.keep(20 * DAY, OTHER)
    for cluster in (blue, green):
        cluster.records.effect().put_episodes([an_episode()])
        cluster.records.effect().expect([an_assessment(cycle=f"of-{cluster.name}")])
        cluster.records.effect().made(
            [an_assessment(cycle=f"of-{cluster.name}", assessed_at=NOW, outcome=CameOfIt.COOLED)]
        )
    details.clock.sleep(15 * DAY)
    assert details.drop() == {"assessments": 1, "cycles": 1, "hot_episodes": 1}
    assert (blue.records.effect().episodes(0, NOW + DAY), blue.records.effect().assessments(0, NOW + DAY)) == ([], [])
    assert len(green.records.effect().episodes(0, NOW + DAY)) == 1
    assert len(green.records.effect().assessments(0, NOW + DAY)) == 1
    assert details.cycles() == {"cycle-of-green"}


def test_what_is_still_due_or_hot_stays_however_old(details: Details) -> None:
    effect = details.records.effect()
    a_cycle(details.records, "c1", at=NOW)
    effect.expect([an_assessment()])
    effect.put_episodes([an_episode(ended_at=None), an_episode("over"), an_episode("late", ended_at=NOW + 60 * DAY)])
    details.keep()
    details.clock.sleep(80 * DAY)
    assert details.drop() == OF_A_CYCLE | {"hot_episodes": 1}
    assert [each.node for each in effect.episodes(0.0, details.clock.now())] == ["late", "n1"]
    assert len(effect.due(details.clock.now())) == 1


def test_details_are_kept_for_three_days_whatever_is_asked_for(details: Details) -> None:
    a_cycle(details.records, "c1", at=NOW)
    details.keep(DAY)
    details.clock.sleep(DETAILS_SECONDS_AT_LEAST)
    assert "cycles" not in details.drop()
    assert "cycles" not in details.drop(0.0)
    details.clock.sleep(1)
    assert details.drop(0.0)["cycles"] == 1


def test_a_days_counts_stay_and_hours_for_more_than_a_year(details: Details) -> None:
    effect = details.records.effect()
    first = int(NOW // HOUR)
    effect.put_hours([an_hour(first), an_hour(first + 1)], read_until=NOW)
    effect.roll_up([a_day(int(NOW // DAY))])
    details.keep()
    details.clock.at = first * HOUR + HISTORY_SECONDS
    assert details.drop(0.0) == {}
    details.clock.sleep(HOUR)
    assert details.drop(0.0) == {"pool_hours": 1}
    details.clock.sleep(10 * HISTORY_SECONDS)
    details.drop(0.0)
    assert details.rows() == {"effect_days": 1, "effect_state": 1}
    assert effect.slo_evaluated_until() == NOW


def test_an_eviction_and_its_cycle_stay_when_the_cycles_details_go(details: Details, blue: Cluster) -> None:
    a_cycle(blue.records, "evicted", at=NOW, evicts=True)
    a_cycle(blue.records, "simulated", at=NOW, evicts=True, dry_run=True)
    details.keep()
    details.clock.sleep(KEEP + 1)
    done = details.drop()
    # the simulation's evictions are no history
    assert done == {"cycles": 2, "evictions": 1, "findings": 2, "node_measurements": 2, "cycle_nodes": 2, "refusals": 2}
    assert details.cycles() == {"evicted"}
    report = cycle_report(blue.records, "evicted")
    assert report is not None
    assert (len(report["evictions"]), report["nodes"], report["refusals"]) == (1, [], [])
    if details.engine.dialect.name == "sqlite":  # the other one enforces it
        check = "PRAGMA foreign_key_check"
        assert read(details.engine, lambda connection: connection.exec_driver_sql(check).fetchall()) == []


def test_what_a_limit_still_counts_is_never_dropped(details: Details, blue: Cluster) -> None:
    """The longest window of any limit decides over entries, and an entry keeps its eviction and its cycle."""
    blue.ledger.publish_global_limits(digest="d", text="{}", longest_window_seconds=500 * DAY, nodes=3)
    first = blue.answer(blue.reserve(), Outcome.EVICTED)
    blue.ledger.landed(first.reserved.record, at=details.clock.now())
    details.keep()
    details.clock.sleep(450 * DAY)
    assert details.drop() == {}
    yearly = rate(Scope("service", "shop/web"), 1, 500 * DAY)
    assert blue.reserve(yearly).used == 1
    assert len(blue.ledger.entries(500 * DAY)) == 5
    # a day after the last limit has lost sight of it, everything goes
    details.clock.sleep(51 * DAY + 1)
    done = details.prune()
    assert (done.entries, done.details) == (5, {"cycles": 1, "evictions": 1})
    assert blue.ledger.entries(1000 * DAY) == []


def test_what_may_have_happened_is_never_dropped(details: Details, blue: Cluster) -> None:
    planned, unknown = blue.reserve(), blue.answer(blue.reserve(), Outcome.UNKNOWN)
    before_the_ledger = blue.records.planned(blue.report, build_eviction())
    refused = blue.answer(blue.reserve(), Outcome.REFUSED)
    details.clock.sleep(500 * DAY)
    # first its entries, in the same turn itself
    assert details.prune(DAY).details == {"evictions": 1}
    assert {each.reserved.record for each in blue.ledger.unreconciled()} == {
        planned.reserved.record,
        unknown.reserved.record,
        before_the_ledger,
    }
    assert refused.reserved.record not in {each.reserved.record for each in blue.ledger.open_evictions()}
    assert len(blue.ledger.open_evictions()) == 2
    assert details.cycles() == {"cycle-of-blue"}


# ---- looks


def test_after_two_days_the_lines_of_findings_refusals_and_hot_nodes_are_kept(details: Details) -> None:
    a_cycle(details.records, "c1", at=NOW, evicts=True)
    effect = details.records.effect()
    effect.put_episodes([an_episode("warm", started_at=NOW - 60.0, ended_at=NOW + 60.0)])
    effect.put_episodes([an_episode("cool", started_at=NOW - 60.0, ended_at=NOW - 1.0)])
    assert lines_of(details.records, "c1") == {"n1": (0.91, True)}
    before = effect.node_observations(["n1", "refused", "warm"], NOW, NOW + 1)

    details.clock.sleep(MEASUREMENT_RETENTION_SECONDS)
    assert details.drop() == {}
    details.clock.sleep(0.001)
    assert details.drop() == {"node_measurements": 1}

    assert lines_of(details.records, "c1") == {"n1": (0.91, True), "refused": (0.5, False), "warm": (0.5, False)}
    assert effect.node_observations(["n1", "refused", "warm"], NOW, NOW + 1) == before
    ((cool,),) = effect.node_observations(["cool"], NOW, NOW + 1).values()
    assert (cool.share, cool.high) == (None, None)


def test_a_node_keeps_its_lines_of_the_time_that_it_was_hot(details: Details) -> None:
    a_cycle(details.records, "c1", at=NOW)
    a_cycle(details.records, "c2", at=NOW + 300.0)
    details.records.effect().put_episodes(
        [
            an_episode("warm", started_at=NOW + 200.0, ended_at=None),
            an_episode("cool", started_at=NOW - 200.0, ended_at=NOW + 200.0),
        ]
    )
    details.clock.sleep(3 * DAY)
    assert details.drop() == {"node_measurements": 2}
    assert set(lines_of(details.records, "c1")) == {"n1", "refused", "cool"}
    assert set(lines_of(details.records, "c2")) == {"n1", "refused", "warm"}


def test_looks_wait_until_the_standard_was_evaluated_for_them(details: Details) -> None:
    a_cycle(details.records, "c1", at=NOW)
    a_cycle(details.records, "c2", at=NOW + HOUR)
    effect = details.records.effect()
    effect.put_hours([], read_until=NOW)
    details.keep()
    details.clock.sleep(10 * DAY)
    assert details.drop() == {}
    # it is evaluated late, and finds what we measured then
    assert effect.node_observations(["warm"], NOW, NOW + 1)["warm"][0].share == 0.5
    effect.put_hours([], read_until=NOW + HOUR)
    assert details.drop() == {"node_measurements": 1}
    # but not for ever
    details.clock.sleep(KEEP)
    assert details.drop()["node_measurements"] == 1


def test_lines_of_one_cluster_are_none_of_anothers(details: Details, green: Cluster) -> None:
    a_cycle(details.records, "ours", at=NOW)
    a_cycle(green.records, "theirs", at=NOW)
    details.records.effect().put_episodes([an_episode("warm", started_at=NOW, ended_at=None)])
    details.clock.sleep(3 * DAY)
    assert details.drop() == {"node_measurements": 2}
    assert "warm" in lines_of(details.records, "ours")
    assert "warm" not in lines_of(green.records, "theirs")


# ---- by itself


def test_the_daemon_prunes_by_what_its_policy_says(details: Details, blue: Cluster) -> None:
    blue.records.ledger_identity()
    a_cycle(blue.records, "c1", at=NOW)
    details.clock.sleep(20 * DAY)
    blue.ledger.prune_at_times(keep_details=KEEP)
    assert details.cycles() == {"c1", "cycle-of-blue"}
    # a shorter time is taken up at once, and used at the next turn
    blue.ledger.prune_at_times(keep_details=10 * DAY)
    assert details.cycles() == {"c1", "cycle-of-blue"}
    details.clock.sleep(EVERY_SECONDS)
    blue.ledger.prune_at_times()
    assert details.cycles() == set()


@pytest.mark.parametrize("what", ["refusals", "cycles", "node_measurements"])
def test_by_itself_it_drops_a_bounded_number_in_small_transactions(
    details: Details, blue: Cluster, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blue.records.ledger_identity()
    monkeypatch.setattr(pruning, "BATCH", 20)
    monkeypatch.setattr(pruning, "BATCHES_BY_ITSELF", 3)
    per_turn = 3 * 20
    assert THINNED_AT_ONCE == 20
    many = per_turn + 10

    def fill(connection: Any) -> None:
        cycles = [cycle_row(number) for number in range(1 if what == "refusals" else many)]
        connection.execute(insert(CYCLES), cycles)
        if what == "refusals":
            row = {"cycle": cycles[0]["id"], "code": "TooYoung", "count": 1, "examples": []}
            connection.execute(insert(REFUSALS), [row | {"node": f"n{number}"} for number in range(many)])
        if what == "node_measurements":
            nodes = [["general", 0.8, {"n1": 0.5}]]
            connection.execute(insert(NODE_MEASUREMENTS), [{"cycle": each["id"], "nodes": nodes} for each in cycles])

    write(details.engine, fill)
    details.clock.sleep(3 * DAY if what == "node_measurements" else KEEP + DAY)
    blue.ledger.prune_at_times(keep_details=KEEP)
    left = details.rows()
    assert left[what] == (11 if what == "cycles" else 10)
    if what == "refusals":
        # not dropped over its parts' heads
        assert left["cycles"] == 1
    details.clock.sleep(EVERY_SECONDS)
    blue.ledger.prune_at_times(keep_details=KEEP)
    assert what not in details.rows()


def cycle_row(number: int) -> dict[str, Any]:
    same = {"cluster": CLUSTER, "trigger": "manual", "dry_run": False, "version": "0", "notes": []}
    return {"id": f"many-{number:06}", "started_at": NOW, **same}


def test_nothing_is_there_nothing_is_dropped(details: Details) -> None:
    assert details.drop(0.0) == {}
    assert isinstance(details.prune(dry_run=True), Pruned)
