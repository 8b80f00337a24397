"""The history that is collected where Prometheus keeps none."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, date_of
from rebalancer.model.measured.usage import Usage
from rebalancer.store.blocks import BlockStore
from tests.builders import a_node, a_pod, cluster, usage_of
from tests.forecasting.builders import a_daemon, a_snapshot
from tests.prometheus.fakes import DAY, START, Clock


def observed(keeper: HistoryKeeper, at: float, used: float, *, pods: Mapping[str, float] | None = None) -> None:
    nodes = [a_node("a", used=used)]
    running = [a_pod(name, "a", used=cpu) for name, cpu in (pods or {"web-0": 100.0}).items()]
    snapshot = cluster(nodes, running)
    usage: Usage = usage_of(snapshot, nodes, running, at=at)
    keeper.observe(snapshot, usage)


def collecting(folder: Path, clock: Clock) -> HistoryKeeper:
    return HistoryKeeper(source=None, blocks=BlockStore(folder, cluster="one", source="observed"), clock=clock)


def test_without_prometheus_each_step_is_the_mean_of_what_was_observed_in_it(tmp_path: Path) -> None:
    clock = Clock(START)
    keeper = collecting(tmp_path, clock)
    for at, used in ((0, 1000), (120, 2000), (240, 3000)):
        clock.at = START + at
        observed(keeper, clock.at, used, pods={"web-0": used / 10})
    assert len(keeper.update(a_snapshot()).days) == 0, "a step is written when it is over"
    clock.at = START + 359
    observed(keeper, clock.at, 4000, pods={"web-1": 7.0, "odd": np.nan})
    assert len(keeper.update(a_snapshot()).days) == 0, "it has been over for less than a minute"
    clock.at = START + 660
    history = keeper.update(a_snapshot())
    (today,) = history.days
    assert (today.complete, today.filled) == (False, 2)
    np.testing.assert_allclose(today.node_millicores[0, :3], [2000, 4000, np.nan], rtol=1e-4)
    assert today.pods == ("shop/web-0", "shop/web-1")
    np.testing.assert_allclose(today.pod_millicores[:, :2], [[200, np.nan], [np.nan, 7]], rtol=1e-4)
    assert history.notes == ("without Prometheus days are collected as they pass: 0 of 8",)


def test_days_build_up_and_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock(START + 100)
    keeper = collecting(tmp_path, clock)
    for step in range(SLOTS + 10):
        clock.at = START + 300 * step + 100
        observed(keeper, clock.at, 1000.0 + step)
        if step == 100:
            keeper.update(a_snapshot())
            keeper = collecting(tmp_path, clock)
    clock.at += 300
    history = keeper.update(a_snapshot())
    assert [(block.day, block.complete) for block in history.days] == [(DAY, True), (DAY + 1, False)]
    values = history.days[0].node_millicores[0]
    assert np.isnan(values).sum() == 1, "the step that was under way at the restart"
    np.testing.assert_allclose(values[[0, 287]], [1000, 1287], rtol=1e-4)
    assert history.days[1].filled == 10
    assert history.notes == ("without Prometheus days are collected as they pass: 1 of 8",)


def test_a_day_that_was_hardly_observed_is_reported(tmp_path: Path) -> None:
    clock = Clock(START + 100)
    keeper = collecting(tmp_path, clock)
    for step in range(60):
        clock.at = START + 300 * step + 100
        observed(keeper, clock.at, 1000.0)
    clock.at = START + DAY_SECONDS + 1000
    history = keeper.update(a_snapshot())
    assert f"{date_of(DAY)}: observed in 60 of 288 steps only" in history.notes


def test_where_prometheus_remembers_nothing_is_collected(tmp_path: Path) -> None:
    with a_daemon(tmp_path, past={"lines": []}) as daemon:
        observed(daemon.keeper, daemon.clock.at, 1000.0)
        daemon.clock.at += 600
        assert len(daemon.update().days) == 0
