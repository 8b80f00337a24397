"""What can be broken on purpose."""

import http.client
import time
import urllib.error
from collections.abc import Callable

import pytest

from rebalancer.lab import Lab
from tests.lab.conftest import Client
from tests.lab.test_prometheus import CORES, query, values

Start = Callable[..., Lab]


def test_throttling_has_no_budget_cause_and_says_when_to_come_back(lab: Lab, client: Client) -> None:
    lab.faults.set(throttled_share=1.0, retry_after_seconds=2)
    answer = client("/api/v1/nodes")
    assert answer.code == 429
    assert answer.headers["retry-after"] == "2"
    assert "details" not in answer.body


def test_errors_hit_only_the_side_that_was_named(lab: Lab, client: Client) -> None:
    lab.faults.set(error_share=1.0, sides=("kubernetes",))
    assert client("/api/v1/nodes").code == 500
    assert Client(lab.prometheus_url)("/api/v1/query?query=up").code == 200
    lab.faults.clear()
    assert client("/api/v1/nodes").code == 200


def test_a_share_hits_about_so_many_requests(lab: Lab, client: Client) -> None:
    lab.faults.set(error_share=0.5)
    codes = [client("/version").code for _ in range(60)]
    assert 15 < codes.count(500) < 45


def test_a_cut_connection_ends_in_the_middle_of_the_body(lab: Lab, client: Client) -> None:
    lab.faults.set(cut_share=1.0)
    with pytest.raises(http.client.IncompleteRead):
        client("/api/v1/nodes")


def test_garbage_is_no_json(lab: Lab, client: Client) -> None:
    lab.faults.set(garbage_share=1.0)
    answer = client("/api/v1/nodes")
    assert answer.code == 200
    assert isinstance(answer.body, str)


def test_latency_comes_before_the_answer(lab: Lab, client: Client) -> None:
    lab.faults.set(latency_seconds=0.3)
    begun = time.monotonic()
    client("/version")
    assert time.monotonic() - begun >= 0.3


def test_prometheus_can_be_down_in_two_ways(lab: Lab, client: Client) -> None:
    lab.faults.set(prometheus_down="error")
    assert Client(lab.prometheus_url)("/api/v1/query?query=up").code == 503
    lab.faults.set(prometheus_down="closed")
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        Client(lab.prometheus_url)("/api/v1/query?query=up")
    assert client("/version").code == 200


def test_a_partial_answer_carries_its_warning(lab: Lab) -> None:
    lab.faults.set(partial="one store did not answer")
    body = Client(lab.prometheus_url)("/api/v1/query?query=up").body
    assert body["warnings"] == ["one store did not answer"]


def test_samples_of_a_stale_node_stand_still_but_its_rule_is_evaluated_on(start: Start) -> None:
    lab = start(speed=60.0)
    lab.faults.set(stale=("a",))
    lab.clock.sleep(60)
    raw = values(query(lab, "timestamp(node_uname_info)"), "nodename")
    assert raw["b"] - raw["a"] >= 30
    rule = values(query(lab, f"timestamp({CORES})"), "node")
    assert rule["a"] == rule["b"]


def test_missing_and_nan_hit_the_named_nodes(lab: Lab) -> None:
    lab.faults.set(missing=("a",), nan=("b",))
    rows = query(lab, CORES)
    assert {row["metric"]["node"]: row["value"][1] == "NaN" for row in rows} == {"b": True, "c": False}
    lab.faults.set(missing=("*",))
    assert query(lab, CORES) == []


def test_a_watch_can_be_expired(lab: Lab, client: Client) -> None:
    lab.faults.set(expire_watches=True)
    body = client(f"/api/v1/pods?watch=1&resourceVersion={lab.cluster.store.version}").body
    assert (body["type"], body["object"]["code"]) == ("ERROR", 410)


def test_the_switchboard_is_reached_over_http_also_while_everything_else_is_broken(lab: Lab, client: Client) -> None:
    assert client("/lab/faults", method="PUT", body={"error_share": 1.0}).body["error_share"] == 1.0
    assert client("/version").code == 500
    assert client("/lab/faults").body["error_share"] == 1.0
    assert client("/lab/faults", method="PUT", body={"eror_share": 1.0}).code == 400
    assert client("/lab/faults", method="PUT", body={}).code == 200
    assert client("/version").code == 200
    assert client("/lab/log").body == []
    assert set(client("/lab/truth").body["nodeCpuShare"]) == {"a", "b", "c"}
