"""A process that dies between a decision and its outcome, an answer that never comes, an API server in trouble."""

import signal
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rebalancer.lab import Lab
from tests.e2e.scenarios import MOVED, the_lab
from tests.e2e.servers import evicted, held_by, tainted, until, warm_lab
from tests.programs.cli import Result, begin, policy_for, rebalancer, write_policy


def run_once(lab: Lab, folder: Path) -> Result:
    policy = write_policy(folder, policy_for(lab.prometheus_url))
    return rebalancer(
        "run", "--once", "--no-wait", "-f", policy, "--kubeconfig", folder / "kubeconfig", "-o", "json", cwd=folder
    )


def let_time_pass_for_the_lease(lab: Lab, seconds: float) -> None:
    """As if it had been renewed so much earlier. The next one watches it for its whole duration all the same."""
    with lab.cluster.lock:
        lease = lab.cluster.store.get("leases", "kube-system", "rebalancer")
        earlier = datetime.fromisoformat(lease["spec"]["renewTime"]) - timedelta(seconds=seconds)
        lab.cluster.store.change("leases", lease, lambda new: new["spec"].update(renewTime=f"{earlier:%FT%T.%fZ}"))


def status(folder: Path) -> dict[str, object]:
    return rebalancer("db", "status", "-o", "json", cwd=folder).document


def test_a_kill_during_the_call_is_visible_and_settled_at_the_next_start(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        lab.faults.set(eviction_delay_seconds=20.0)  # carried out at once, answered late
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
        process = begin("run", "--once", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig", cwd=tmp_path)
        until = time.monotonic() + 30
        while not lab.log.entries("terminating") and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert len(lab.log.entries("terminating")) == 1
        assert status(tmp_path)["unreconciled"] == 1

        lab.faults.clear()
        let_time_pass_for_the_lease(lab, 16.0)
        again = run_once(lab, tmp_path)
        assert again.code == 0, again.err
        assert status(tmp_path)["unreconciled"] == 0
        # the node is settling now: what happened in the dead process is counted
        assert {each["code"] for each in again.document["refusals"] if each["pod"] == ""} == {"Settling"}
        assert again.document["evictions"] == []


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_while_it_waits_prints_what_it_did_and_gives_the_lease_back(
    tmp_path: Path, sign: signal.Signals, code: int
) -> None:
    with the_lab(tmp_path) as lab:
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = begin(
                *("run", "--once", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig"),
                cwd=tmp_path,
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
        until = time.monotonic() + 30
        while len(lab.log.evictions()) < len(MOVED) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(sign)
        assert process.wait(20) == code
        assert "shop/web" in (tmp_path / "out").read_text()
        assert len((tmp_path / "err").read_text().strip().splitlines()) == 1
        with lab.cluster.lock:
            lease = lab.cluster.store.get("leases", "kube-system", "rebalancer")
        assert not lease["spec"].get("holderIdentity")


def test_a_run_that_is_stopped_while_a_move_waits_prints_what_it_did(tmp_path: Path) -> None:
    pool = {"name": "all", "selector": {}, "thresholds": {"high": 60, "target": 30, "low": 20}}
    with warm_lab(warm=1, start_seconds=60.0) as lab:
        config = lab.write_kubeconfig(tmp_path / "kubeconfig")
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, pools=[pool]))
        common = ("--once", "-f", policy, "--kubeconfig", config)
        planned = rebalancer("plan", *common[1:], "-o", "json", cwd=tmp_path).document["evictions"]
        assert [each["waitsFor"] for each in planned] == [None, "service shop/svc-1: 1 of 1 in flight"]
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = begin("run", *common, cwd=tmp_path, stdout=out.fileno(), stderr=err.fileno())
        until(lambda: evicted(lab), str)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        output = (tmp_path / "out").read_text()
        assert planned[0]["pod"] in output
        assert planned[1]["pod"] not in output
        assert [each.name for each in evicted(lab)] == [planned[0]["pod"]]
        assert held_by(lab) == ("", 1)
        assert tainted(lab) == set()


def test_several_budgets_are_seen_before_the_server_is_asked(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "second", "namespace": "shop"},
            "spec": {"maxUnavailable": 1, "selector": {}},
        }
        with lab.cluster.lock:
            lab.cluster.store.create("poddisruptionbudgets", budget)
        lab.cluster.wait_until(lambda: True)
        result = run_once(lab, tmp_path)
        codes = {each["code"] for each in result.document["refusals"] if each["pod"].startswith("cache")}
        assert codes == {"SeveralBudgets"}
        assert len(lab.log.evictions()) == len(result.document["evictions"])


def test_errors_of_the_api_server_are_retried_for_reads_and_never_for_evictions(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        lab.faults.set(error_share=0.2, sides=("kubernetes",))
        result = run_once(lab, tmp_path)
        pods = [(each.namespace, each.name) for each in lab.log.evictions()]
        assert len(pods) == len(set(pods))
        if result.code == 0:
            outcomes = {each["outcome"] for each in result.document["evictions"]}
            assert outcomes <= {"evicted", "failed", "unknown"}
        else:
            assert result.code in (3, 5)
            assert "Traceback" not in result.err


def test_a_stale_prometheus_moves_nothing(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        usage = policy_for(lab.prometheus_url)["usage"] | {"maxSampleAge": "1s"}
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, usage=usage))
        lab.faults.set(stale=("*",))
        time.sleep(2)
        result = rebalancer(
            "run", "--once", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig", "-o", "json", cwd=tmp_path
        )
        assert result.code == 3
        assert {each["code"] for each in result.document["refusals"]} <= {"StaleSample"}
        assert lab.log.evictions() == ()


def test_usage_from_metrics_server_plans_the_same(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        usage = {
            "source": "MetricsServer",
            "rateWindow": "30s",
            "stabilizationWindow": {"samples": 1, "duration": "30s"},
        }
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, usage=usage))
        result = rebalancer("plan", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig", "-o", "json", cwd=tmp_path)
        assert result.code == 0, result.err
        assert sorted(each["service"] for each in result.document["evictions"]) == MOVED
