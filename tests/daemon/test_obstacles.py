"""Objects that can't be read, in the daemon's metrics and log."""

import pytest
from structlog.testing import capture_logs

from rebalancer.daemon.threads.obstacles import MOST_LINES, ObstacleTelemetry
from rebalancer.model.cluster.obstacles import LONGEST_CAUSE, Obstacle, one_line
from rebalancer.web import Metrics


def an_obstacle(name: str, kind: str = "Pod", cause: str = "request of cpu: 1e400 is out of range") -> Obstacle:
    return Obstacle(kind=kind, namespace="shop" if kind == "Pod" else "", name=name, cause=cause)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def shown(metrics: Metrics) -> list[str]:
    lines = metrics.page()[0].decode().splitlines()
    return [line for line in lines if line.startswith("rebalancer_unreadable_objects{")]


def test_one_line_begins_an_obstacle_and_one_ends_it(metrics: Metrics) -> None:
    telemetry = ObstacleTelemetry(metrics=metrics)
    with capture_logs() as lines:
        for _ in range(3):
            telemetry.update([an_obstacle("a"), an_obstacle("n1", "Node")])
    assert [(each["log_level"], each["object"]) for each in lines] == [
        ("warning", "Node n1"),
        ("warning", "Pod shop/a"),
    ]
    assert lines[1]["cause"] == "request of cpu: 1e400 is out of range"
    assert sorted(shown(metrics)) == [
        'rebalancer_unreadable_objects{kind="Node"} 1.0',
        'rebalancer_unreadable_objects{kind="Pod"} 1.0',
    ]
    with capture_logs() as lines:
        for _ in range(3):
            telemetry.update([an_obstacle("n1", "Node")])
    assert [(each["log_level"], each["object"]) for each in lines] == [("info", "Pod shop/a")]
    assert sorted(shown(metrics)) == [
        'rebalancer_unreadable_objects{kind="Node"} 1.0',
        'rebalancer_unreadable_objects{kind="Pod"} 0.0',
    ]


def test_many_obstacles_are_a_few_lines(metrics: Metrics) -> None:
    telemetry, many = ObstacleTelemetry(metrics=metrics), [an_obstacle(f"p{number:04}") for number in range(5000)]
    for obstacles in (many, []):
        with capture_logs() as lines:
            telemetry.update(obstacles)
        assert len(lines) == MOST_LINES + 1
        assert lines[-1]["objects"] == 5000 - MOST_LINES


def test_a_text_of_a_tenant_is_one_short_line() -> None:
    assert one_line("a\nb\x1b[31m\tc\u2028d") == "a b [31m c d"
    assert len(one_line("x" * 10_000)) == LONGEST_CAUSE
    assert len(one_line(" " * 10_000)) == 0
