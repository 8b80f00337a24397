"""Parts of a daemon that fail by a mistake of ours: the rest goes on, and says which part it is and since when."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.lab import Lab
from tests.e2e.servers import alert_policy, daemon, evicted, held_by, until, warm_lab
from tests.programs.cli import rebalancer, write_policy

# the command, with parts of it broken beforehand
BROKEN_PARTS = """
from rebalancer.daemon.threads.journaling import JournalWriter
from rebalancer.dashboard.views import LiveViews
from rebalancer.kube.watch.watch import Reflector
from rebalancer.store.inbox import SqlInbox
from rebalancer.strategies.lifecycle import failed_pods
from rebalancer.cli.main import main
def broken(*_, **__): raise TypeError("a mistake of ours")
SqlInbox.next_at = broken
JournalWriter.turn = broken
LiveViews.limits = broken
failed_pods.find = broken
usual, failed = Reflector._take, []
def once(self, lines):
    if self.name == "pods" and not failed:
        failed.append(1)
        broken()
    usual(self, lines)
Reflector._take = once
main()
"""
BROKEN_LEDGER = """
from rebalancer.store import SqlLedger
from rebalancer.cli.main import main
def broken(*_, **__): raise TypeError("a mistake of ours")
SqlLedger.reserve_all = broken
main()
"""
FAILED = ("alerts", "thread journal", "page /limits", "strategy RemoveFailedPods", "watch pods")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with warm_lab(warm=4) as made:
        yield made


def test_parts_that_fail_are_skipped_and_the_rest_goes_on(lab: Lab, tmp_path: Path) -> None:
    config = lab.write_kubeconfig(tmp_path / "config")
    policy = alert_policy(
        lab.prometheus_url,
        strategies=[{"name": "LowNodeUtilization", "interval": "10s"}, {"name": "RemoveFailedPods", "interval": "10s"}],
    )
    with daemon(tmp_path, policy, config, program=BROKEN_PARTS, env={"REBALANCER_DASHBOARD": "open"}) as running:
        until(running.leads, running.tail)
        assert running.get("/limits")[0] == 500
        assert running.get("/nodes")[0] == 200
        pod = lab.cluster.pods(namespace="shop")[0]["metadata"]["name"]
        lab.cluster.label_pod("shop", pod, {"changed": "yes"})
        for part in FAILED:
            until(lambda part=part: running.metric("rebalancer_part_failures_total", part=part) >= 1.0, running.tail)
            line = next(each for each in running.events("part failed") if each["part"] == part)
            assert line["cause"].startswith("TypeError: a mistake of ours (")
            assert "in broken" in line["exception"]
        until(lambda: running.metric("rebalancer_cycles_total", result="done") >= 2.0, running.tail)
        status, checks = running.get("/readyz?verbose")
        assert status == 200
        for part in FAILED[:-1]:
            since = r"since \d{4}-\d\d-\d\dT[^ ]+, (once|\d+ times): TypeError \("
            line = rf"^\[\+\]parts ok: {re.escape(part)}, {since}"
            assert re.search(line, checks, re.MULTILINE), (part, checks)
        assert running.metric("rebalancer_failed_parts") >= 3.0
        assert "Part failed:" in running.get("/nodes")[1]
        policy_file = write_policy(tmp_path, policy, "again.yaml")
        words = ("-f", policy_file, "--kubeconfig", config)
        env = {"HOME": str(tmp_path), "REBALANCER_DATABASE": f"sqlite:///{tmp_path / 'rebalancer.db'}"}
        notes = json.loads(rebalancer("status", *words, "-o", "json", env=env).out)["notes"]
        assert any(each.startswith("part failed: strategy RemoveFailedPods, since ") for each in notes), notes
        doctor = rebalancer("doctor", *words, env=env).out
        assert "part failed: strategy RemoveFailedPods" in " ".join(doctor.split())
        assert running.process.poll() is None


def test_an_unexpected_error_of_the_ledger_ends_the_process(lab: Lab, tmp_path: Path) -> None:
    config = lab.write_kubeconfig(tmp_path / "config")
    with daemon(tmp_path, alert_policy(lab.prometheus_url), config, lease="six", program=BROKEN_LEDGER) as running:
        until(running.leads, running.tail)
        running.alert("warm-2")
        assert running.ended() == 1
        [died] = running.events("thread died")
        assert died["thread"] == "cycles"
        assert died["error"].startswith("VitalError: reserving evictions: TypeError: a mistake of ours (")
        assert "in broken" in died["exception"]
        assert held_by(lab, "six")[0] == ""
        assert evicted(lab, "warm-2") == []
