"""The Prometheus API against the lab's own truth."""

import math
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from rebalancer.lab import Lab, node, scenario, workload
from rebalancer.lab.prometheus.promql import NotPlainError, parse
from tests.lab.conftest import Client, three_nodes

Start = Callable[..., Lab]

SHARE = "instance:node_cpu_utilisation:rate5m"
CORES = "node:cpu_usage:cores"
PODS = "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m"


def query(lab: Lab, text: str, at: float | None = None) -> list[dict[str, Any]]:
    when = "" if at is None else f"&time={at}"
    answer = Client(lab.prometheus_url)(f"/api/v1/query?query={quote(text)}{when}")
    assert answer.code == 200, answer.body
    result: list[dict[str, Any]] = answer.body["data"]["result"]
    return result


def values(rows: list[dict[str, Any]], label: str) -> dict[str, float]:
    return {row["metric"][label]: float(row["value"][1]) for row in rows}


def busy() -> Any:
    """Curves with everything in them: daily, noise, a shared total, and more wanted than the machine has."""
    curve = {"base": 1.5, "amplitude": 0.4, "peak_hour": 15, "noise": 0.3}
    return three_nodes(
        workload("web", place={"a": 4, "b": 1}, cpu=curve, sidecar="proxy"),
        workload("shared", place={"b": 2, "c": 1}, cpu={"total": 3.0, "noise": 0.2}),
        workload("greedy", place={"c": 3}, cpu=4.0),
    )


def test_truth_agrees_with_what_prometheus_says_now_and_in_the_past(start: Start) -> None:
    lab = start(busy(), speed=1.0)
    for back in (0.0, 3600.0, 5 * 86400.0):
        at = lab.clock.now() - back
        truth = lab.truth.node_cpu_share(at)
        shown = values(query(lab, CORES, at), "node")
        assert shown == pytest.approx({name: share * 8 for name, share in truth.items()})
        pods: dict[str, float] = {}
        for row in query(lab, PODS, at):
            pods[row["metric"]["pod"]] = pods.get(row["metric"]["pod"], 0.0) + float(row["value"][1])
        assert pods == pytest.approx({name: cores for (_, name), cores in lab.truth.pod_cpu_cores(at).items()})


def test_a_node_never_uses_more_than_it_has(start: Start) -> None:
    lab = start(busy(), speed=1.0)
    assert lab.truth.node_cpu_share()["c"] == pytest.approx(1.0)
    assert lab.truth.hot(0.9)["c"].pods[0].name.startswith("greedy-")


def test_cpu_follows_an_evicted_pod_and_the_window_still_shows_it_for_a_while(start: Start) -> None:
    spec = three_nodes(workload("web", place={"a": 4}, cpu_request="500m", cpu=1.5))
    lab = start(spec, speed=300.0)
    before = lab.truth.node_cpu_share()
    Client(lab.url).evict(lab.cluster.pods()[0])
    lab.cluster.wait_until(lambda: bool(lab.log.entries("ready")))
    (gone,), (bound,) = lab.log.entries("deleted"), lab.log.entries("bound")
    half = gone.at + 150.0
    lab.cluster.wait_until(lambda: lab.clock.now() > gone.at + 330.0)
    middle, after = lab.truth.node_cpu_share(half), lab.truth.node_cpu_share()
    assert before["a"] == pytest.approx((0.2 + 6.0) / 8)
    assert after["a"] == pytest.approx((0.2 + 4.5) / 8)
    assert after["a"] < middle["a"] < before["a"]
    assert after[bound.node] == pytest.approx((0.2 + 1.5) / 8)
    assert values(query(lab, CORES, half), "node")["a"] == pytest.approx(middle["a"] * 8)


def test_eight_days_of_history_are_there_and_agree_with_the_truth(start: Start) -> None:
    lab = start(busy(), speed=1.0)
    now = lab.clock.now()
    begin = math.floor(now / 300) * 300 - 8 * 86400 + 600
    path = f"/api/v1/query_range?query={SHARE}&start={begin}&end={now}&step=300"
    rows = Client(lab.prometheus_url)(path).body["data"]["result"]
    assert len(rows) == 3
    for row, name in zip(rows, "abc", strict=True):
        assert len(row["values"]) >= 2300
        for stamp, value in row["values"][::300]:
            assert float(value) == pytest.approx(lab.truth.node_cpu_share(stamp)[name])


def test_what_was_true_in_the_past_stays_true_after_a_pod_has_moved(start: Start) -> None:
    lab = start(speed=60.0)
    at = lab.clock.now()
    before = query(lab, PODS, at)
    Client(lab.url).evict(lab.cluster.pods()[0])
    lab.cluster.wait_until(lambda: bool(lab.log.entries("ready")))
    assert query(lab, PODS, at) == before


