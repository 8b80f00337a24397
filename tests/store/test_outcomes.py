"""Outcomes of forecasts in the database: kept once a period, judged once, pruned by age."""

import logging
import math
import zlib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sqlalchemy import Engine, func, select, update

from rebalancer.model.measured.history import DAY_SECONDS
from rebalancer.model.measured.outcomes import KEPT_DAYS, PERIOD_SECONDS, ForecastOutcomes, OutcomeRecords
from rebalancer.store import SqlOutcomes, SqlRecords, open_records, status, upgrade
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.tables import FORECAST_OUTCOMES
from rebalancer.store.retention.pruning import prune_in
from tests.store.builders import CLUSTER, NOW, SteppingClock
from tests.store.scenarios.ledger_cluster import Cluster
from tests.store.scenarios.schemas import up_to

MADE_AT = NOW // PERIOD_SECONDS * PERIOD_SECONDS + 60.25
NODES = tuple(f"ip-10-0-{number // 256}-{number % 256}.eu-west-1.compute.internal" for number in range(100))


def a_pool(
    pool: str = "general", made_at: float = MADE_AT, *, nodes: Sequence[str] = ("n1", "n2", "n3"), **given: Any
) -> ForecastOutcomes:
    """Forecasts of two features and four experts, without actuals; each figure is another one."""
    count = len(nodes)
    random = np.random.default_rng(int(made_at) + len(pool))
    figures = {
        "features": random.uniform(0, 8000, (count, 2)),
        "capacity": np.full(count, 8000.0),
        "usage": random.uniform(0, 8000, count),
        "uppers": random.uniform(0, 8000, (count, 4)),
        "actual": np.full(count, np.nan),
    }
    return ForecastOutcomes(
        **{"pool": pool, "made_at": made_at, "layout": 3, "nodes": tuple(nodes), **figures, **given}
    )


