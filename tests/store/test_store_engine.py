"""Opening a database, and what goes wrong with it: one line each, with the cause and without the password."""

import os
import shutil
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError

from rebalancer.model.errors import ConfigError, ConnectError, RebalancerError
from rebalancer.store import SqlRecords, open_engine, open_records, shown_url, status, upgrade
from rebalancer.store.db.engine import as_model_error, read, write
from tests.real.servers.postgres import PASSWORD, PostgresServer
from tests.store.builders import CLUSTER, SteppingClock, build_eviction, build_report
from tests.store.readers import raw_connection

real = pytest.mark.real


def refused(kind: type[RebalancerError], use) -> str:
    """The message of the error that `use` must end in."""
    with pytest.raises(kind) as raised:
        use()
    message = str(raised.value)
    assert "\n" not in message
    for secret in (PASSWORD, "s3cret", "p%40ss", "hunter2"):
        assert secret not in message
    return message


def scalar(engine: Engine, statement: str) -> Any:
    return read(engine, lambda connection: connection.exec_driver_sql(statement).scalar_one())


def in_threads(*work) -> None:
    """Each in a thread of its own."""
    with ThreadPoolExecutor(len(work)) as pool:
        for each in [pool.submit(one) for one in work]:
            each.result(60)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not a URL: expected sqlite:///<file> or postgresql://"),
        ("rebalancer.db", "not a URL"),
        ("mysql://root:hunter2@db/x", "mysql:// is not supported: expected sqlite:///<file> or"),
        ("sqlite+aiosqlite:///x.db", "sqlite+aiosqlite:// is not supported"),
        ("sqlite://", "in memory forgets every limit"),
        ("sqlite:///:memory:", "in memory forgets every limit"),
        ("sqlite:///file:x?mode=memory&uri=true", "in memory forgets every limit"),
        ("sqlite://rebalancer.db", "expected sqlite:///<file>"),
        ("postgresql://u:hunter2@db", "names no database"),
        ("postgresql://u:hunter2@db:54x2/x", "the port is not a number"),
        ("postgresql://u:hunt@hunter2@db/x", "more than one @"),
        ("postgresql://u:hunt:er@2/hunter2@db/x", "more than one @"),
    ],
)
def test_a_url_that_cannot_be_one_of_ours(url, says):
    assert says in refused(ConfigError, lambda: open_engine(url))


def test_the_folder_of_a_sqlite_file_must_exist(tmp_path):
    url = f"sqlite:///{tmp_path}/missing/x.db"
    for use in (open_engine, upgrade, status):
        assert f"the folder {tmp_path}/missing does not exist" in refused(ConfigError, lambda use=use: use(url))


def test_a_sqlite_file_is_only_created_by_an_upgrade(tmp_path):
    path = tmp_path / "x.db"
    for use in (open_engine, status):
        message = refused(ConfigError, lambda use=use: use(f"sqlite:///{path}"))
        assert f"{path} does not exist: run `rebalancer db upgrade`" in message
    assert not path.exists()
    upgrade(f"sqlite:///{path}")
    assert path.exists()


def test_a_folder_is_no_sqlite_file(tmp_path):
    assert "is a folder: expected a file" in refused(ConfigError, lambda: open_engine(f"sqlite:///{tmp_path}"))


def test_another_kind_of_file_is_no_sqlite_file(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("kind: RebalancerPolicy\n" * 100)
    for use in (open_engine, upgrade, status):
        message = refused(ConfigError, lambda use=use: use(f"sqlite:///{path}"))
        assert message == f"sqlite:///{path}: not a SQLite database file"
    assert path.read_text() == "kind: RebalancerPolicy\n" * 100


def test_sqlite_is_durable_checks_keys_and_lets_readers_read(impatient_engine):
    pragmas = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 200}
    for name, value in pragmas.items():
        assert scalar(impatient_engine, f"PRAGMA {name}") == value
    # a reader, while a writer is in the middle of its work
    assert write(impatient_engine, lambda _: scalar(impatient_engine, "SELECT count(*) FROM cycles")) == 0


def test_a_locked_sqlite_file_is_an_error_after_the_busy_timeout(newest_sqlite_url, impatient_engine):
    def one(connection):
        connection.execute(text("SELECT 1"))

    with raw_connection(newest_sqlite_url) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        message = refused(ConnectError, lambda: write(impatient_engine, one))
        assert message == f"{newest_sqlite_url}: locked by another process for too long"
        assert 0.15 < time.monotonic() - started < 5
        # and goes on once the lock is gone
        other.execute("ROLLBACK")
    write(impatient_engine, one)


