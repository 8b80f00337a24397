"""Forecasts of memory: by the highest of each day, with more coverage than those of CPU."""

from typing import Any

import numpy as np
import pytest

from rebalancer.forecast import NodeForecasts, forecast_nodes
from rebalancer.forecast.series.percentiles import quantile
from rebalancer.forecast.series.resource import OF_CPU, ForecastResource
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import SLOTS
from rebalancer.model.notation.resource_names import MEMORY
from rebalancer.policy.schema.forecast import Forecast
from tests.builders import GIB, a_node, a_pod
from tests.forecast.builders import AGED, DAYS, MIDNIGHT, flat, history, in_general, world

OF_MEMORY = ForecastResource(name=MEMORY)


def with_batches() -> np.ndarray:
    """1,000 all day, and 3,000 for half an hour: too short for a P95."""
    series = flat(1000.0)
    series[:, 100:106] = 3000.0
    return series


def forecasts_of(
    resource: ForecastResource, series: np.ndarray, **policy: Any
) -> tuple[NodeForecasts, ClusterSnapshot]:
    snapshot = world([a_node("a", cpu=8000.0, memory=8 * GIB)], [a_pod("db-0", "a", owner="db", age=AGED)])
    past = history({"shop/db-0": series}, {"a": series})
    made = forecast_nodes(past, snapshot, **in_general(snapshot, policy), now=MIDNIGHT, resource=resource)
    return made, snapshot


def test_memory_is_forecast_by_the_highest_of_each_day() -> None:
    (of_memory, snapshot), (of_cpu, _) = (forecasts_of(each, with_batches()) for each in (OF_MEMORY, OF_CPU))
    assert of_cpu.forecasts.nodes[0].parts.daily_p95 == pytest.approx([1000.0] * DAYS)
    (found,) = of_memory.forecasts.nodes
    assert found.parts.daily_p95 == pytest.approx([3000.0] * DAYS)
    assert found.peak_millicores >= 0.98 * 3000.0
    assert found.peak_share == pytest.approx(found.peak_millicores / 8192), "of the memory of the node, in MiB"
    peaks = of_memory.peaks(snapshot, now=MIDNIGHT)
    assert peaks.node_millicores[0] == pytest.approx(found.peak_millicores - found.allowance, rel=1e-3)
    assert int((peaks.node_at[0] - MIDNIGHT) // 300) in range(99, 107)


def test_caches_in_working_sets_are_not_added_to_what_a_node_uses() -> None:
    """The pod's working set has 1,500 MiB of active files, which the node counts as available."""
    snapshot = world([a_node("a", memory=8 * GIB)], [a_pod("db-0", "a", owner="db", age=AGED)])
    days = history({"shop/db-0": flat(2500.0)}, {"a": flat(1000.0)})

    def peak(resource: ForecastResource) -> float:
        made = forecast_nodes(days, snapshot, **in_general(snapshot, {}), now=MIDNIGHT, resource=resource)
        return float(made.peaks(snapshot, now=MIDNIGHT).node_millicores[0])

    assert peak(OF_MEMORY) == pytest.approx(1000.0, rel=0.01)
    assert peak(OF_CPU) == pytest.approx(2500.0, rel=0.01), "CPU of pods is CPU of their node"


def test_forecasts_of_memory_cover_more_days_than_those_of_cpu() -> None:
    assert OF_MEMORY.section(Forecast()).coverage == 95.0
    assert OF_MEMORY.section(Forecast(coverage=98.0)).coverage == 98.0
    assert OF_CPU.section(Forecast()).coverage == 90.0
    assert ForecastResource(name="disk").section(Forecast()).coverage == 90.0


def test_declared_events_and_the_speed_of_machines_are_of_cpu() -> None:
    event = {"name": "sale", "uplift": 100, "from": "1970-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}
    (of_memory, _), (without, _) = (
        forecasts_of(OF_MEMORY, flat(1000.0), **fields) for fields in ({"events": [event]}, {})
    )
    assert of_memory.forecasts.nodes[0].peak_millicores == without.forecasts.nodes[0].peak_millicores


def test_a_new_pod_counts_with_its_request_of_memory() -> None:
    made, _ = forecasts_of(OF_MEMORY, flat(1000.0))
    pods = [a_pod("db-0", "a", owner="db", age=AGED), a_pod("new-0", "a", owner="new", memory=2 * GIB)]
    later = world([a_node("a", cpu=8000.0, memory=8 * GIB)], pods)
    before, after = (made.peaks(each, now=MIDNIGHT) for each in (world([a_node("a")], pods[:1]), later))
    assert after.pod_millicores[1] >= 2048
    assert after.node_millicores[0] - before.node_millicores[0] >= 2048


def test_the_practice_of_the_learner_is_by_the_highest_too() -> None:
    """Batches grow from day to day: outcomes of the P95 would say that nothing changes."""
    series = flat(1000.0)
    series[:, 100:106] = (3000.0 + 200.0 * np.arange(DAYS))[:, None]
    (made, _) = forecasts_of(OF_MEMORY, series)
    assert made.unjudged[0].resource == MEMORY
    assert made.forecasts.nodes[0].peak_millicores >= series[-1].max()


def test_the_highest_of_a_day_is_unknown_with_samples_of_less_than_half_of_it() -> None:
    days = np.full((3, SLOTS), np.nan, dtype=np.float32)
    days[0, : SLOTS // 2], days[1, : SLOTS // 2 - 1] = 2.0, 2.0
    days[0, 7] = 5.0
    assert quantile(days, 1.0) == pytest.approx([5.0, np.nan, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("resource", "freed", "left"),
    [
        (OF_MEMORY, {"uid-shop-web-0": 0.25}, 0.75),
        (OF_MEMORY, {"uid-shop-web-0": 1.0}, 0.0),
        (OF_MEMORY, {}, 1.0),
        (OF_CPU, {}, 0.0),
    ],
)
def test_a_departed_pod_lowers_the_peak_of_memory_by_what_its_node_is_free_of(
    resource: ForecastResource, freed: dict[str, float], left: float
) -> None:
    """Each pod uses 1,000 of 2,000. Unless it is known, all of a working set may be cache."""
    pods = [a_pod(f"{name}-0", "a", owner=name, age=AGED) for name in ("db", "web")]
    before = world([a_node("a", cpu=8000.0, memory=8 * GIB)], pods)
    made = forecast_nodes(
        history({"shop/db-0": flat(1000.0), "shop/web-0": flat(1000.0)}, {"a": flat(2000.0)}),
        before,
        policy=Forecast(),
        pool_of=np.zeros(1, dtype=np.int32),
        pools=["general"],
        now=MIDNIGHT,
        resource=resource,
    )
    after = world([a_node("a", cpu=8000.0, memory=8 * GIB)], pods[:1])
    both = made.peaks(before, now=MIDNIGHT).node_millicores[0]
    one = made.peaks(after, now=MIDNIGHT, freed=freed).node_millicores[0]
    assert one == pytest.approx(both / 2 * (1 + left), rel=1e-3)
