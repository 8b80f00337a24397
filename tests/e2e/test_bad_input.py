"""Bad input gets one line that says what, where and what was expected, and its exit code; never a traceback."""

import shutil
import socket
import sqlite3
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from rebalancer.kube.client.client import connect
from rebalancer.kube.leader.lease import LeaseLock
from rebalancer.lab import Lab
from rebalancer.store import open_records, upgrade
from tests.programs.cli import Result, policy_for, rebalancer, write_policy


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.start("small", speed=1.0, token="right") as running:
        yield running


@pytest.fixture
def kubeconfig(lab: Lab, tmp_path: Path) -> Path:
    return lab.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def policy(lab: Lab, tmp_path: Path) -> Path:
    return write_policy(tmp_path, policy_for(lab.prometheus_url))


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def plan(policy: Path, kubeconfig: Path, tmp_path: Path, *more: str | Path) -> Result:
    return rebalancer("plan", "-f", policy, "--kubeconfig", kubeconfig, *more, cwd=tmp_path)


def test_a_policy_that_is_not_there(kubeconfig: Path, tmp_path: Path) -> None:
    result = plan(tmp_path / "none.yaml", kubeconfig, tmp_path)
    assert result.code == 4
    assert "none.yaml: No such file or directory" in result.error


def test_a_policy_that_is_wrong_names_file_line_and_field(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = policy_for(lab.prometheus_url)
    policy["pools"][0]["thresholds"]["target"] = 80
    path = write_policy(tmp_path, policy)
    result = plan(path, kubeconfig, tmp_path)
    assert result.code == 4
    assert (
        "policy.yaml:9: pools[0].thresholds.target: expected target < high, got target 80 and high 75" in result.error
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("REBALANCER_DASHBOARD", "maybe"),
        ("REBALANCER_INSECURE_NO_AUTH", "banana"),
        ("REBALANCER_GRAFANA_URL", "grafana"),
        ("REBALANCER_DASHBOARD_URL", "rebalancer.example"),
    ],
)
def test_a_setting_that_can_not_be_understood_is_named(
    policy: Path, kubeconfig: Path, tmp_path: Path, variable: str, value: str
) -> None:
    result = rebalancer("plan", "-f", policy, "--kubeconfig", kubeconfig, env={variable: value}, cwd=tmp_path)
    assert result.code == 4
    assert f"{variable}: expected" in result.error
    assert f"got '{value}'" in result.error


def test_validate_shows_every_mistake_on_a_line_of_its_own(lab: Lab, tmp_path: Path) -> None:
    path = write_policy(tmp_path, policy_for(lab.prometheus_url, guard={}, limits={"perCycle": -1}))
    result = rebalancer("policy", "validate", path, cwd=tmp_path, cold=True)
    assert result.code == 4
    assert [line.split(": ", 2)[2] for line in sorted(result.err.strip().splitlines())] == [
        "guard: unknown field, did you mean guards?",
        "limits.perCycle: expected at least 0, got -1",
    ]


def test_an_old_policy_is_refused_with_a_line_for_each_renamed_key(lab: Lab, tmp_path: Path) -> None:
    path = write_policy(tmp_path, {**policy_for(lab.prometheus_url), "steering": {"mode": "Off"}})
    result = rebalancer("policy", "validate", path, cwd=tmp_path)
    assert result.code == 4
    assert result.error.endswith(": steering: `steering` is now `softTaint`")


def test_a_kubeconfig_that_is_not_there(lab: Lab, tmp_path: Path) -> None:
    result = plan(write_policy(tmp_path, policy_for(lab.prometheus_url)), tmp_path / "none", tmp_path)
    assert result.code == 4
    assert "no such kubeconfig file" in result.error


def test_an_unknown_context(policy: Path, kubeconfig: Path, tmp_path: Path) -> None:
    result = plan(policy, kubeconfig, tmp_path, "--context", "elsewhere")
    assert result.code == 4
    assert "elsewhere" in result.error