def test_a_sqlite_writer_takes_its_lock_before_it_reads(sqlite_engine):
    """Two read-then-write transactions must queue up; begun as readers, one would be refused without waiting."""
    write(sqlite_engine, lambda connection: connection.execute(text("CREATE TABLE counter AS SELECT 0 AS n")))

    def add(connection):
        n = connection.execute(text("SELECT n FROM counter")).scalar_one()
        time.sleep(0.01)
        connection.execute(text("UPDATE counter SET n = :n"), {"n": n + 1})

    in_threads(*[lambda: [write(sqlite_engine, add) for _ in range(5)]] * 4)
    assert scalar(sqlite_engine, "SELECT n FROM counter") == 20


def test_a_read_only_database_is_named(sqlite_url, tmp_path, clock):
    upgrade(sqlite_url)
    url = f"sqlite:///file:{tmp_path}/rebalancer.db?mode=ro&uri=true"
    with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
        message = refused(ConnectError, lambda: records.begin(build_report()))
    assert f"{tmp_path}/rebalancer.db" in message
    assert "can't be written" in message


@pytest.fixture
def shared_folder():
    """A folder that an unprivileged user may read but not write."""
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-ro-"))
    upgrade(f"sqlite:///{folder}/rebalancer.db")
    (folder / "rebalancer.db").chmod(0o444)
    folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_file_without_write_permission_is_named(shared_folder, clock):
    url = f"sqlite:///{shared_folder}/rebalancer.db"

    def use():
        with open_records(url=url, cluster=CLUSTER, clock=clock) as records:
            records.begin(build_report())

    message = refused(ConnectError, use)
    assert str(shared_folder) in message
    assert "can't be written" in message


def test_a_new_file_in_a_folder_without_write_permission_is_named(shared_folder):
    message = refused(ConnectError, lambda: upgrade(f"sqlite:///{shared_folder}/new.db"))
    assert f"{shared_folder}/new.db" in message
    assert "can't be written" in message


def test_a_server_that_is_not_there_is_named_with_host_and_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        message = refused(ConnectError, lambda: open_engine(f"postgresql://u:hunter2@127.0.0.1:{port}/x"))
    assert f"postgresql://u:***@127.0.0.1:{port}/x: " in message
    assert "refused" in message


def test_a_host_that_does_not_exist_is_named():
    message = refused(ConnectError, lambda: open_engine("postgresql://u:hunter2@nowhere.invalid/x"))
    assert "nowhere.invalid" in message


def test_a_server_that_never_answers_is_given_up():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://u:hunter2@127.0.0.1:{silent.getsockname()[1]}/x"
        started = time.monotonic()
        message = refused(ConnectError, lambda: open_engine(url, connect_timeout_seconds=2))
    assert time.monotonic() - started < 10
    assert "timeout" in message


def test_an_option_that_postgresql_does_not_know_is_named():
    assert "colour" in refused(ConfigError, lambda: open_engine("postgresql://u:hunter2@127.0.0.1/x?colour=red"))


def test_passwords_are_never_shown():
    shown = shown_url("postgres://u:hunter2@db:5432/x?sslmode=verify-full&sslpassword=hunter2&password=hunter2")
    assert shown == "postgresql://u:***@db:5432/x?password=***&sslmode=verify-full&sslpassword=***"
    assert shown_url("sqlite:////var/lib/rebalancer.db") == "sqlite:////var/lib/rebalancer.db"


def test_a_driver_that_repeats_the_password_is_not_repeated():
    url = make_url("postgresql+psycopg://u:p%40ss@db/x?sslpassword=hunter2")
    error = DBAPIError("SELECT 1", {}, psycopg.OperationalError("can't use 'p@ss' (p%40ss) and hunter2\n\tat db"))
    message = str(as_model_error(error, url))
    assert message == "postgresql://u:***@db/x?sslpassword=***: can't use '***' (***) and *** at db"


@real
def test_a_wrong_password_is_an_error(postgres: PostgresServer):
    url = postgres.url("postgres", password="hunter2/@:%")
    message = refused(ConnectError, lambda: open_engine(url))
    assert 'password authentication failed for user "rebalancer"' in message


@real
def test_a_password_in_the_options_is_no_way_around(postgres: PostgresServer):
    url = f"postgresql://rebalancer@127.0.0.1:{postgres.port}/postgres?password=hunter2"
    assert "password authentication failed" in refused(ConnectError, lambda: open_engine(url))


@real
def test_a_database_that_does_not_exist_is_named(postgres: PostgresServer):
    message = refused(ConnectError, lambda: open_engine(postgres.url("nowhere")))
    assert 'database "nowhere" does not exist' in message


@real
def test_a_user_without_privileges_is_an_error(postgres: PostgresServer, postgres_url, clock):
    upgrade(postgres_url)
    postgres.admin("DROP ROLE IF EXISTS guest")
    postgres.admin("CREATE ROLE guest LOGIN PASSWORD 'hunter2'")
    guest = postgres_url.replace(postgres_url.partition("//")[2].partition("@127")[0], "guest:hunter2")
    message = refused(ConnectError, lambda: open_records(url=guest, cluster=CLUSTER, clock=clock))
    assert "permission denied for table" in message


