"""Forecasts of CPU are made whatever happens to those of other resources."""

from dataclasses import replace

import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import History
from tests.builders import cluster
from tests.forecast.builders import MIDNIGHT
from tests.forecasting.test_resource_forecasts import DISK, NODES, PODS, Keeper, a_loop, named


class Broken(Keeper):
    """Its days can't be read."""

    def update(self, _: ClusterSnapshot) -> History:
        raise ValueError("no days")


class Shapeless(Keeper):
    """Its days have fewer rows than names."""

    def update(self, snapshot: ClusterSnapshot) -> History:
        days = super().update(snapshot).days
        return History(days=[replace(day, pods=("shop/web-0", "shop/web-1")) for day in days])


@pytest.mark.parametrize("keeper", [Broken, Shapeless])
def test_cpu_is_forecast_whatever_goes_wrong_with_other_resources(
    keeper: type[Keeper], caplog: pytest.LogCaptureFixture
) -> None:
    loop = a_loop(named(DISK, thresholds=["disk-busy"]), **{"disk-busy": 900.0})
    loop.keepers = {**loop.keepers, "memory": keeper(900.0)}  # type: ignore[dict-item]
    snapshot = cluster(NODES, PODS)
    run = loop.look(snapshot)
    peaks = loop.peaks(snapshot, MIDNIGHT)
    assert peaks is not None
    assert peaks.node_millicores[0] == pytest.approx(500.0, rel=0.05)
    assert set(peaks.resources) == {"disk-busy"}
    assert [each for each in run.notes if each.startswith("memory: ") and "Error: " in each]
    assert "Traceback" in caplog.text


def test_memory_leaks_that_raise_are_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object, **__: object) -> None:
        raise ValueError("year 24186 is out of range")

    monkeypatch.setattr("rebalancer.forecasting.loop.find_leaks", raises)
    loop = a_loop(named(), memory=900.0)
    run = loop.look(cluster(NODES, PODS))
    assert run.leaks == ()
    assert run.notes[-1] == "memory leaks are not known: ValueError: year 24186 is out of range"
    assert set(run.others) == {"memory"}


def test_cpu_is_forecast_before_the_days_of_other_resources_are_read() -> None:
    loop, snapshot = a_loop(named()), cluster(NODES, PODS)
    known = []

    class Slow(Keeper):
        def update(self, snapshot: ClusterSnapshot) -> History:
            known.append(loop.peaks(snapshot, MIDNIGHT))
            return super().update(snapshot)

    loop.keepers = {**loop.keepers, "memory": Slow(900.0)}  # type: ignore[dict-item]
    run = loop.look(snapshot)
    assert known[0] is not None
    assert known[0].node_millicores[0] == pytest.approx(500.0, rel=0.05)
    assert set(run.others) == {"memory"}
