"""What a cycle and a forecast run become in /metrics."""

from dataclasses import replace

from rebalancer.daemon.telemetry import clear_memory_leaks, count, record_forecast_run
from rebalancer.forecast.memory.leaks import MemoryLeak
from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.decisions.plan import CycleReport, NodeLine, PlanScore, PodRefusal, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.web import Metrics
from rebalancer.web.metrics import MAX_SERVICES
from tests.builders import NOW, an_eviction, cluster, set_fields
from tests.forecast.builders import MIDNIGHT
from tests.forecasting.test_resource_forecasts import NODES, PODS, a_loop, named


def page(report: CycleReport) -> list[str]:
    metrics = Metrics()
    count(metrics, report, 1.5)
    return metrics.page()[0].decode().splitlines()


def a_report(**fields: object) -> CycleReport:
    return CycleReport(
        id="c", cluster="test", trigger=Trigger.ALERT, dry_run=False, started_at=NOW, finished_at=NOW + 1, **fields
    )  # type: ignore[arg-type]


def test_limits_stages_and_refusals_are_shown_without_names_of_pods() -> None:
    refusal = PodRefusal(node="n1", namespace="shop", name="secret-pod", code=Reason.BARE_POD, message="m")
    lines = page(
        a_report(
            refusals=[refusal, refusal],
            soft_tainted={"n1": "hot"},
            limits_left={"global": 3, "pool": 0},
            stages={"observe": 0.4, "find": 0.1},
        )
    )
    assert 'rebalancer_cycles_total{result="done",trigger="alert"} 1.0' in lines
    assert 'rebalancer_limit_left_evictions{scope="pool"} 0.0' in lines
    assert 'rebalancer_stage_duration_seconds_sum{stage="observe"} 0.4' in lines
    assert 'rebalancer_refusals_total{code="BarePod"} 2.0' in lines
    assert "rebalancer_soft_tainted_nodes 1.0" in lines
    assert not any("secret-pod" in line or "n1" in line for line in lines)


def test_evictions_are_counted_by_service_up_to_a_number_of_services() -> None:
    metrics = Metrics()
    names = [f"web-{number}" for number in range(MAX_SERVICES + 5)]
    made = [set_fields(an_eviction(service=f"shop/{name}"), outcome=Outcome.EVICTED) for name in (*names, names[0])]
    planned = set_fields(an_eviction(service="shop/api"), outcome=Outcome.PLANNED)
    count(metrics, a_report(evictions=[*made, planned]), 1.0)
    found = [each for each in metrics.page()[0].decode().splitlines() if "evictions_by_service_total{" in each]
    assert len(found) == MAX_SERVICES + 1
    labels = 'service_kind="{}",service_name="{}",service_namespace="{}"'
    series = "rebalancer_evictions_by_service_total{{{}}} {}"
    assert series.format(labels.format("Deployment", "web-0", "shop"), 2.0) in found
    assert series.format(labels.format("other", "other", "other"), 5.0) in found


def test_relief_and_price_of_evictions_are_summed_up_over_cycles() -> None:
    metrics = Metrics()
    for minutes, price, outcome in (
        (40.0, 1.5, Outcome.EVICTED),
        (2.5, 3.0, Outcome.EVICTED),
        (9.0, 9.0, Outcome.PLANNED),
    ):
        made = [set_fields(an_eviction(), outcome=outcome)]
        count(metrics, a_report(evictions=made, score=PlanScore(hot_node_minutes=minutes, price=price)), 1.0)
    count(metrics, a_report(), 1.0)
    lines = metrics.page()[0].decode().splitlines()
    assert "rebalancer_relief_hot_node_minutes_total 42.5" in lines
    assert "rebalancer_relief_price_total 4.5" in lines


def test_a_cycle_that_stopped_or_was_interrupted_says_so() -> None:
    why = Refusal.of(Reason.COVERAGE_TOO_LOW)
    assert 'rebalancer_cycles_total{result="stopped",trigger="alert"} 1.0' in page(a_report(stopped=why))
    assert 'rebalancer_cycles_total{result="interrupted",trigger="alert"} 1.0' in page(a_report(interrupted=why))


def test_hot_nodes_are_counted_by_each_resource_that_they_are_hot_by() -> None:
    metrics = Metrics()

    def shown(*hot_by: tuple[str, ...], **fields: object) -> list[str]:
        lines = [
            NodeLine(name=f"n{number}", pool="general", cpu_before=0.9, cpu_planned=0.9, hot=bool(each), hot_by=each)
            for number, each in enumerate(hot_by)
        ]
        count(metrics, a_report(nodes=lines, **fields), 1.0)
        return [line for line in metrics.page()[0].decode().splitlines() if line.startswith("rebalancer_hot_nodes{")]

    both = ['rebalancer_hot_nodes{resource="cpu"} 1.0', 'rebalancer_hot_nodes{resource="memory"} 2.0']
    assert sorted(shown(("memory", "cpu"), ("memory",), ())) == both
    assert sorted(shown(stopped=Refusal.of(Reason.COVERAGE_TOO_LOW))) == both
    assert all(line.endswith(" 0.0") for line in shown(()))


def test_memory_leaks_are_exported_by_a_leader_with_a_current_forecast_only() -> None:
    loop, metrics = a_loop(named()), Metrics()
    assert loop.stale(MIDNIGHT)
    leak = MemoryLeak(
        pod="shop/web-0",
        service="shop/web",
        node="a",
        mebibytes=900.0,
        mebibytes_per_hour=60.0,
        since=MIDNIGHT - 6 * 3600,
        limit_mebibytes=1024.0,
        kill_at=MIDNIGHT + 2 * 3600,
        kill_from=MIDNIGHT + 3600,
        kill_until=float("inf"),
    )

    def exported() -> dict[str, float]:
        lines = metrics.page()[0].decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if line.startswith("rebalancer_memory_leak_")]
        return {name: float(value) for name, value in found}

    record_forecast_run(metrics, replace(loop.look(cluster(NODES, PODS)), leaks=(leak,)), 1.0)
    assert not loop.stale(MIDNIGHT + 900)
    assert exported()['rebalancer_memory_leak_pods{state="day"}'] == 1
    assert exported()["rebalancer_memory_leak_first_kill_timestamp_seconds"] == leak.kill_at
    assert loop.stale(MIDNIGHT + 3600)
    clear_memory_leaks(metrics)
    assert exported() == {"rebalancer_memory_leak_first_kill_timestamp_seconds": 0.0}
