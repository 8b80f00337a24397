"""What became of it, in /metrics."""

import pytest

from rebalancer.daemon.telemetry import EffectTelemetry
from rebalancer.model.records.effect import DayRow
from rebalancer.web import Metrics
from tests.effect.builders import DAY, a_row


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def telemetry(metrics: Metrics) -> EffectTelemetry:
    return EffectTelemetry(metrics)


def page(metrics: Metrics) -> list[str]:
    return metrics.page()[0].decode().splitlines()


def rates(metrics: Metrics) -> dict[str, float]:
    """Series -> value, of the rates alone."""
    found = [line.rsplit(" ", 1) for line in page(metrics) if "_rate{" in line]
    return {series.removeprefix("rebalancer_"): float(value) for series, value in found}


def a_day(**changes: object) -> DayRow:
    return a_row(**{"hot": 4, "discovered": 3, "evicted_from": 2, "assessed": 2, "cooled": 1} | changes)


def test_rates_are_those_of_each_pool(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    missed = a_row(strategy="", trigger="", hot=4, reasons={"discovery/stabilizationWindow": 4})
    telemetry.update([a_day(), a_day(day=DAY - 1), missed, a_day(pool="batch", cooled=2)])
    assert rates(metrics) == {
        'discovery_rate{pool="general"}': 0.5,
        'eviction_rate{pool="general"}': pytest.approx(2 / 3),
        'effectiveness_rate{pool="general"}': 0.5,
        'discovery_rate{pool="batch"}': 0.75,
        'eviction_rate{pool="batch"}': pytest.approx(2 / 3),
        'effectiveness_rate{pool="batch"}': 1.0,
    }


def test_a_rate_of_nothing_is_absent_and_goes_when_its_days_are_over(
    metrics: Metrics, telemetry: EffectTelemetry
) -> None:
    assert rates(metrics) == {}
    telemetry.update([a_day(discovered=0, evicted_from=0, assessed=0, cooled=0)])
    assert rates(metrics) == {'discovery_rate{pool="general"}': 0.0}
    telemetry.update([a_day(), a_day(pool="batch")])
    assert len(rates(metrics)) == 6
    telemetry.update([a_day(pool="batch")])
    assert all('pool="batch"' in series for series in rates(metrics))
    telemetry.reset()
    assert rates(metrics) == {}


def test_what_is_new_is_counted_once(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    before = a_day(reasons={"effect/cooled": 1, "eviction/limits": 1}, prevented=1)
    telemetry.update([before])  # of an earlier process
    assert 'rebalancer_hot_episodes_total{result="discovered"} 0.0' in page(metrics)
    later = a_day(
        discovered=5, reasons={"effect/cooled": 2, "effect/remainingPodsGrew": 1, "eviction/limits": 9}, prevented=3
    )
    missed = a_row(strategy="", trigger="", reasons={"discovery/stabilizationWindow": 2}, false_alarms=1)
    for _ in range(2):
        telemetry.update([later, missed])
    for line in (
        'rebalancer_hot_episodes_total{result="discovered"} 2.0',
        'rebalancer_hot_episodes_total{result="stabilizationWindow"} 2.0',
        'rebalancer_hot_episodes_total{result="noMetrics"} 0.0',
        'rebalancer_assessments_total{outcome="cooled",resource="cpu"} 1.0',
        'rebalancer_assessments_total{outcome="remainingPodsGrew",resource="cpu"} 1.0',
        'rebalancer_forecast_verdicts_total{verdict="prevented"} 2.0',
        'rebalancer_forecast_verdicts_total{verdict="falseAlarm"} 1.0',
        'rebalancer_forecast_verdicts_total{verdict="tooLate"} 0.0',
    ):
        assert line in page(metrics)


def test_counters_never_go_back(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    """A missed node may turn out to be found; and days leave at the other end."""
    telemetry.update([])
    telemetry.update([a_row(strategy="", trigger="", reasons={"discovery/stabilizationWindow": 1}), a_day(day=DAY - 6)])
    telemetry.update([a_row(strategy="", trigger="", reasons={}), a_row(discovered=1)])
    assert 'rebalancer_hot_episodes_total{result="stabilizationWindow"} 1.0' in page(metrics)
    assert 'rebalancer_hot_episodes_total{result="discovered"} 4.0' in page(metrics)


def test_what_another_leader_counted_is_not_counted_again(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    telemetry.update([])
    telemetry.reset()
    telemetry.update([a_day(reasons={"effect/cooled": 7})])
    assert 'rebalancer_assessments_total{outcome="cooled",resource="cpu"} 0.0' in page(metrics)
    telemetry.update([a_day(reasons={"effect/cooled": 8})])
    assert 'rebalancer_assessments_total{outcome="cooled",resource="cpu"} 1.0' in page(metrics)


def test_assessments_are_counted_by_resource(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    telemetry.update([])
    telemetry.update([a_row(reasons={"effect/cooled": 1, "effect/cooled/memory": 2})])
    assert 'rebalancer_assessments_total{outcome="cooled",resource="memory"} 2.0' in page(metrics)
    assert 'rebalancer_assessments_total{outcome="cooled",resource="cpu"} 1.0' in page(metrics)


def test_a_reason_of_another_version_is_no_error(metrics: Metrics, telemetry: EffectTelemetry) -> None:
    telemetry.update([])
    telemetry.update([a_row(reasons={"effect/whatever": 1, "colour/red": 2})])
    assert 'rebalancer_assessments_total{outcome="whatever",resource="cpu"} 1.0' in page(metrics)
