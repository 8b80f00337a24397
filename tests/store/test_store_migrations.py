"""The schema: made, compared, made again, behind, ahead, and what is in it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

import rebalancer
from rebalancer.model.errors import ConfigError
from rebalancer.model.plan import Outcome
from rebalancer.store import check_schema, open_engine, open_records, status, upgrade
from rebalancer.store.engine import read, write
from rebalancer.store.tables import METADATA
from tests.store.builders import CLUSTER, NOW, build_eviction, build_line, build_report

SECOND = '''"""Rebuilds a table that others refer to."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("cycles", recreate="{recreate}") as cycles:
        cycles.add_column(sa.Column("mood", sa.Text()))
    {then}
'''


@pytest.fixture
def newer(tmp_path):
    """A folder with our migrations and one more."""

    def make(then="pass", recreate="auto"):
        folder = tmp_path / "newer migrations 100%"
        shutil.copytree(Path(rebalancer.__file__).parent.parent / "migrations", folder)
        (folder / "versions" / "0003_mood.py").write_text(SECOND.format(then=then, recreate=recreate))
        return folder

    return make


def test_the_migrations_and_the_tables_agree(url):
    engine = open_engine(url)
    differences = read(
        engine,
        lambda connection: compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), METADATA
        ),
    )
    engine.dispose()
    assert differences == []


def test_upgrading_twice_changes_nothing(empty_url, clock, capfd):
    assert upgrade(empty_url) == "0002"
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        records.begin(build_report())
        identity = records.ledger_identity()
    assert upgrade(empty_url) == "0002"
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        assert records.ledger_identity() == identity
        assert len(records.cycles(5)) == 1
    assert capfd.readouterr() == ("", "")


def test_two_processes_upgrade_at_once(empty_url):
    program = "import sys; from rebalancer.store import upgrade; print(upgrade(sys.argv[1]))"
    processes = [
        subprocess.Popen([sys.executable, "-c", program, empty_url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == ["0002"] * 3
    assert [process.returncode for process in processes] == [0] * 3


def test_status_counts_what_is_there(url, records, clock):
    assert status(url).last_cycle is None
    report = build_report()
    records.begin(report)
    eviction = build_eviction(outcome=Outcome.UNKNOWN)
    eviction.record = records.planned(report, eviction)
    records.outcome(eviction)
    records.begin(build_report(cycle="c2", started_at=NOW + 60))

    now = status(url)

    assert (now.revision, now.head, now.current, now.unsettled) == ("0002", "0002", True, 1)
    there = {name: count for name, count in now.rows.items() if count}
    assert there == {"cycles": 2, "evictions": 1}
    assert set(now.rows) == set(METADATA.tables)
    assert (now.last_cycle["id"], now.last_cycle["started_at"]) == ("c2", NOW + 60)
    assert "s3cret" not in now.url_shown
    assert now.url_shown.startswith(("sqlite:////", "postgresql://rebalancer:***@127.0.0.1:"))


def test_a_database_without_tables_says_what_to_run(empty_url, clock):
    if empty_url.startswith("sqlite"):
        open_engine(empty_url, create=True).dispose()
    with pytest.raises(ConfigError, match="no tables of rebalancer yet: run `rebalancer db upgrade`"):
        open_records(url=empty_url, cluster=CLUSTER, clock=clock)
    now = status(empty_url)
    assert (now.revision, now.current, dict(now.rows), now.last_cycle, now.unsettled) == (None, False, {}, None, 0)


def test_a_schema_that_is_behind_says_what_to_run(url, newer):
    scripts = newer()
    engine = open_engine(url)
    with pytest.raises(ConfigError, match="schema 0002 is behind 0003: run `rebalancer db upgrade`"):
        check_schema(engine, scripts=scripts)
    engine.dispose()
    assert status(url, scripts=scripts).current is False
    assert upgrade(url, scripts=scripts) == "0003"
    assert status(url, scripts=scripts).current is True


def test_a_schema_from_a_newer_rebalancer_is_left_alone(url, newer, clock):
    upgrade(url, scripts=newer())
    for use in (lambda: open_records(url=url, cluster=CLUSTER, clock=clock), lambda: upgrade(url)):
        with pytest.raises(ConfigError, match=r"schema 0003 is newer than rebalancer .*: run a newer rebalancer"):
            use()
    assert (status(url).revision, status(url).current) == ("0003", False)


def test_rebuilding_a_table_keeps_the_rows_that_refer_to_it(url, newer, clock):
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        report = build_report(nodes=[build_line()])
        records.begin(report)
        records.planned(report, build_eviction())
        records.finish(report)
    # SQLite rebuilds the table for most changes; PostgreSQL changes it in place
    upgrade(url, scripts=newer(recreate="always" if "sqlite" in url else "auto"))
    rows = status(url).rows
    assert (rows["cycles"], rows["evictions"], rows["node_lines"]) == (1, 1, 1)


def test_the_ledgers_migration_keeps_every_row(empty_url, tmp_path, clock):
    """What 0001 wrote is there after 0002, and can be settled."""
    folder = tmp_path / "older"
    shutil.copytree(Path(rebalancer.__file__).parent.parent / "migrations", folder)
    (folder / "versions" / "0002_ledger.py").unlink()
    assert upgrade(empty_url, scripts=folder) == "0001"
    engine = open_engine(empty_url)
    older = [
        f"INSERT INTO cycles (id, cluster, trigger, dry_run, started_at, version, notes) "
        f"VALUES ('c1', '{CLUSTER}', 'manual', false, '2025-10-09 08:53:20.250000', '0.1', '[]')",
        f"INSERT INTO evictions (cycle, cluster, pool, node, namespace, pod, uid, service, service_kind, strategy, "
        f"landings, reason, outcome, detail, dry_run, planned_at) VALUES ('c1', '{CLUSTER}', 'general', 'n1', 'shop', "
        f"'web-1', 'u', 'shop/web', 'Deployment', 'S', '[]', 'r', 'planned', '', false, '2025-10-09 08:53:20.250000')",
    ]
    write(engine, lambda connection: [connection.execute(text(each)) for each in older])
    engine.dispose()

    assert upgrade(empty_url) == "0002"

    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        (row,) = records.unsettled()
        assert (row.pod, row.planned_at) == ("web-1", NOW)
        records.settle(row.record, Outcome.EVICTED, "gone")
        # it was no reservation: nothing waits for its replacement
        assert records.ledger().open_evictions() == []
        (kept,) = records.cycle_report("c1")["evictions"]
        assert (kept["outcome"], kept["service_identity"], kept["late"]) == ("evicted", None, None)


def test_a_migration_that_fails_leaves_the_database_as_it_was(url, newer):
    with pytest.raises(RuntimeError, match="half-way"):
        upgrade(url, scripts=newer(then='raise RuntimeError("half-way")'))
    engine = open_engine(url)
    with pytest.raises(ConfigError, match="mood"):
        read(engine, lambda connection: connection.execute(text("SELECT mood FROM cycles")))
    engine.dispose()
    assert status(url).revision == "0002"


def test_a_missing_table_is_told_with_the_remedy(url, records):
    engine = open_engine(url)
    write(engine, lambda connection: connection.execute(text("DROP TABLE refusals")))
    engine.dispose()
    report = build_report()
    records.begin(report)
    with pytest.raises(ConfigError, match=r"refusals.*: run `rebalancer db upgrade`") as told:
        records.finish(report)
    assert "\n" not in str(told.value)