def test_an_api_server_that_is_not_there(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    kubeconfig.write_text(kubeconfig.read_text().replace(lab.url, address))
    result = plan(write_policy(tmp_path, policy_for(lab.prometheus_url)), kubeconfig, tmp_path)
    assert result.code == 5
    assert address in result.error
    assert "refused" in result.error


def test_a_wrong_token(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace("right", "not-this-one"))
    result = plan(write_policy(tmp_path, policy_for(lab.prometheus_url)), kubeconfig, tmp_path)
    assert result.code == 5
    assert "401" in result.error
    assert "not-this-one" not in result.err


def test_a_prometheus_that_is_not_there(kubeconfig: Path, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    result = plan(write_policy(tmp_path, policy_for(address)), kubeconfig, tmp_path)
    assert result.code == 5
    assert address in result.error


def test_a_prometheus_without_the_metrics(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = policy_for(lab.prometheus_url)
    policy["usage"]["prometheus"]["nodeCPU"]["query"] = "instance:node_cpu:not_recorded"
    result = plan(write_policy(tmp_path, policy), kubeconfig, tmp_path)
    assert result.code == 4
    assert "instance:node_cpu:not_recorded" in result.error


def test_a_query_that_prometheus_refuses(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = policy_for(lab.prometheus_url)
    policy["usage"]["prometheus"]["podCPU"]["query"] = "sum(rate("
    result = plan(write_policy(tmp_path, policy), kubeconfig, tmp_path)
    assert result.code == 4
    assert "usage.prometheus.podCPU.query" in result.error


def test_a_node_with_nan_is_skipped_with_its_reason_and_the_others_are_planned(tmp_path: Path) -> None:
    with Lab.start("small", speed=1.0) as lab:
        kubeconfig = lab.write_kubeconfig(tmp_path / "kubeconfig")
        lab.faults.set(nan=("node-2",))
        usage = policy_for(lab.prometheus_url)["usage"] | {"minCoverage": 50}
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, usage=usage))
        result = plan(policy, kubeconfig, tmp_path, "-o", "json")
    assert result.code == 0
    document = result.document
    skipped = [each for each in document["refusals"] if each["node"] == "node-2"]
    assert [(each["code"], each["pod"]) for each in skipped] == [("NotFinite", "")]
    assert [each["node"] for each in document["findings"]] == ["node-1"]
    assert document["evictions"]
    assert {each["targetNode"] for each in document["evictions"]} == {"node-3"}


@pytest.mark.parametrize(
    ("fault", "code"),
    [({"missing": ("node-2", "node-3")}, "CoverageTooLow"), ({"partial": "a store gateway is down"}, "PartialUsage")],
    ids=["too few nodes", "a partial answer"],
)
def test_usage_that_is_not_whole_plans_nothing_and_exits_3(fault: dict[str, Any], code: str, tmp_path: Path) -> None:
    with Lab.start("small", speed=1.0) as lab:
        kubeconfig = lab.write_kubeconfig(tmp_path / "kubeconfig")
        lab.faults.set(**fault)
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url))
        result = plan(policy, kubeconfig, tmp_path, "-o", "json")
    assert result.code == 3
    assert result.document["cycle"]["stopped"]["code"] == code
    assert result.document["evictions"] == []


def test_a_database_that_is_locked(lab: Lab, policy: Path, kubeconfig: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'locked.db'}"
    assert rebalancer("db", "upgrade", "--database", url, cwd=tmp_path).code == 0
    holder = sqlite3.connect(tmp_path / "locked.db")
    try:
        holder.execute("BEGIN EXCLUSIVE")
        result = rebalancer("run", "--once", "-f", policy, "--kubeconfig", kubeconfig, "--database", url, cwd=tmp_path)
    finally:
        holder.close()
    assert result.code == 5
    assert "locked" in result.error
    assert lab.log.evictions() == ()


def test_a_database_that_cant_be_written(lab: Lab, policy: Path, kubeconfig: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nowhere' / 'x.db'}"
    result = rebalancer("run", "--once", "-f", policy, "--kubeconfig", kubeconfig, "--database", url, cwd=tmp_path)
    assert result.code == 4
    assert "nowhere" in result.error
    assert lab.log.evictions() == ()


def test_a_database_url_that_is_none(tmp_path: Path) -> None:
    result = rebalancer("db", "status", "--database", "mongodb://x:secret@y/z", cwd=tmp_path)
    assert result.code == 4
    assert "secret" not in result.err


def test_another_run_holds_the_lease(lab: Lab, policy: Path, kubeconfig: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    upgrade(url)
    with open_records(url=url, cluster="test", clock=lab.clock) as records:
        ledger = records.ledger_identity()
    client = connect(str(kubeconfig), None, "another rebalancer")
    try:
        with LeaseLock(
            client=client, namespace="kube-system", name="rebalancer", identity="another", ledger_identity=ledger
        ):
            result = rebalancer(
                "run", "--once", "-f", policy, "--kubeconfig", kubeconfig, "--database", url, cwd=tmp_path
            )
    finally:
        client.close()
    assert result.code == 3
    assert "another" in result.error
    assert lab.log.evictions() == ()


def test_a_practice_cluster_is_for_the_daemon_only(lab: Lab, policy: Path, tmp_path: Path) -> None:
    result = rebalancer("run", "--once", "--lab", "demo", "-f", policy, cwd=tmp_path)
    assert result.code == 4
    assert "--lab is for the daemon" in result.error


def test_a_daemon_on_an_unknown_scenario(lab: Lab, policy: Path, tmp_path: Path) -> None:
    result = rebalancer("run", "--lab", "nowhere", "-f", policy, cwd=tmp_path)
    assert result.code == 4
    assert "no scenario 'nowhere'" in result.err


def test_a_server_that_is_no_api_server(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Hello)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        kubeconfig.write_text(kubeconfig.read_text().replace(lab.url, f"http://127.0.0.1:{server.server_port}"))
        result = plan(write_policy(tmp_path, policy_for(lab.prometheus_url)), kubeconfig, tmp_path)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert result.code in (3, 5)
    assert f"127.0.0.1:{server.server_port}" in result.error


def test_the_program_needs_no_home(tmp_path: Path) -> None:
    assert shutil.which("true")
    assert rebalancer("--version", cwd=tmp_path).out.startswith("rebalancer ")
