"""What a cycle becomes in /metrics."""

from rebalancer.daemon.telemetry import count
from rebalancer.model.plan import CycleReport, PodRefusal, Trigger
from rebalancer.model.reason import Reason, Refusal
from rebalancer.web import Metrics
from tests.builders import NOW


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


def test_a_cycle_that_stopped_or_was_interrupted_says_so() -> None:
    why = Refusal.of(Reason.COVERAGE_TOO_LOW)
    assert 'rebalancer_cycles_total{result="stopped",trigger="alert"} 1.0' in page(a_report(stopped=why))
    assert 'rebalancer_cycles_total{result="interrupted",trigger="alert"} 1.0' in page(a_report(interrupted=why))
