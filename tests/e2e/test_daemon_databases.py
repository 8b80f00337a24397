"""Daemons whose PostgreSQL is not what they think: another cluster uses their name, commits are missing, or a pooler
stands in between."""

import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import psycopg
import pytest

from rebalancer.store import upgrade
from tests.e2e.servers import alert_policy, cuttable, daemon, evicted, leading, until, warm_lab
from tests.programs.cli import rebalancer, write_policy
from tests.real.servers.postgres import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.real


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database with tables."""
    url = postgres.create_database("daemon_databases")
    upgrade(url)
    yield url
    postgres.drop_database("daemon_databases")


@contextmanager
def pooler(server: PostgresServer, folder: Path) -> Iterator[str]:
    """PgBouncer in transaction mode; its address. Skips the test where it isn't installed."""
    program = which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("needs PgBouncer: apt-get install pgbouncer")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    file = folder / "pgbouncer.ini"
    file.write_text(
        f"[databases]\n* = host={server.host} port={server.port} user={USER} password='{PASSWORD}'\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\nunix_socket_dir =\n"
        "pool_mode = transaction\ndefault_pool_size = 3\n"
    )
    account = {}
    if os.geteuid() == 0:  # it refuses to run as root
        user = pwd.getpwnam("nobody")
        account = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    with file.open() as config, (folder / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-q", f"/dev/fd/{config.fileno()}"],
            pass_fds=[config.fileno()],
            stdout=log,
            stderr=log,
            cwd="/",
            **account,  # type: ignore[call-overload]
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def address_of(url: str) -> str:
    """Host and port of a database's URL."""
    return url.rpartition("@")[2].partition("/")[0]


def test_pgbouncer_in_transaction_mode_is_a_database_like_any_other(
    database: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    with warm_lab(warm=2) as lab, pooler(postgres, tmp_path) as address:
        through = database.replace(address_of(database), address)
        with leading(tmp_path, lab, database=through) as running:
            for node in ("warm-1", "warm-2"):
                running.alert(node)
                until(lambda node=node: evicted(lab, node), running.tail)
            until(running.ready, running.tail)
            # the outcome is written after the API server's answer
            until(lambda: outcomes(database) == [("warm-1", "evicted"), ("warm-2", "evicted")], running.tail)
            assert not running.events("cycle failed")


def outcomes(database: str) -> list[tuple[str, str]]:
    """(node, outcome) of the evictions in the database."""
    with psycopg.connect(database) as connection:
        return connection.execute("SELECT node, outcome FROM evictions ORDER BY id").fetchall()


def test_a_standby_without_the_last_commit_evicts_nothing_until_people_accept_it(
    database: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    with warm_lab(warm=2) as lab, cuttable(f"http://{address_of(database)}") as proxy:
        through = database.replace(address_of(database), f"127.0.0.1:{proxy.port}")
        policy = alert_policy(lab.prometheus_url, limits={"cluster": {"evictions": [{"max": 1, "per": "1h"}]}})
        with leading(tmp_path, lab, policy, database=through) as running:
            proxy.cut()
            disconnect(postgres)
            postgres.admin("CREATE DATABASE standby TEMPLATE daemon_databases")
            proxy.mend()
            until(running.ready, running.tail)
            running.alert("warm-1")
            until(lambda: evicted(lab, "warm-1") and running.events("eviction"), running.tail)
            proxy.cut()
            disconnect(postgres)
            postgres.drop_database("daemon_databases")
            postgres.admin("ALTER DATABASE standby RENAME TO daemon_databases")
            proxy.mend()
            running.alert("warm-2")
            until(lambda: "db accept-restore" in running.log_file.read_text(), running.tail)
            assert evicted(lab, "warm-2") == []
            assert "Traceback" not in running.log_file.read_text()
            assert not running.ready()
            checks = running.get("/readyz?verbose")[1]
            assert "[-]database failed: the database has 0 evictions of this cluster, 1 were reserved" in checks
            env = {"REBALANCER_DATABASE": database}
            file = write_policy(tmp_path, policy)
            accepted = rebalancer(
                "db", "accept-restore", "-f", file, "--kubeconfig", tmp_path / "config", env=env, cwd=tmp_path
            )
            assert accepted.code == 0, accepted.err
            assert "1 are missing, 1 of them are counted again" in accepted.out + accepted.err
            until(lambda: any(each["refused"] for each in running.events("cycle")), running.tail)
            assert len(evicted(lab)) == 1
            until(running.ready, running.tail)


def disconnect(postgres: PostgresServer) -> None:
    """End all connections to the test's database."""
    postgres.admin("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'daemon_databases'")


def test_of_two_clusters_with_one_name_the_second_evicts_nothing_until_people_say_so(
    database: str, tmp_path: Path
) -> None:
    with warm_lab(warm=2) as first_lab, warm_lab(warm=2) as second_lab:
        second_lab.cluster.store.get("namespaces", "", "kube-system")["metadata"]["uid"] = "of another cluster"
        first_config = first_lab.write_kubeconfig(tmp_path / "first")
        second_config = second_lab.write_kubeconfig(tmp_path / "second")
        policy = alert_policy(second_lab.prometheus_url)
        with daemon(tmp_path, alert_policy(first_lab.prometheus_url), first_config, database=database) as first:
            until(first.leads, first.tail)
            with daemon(tmp_path, policy, second_config, name="other", database=database) as second:
                until(lambda: second.events("not leading"), second.tail)
                (line, *_) = second.events("not leading")
                assert "another Kubernetes cluster that is named test too" in str(line["error"])
                until(lambda: "[-]lease" in second.get("/readyz?verbose")[1], second.tail)
                first.alert("warm-1")
                until(lambda: evicted(first_lab, "warm-1"), first.tail)
                assert first.ready()
                assert evicted(second_lab) == []
                assert "Traceback" not in second.log_file.read_text()
        # the first was rebuilt as the second
        file = write_policy(tmp_path, policy)
        env = {"REBALANCER_DATABASE": database}
        accepted = rebalancer("db", "accept-restore", "-f", file, "--kubeconfig", second_config, env=env, cwd=tmp_path)
        assert accepted.code == 0, accepted.err
        with daemon(tmp_path, policy, second_config, name="other", database=database) as second:
            until(second.leads, second.tail)
