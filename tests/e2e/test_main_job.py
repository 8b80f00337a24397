"""The main job, end to end, by the command line: plan, run, records, and nothing a second time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.e2e.scenarios import HOT, MOVED, Stage, api_server_stage, lab_stage, lab_with_prometheus_stage
from tests.e2e.test_demo import check_document
from tests.programs.cli import rebalancer, write_policy
from tests.real.servers.postgres import PostgresServer

Open = Callable[[Path], AbstractContextManager[Stage]]


@pytest.fixture(
    params=[
        pytest.param((lab_stage, "sqlite"), id="lab-sqlite"),
        pytest.param((lab_with_prometheus_stage, "postgresql"), id="lab-prometheus-postgresql", marks=pytest.mark.real),
        pytest.param((api_server_stage, "postgresql"), id="apiserver-prometheus-postgresql", marks=pytest.mark.real),
    ]
)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Stage, str]]:
    """A stage and a database URL."""
    open_stage, kind = request.param
    with open_stage(tmp_path) as stage:
        if kind == "sqlite":
            yield stage, f"sqlite:///{tmp_path / 'rebalancer.db'}"
            return
        server: PostgresServer = request.getfixturevalue("postgres")
        name = "e2e_" + open_stage.__name__
        yield stage, server.create_database(name)
        server.drop_database(name)


def test_plan_and_run_agree_and_everything_is_recorded(setting: tuple[Stage, str], tmp_path: Path) -> None:
    stage, database = setting
    policy = write_policy(tmp_path, stage.policy)
    common = ("-f", policy, "--kubeconfig", stage.kubeconfig, "--database", database, "-o", "json")
    assert rebalancer("db", "upgrade", "--database", database, cwd=tmp_path).code == 0

    planned = rebalancer("plan", "--no-wait", *common, "--detailed-exitcode", cwd=tmp_path)
    assert planned.code == 2, planned.err
    check_document(planned.document)
    assert [finding["node"] for finding in planned.document["findings"]] == [HOT]
    assert sorted(each["service"] for each in planned.document["evictions"]) == MOVED
    assert {each["outcome"] for each in planned.document["evictions"]} == {"planned"}
    assert all(line["cpuShareAfter"] is None for line in planned.document["nodes"])
    assert stage.evicted() == set()

    probed = rebalancer("plan", "--no-wait", *common, "--server-dry-run", cwd=tmp_path)
    assert all("probed alone" in each["detail"] for each in probed.document["evictions"])
    assert stage.evicted() == set()
    assert rebalancer("db", "status", "--database", database, "-o", "json").document["rows"]["cycles"] == 0

    ran = rebalancer("run", "--once", "--no-wait", *common, cwd=tmp_path)
    assert ran.code == 0, ran.err
    check_document(ran.document)
    assert [each["pod"] for each in ran.document["evictions"]] == [
        each["pod"] for each in planned.document["evictions"]
    ]
    assert {each["outcome"] for each in ran.document["evictions"]} == {"evicted"}
    assert stage.evicted() == {(each["namespace"], each["pod"]) for each in ran.document["evictions"]}
    codes = {(each["pod"], each["code"]) for each in ran.document["refusals"] if each["pod"].startswith("cache")}
    assert {code for _, code in codes} == {"BudgetExhausted"}

    again = rebalancer("run", "--once", "--no-wait", *common, cwd=tmp_path)
    assert again.code == 0, again.err
    assert again.document["evictions"] == []
    assert len(stage.evicted()) == len(MOVED)
    status = rebalancer("db", "status", "--database", database, "-o", "json").document
    assert status["rows"]["evictions"] == len(MOVED)
    assert status["rows"]["cycles"] == 2
    assert status["unreconciled"] == 0


def test_a_dry_run_is_recorded_as_dry_and_evicts_nothing(tmp_path: Path) -> None:
    with lab_stage(tmp_path) as stage:
        policy = write_policy(tmp_path, stage.policy)
        common = ("-f", policy, "--kubeconfig", stage.kubeconfig, "-o", "json")
        result = rebalancer("run", "--once", "--dry-run", *common, cwd=tmp_path, cold=True)
        assert rebalancer("plan", *common, cwd=tmp_path, cold=True).code == 0
        assert result.code == 0, result.err
        assert result.document["cycle"]["dryRun"] is True
        assert sorted(each["service"] for each in result.document["evictions"]) == MOVED
        assert stage.evicted() == set()
    status = rebalancer("db", "status", "-o", "json", cwd=tmp_path, cold=True).document
    assert status["rows"]["evictions"] == len(MOVED)
    assert status["unreconciled"] == 0


def test_doctor_finds_everything_in_order(tmp_path: Path) -> None:
    with lab_stage(tmp_path) as stage:
        policy = write_policy(tmp_path, stage.policy)
        result = rebalancer(
            "doctor", "-f", policy, "--kubeconfig", stage.kubeconfig, "-o", "json", cwd=tmp_path, cold=True
        )
    assert all(check["ok"] for check in result.document["checks"]), result.out
    assert result.code == 0
    assert {check["name"] for check in result.document["checks"]} >= {
        "database",
        "api server",
        "permissions",
        "prometheus",
    }
