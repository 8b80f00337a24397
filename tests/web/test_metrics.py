"""What Prometheus scrapes."""

import re

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rebalancer.web.metrics import Metrics, described
from tests.web.fakes import Clients, Daemon

UNITS = (
    "seconds", "evictions", "nodes", "pods", "parts", "objects", "open", "held", "prevented", "term", "info", "rate",
    "cores",
)  # fmt: skip


def test_the_page_holds_our_metrics_and_the_processs(daemon: Daemon, clients: Clients) -> None:
    daemon.metrics.cycles.labels(trigger="alert", result="done").inc()
    daemon.metrics.lease_term.set(7)

    answer = clients(daemon.app()).get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    assert families["rebalancer_cycles"].samples[0].labels == {"trigger": "alert", "result": "done"}
    assert families["rebalancer_lease_term"].samples[0].value == 7
    assert {"process_resident_memory_bytes", "python_info"} <= set(families)


def test_openmetrics_is_served_when_it_is_asked_for(daemon: Daemon, clients: Clients) -> None:
    answer = clients(daemon.app()).get("/metrics", accept="application/openmetrics-text; version=1.0.0")

    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", ";;;,", "application/openmetrics-text; version=x", "text/plain; version=1.x", "text/plain; escaping=?"],
)
def test_any_accept_header_gets_a_page(accept: str, daemon: Daemon, clients: Clients) -> None:
    answer = clients(daemon.app()).get("/metrics", accept=accept)

    assert answer.status == 200
    assert b"rebalancer_build_info" in answer.body


def test_the_description_lists_what_the_registry_has() -> None:
    metrics = Metrics()
    ours = [family for family in metrics.registry.collect() if family.name.startswith("rebalancer_")]

    described_families = {(each.name.removesuffix("_total"), each.type, each.help) for each in described()}

    assert described_families == {(family.name, family.type, family.documentation) for family in ours}


def test_names_follow_prometheus_naming_rules() -> None:
    for each in described():
        assert re.fullmatch(r"rebalancer(_[a-z]+)+", each.name), each.name
        assert each.name.endswith("_total" if each.type == "counter" else UNITS), each.name
        assert each.help.endswith(".")
        assert not {"pod", "node", "namespace", "service"} & set(each.labels), each.name


def test_series_that_alerts_are_built_on_are_there_from_the_start() -> None:
    page = Metrics().page()[0].decode()

    for line in (
        'rebalancer_auth_failures_total{reason="wrong"} 0.0',
        'rebalancer_alerts_ignored_total{reason="no_cluster"} 0.0',
        'rebalancer_alerts_received_total{result="opened"} 0.0',
        'rebalancer_policy_reloads_total{result="failure"} 0.0',
    ):
        assert line in page


def test_nothing_of_ours_is_in_the_libraries_own_registry() -> None:
    Metrics()
    Metrics()

    assert not [each for each in prometheus_client.REGISTRY.collect() if each.name.startswith("rebalancer")]
