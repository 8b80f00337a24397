"""A plugin that hangs is stopped after a time limit, and only it is skipped (issue 16, 6)."""

import threading
import time

import pytest

from rebalancer.cycle.observe.plugin_limit import find_within
from rebalancer.model.errors import ConfigError
from rebalancer.strategies import Findings, StrategyView
from tests.builders import a_node, a_pod, a_policy, cluster, usage_of, view_of

SHORT = 0.2


def a_view() -> StrategyView:
    nodes, pods = [a_node("n")], [a_pod("p", "n")]
    made = cluster(nodes, pods)
    return view_of(made, usage_of(made, nodes, pods), a_policy())


def test_what_comes_in_time_is_returned_as_it_is() -> None:
    answer = Findings(findings=(), notes=("done",))
    assert find_within(lambda _: answer, a_view(), seconds=60.0) is answer


def test_a_plugin_that_hangs_is_stopped() -> None:
    steps = []

    def endless(_: StrategyView) -> Findings:
        while True:
            try:
                time.sleep(0.001)
                steps.append(0)
            except Exception:  # noqa: BLE001 - as a careless plugin
                steps.append(1)

    found = find_within(endless, a_view(), seconds=SHORT)
    assert found.notes == ("LowNodeUtilization was stopped after 0.2 seconds and finds nothing",)
    assert not any(thread.name.startswith("strategy ") for thread in threading.enumerate())
    count = len(steps)
    time.sleep(0.05)
    assert len(steps) == count


def test_a_plugin_has_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    class Noting(threading.Thread):
        def join(self, timeout: float | None = None) -> None:
            waits.append(timeout)
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Noting)
    find_within(lambda _: Findings(findings=()), a_view())
    assert waits == [10.0]


def test_a_call_that_cannot_be_stopped_is_skipped_until_it_has_ended() -> None:
    release, calls = threading.Event(), []

    def stuck(_: StrategyView) -> Findings:
        calls.append(0)
        release.wait()
        return Findings(findings=())

    assert find_within(stuck, a_view(), seconds=SHORT).notes
    assert find_within(stuck, a_view(), seconds=SHORT).notes == (
        "LowNodeUtilization is skipped: a call of an earlier cycle has not ended yet",
    )
    assert len(calls) == 1
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("strategy "):
            thread.join(10.0)
    assert find_within(lambda _: Findings(findings=(), notes=("again",)), a_view(), seconds=60.0).notes == ("again",)


def test_errors_are_the_callers() -> None:
    def missing(_: StrategyView) -> Findings:
        raise ConfigError("not installed")

    with pytest.raises(ConfigError, match="not installed"):
        find_within(missing, a_view(), seconds=60.0)