@real
def test_a_server_that_vanishes_is_given_up_after_fifteen_seconds(postgres_engine):
    with postgres_engine.connect() as connection:
        options = connection.connection.driver_connection.info.get_parameters()
    idle, interval, count = (int(options[f"keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert idle + interval * count <= 15
    assert options["tcp_user_timeout"] == "15000"


@real
def test_statements_have_a_time_limit_and_survive_a_restart_of_the_connection(
    postgres: PostgresServer, postgres_engine
):
    show = (
        "SELECT current_setting('statement_timeout') || ' ' || current_setting('TimeZone') || ' ' || pg_backend_pid()"
    )
    limit, zone, process = scalar(postgres_engine, show).split()
    assert (limit, zone) == ("15s", "UTC")
    postgres.admin(f"SELECT pg_terminate_backend({process})")
    limit, _, other = scalar(postgres_engine, show).split()
    assert limit == "15s"
    assert other != process


@real
def test_a_connection_lost_half_way_is_not_tried_again(postgres: PostgresServer, postgres_engine):
    tries = []

    def work(connection):
        tries.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        postgres.admin(f"SELECT pg_terminate_backend({tries[-1]})")
        connection.execute(text("SELECT 1"))

    refused(ConnectError, lambda: write(postgres_engine, work))
    assert len(tries) == 1


@real
def test_a_deadlock_is_tried_again_until_both_are_through(postgres_engine):
    write(
        postgres_engine,
        lambda connection: connection.execute(text("CREATE TABLE t AS SELECT id FROM generate_series(1, 2) id")),
    )
    both_hold_one = threading.Barrier(2, timeout=30)
    tries = []

    def lock(first, second):
        def work(connection):
            tries.append(first)
            connection.execute(text("SELECT 1 FROM t WHERE id = :id FOR UPDATE"), {"id": first})
            if tries.count(first) == 1:
                both_hold_one.wait()
            connection.execute(text("SELECT 1 FROM t WHERE id = :id FOR UPDATE"), {"id": second})

        write(postgres_engine, work)

    in_threads(partial(lock, 1, 2), partial(lock, 2, 1))
    assert len(tries) == 3


@real
def test_a_serialization_failure_is_tried_a_few_times_and_then_an_error(postgres_engine):
    tries = []

    def work(connection):
        tries.append(1)
        connection.execute(text("DO $$ BEGIN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$"))

    assert "could not serialize" in refused(ConnectError, lambda: write(postgres_engine, work))
    assert len(tries) == 5


def test_the_last_write_that_failed_is_known_until_one_works(newest_sqlite_url, impatient_engine):
    with SqlRecords(engine=impatient_engine, cluster=CLUSTER, clock=SteppingClock()) as records:
        records.attempt_write()
        with raw_connection(newest_sqlite_url) as other:
            other.execute("BEGIN IMMEDIATE")
            assert "locked by another process" in refused(ConnectError, records.attempt_write)
            assert "locked by another process" in records.write_problem
            records.ledger().now()
            assert "locked by another process" in records.of("another").write_problem
            other.execute("ROLLBACK")
        records.attempt_write()
        assert records.write_problem == ""


def other_file(path: Path) -> None:
    """Another file has the path."""
    other = path.with_name("other.db")
    shutil.copy(path, other)
    other.replace(path)


@pytest.mark.parametrize("lose", [Path.unlink, other_file, lambda path: path.rename(path.with_name("away.db"))])
def test_a_sqlite_file_that_lost_its_path_takes_no_transaction(lose, newest_sqlite_url, sqlite_path, sqlite_engine):
    with open_records(url=newest_sqlite_url, cluster=CLUSTER, clock=SteppingClock()) as records:
        report = build_report()
        records.begin(report)
        lose(sqlite_path)
        there = sqlite_path.exists()
        for use in (
            records.attempt_write,
            records.ledger().now,
            lambda: records.planned(report, build_eviction()),
            # a new connection, which would leave an empty file behind
            lambda: in_threads(*[lambda: read(sqlite_engine, lambda c: c.exec_driver_sql("SELECT 1"))] * 3),
        ):
            assert "the file was removed or replaced while it was open: put it back" in refused(ConnectError, use)
        assert sqlite_path.exists() == there
        away = sqlite_path.with_name("away.db")
        if away.exists():
            away.rename(sqlite_path)
            records.attempt_write()


@real
def test_a_server_that_takes_no_writes_is_a_failed_write(newest_postgres_url):
    with open_records(url=newest_postgres_url, cluster=CLUSTER, clock=SteppingClock()) as records:
        with psycopg.connect(newest_postgres_url, autocommit=True) as connection:
            name = make_url(newest_postgres_url).database
            connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        records._engine.dispose()
        assert "read-only transaction" in refused(ConnectError, records.attempt_write)
        assert "read-only transaction" in records.write_problem
        assert records.ledger().now() > 0
