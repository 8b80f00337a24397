"""A real Prometheus with a rule over the lab's metrics, a real Alertmanager, and the daemon: the alert decides.

The pool's own high is 90% and every warm node is at 65.6%, so nothing but an alert sets something off. The rule looks
at one node at a time, by its address, and what is changed between two steps is the rule alone. The steps build on each
other, because it takes a while until a real Prometheus can say how much CPU is used.
"""

import json
import re
import socket
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from rebalancer.lab import Lab
from tests.e2e.servers import ALERT, POOL, TOKEN, DaemonProcess, daemon, evicted, until, warm_lab
from tests.programs.cli import policy_for
from tests.real.servers.alertmanager import alertmanager_server
from tests.real.servers.prometheus import PrometheusServer, prometheus_server

pytestmark = pytest.mark.real

WINDOW_SECONDS = 30
ALERTS = {"requireCluster": True, "rules": [{"alert": ALERT, "labels": {"severity": "warning"}}]}
QUIET = "groups: []\n"


def rule(instance: str, *, over: float, high: float | None = None, cluster: str = "") -> str:
    """A rule file with one alert, for one node."""
    selector = f'node_cpu_seconds_total{{instance="{instance}", mode="idle"}}'
    used = f"100 * (1 - avg by (instance) (rate({selector}[{WINDOW_SECONDS}s])))"
    marks = "" if high is None else f'      rebalancer_high: "{high:g}"\n      rebalancer_target: "{high - 10:g}"\n'
    labels = f"      cluster: {cluster}\n" if cluster else ""
    return (
        "groups:\n- name: rebalancer\n  interval: 1s\n  rules:\n"
        f"  - alert: {ALERT}\n    expr: {used} > {over:g}\n"
        f"    labels:\n      severity: warning\n{labels}"
        f"    annotations:\n      summary: CPU is at {{{{ $value | humanize }}}} %\n{marks}"
    )


@dataclass
class Stage:
    lab: Lab
    folder: Path
    prometheus: PrometheusServer
    daemon: DaemonProcess
    sent_token: Path
    """What Alertmanager sends; the daemon has a file of its own."""

    def instance(self, node: str) -> str:
        """As node_exporter of the lab calls it."""
        for each in self.lab.cluster.nodes():
            if each["metadata"]["name"] == node:
                [address] = [one["address"] for one in each["status"]["addresses"] if one["type"] == "InternalIP"]
                return f"{address}:9100"
        raise KeyError(node)

    def episodes(self, node: str) -> list[tuple[str, str, str]]:
        """(state, reason, cluster) of every episode of a node."""
        return self._rows(
            "SELECT state, reason, labels ->> 'cluster' FROM alert_episodes "
            "WHERE labels ->> 'instance' = ? ORDER BY id",
            self.instance(node),
        )

    def recorded(self, node: str) -> list[tuple[str, str, str]]:
        """(outcome, what set the cycle off, reason) of every eviction from a node."""
        return self._rows(
            "SELECT outcome, trigger, reason FROM evictions JOIN cycles ON cycles.id = cycle "
            "WHERE node = ? AND outcome != 'planned'",
            node,
        )

    def _rows(self, query: str, value: str) -> list[tuple[str, str, str]]:
        with closing(sqlite3.connect(self.folder / "rebalancer.db")) as connection:
            return connection.execute(query, (value,)).fetchall()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("alertmanager")
    sent = folder / "sent-token"
    sent.write_text("not ours")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        warm_lab(warm=6, rate_window_seconds=float(WINDOW_SECONDS)) as lab,
        alertmanager_server(f"http://{listen}/api/v1/alerts", token_file=sent) as alertmanager,
        prometheus_server(
            (),
            scrape=lab.url.removeprefix("http://"),
            rules=QUIET,
            alertmanager=alertmanager.address,
            cluster="test",
            # a reload forgets the Alertmanagers for a moment, and what is sent meanwhile is lost until the next time
            flags=["--rules.alert.resend-delay=2s"],
        ) as prometheus,
    ):
        usage = {"prometheus": {"url": prometheus.url}, "rateWindow": f"{WINDOW_SECONDS}s"}
        policy = policy_for(prometheus.url, usage=usage, pools=[POOL], alerts=ALERTS)
        config = lab.write_kubeconfig(folder / "kubeconfig")
        with daemon(folder, policy, config, env={"REBALANCER_LISTEN": listen}) as running:
            until(lambda: len(measured(prometheus)) == len(lab.cluster.nodes()), running.tail)
            yield Stage(lab=lab, folder=folder, prometheus=prometheus, daemon=running, sent_token=sent)


