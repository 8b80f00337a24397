"""What people see of the shared ledger and of services' own windows: doctor, `windows --services`, `db prune`."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rebalancer.lab import Lab, node, scenario, workload
from tests.e2e.scenarios import the_lab
from tests.e2e.test_limits_cli import in_hours, run, window
from tests.programs.cli import Result, policy_for, rebalancer, write_policy

WINDOW = "rebalancer.dev/change-window"


# ---- doctor


def test_doctor_is_not_concerned(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    policy = write_policy(
        tmp_path,
        policy_for(
            lab.prometheus_url,
            windows={"cluster": [window("Allow", in_hours(3), "1h")]},
            lists={"deny": [{"namespaces": ["*"]}]},
            limits={"perCycle": 0},
        ),
    )
    before = rebalancer("doctor", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=tmp_path)
    assert rebalancer("pause", "global", "-f", policy, "--reason", "x", cwd=tmp_path).code == 0
    after = rebalancer("doctor", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=tmp_path)
    assert before.code == after.code == 0, after.err
    assert all(each["ok"] for each in after.document["checks"])
    assert not any(each["warning"] for each in after.document["checks"])


def diagnosis(policy: Path, kubeconfig: Path, cwd: Path) -> tuple[Result, dict[str, dict[str, Any]]]:
    result = rebalancer("doctor", "-f", policy, "--kubeconfig", kubeconfig, "-o", "json", cwd=cwd)
    return result, {each["name"]: each for each in result.document["checks"]}


def test_doctor_shows_the_lease_and_warns_when_clusters_state_different_global_limits(
    lab: Lab, kubeconfig: Path, tmp_path: Path
) -> None:
    def policy(cluster: str, limits: dict[str, Any]) -> Path:
        document = policy_for(lab.prometheus_url, cluster=cluster, limits={"perCycle": 0, "global": limits})
        return write_policy(tmp_path, document, f"{cluster}.yaml")

    one = {"inFlight": 20, "spacing": "30s"}
    green = policy("green", one)
    _, checks = diagnosis(green, kubeconfig, tmp_path)
    assert checks["lease"]["detail"].startswith("not there yet")
    assert checks["global limits"]["detail"] == "no other cluster's yet"
    for cluster in ("green", "red"):
        assert run(policy(cluster, one), kubeconfig, tmp_path).code == 0
    _, checks = diagnosis(green, kubeconfig, tmp_path)
    assert (checks["global limits"]["warning"], checks["global limits"]["detail"]) == (False, "the same in red")
    assert checks["lease"]["detail"].startswith("no holder")  # the runs have given it back

    blue = policy("blue", {"inFlight": 10, "spacing": "30s"})
    result, checks = diagnosis(blue, kubeconfig, tmp_path)
    assert result.code == 0  # it isn't broken
    found = checks["global limits"]
    assert (found["ok"], found["warning"]) == (True, True)
    assert found["detail"] == "inFlight: 10 in blue, 20 in green and red"
    assert "limits.global" in found["fix"]
    table = rebalancer("doctor", "-f", blue, "--kubeconfig", kubeconfig, cwd=tmp_path)
    assert "warn global limits: inFlight: 10 in blue, 20 in green and red" in table.out
    assert table.code == 0
    # the file that it is asked with is what counts for its cluster, not what was stated before
    _, checks = diagnosis(policy("red", {"inFlight": 20}), kubeconfig, tmp_path)
    assert checks["global limits"]["detail"] == 'spacing: "30s" in green, null in red'


def test_doctor_asks_metrics_server_only_where_usage_comes_from_it(lab: Lab, kubeconfig: Path, tmp_path: Path) -> None:
    prometheus = write_policy(tmp_path, policy_for(lab.prometheus_url))
    assert "metrics-server" not in diagnosis(prometheus, kubeconfig, tmp_path)[1]
    document = policy_for("http://127.0.0.1:1", usage={"source": "MetricsServer"})
    result, checks = diagnosis(write_policy(tmp_path, document), kubeconfig, tmp_path)
    found = checks["metrics-server"]
    assert "prometheus" not in checks
    assert (found["ok"], result.code) == (True, 0)
    assert found["detail"].startswith("metrics of 4 nodes")


# ---- services' own windows


def test_windows_of_services_are_read_from_the_cluster(tmp_path: Path) -> None:
    opens = in_hours(3)
    carried = {
        "web": f"allow {opens.minute} {opens.hour} * * * 1h",
        "db": "allow at night",
        "api": f"deny {opens.minute} {opens.hour} * * * 1h",
    }
    workloads = [
        workload(name, namespace="shop" if name != "db" else "data", replicas=2, annotations={WINDOW: text})
        for name, text in carried.items()
    ] + [workload("plain", namespace="shop", replicas=1)]
    cluster = scenario(nodes=[node("node-1", cpu=8)], workloads=workloads)
    policy = write_policy(
        tmp_path, policy_for("http://127.0.0.1:1", windows={"cluster": [window("Allow", in_hours(-1), "3h")]})
    )
    with Lab.start(cluster, speed=1.0) as lab:
        lab.write_kubeconfig(tmp_path / "kubeconfig")

        def shown(*flags: str, output: str = "json") -> Result:
            return rebalancer(
                "windows", "-f", policy, "--kubeconfig", tmp_path / "kubeconfig", "-o", output, *flags, cwd=tmp_path
            )

        assert [each["scope"] for each in shown().document["windows"]] == ["cluster"]
        found = shown("--services").document["windows"]
        assert [(each["scope"], each["key"]) for each in found] == [
            ("cluster", "test"),
            ("service", "data/db"),
            ("service", "shop/api"),
            ("service", "shop/web"),
        ]
        _, db, api, web = found
        assert (web["open"], web["nextOpen"]) == (False, opens.timestamp())
        assert (api["open"], api["until"]) == (True, opens.timestamp())
        assert (db["open"], db["nextOpen"]) == (False, None)  # what can't be understood closes
        assert db["reason"]
        assert shown("--services", "-A").document["windows"] == found
        of_shop = shown("--services", "-n", "shop").document["windows"]
        assert [each["key"] for each in of_shop] == ["test", "shop/api", "shop/web"]
        table = shown("--services", output="table")
        assert "service shop/web" in table.out
        assert "closed until" in table.out
        for flags in (["-n", "shop"], ["-A"], ["--services", "-A", "-n", "shop"]):
            refused = shown(*flags)
            assert refused.code == 4
            assert "-n and -A" in refused.error


# ---- pruning


def test_old_entries_are_counted_and_dropped(tmp_path: Path) -> None:
    with the_lab(tmp_path) as lab:
        policy = write_policy(tmp_path, policy_for(lab.prometheus_url, limits={"perCycle": 0}))
        assert run(policy, tmp_path / "kubeconfig", tmp_path).code == 0
    long_ago = (datetime.now(UTC) - timedelta(days=10)).strftime("%Y-%m-%d %H:%M:%S.%f")
    with closing(sqlite3.connect(tmp_path / "rebalancer.db")) as connection, connection:
        ((cycle,),) = connection.execute("SELECT id FROM cycles")
        connection.execute(
            "INSERT INTO evictions (id, cycle, cluster, pool, node, namespace, pod, uid, service, service_kind, "
            "strategy, target_nodes, reason, outcome, detail, dry_run, planned_at) VALUES (1, ?, 'test', 'all', 'n', "
            "'shop', 'p', 'u', 'shop/web', 'Deployment', 's', '[]', 'r', 'evicted', '', 0, ?)",
            (cycle, long_ago),
        )
        for key in ("shop/web", "shop/api"):
            connection.execute("INSERT INTO scopes (kind, key) VALUES ('service', ?)", (key,))
        for in_flight, key in ((0, "shop/web"), (1, "shop/api")):
            connection.execute(
                "INSERT INTO entries (eviction, kind, key, at, counted, in_flight) VALUES (1, 'service', ?, ?, 1, ?)",
                (key, long_ago, in_flight),
            )

    def prune(*flags: str) -> Result:
        return rebalancer("db", "prune", *flags, cwd=tmp_path)

    counted = prune("--dry-run", "-o", "json").document
    assert (counted["dryRun"], counted["entries"], counted["scopes"], counted["clusters"]) == (True, 1, 1, [])
    assert "would drop 1 entries" in prune("--dry-run").err
    assert prune("--dry-run", "--older-than", "11d", "-o", "json").document["entries"] == 0
    too_short = prune("--older-than", "1s")
    assert too_short.code == 4
    assert "cluster test look back" in too_short.error
    assert "--older-than" in prune("--older-than", "soon").error
    dropped = prune("-o", "json").document
    assert (dropped["dryRun"], dropped["entries"], dropped["scopes"]) == (False, 1, 1)
    assert prune("--dry-run", "-o", "json").document["entries"] == 0
    with closing(sqlite3.connect(tmp_path / "rebalancer.db")) as connection:
        assert connection.execute("SELECT key FROM entries").fetchall() == [("shop/api",)]


def test_a_database_that_is_not_there_is_not_made_by_pruning(tmp_path: Path) -> None:
    result = rebalancer("db", "prune", cwd=tmp_path)
    assert result.code == 4
    assert "does not exist" in result.error
    assert not (tmp_path / "rebalancer.db").exists()
