"""The schema: made, compared, made again, behind, ahead, and what is in it."""

import shutil
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from rebalancer.model.decisions.eviction import Outcome
from rebalancer.model.errors import ConfigError
from rebalancer.store import check_schema, open_engine, open_records, status, upgrade
from rebalancer.store.db.engine import read, write
from rebalancer.store.db.migrate import newest_revision
from rebalancer.store.db.tables import METADATA
from tests.store.builders import CLUSTER, NOW, FakeReader, build_eviction, build_line, build_report
from tests.store.conftest import opened
from tests.store.readers import cycle_report, cycles
from tests.store.scenarios.ledger_cluster import evict
from tests.store.scenarios.schemas import MIGRATIONS, REVISIONS, directory, insert, up_to

HEAD = REVISIONS[-1]
NEXT = f"{int(HEAD) + 1:04}"

ONE_MORE = '''"""Rebuilds a table that others refer to."""

import sqlalchemy as sa
from alembic import op

revision = "{next}"
down_revision = "{head}"
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
        shutil.copytree(MIGRATIONS, folder)
        (folder / "versions" / f"{NEXT}_mood.py").write_text(
            ONE_MORE.format(then=then, recreate=recreate, head=HEAD, next=NEXT)
        )
        return folder

    return make


def test_the_newest_revision_by_file_names_is_the_head_by_alembic(tmp_path):
    assert newest_revision() == directory().get_current_head()
    assert newest_revision(up_to("0007", tmp_path)) == "0007"
    (tmp_path / "versions").mkdir()
    with pytest.raises(ConfigError, match="holds no migrations"):
        newest_revision(tmp_path)


def test_the_migrations_and_the_tables_agree(engine):
    differences = read(
        engine,
        lambda connection: compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), METADATA
        ),
    )
    assert differences == []


def test_upgrading_twice_changes_nothing(empty_url, clock, capfd):
    assert upgrade(empty_url) == HEAD
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        records.begin(build_report())
        identity = records.ledger_identity()
    assert upgrade(empty_url) == HEAD
    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        assert records.ledger_identity() == identity
        assert len(cycles(records, 5)) == 1
    assert capfd.readouterr() == ("", "")


def test_two_processes_upgrade_at_once(empty_url):
    program = "import sys; from rebalancer.store import upgrade; print(upgrade(sys.argv[1]))"
    processes = [
        subprocess.Popen([sys.executable, "-c", program, empty_url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [HEAD] * 3
    assert [process.returncode for process in processes] == [0] * 3


def test_status_counts_what_is_there(url, records, clock):
    assert status(url).last_cycle is None
    report = build_report()
    records.begin(report)
    evict(records, report, build_eviction(), Outcome.UNKNOWN)
    records.begin(build_report(cycle="c2", started_at=NOW + 60))

    now = status(url)

    assert (now.revision, now.head, now.current, now.unreconciled) == (HEAD, HEAD, True, 1)
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
    assert (now.revision, now.current, dict(now.rows), now.last_cycle, now.unreconciled) == (None, False, {}, None, 0)


def test_a_schema_that_is_behind_says_what_to_run(url, engine, newer):
    scripts = newer()
    with pytest.raises(ConfigError, match=f"schema {HEAD} is behind {NEXT}: run `rebalancer db upgrade`"):
        check_schema(engine, scripts=scripts)
    assert status(url, scripts=scripts).current is False
    assert upgrade(url, scripts=scripts) == NEXT
    assert status(url, scripts=scripts).current is True


def test_a_schema_from_a_newer_rebalancer_is_left_alone(url, newer, clock):
    upgrade(url, scripts=newer())
    for use in (lambda: open_records(url=url, cluster=CLUSTER, clock=clock), lambda: upgrade(url)):
        with pytest.raises(ConfigError, match=rf"schema {NEXT} is newer than rebalancer .*: run a newer rebalancer"):
            use()
    assert (status(url).revision, status(url).current) == (NEXT, False)


def test_rebuilding_a_table_keeps_the_rows_that_refer_to_it(url, newer, clock):
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        report = build_report(nodes=[build_line()])
        records.begin(report)
        records.planned(report, build_eviction())
        records.finish(report)
    # SQLite rebuilds the table for most changes; PostgreSQL changes it in place
    upgrade(url, scripts=newer(recreate="always" if "sqlite" in url else "auto"))
    rows = status(url).rows
    assert (rows["cycles"], rows["evictions"], rows["cycle_nodes"]) == (1, 1, 1)


def test_what_was_in_flight_before_0003_still_is(empty_url, tmp_path, clock):
    """Its landing's pool and grace period aren't known, and it has no entry for bytes."""
    assert upgrade(empty_url, scripts=up_to("0002", tmp_path)) == "0002"
    at = "'2025-10-09 08:53:20.250000'"
    rows = [
        f"INSERT INTO ledger (id, identity, created) VALUES (1, '{'0' * 32}', {at})",
        f"INSERT INTO cluster_limits (cluster, digest, text, updated) VALUES ('{CLUSTER}', 'd', '{{}}', {at})",
        f"INSERT INTO cycles (id, cluster, trigger, dry_run, started_at, version, notes) "
        f"VALUES ('c1', '{CLUSTER}', 'manual', false, {at}, '0.1', '[]')",
        f"INSERT INTO evictions (id, cycle, cluster, pool, node, namespace, pod, uid, service, service_kind, strategy, "
        f"landings, reason, outcome, detail, dry_run, planned_at, service_identity, level, ready_before, "
        f"wanted_before, deadline_at, owner_uid, landing_node, pull_bytes, late) VALUES (1, 'c1', '{CLUSTER}', "
        f"'general', 'n1', 'shop', 'web-1', 'u', 'shop/web', 'Deployment', 'S', '[]', 'r', 'evicted', '', false, {at}, "
        f"'shop/web', '', 3, 3, {at}, 'o', 'n2', 5e8, false)",
        f"INSERT INTO scopes (kind, key, term) VALUES ('cluster', '{CLUSTER}', 4)",
        f"INSERT INTO entries (eviction, kind, key, at, counted, in_flight) "
        f"VALUES (1, 'cluster', '{CLUSTER}', {at}, true, true)",
    ]
    with opened(empty_url) as engine:
        insert(engine, rows)

    assert upgrade(empty_url) == HEAD

    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        ledger = records.ledger(clock=clock)
        (flying,) = ledger.open_evictions()
        assert (flying.pod, flying.target_pool, flying.pull_bytes) == ("web-1", "", 5e8)
        assert ledger.last_term() == 4
        ledger.landed(flying.reserved.record, at=NOW + 1, uid="new")
        assert ledger.start_ups("shop/web") == []
        # how far its limits look back isn't published yet, so nothing is dropped
        clock.sleep(10 * 86_400)
        ledger.prune_at_times()
        assert len(ledger.entries(20 * 86_400)) == 1


def test_the_ledgers_migration_keeps_every_row(empty_url, tmp_path, clock):
    """What 0001 wrote is there after all later ones, and can be reconciled."""
    assert upgrade(empty_url, scripts=up_to("0001", tmp_path)) == "0001"
    rows = [
        f"INSERT INTO cycles (id, cluster, trigger, dry_run, started_at, version, notes) "
        f"VALUES ('c1', '{CLUSTER}', 'manual', false, '2025-10-09 08:53:20.250000', '0.1', '[]')",
        f"INSERT INTO evictions (cycle, cluster, pool, node, namespace, pod, uid, service, service_kind, strategy, "
        f"landings, reason, outcome, detail, dry_run, planned_at) VALUES ('c1', '{CLUSTER}', 'general', 'n1', 'shop', "
        f"'web-1', 'u', 'shop/web', 'Deployment', 'S', '[]', 'r', 'planned', '', false, '2025-10-09 08:53:20.250000')",
    ]
    with opened(empty_url) as engine:
        insert(engine, rows)

    assert upgrade(empty_url) == HEAD

    with open_records(url=empty_url, cluster=CLUSTER, clock=clock) as records:
        (row,) = records.ledger().unreconciled()
        assert (row.pod, row.reserved.planned_at) == ("web-1", NOW)
        assert len(records.ledger().reconcile_outcomes(FakeReader())) == 1
        # it was no reservation: nothing waits for its replacement
        assert records.ledger().open_evictions() == []
        (kept,) = cycle_report(records, "c1")["evictions"]
        assert (kept["outcome"], kept["service_identity"], kept["late"]) == ("evicted", None, None)


def test_a_migration_that_fails_leaves_the_database_as_it_was(url, engine, newer):
    with pytest.raises(RuntimeError, match="half-way"):
        upgrade(url, scripts=newer(then='raise RuntimeError("half-way")'))
    with pytest.raises(ConfigError, match="mood"):
        read(engine, lambda connection: connection.execute(text("SELECT mood FROM cycles")))
    assert status(url).revision == HEAD


def test_a_missing_table_is_an_error_with_the_remedy(engine, records):
    write(engine, lambda connection: connection.execute(text("DROP TABLE refusals")))
    report = build_report()
    records.begin(report)
    with pytest.raises(ConfigError, match=r"refusals.*: run `rebalancer db upgrade`") as raised:
        records.finish(report)
    assert "\n" not in str(raised.value)
