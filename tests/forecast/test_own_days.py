"""The backtest on a cluster's own days: what is recomposed, what counts, and what it proposes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rebalancer.forecast.backtest.backtest import Backtest
from rebalancer.forecast.backtest.day_weights import as_policy
from rebalancer.forecast.backtest.own_days import MOST_NODES_FOR_SLOW, SLOW, replay
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, DayBlock, History, date_of
from rebalancer.policy import load_policy
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import NOW, APod, a_node, a_pod, cluster
from tests.forecast.scenarios import NODES, OWN, PODS_PER_NODE, TODAY, Level, day_of, kept, pods
from tests.programs.cli import policy_for

FAST = ("lastDay", "weightedP95", "combined")
WEEK = (1000, 400, 700, 1500, 300, 900, 600)
CAPACITY = 4000.0


def steady(day: int, node: int) -> float:
    return 500.0


def weekly(day: int, node: int) -> float:
    return WEEK[day % 7] * (1 + 0.03 * np.random.default_rng((day, node)).normal())


def days_at(level: Level, days: int, *, of: list[APod] | None = None) -> list[DayBlock]:
    return [day_of(TODAY - back, level, of=of) for back in range(days, 0, -1)]


def a_snapshot(there: list[APod] | None = None) -> ClusterSnapshot:
    return cluster([a_node(name, cpu=CAPACITY) for name in NODES], pods() if there is None else there)


def compared(history: History, *, days: int, snapshot: ClusterSnapshot | None = None, **options: Any) -> Backtest:
    snapshot = snapshot or a_snapshot()
    fields: dict[str, Any] = {
        "policy": Forecast(),
        "pool_of": np.zeros(len(snapshot.nodes), dtype=np.int32),
        "highs": {"general": 0.75},
        "now": NOW,
        "only": FAST,
        **options,
    }
    return replay(history, snapshot, days=days, **fields)


def a_policy() -> dict[str, Any]:
    whole = policy_for("http://prometheus")
    (pool,) = whole["pools"]
    return {**whole, "pools": [{**pool, "name": "general"}]}


def test_where_each_weekday_has_its_own_level_the_same_weekday_is_proposed_as_the_loader_takes_it(
    tmp_path: Path,
) -> None:
    result = compared(kept(tmp_path, days_at(weekly, 30), days=30), days=30)
    (proposal,) = result.proposals
    assert proposal.best is not None
    assert proposal.worth_it
    assert proposal.best.same_weekday > 1
    assert proposal.gain > 0.1
    assert (proposal.chosen_on, proposal.held_out) == (11, 11)
    snippet = yaml.safe_dump(as_policy(result.proposals, Forecast()))
    section = yaml.safe_load(snippet)["forecast"]
    loaded = load_policy(yaml.safe_dump({**a_policy(), "forecast": section}).encode(), source="policy.yaml")
    assert loaded.forecast.day_weights_of("general").same_weekday == proposal.best.same_weekday
    assert loaded.forecast.day_weights_of("general").half_life == proposal.best.half_life
    assert loaded.forecast.day_weights_of("other") == Forecast().day_weights
    then = compared(kept(tmp_path, [], days=30), days=30, policy=loaded.forecast)
    assert then.score("weightedP95").errors.pinball < 0.9 * result.score("weightedP95").errors.pinball
    assert not then.proposals[0].worth_it


def test_where_nothing_changes_nothing_is_proposed(tmp_path: Path) -> None:
    result = compared(kept(tmp_path, days_at(steady, 15), days=15), days=15)
    assert as_policy(result.proposals, Forecast()) is None
    assert "keep what you have" in result.proposals[0].verdict
    assert result.score("combined").errors.mae < 0.01
    assert result.total.forecasts == len(NODES) * 8
    assert result.left_out == 0


def test_fewer_than_five_closed_days_are_too_few(tmp_path: Path) -> None:
    history = kept(tmp_path, days_at(steady, 4), days=15)
    with pytest.raises(UnsafeDataError) as caught:
        compared(history, days=15)
    (line,) = str(caught.value).splitlines()
    assert "4 of the last 15 days are closed, expected at least 5" in line
    assert "4 of 15" in history.notes[0]
    assert history.notes[0] in line
    enough = compared(kept(tmp_path, [day_of(TODAY - 5, steady)], days=15), days=15)
    assert enough.total.forecasts == len(NODES)
    assert enough.example.days == (date_of(TODAY - 1),)
    assert "6 scored days are needed" in enough.proposals[0].verdict


def test_only_so_many_days_are_looked_at(tmp_path: Path) -> None:
    history = kept(tmp_path, days_at(steady, 15), days=15)
    result = compared(history, days=6)
    assert result.example.days == (date_of(TODAY - 2), date_of(TODAY - 1))


def test_a_day_that_is_not_closed_counts_for_nothing(tmp_path: Path) -> None:
    blocks = days_at(steady, 8)
    blocks[-2] = replace(day_of(TODAY - 2, lambda day, node: 2000.0), complete=False, filled=200)
    store = kept(tmp_path, blocks, days=8)
    result = compared(store, days=8)
    assert date_of(TODAY - 2) in result.example.days
    assert np.isnan(result.example.actual[result.example.days.index(date_of(TODAY - 2))])
    assert result.left_out == len(NODES)
    assert result.score("lastDay").errors.mae < 0.01


def test_nodes_are_recomposed_of_the_pods_that_they_have_now(tmp_path: Path) -> None:
    """Until three days ago all pods of n0 ran on n1, and others on n0 that have gone."""
    there = pods()
    gone = [a_pod(f"old-{number}", "n0") for number in range(4)]

    def then(day: int) -> DayBlock:
        moved = [replace(pod, node="n1") if pod.node == "n0" else pod for pod in there]
        return day_of(day, steady, of=[*moved, *gone])

    blocks = [then(day) if day < TODAY - 3 else day_of(day, steady) for day in range(TODAY - 10, TODAY)]
    result = compared(kept(tmp_path, blocks, days=10), days=10)
    wanted = (PODS_PER_NODE * 500 + OWN) / CAPACITY
    assert result.example.actual == pytest.approx(np.full(len(result.example.days), wanted), rel=0.03)
    assert result.score("lastDay").errors.mae < 0.02
    assert result.left_out == 0


def test_a_pod_that_was_not_there_yet_stands_in_with_its_services_replicas(tmp_path: Path) -> None:
    """A rollout three days ago: other pods of the same services before."""
    old = [replace(pod, name=f"{pod.owner}-0000-{number}") for number, pod in enumerate(pods())]
    new = [replace(pod, name=f"{pod.owner}-1111-{number}") for number, pod in enumerate(pods())]
    blocks = [day_of(day, steady, of=old if day < TODAY - 3 else new) for day in range(TODAY - 10, TODAY)]
    result = compared(kept(tmp_path, blocks, days=10), days=10, snapshot=a_snapshot(new))
    assert result.left_out == 0
    assert result.score("lastDay").errors.mae < 0.02


def test_days_on_which_much_of_a_node_was_unknown_do_not_count(tmp_path: Path) -> None:
    """A service of one node that began four days ago: nobody could have forecast its first day."""
    late = [a_pod("new-0", "n2", owner="new")]
    there = [*pods(), *late]
    blocks = [day_of(day, steady, of=there if day >= TODAY - 4 else pods()) for day in range(TODAY - 12, TODAY)]
    result = compared(kept(tmp_path, blocks, days=12), days=12, snapshot=a_snapshot(there))
    scored = len(result.example.days)
    assert scored == 6
    assert result.left_out == 3  # of n2: the two days before, and the first
    assert result.total.forecasts == scored * len(NODES) - 3
    assert result.score("lastDay").errors.mae < 0.02


def test_a_day_with_few_samples_does_not_count(tmp_path: Path) -> None:
    blocks = days_at(steady, 12)
    pods_with_a_hole = blocks[-3].pod_millicores.copy()
    pods_with_a_hole[:PODS_PER_NODE, 100:] = np.nan  # n0
    blocks[-3] = replace(blocks[-3], pod_millicores=pods_with_a_hole, node_millicores=blocks[-3].node_millicores.copy())
    blocks[-3].node_millicores[0, 100:] = np.nan
    result = compared(kept(tmp_path, blocks, days=12), days=12)
    assert result.left_out == 1
    assert np.isfinite(result.proposals[0].loss_current)


def test_no_node_has_used_more_than_it_has(tmp_path: Path) -> None:
    """Its pods came from elsewhere: together they would have needed more."""
    snapshot = cluster([a_node(name, cpu=900.0 if name == "n0" else CAPACITY) for name in NODES], pods())
    pool_of = np.array([0, -1, -1, -1, -1, -1], dtype=np.int32)
    result = compared(kept(tmp_path, days_at(steady, 8), days=8), days=8, snapshot=snapshot, pool_of=pool_of)
    assert result.example.actual == pytest.approx(np.ones(4))
    assert result.score("lastDay").errors.mae == pytest.approx(0, abs=1e-6)


def test_the_future_reaches_no_forecast(tmp_path: Path) -> None:
    there = [pod for pod in pods() if pod.node == "n0"]
    snapshot = cluster([a_node("n0", cpu=40_000)], there)
    turn = TODAY - 4

    def forecasts(name: str, level: Level) -> dict[str, list[float]]:
        blocks = [day_of(day, level, of=there) for day in range(TODAY - 14, TODAY)]
        result = compared(kept(tmp_path / name, blocks, days=14), days=14, snapshot=snapshot, highs={"general": 2.0})
        assert result.example.days[-5:] == tuple(date_of(day) for day in range(TODAY - 5, TODAY))
        return {name: each.tolist() for name, each in result.example.forecasts.items()}

    one = forecasts("one", weekly)
    other = forecasts("other", lambda day, node: weekly(day, node) * (3 if day >= turn else 1))
    for name in FAST:
        same = [a == pytest.approx(b, rel=1e-5) for a, b in zip(one[name], other[name], strict=True)]
        assert same == [True] * (len(same) - 3) + [False] * 3, name


def test_hot_days_are_judged_by_each_pools_own_high(tmp_path: Path) -> None:
    def level(day: int, node: int) -> float:
        return 1500.0 if node < 2 else 500.0

    result = compared(
        kept(tmp_path, days_at(level, 12), days=12),
        days=12,
        pool_of=np.array([0, 0, 1, 1, 2, -1], dtype=np.int32),
        highs={"busy": 0.8, "idle": 0.25, "relative": float("inf"), "empty": 0.5},
    )
    assert set(result.pools) == {"busy", "idle", "relative"}
    assert result.pools["idle"].hot_days == result.pools["idle"].forecasts == 12  # 27.5%
    assert result.pools["idle"].scores[-1].hot_recall == 1.0
    for pool in ("busy", "relative"):  # 77.5%
        assert result.pools[pool].hot_days == 0
        assert np.isnan(result.pools[pool].scores[-1].hot_recall)
    assert result.total.forecasts == 5 * 6  # the node without a pool is not looked at


def test_no_node_in_any_pool_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UnsafeDataError, match="no node is in any"):
        compared(kept(tmp_path, days_at(steady, 6), days=6), days=6, pool_of=np.full(len(NODES), -1, dtype=np.int32))


def test_what_a_declared_event_added_is_taken_out(tmp_path: Path) -> None:
    campaign = TODAY - 3

    def level(day: int, node: int) -> float:
        return 900.0 if day == campaign else 500.0

    history = kept(tmp_path, days_at(level, 12), days=12)
    event = {"name": "sale", "from": date_of(campaign) + "T00:00:00Z", "to": date_of(campaign + 1) + "T00:00:00Z"}
    declared = Forecast.model_validate({"events": [{**event, "uplift": 80.0}]})
    surprised, reported = compared(history, days=12), compared(history, days=12, policy=declared)
    assert surprised.score("lastDay").errors.mae > 0.1
    assert reported.score("lastDay").errors.mae < 0.03


def test_the_predictor_coverage_and_weights_of_the_policy_are_what_is_judged(tmp_path: Path) -> None:
    other = {"pool": "other", "weights": [2.0, 1.0]}
    section = {"predictor": "weightedP95", "coverage": 60.0, "pools": [{"pool": "general", "halfLife": "8d"}, other]}
    policy = Forecast.model_validate(section)
    result = compared(kept(tmp_path, days_at(weekly, 30), days=30), days=30, policy=policy)
    assert result.default == "weightedP95"
    assert result.coverage == 0.6
    assert result.proposals[0].current.half_life == 8 * DAY_SECONDS
    usual = compared(kept(tmp_path, [], days=30), days=30)
    assert result.score("combined").errors.coverage < usual.score("combined").errors.coverage
    written = as_policy(result.proposals, policy)
    if written is not None:  # a list replaces a list: what the policy says of the other pool must not be lost
        assert {"pool": "other", "weights": [2.0, 1.0], "sameWeekday": 1.0} in written["forecast"]["pools"]  # type: ignore[index]


def test_predictors_that_take_minutes_are_left_out_of_a_large_cluster(tmp_path: Path) -> None:
    names = tuple(f"m{number}" for number in range(MOST_NODES_FOR_SLOW + 1))
    there = [a_pod(f"web-{name}", name, owner="web") for name in names]
    random = np.random.default_rng(1)
    blocks = [
        DayBlock(
            day=TODAY - back,
            pods=tuple(f"shop/{pod.name}" for pod in there),
            pod_millicores=random.uniform(400, 600, (len(there), SLOTS)).astype(np.float32),
            nodes=(),
            node_millicores=np.empty((0, SLOTS), dtype=np.float32),
        )
        for back in range(5, 0, -1)
    ]
    snapshot = cluster([a_node(name, cpu=CAPACITY) for name in names], there)
    result = compared(kept(tmp_path, blocks, days=8), days=8, snapshot=snapshot, only=())
    assert not {score.predictor for score in result.total.scores} & set(SLOW)
    assert any("holtWinters and stl are left out" in note for note in result.notes)
