"""A database restored from a backup, a cluster that got another name: the evictions that the ledger lacks count again,
where the cluster shows them."""

import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.e2e.servers import DaemonProcess, alert_policy, daemon, evicted, leading, until, warm_lab
from tests.programs.cli import rebalancer, write_policy

TWO_AN_HOUR = {"cluster": {"evictions": [{"max": 2, "per": "1h"}]}}


def stopped(running: DaemonProcess) -> None:
    """It has ended, and its database is whole."""
    running.signal(signal.SIGTERM)
    assert running.ended() == 0


def restore(backup: Path, database: Path) -> None:
    """The file as it was."""
    for journal in ("-wal", "-shm"):
        database.with_name(f"{database.name}{journal}").unlink(missing_ok=True)
    shutil.copy(backup, database)


def evictions_of(database: Path) -> list[tuple[Any, ...]]:
    """(node, pod, trigger, reason) of the record, oldest first."""
    query = "SELECT node, pod, trigger, reason FROM evictions e JOIN cycles c ON c.id = e.cycle ORDER BY e.planned_at"
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


def refusals_of(database: Path) -> set[str]:
    """Their codes."""
    with closing(sqlite3.connect(database)) as connection:
        return {code for (code,) in connection.execute("SELECT code FROM refusals")}


def counted(database: Path) -> dict[str, int]:
    """Kind of scope -> entries that count."""
    with sqlite3.connect(database) as connection:
        return dict(connection.execute("SELECT kind, count(*) FROM entries WHERE counted GROUP BY kind"))


def accept(folder: Path, policy: dict[str, Any], config: Path, database: Path) -> str:
    """What `db accept-restore` prints."""
    file = write_policy(folder, policy)
    env = {"REBALANCER_DATABASE": f"sqlite:///{database}"}
    accepted = rebalancer("db", "accept-restore", "-f", file, "--kubeconfig", config, env=env, cwd=folder)
    assert accepted.code == 0, accepted.err
    return accepted.out + accepted.err


def test_evictions_that_a_restored_ledger_lacks_are_counted_again_from_their_events(tmp_path: Path) -> None:
    database, backup = tmp_path / "rebalancer.db", tmp_path / "backup.db"
    with warm_lab(warm=3) as lab:
        policy = alert_policy(lab.prometheus_url, limits=TWO_AN_HOUR)
        with leading(tmp_path, lab, policy) as running:
            running.alert("warm-1")
            until(lambda: running.events("eviction"), running.tail)
            stopped(running)
        shutil.copy(database, backup)
        with leading(tmp_path, lab, policy) as running:
            running.alert("warm-2")
            until(lambda: running.events("eviction"), running.tail)
            stopped(running)
        before = evictions_of(database)
        whole = counted(database)
        assert [each[0] for each in before] == ["warm-1", "warm-2"]

        restore(backup, database)
        output = accept(tmp_path, policy, tmp_path / "config", database)
        assert "1 are missing, 1 of them are counted again" in output
        assert "Paused" not in output
        (known, again) = evictions_of(database)
        assert known == before[0]
        assert again[:3] == ("warm-2", before[1][1], "restore")
        assert again[3] == f"counted again after a restore, from its Event: {before[1][3]}"
        assert counted(database) == whole
        with leading(tmp_path, lab, policy) as running:
            running.alert("warm-3")
            # the first cycle may be of the alerts that are still open in the backup
            until(lambda: "LimitCluster" in refusals_of(database), running.tail)
            stopped(running)
        assert len(evicted(lab)) == 2


def test_a_cluster_that_got_another_name_says_so(tmp_path: Path) -> None:
    with warm_lab(warm=2) as lab:
        policy = alert_policy(lab.prometheus_url)
        with leading(tmp_path, lab, policy) as running:
            running.alert("warm-1")
            until(lambda: running.events("eviction"), running.tail)
            stopped(running)
        renamed = {**policy, "cluster": "other"}
        with daemon(tmp_path, renamed, tmp_path / "config") as running:
            until(lambda: running.events("not leading"), running.tail)
            (line, *_) = running.events("not leading")
            assert "`cluster` in the policy is other, and was test" in str(line["error"])
            assert "restored from a backup" not in str(line["error"])
            assert "[-]lease" in running.get("/readyz?verbose")[1]
            running.alert("warm-2")
            output = accept(tmp_path, renamed, tmp_path / "config", tmp_path / "rebalancer.db")
            # the ledger has them under the old name: nothing is doubled
            assert "1 are missing, 0 of them are counted again. The pause ends in" in output
            until(running.leads, running.tail)
        assert evicted(lab, "warm-2") == []
        assert len(evictions_of(tmp_path / "rebalancer.db")) == 1