def measured(prometheus: PrometheusServer) -> list[str]:
    """Nodes that Prometheus has scraped for a whole window: before, a rate says too little."""
    query = f'count by (instance) (node_cpu_seconds_total{{mode="idle"}} offset {WINDOW_SECONDS}s)'
    return [each["metric"]["instance"] for each in _asked(prometheus, "query?" + urlencode({"query": query}))["result"]]


def state_of_the_rule(prometheus: PrometheusServer, expression: str) -> str:
    """`firing` or `inactive` once the rule was evaluated with this in it; empty before."""
    for group in _asked(prometheus, "rules")["groups"]:
        for each in group["rules"]:
            if expression in each["query"] and each["health"] == "ok":
                return str(each["state"])
    return ""


def _asked(prometheus: PrometheusServer, what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/{what}", timeout=10) as answer:
        return dict(json.load(answer)["data"])


def test_an_alert_with_a_wrong_token_is_refused_and_counted_and_with_the_right_one_moves_a_pod(stage: Stage) -> None:
    stage.prometheus.change_rules(rule(stage.instance("warm-1"), over=60, high=60))
    wrong = {"reason": "wrong"}
    until(lambda: stage.daemon.metric("rebalancer_auth_failures_total", **wrong) > 0, stage.daemon.tail)
    assert stage.daemon.metric("rebalancer_http_requests_total", route="/api/v1/alerts", code="401") > 0
    assert stage.episodes("warm-1") == []
    assert evicted(stage.lab) == []

    stage.sent_token.write_text(TOKEN)
    until(lambda: evicted(stage.lab, "warm-1"), stage.daemon.tail)
    [(outcome, trigger, reason)] = until(lambda: stage.recorded("warm-1"), stage.daemon.tail)
    assert (outcome, trigger) == ("evicted", "alert")
    assert "is over high 60% (alert NodeHot), to be cooled to 50%" in reason
    until(lambda: stage.episodes("warm-1") == [("open", "1 evicted", "test")], stage.daemon.tail)


def test_the_threshold_of_the_rule_decides_whether_a_pod_moves(stage: Stage) -> None:
    instance = stage.instance("warm-2")
    stage.prometheus.change_rules(rule(instance, over=70, high=60))
    until(lambda: state_of_the_rule(stage.prometheus, "> 70") == "inactive", stage.daemon.tail)
    assert stage.episodes("warm-2") == []
    assert evicted(stage.lab, "warm-2") == []

    stage.prometheus.change_rules(rule(instance, over=60, high=60))
    until(lambda: evicted(stage.lab, "warm-2"), stage.daemon.tail)


def test_where_measurement_and_alert_disagree_nothing_moves_and_the_episode_says_so(stage: Stage) -> None:
    # the rule fires over 60%, and says that 70% is hot
    stage.prometheus.change_rules(rule(stage.instance("warm-3"), over=60, high=70))
    [(state, reason, _)] = until(lambda: [each for each in stage.episodes("warm-3") if each[1]], stage.daemon.tail)
    assert state == "open"
    assert re.fullmatch(r"measured 6\d\.\d%, not above the alert's 70%: nothing is evicted", reason)
    assert evicted(stage.lab, "warm-3") == []


def test_without_the_annotation_the_pools_own_high_holds(stage: Stage) -> None:
    stage.prometheus.change_rules(rule(stage.instance("warm-4"), over=60))
    [(_, reason, _)] = until(lambda: [each for each in stage.episodes("warm-4") if each[1]], stage.daemon.tail)
    assert "not above the alert's 90%" in reason
    assert evicted(stage.lab, "warm-4") == []


def test_an_alert_of_another_cluster_is_ignored_and_counted(stage: Stage) -> None:
    stage.prometheus.change_rules(rule(stage.instance("warm-5"), over=60, high=60, cluster="another"))
    ignored = {"reason": "other_cluster"}
    until(lambda: stage.daemon.metric("rebalancer_alerts_ignored_total", **ignored) > 0, stage.daemon.tail)
    assert stage.episodes("warm-5") == []
    assert evicted(stage.lab, "warm-5") == []


def test_an_episode_ends_when_the_rule_no_longer_holds(stage: Stage) -> None:
    instance = stage.instance("warm-6")
    stage.prometheus.change_rules(rule(instance, over=60, high=70))
    until(lambda: [each[0] for each in stage.episodes("warm-6")] == ["open"], stage.daemon.tail)
    stage.prometheus.change_rules(rule(instance, over=99, high=70))
    until(lambda: [each[0] for each in stage.episodes("warm-6")] == ["resolved"], stage.daemon.tail)
    assert stage.episodes("warm-6")[0][1] == "Alertmanager says that it is over"