def test_the_timestamp_of_a_raw_series_is_its_last_scrape(start: Start) -> None:
    lab = start(speed=1.0)
    rows = query(lab, 'timestamp(node_cpu_seconds_total{mode="idle",cpu="0"})')
    for row in rows:
        assert float(row["value"][1]) % 15 == 0
        assert 0 <= row["value"][0] - float(row["value"][1]) < 15.1
    assert len(rows) == 3


@pytest.mark.parametrize(
    "text", ["sum(up)", "up offset 5m", "rate(up[5m])", "up + up", "1", 'up{a="b"', "up{a=~'('}", "{}", "up[5m]"]
)
def test_other_promql_is_refused_with_a_clear_error(start: Start, text: str) -> None:
    with pytest.raises(NotPlainError):
        parse(text)


def test_the_refusal_is_prometheus_own_shape(start: Start) -> None:
    answer = Client(start().prometheus_url)("/api/v1/query?query=sum(up)")
    assert answer.code == 400
    assert answer.body["errorType"] == "bad_data"
    assert answer.body["error"].startswith("the lab answers plain selectors only, not: sum(up): start it at --speed 1")


def test_matchers_choose_series_and_read_escapes() -> None:
    selector = parse('up{job=~"node.*", zone!="b", path="c:\\\\d", team!~"x|y",}')
    assert selector.matches({"job": "node-exporter", "path": "c:\\d", "team": "z"})
    assert not selector.matches({"job": "node-exporter", "path": "c:\\d", "team": "x"})
    assert not selector.matches({"job": "my-node", "path": "c:\\d"})
    assert parse('{__name__="up"}').name == "up"


def test_too_many_points_are_refused(start: Start) -> None:
    path = f"/api/v1/query_range?query={SHARE}&start=0&end=11000&step=1"
    answer = Client(start().prometheus_url)(path)
    assert answer.code == 400
    assert "exceeded maximum resolution" in answer.body["error"]


def test_posted_queries_series_and_names_are_answered(lab: Lab) -> None:
    client = Client(lab.prometheus_url)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(f"{lab.prometheus_url}/api/v1/query", data=b"query=up", headers=form)
    with urllib.request.urlopen(request, timeout=5) as response:
        assert response.status == 200
    assert SHARE in client("/api/v1/label/__name__/values").body["data"]
    assert len(client("/api/v1/series?match[]=kube_node_info").body["data"]) == 3
    assert client("/-/ready").code == 200
    assert client("/").code == 200
    assert client("/api/v1/status/buildinfo").code == 200
    assert client("/api/v1/nothing").code == 404


def test_a_wrong_authorization_is_401(start: Start) -> None:
    client = Client(start(prometheus_auth="Bearer right").prometheus_url)
    assert client("/api/v1/query?query=up").code == 401
    assert client("/api/v1/query?query=up", headers={"Authorization": "Bearer right"}).code == 200


def exposed(lab: Lab) -> dict[str, float]:
    text = Client(lab.url)("/metrics").body
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


def test_exposed_counters_grow_as_the_pods_use_and_never_fall(start: Start) -> None:
    lab = start(speed=60.0)
    first, begun = exposed(lab), lab.clock.now()
    lab.clock.sleep(60)
    last, ended = exposed(lab), lab.clock.now()
    counters = [name for name in first if "_seconds_total" in name]
    assert all(last[name] >= first[name] for name in counters)
    idle = [name for name in counters if 'instance="10.0.0.2:9100"' in name and ("idle" in name or "iowait" in name)]
    everything = [name for name in counters if 'instance="10.0.0.2:9100"' in name]
    passed = sum(last[name] - first[name] for name in everything)
    share = 1 - sum(last[name] - first[name] for name in idle) / passed
    assert passed == pytest.approx(8 * (ended - begun), rel=0.2)
    assert share == pytest.approx(6.2 / 8, rel=1e-6)


def test_the_whole_pod_is_exposed_next_to_its_containers_as_cadvisor_does(start: Start) -> None:
    series = [name for name in exposed(start()) if name.startswith("container_cpu")]
    assert len(series) == 8
    assert sum('container="web"' in name for name in series) == 4


def test_pods_of_one_total_share_it_among_those_that_are_ready(start: Start) -> None:
    spec = scenario(
        nodes=[node("a", cpu=16, overhead_cores=0), node("b", cpu=16, overhead_cores=0)],
        workloads=[workload("s", place={"a": 2, "b": 1}, cpu={"total": 6.0})],
        start_seconds=600.0,
        stop_seconds=1.0,
    )
    lab = start(spec, speed=60.0)
    assert lab.truth.node_cpu_share_instant() == pytest.approx({"a": 4 / 16, "b": 2 / 16})
    Client(lab.url).evict(lab.cluster.pods(node="b")[0])
    lab.cluster.wait_until(lambda: bool(lab.log.entries("deleted")))
    assert lab.truth.node_cpu_share_instant() == pytest.approx({"a": 6 / 16, "b": 0.0})