def same(one: ForecastOutcomes, other: ForecastOutcomes) -> bool:
    """To single precision."""
    return all(
        np.array_equal(np.asarray(mine, np.float32), np.asarray(theirs, np.float32), equal_nan=True)
        if isinstance(mine, np.ndarray)
        else mine == theirs
        for mine, theirs in ((getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    )


def came(outcomes: ForecastOutcomes, first: float = 100.5) -> ForecastOutcomes:
    return outcomes.judged_by(first + np.arange(len(outcomes.nodes), dtype=np.float64))


@pytest.fixture
def outcomes(records: SqlRecords) -> SqlOutcomes:
    return records.outcomes()


@pytest.fixture
def elsewhere(elsewhere_records: SqlRecords) -> SqlOutcomes:
    return elsewhere_records.outcomes()


def test_outcomes_come_back_as_they_were_kept(outcomes: OutcomeRecords) -> None:
    kept = [a_pool(), a_pool("", nodes=["lonely"]), a_pool("empty", nodes=[], made_at=MADE_AT + 1)]
    outcomes.keep_outcomes(kept)
    outcomes.keep_outcomes([])
    due = outcomes.outcomes_due(MADE_AT + 1 + DAY_SECONDS)
    assert [each.pool for each in due] == ["", "general", "empty"]
    assert all(map(same, sorted(due, key=lambda each: each.pool), sorted(kept, key=lambda each: each.pool)))
    assert due[1].features.shape == (3, 2)
    assert due[1].uppers.shape == (3, 4)
    assert outcomes.outcomes(0.0) == []

    partly = kept[0].judged_by(np.array([1.5, np.nan, 2.5]))
    outcomes.judge_outcomes([partly, came(kept[1])])

    judged = outcomes.outcomes(0.0)
    assert all(map(same, judged, [came(kept[1]), partly]))
    assert math.isnan(judged[1].actual[1])


def test_a_pool_has_one_forecast_in_a_period(outcomes: OutcomeRecords, elsewhere: OutcomeRecords) -> None:
    outcomes.keep_outcomes([a_pool()])
    outcomes.keep_outcomes([a_pool(made_at=MADE_AT + 900, layout=9), a_pool("batch", made_at=MADE_AT + 900)])
    outcomes.keep_outcomes([a_pool(made_at=MADE_AT + PERIOD_SECONDS)])
    elsewhere.keep_outcomes([a_pool(layout=7)])
    due = outcomes.outcomes_due(NOW + 9 * DAY_SECONDS)
    assert [(each.pool, each.made_at - MADE_AT, each.layout) for each in due] == [
        ("general", 0, 3),
        ("batch", 900, 3),
        ("general", PERIOD_SECONDS, 3),
    ]
    assert [each.layout for each in elsewhere.outcomes_due(NOW * 2)] == [7]


def test_one_is_due_after_its_day_until_it_is_judged_and_is_judged_once(
    outcomes: OutcomeRecords, elsewhere: OutcomeRecords, url: str, clock: SteppingClock
) -> None:
    first, second = a_pool(), a_pool(made_at=MADE_AT + PERIOD_SECONDS)
    outcomes.keep_outcomes([second, first])
    assert outcomes.outcomes_due(MADE_AT + DAY_SECONDS - 1) == []
    assert [each.made_at for each in outcomes.outcomes_due(MADE_AT + DAY_SECONDS)] == [first.made_at]
    elsewhere.judge_outcomes([came(first)])  # not theirs to judge
    assert outcomes.outcomes(0.0) == []

    outcomes.judge_outcomes([came(first)])

    assert [each.made_at for each in outcomes.outcomes_due(NOW * 2)] == [second.made_at]
    # an older leader, which read it before
    outcomes.judge_outcomes([came(first, first=900.0), came(a_pool("pruned"))])
    outcomes.judge_outcomes([])
    with open_records(url=url, cluster=CLUSTER, clock=clock) as again:
        [judged] = again.outcomes().outcomes(first.made_at)
    assert same(judged, came(first))
    assert outcomes.outcomes(first.made_at + 1) == []


@pytest.mark.parametrize("data", ["nothing", "noise", "another version", "too short", "another form"])
def test_a_broken_row_is_one_line_in_the_log_and_left_out(
    data: str, outcomes: SqlOutcomes, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes.keep_outcomes([a_pool(), a_pool("broken")])
    sound = read(engine, lambda connection: connection.execute(select(FORECAST_OUTCOMES.c.data).limit(1)).scalar_one())
    version, *rest = msgspec.msgpack.decode(zlib.decompress(sound))
    broken = {
        "nothing": b"",
        "noise": b"\x00noise",
        "another version": zlib.compress(msgspec.msgpack.encode([version + 1, *rest])),
        "too short": zlib.compress(msgspec.msgpack.encode([version, *rest[:-1], rest[-1][:-4]])),
        "another form": zlib.compress(msgspec.msgpack.encode({"figures": 1})),
    }[data]
    of_it = FORECAST_OUTCOMES.c.pool == "broken"
    write(engine, lambda connection: connection.execute(update(FORECAST_OUTCOMES).where(of_it).values(data=broken)))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert [each.pool for each in outcomes.outcomes_due(NOW * 2)] == ["general"]
    [line] = caplog.records
    assert line.exc_info is None
    assert "pool 'broken', period" in line.getMessage()
    assert "\n" not in line.getMessage()


def test_outcomes_are_pruned_after_ninety_days(
    engine: Engine, blue: Cluster, outcomes: OutcomeRecords, elsewhere: OutcomeRecords, clock: SteppingClock
) -> None:
    at = NOW - KEPT_DAYS * DAY_SECONDS
    old, young = a_pool(made_at=at - 1), a_pool("young", made_at=at)
    for of in (outcomes, elsewhere):
        of.keep_outcomes([old, young])
    outcomes.judge_outcomes([came(old), came(young)])
    # a limit that looks back further makes no difference
    blue.ledger.publish_global_limits(digest="d", text="{}", longest_window_seconds=400 * DAY_SECONDS, nodes=3)
    assert prune_in(engine, clock=clock, dry_run=True).forecast_outcomes == 2
    assert len(outcomes.outcomes(0.0)) == 2
    assert prune_in(engine, clock=clock, dry_run=False).forecast_outcomes == 2
    assert [each.pool for each in outcomes.outcomes(0.0)] == ["young"]
    assert [each.pool for each in elsewhere.outcomes_due(NOW)] == ["young"]


def test_a_pool_and_period_takes_at_most_15_kilobytes(outcomes: OutcomeRecords, engine: Engine) -> None:
    random = np.random.default_rng(7)
    wide = {
        "nodes": NODES,
        "features": random.uniform(0, 8000, (100, 14)),
        "uppers": random.uniform(0, 8000, (100, 15)),
        "actual": random.uniform(0, 8000, 100),
    }
    outcomes.keep_outcomes([a_pool(**wide)])
    size = select(func.length(FORECAST_OUTCOMES.c.data))
    assert read(engine, lambda connection: connection.execute(size).scalar_one()) <= 15_000


def test_ninety_days_of_five_pools_are_read_in_order(
    outcomes: OutcomeRecords, engine: Engine, clock: SteppingClock
) -> None:
    pools = ["a", "b", "c", "d", "e"]
    made = [MADE_AT - number * PERIOD_SECONDS for number in range(360)]
    kept = [a_pool(pool, at) for at in made for pool in pools]
    outcomes.keep_outcomes(kept)
    outcomes.judge_outcomes([came(each) for each in kept])
    found = outcomes.outcomes(MADE_AT - 359 * PERIOD_SECONDS)
    assert [(each.made_at, each.pool) for each in found] == [(at, pool) for at in reversed(made) for pool in pools]


def test_the_table_of_outcomes_is_added_to_a_database_of_the_version_before(
    empty_url: str, tmp_path: Path, clock: SteppingClock
) -> None:
    upgrade(empty_url, scripts=up_to("0011", tmp_path))
    assert not status(empty_url).current
    upgrade(empty_url)
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        records.outcomes().keep_outcomes([a_pool()])
    assert status(empty_url).rows["forecast_outcomes"] == 1
