"""Reading a recording from Prometheus in windows, and what it lacks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.bootstrap.recordings.recording import read_recording
from rebalancer.cycle.context import NullProgress
from rebalancer.model.errors import ConfigError, ConnectError, UnsafeDataError
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, STEP_SECONDS
from rebalancer.prometheus.connection.pool import ClientPool
from rebalancer.prometheus.recorded.windows import Window, WindowReader
from tests.builders import a_policy
from tests.prometheus.builders import Asked, NoProgress, Reply, a_source, fake_prometheus, vector
from tests.prometheus.fakes import OWN, Clock, Line, Past, line
from tests.prometheus.test_recorded import HOUR, START, two_nodes


def a_reader(url: str, hours: float, progress: NoProgress | None = None, **fields: Any) -> WindowReader:
    prometheus = a_source(url).prometheus
    assert prometheus is not None
    window = Window(START, START + hours * HOUR)
    return WindowReader(ClientPool(prometheus), window, progress=progress or NoProgress(), **fields)


def test_a_window_that_prometheus_refuses_is_halved() -> None:
    seen: list[float] = []

    def answer(asked: Asked) -> Reply:
        seconds = float(asked.params["query"].removesuffix("s"))
        if seconds > 2 * HOUR:
            error = "query processing would load too many samples into memory in query execution"
            return 422, {"status": "error", "errorType": "execution", "error": error}
        seen.append(float(asked.params["time"]))
        return 200, vector([({"pod": f"at {asked.params['time']}"}, 1.0)])

    with fake_prometheus(answer) as fake:
        found = a_reader(fake.url, 8).changes("Pods", lambda window: window.promql, seconds=6 * HOUR)
    assert sorted(seen) == [float(each.labels[0]["pod"].removeprefix("at ")) for each in found]
    assert max(seen) == START + 8 * HOUR
    assert len(found) >= 5


def test_reading_ends_when_it_is_stopped() -> None:
    with fake_prometheus({}) as fake:
        with pytest.raises(ConnectError, match="stopped"):
            a_reader(fake.url, 1, stopping=lambda: True).at("up", START)
        assert fake.asked == []


def test_after_an_interrupt_no_other_query_begins() -> None:
    class Interrupted(NoProgress):
        def step(self, label: str, done: int, total: int | None) -> None:
            if done:
                raise KeyboardInterrupt

    with fake_prometheus({}) as fake:
        reader = a_reader(fake.url, 1, Interrupted())
        with pytest.raises(KeyboardInterrupt):
            reader.instants("Pods", [("up", START)] * 500)
        assert len(fake.asked) < 250


def read(url: str, tmp_path: Path, *, now: float = START, **usage: Any) -> None:
    """The day before START."""
    read_recording(
        a_policy(usage={"prometheus": {"url": url}} | usage),
        Settings(history_dir=str(tmp_path)),
        since_seconds=DAY_SECONDS,
        until=START - STEP_SECONDS,
        progress=NullProgress(),
        clock=Clock(now),
        today=two_nodes(),
    )


def line_of(metric: str, **labels: str) -> Line:
    """Of the day that `read` reads."""
    return line(metric, 0.5, first=-SLOTS, end=0, **labels)


NEWER = [
    line("node:cpu", 0.5, node="a-1"),
    line("pod:cpu", 0.5, namespace="shop", pod="web-0", node="a-1"),
]


NODE_LINES = [line_of("node:cpu", node=name) for name in ("a-1", "b-1")]


POD_LINES = [line_of("pod:cpu", namespace="shop", pod="web-0", node="a-1")]


@pytest.mark.parametrize(
    ("lines", "usage", "message"),
    [
        (
            POD_LINES,
            OWN,
            r"no CPU of nodes is known from 2026-09-02 23:55 UTC to 2026-09-03 23:55 UTC; check "
            r"usage\.prometheus\.nodeCPU\.query at http://\S+: no series of nodes$",
        ),
        (
            NODE_LINES,
            OWN,
            r"no CPU of pods is known from .*; check usage\.prometheus\.podCPU\.query at "
            r"http://\S+: no series of pods$",
        ),
        (
            [*NEWER, *NODE_LINES],
            OWN,
            r"no CPU of pods is known from .*: no series of pods$",
        ),
        (
            NEWER,
            OWN,
            r"no CPU of nodes and pods is known from .*: Prometheus has nothing of 10 of 10 days, the last of them "
            r"2026-09-03: is its retention shorter\?$",
        ),
        (
            [],
            {},
            r"no CPU of nodes and pods is known from .*; check usage\.prometheus\.nodeCPU\.query "
            r"\(node_cpu_seconds_total\) and usage\.prometheus\.podCPU\.query \(container_cpu_usage_seconds_total\) "
            r"at http://\S+: Prometheus has nothing of 10 of 10 days, the last of them 2026-09-03: its queries find no "
            r"series, check usage\.prometheus\.nodeCPU and podCPU$",
        ),
    ],
    ids=["no nodes", "no pods", "no pods before", "nothing before", "nothing"],
)
def test_without_any_cpu_the_error_names_the_query_that_found_nothing(
    lines: Sequence[Line], usage: dict[str, Any], message: str, tmp_path: Path
) -> None:
    now = START + DAY_SECONDS
    past = Past(lines=lines, clock=Clock(now)) if lines else empty
    with fake_prometheus(with_kube_state(past)) as fake, pytest.raises(UnsafeDataError, match=f"^{message}"):
        read(fake.url, tmp_path, now=now, prometheus={"url": fake.url, **usage})


def with_kube_state(past: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    """`past`, and kube-state-metrics of one pod that was there all the time."""
    labels = {"namespace": "shop", "pod": "web-0", "uid": "web-0", "node": "a-1"}

    def answer(asked: Asked) -> Reply:
        query = asked.params["query"]
        if "kube_" not in query:
            return past(asked) if "ALERTS" not in query and "rebalancer" not in query else empty(asked)
        if asked.path.endswith("query_range"):
            points = [[float(asked.params["start"]), "2"], [float(asked.params["end"]), "2"]]
            series = [{"metric": {}, "values": points}] if query.startswith("count(kube_node_info") else []
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": series}}
        there = any(metric in query for metric in ("kube_pod_info", "kube_pod_created", "kube_pod_status_scheduled"))
        odd = "unless" in query or "exported_pod" in query
        return 200, vector([(labels, START - 2 * DAY_SECONDS)] if there and not odd else [])

    return answer


def empty(asked: Asked) -> Reply:
    kind = "matrix" if asked.path.endswith("query_range") else "vector"
    return 200, {"status": "success", "data": {"resultType": kind, "result": []}}


def test_a_prometheus_without_kube_state_metrics_is_an_error_of_one_line(tmp_path: Path) -> None:
    with fake_prometheus(empty) as fake, pytest.raises(ConfigError) as caught:
        read(fake.url, tmp_path)
    text = str(caught.value)
    assert text.startswith("usage.prometheus.url: Prometheus at http://")
    assert "has no kube_node_info since 2026-09-02 23:55 UTC" in text
    assert text.endswith("scrapes kube-state-metrics (kube-prometheus-stack installs it)")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"namespace": "shop", "pod": "web-0"}, "has no uid: expected kube-state-metrics 2.0 or later"),
        ({"exported_pod": "web-0", "pod": "kube-state-metrics-0"}, "expected honorLabels: true"),
        (None, "has no series: expected the pod metrics of kube-state-metrics"),
    ],
)
def test_pods_without_uids_or_under_other_labels_are_an_error(
    labels: dict[str, str] | None, expected: str, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> Reply:
        query = asked.params["query"]
        if asked.path.endswith("query_range"):
            points = [[float(asked.params["start"]), "2"], [float(asked.params["end"]), "2"]]
            series = [{"metric": {}, "values": points}] if query.startswith("count(kube_node_info") else []
            return 200, {"status": "success", "data": {"resultType": "matrix", "result": series}}
        if labels is None or "kube_pod_info" not in query or ("exported_pod" in query) != ("exported_pod" in labels):
            return 200, vector([])
        return 200, vector([(labels, 1.0)])

    with fake_prometheus(answer) as fake, pytest.raises(ConfigError) as caught:
        read(fake.url, tmp_path)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("usage.prometheus.url: kube_pod_info of Prometheus at http://")


def test_metrics_server_has_no_history_to_replay(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"usage\.source: expected Prometheus"):
        read("http://127.0.0.1:9", tmp_path, source="MetricsServer", prometheus=None)
