"""A real PostgreSQL for tests: a fresh cluster in a temporary folder, on loopback, gone afterwards."""

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import SkipTest
from urllib.parse import quote

import psycopg

USER = "rebalancer"
# needs percent-encoding in a URL, as real ones do
PASSWORD = "s3cret/p@ss:word%"

_INITDB = ("--auth-host=scram-sha-256", "--auth-local=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
_FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
_DURABLE = "-c fsync=on -c synchronous_commit=on -c full_page_writes=on"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server. TCP asks for the password, the socket in `socket_folder` does not."""

    host: str
    port: int
    socket_folder: Path

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """As a user would write it."""
        return f"postgresql://{USER}:{quote(password, safe='')}@{self.host}:{self.port}/{database}"

    def admin(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement as superuser in the database `postgres`; its rows."""
        with psycopg.connect(
            host=str(self.socket_folder), port=self.port, user=USER, dbname="postgres", autocommit=True
        ) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> str:
        """A new, empty database; its URL."""
        self.admin(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Start a server; skips the test where PostgreSQL is not installed. `durable`: commits wait for the disk."""
    binaries = _binaries()
    if binaries is None:
        raise SkipTest("needs PostgreSQL: apt-get install postgresql")
    # not below pytest's own folder: only root may enter that, and PostgreSQL refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="rebalancer-pg-"))
    try:
        as_user = _unprivileged(folder)
        data, password_file = folder / "data", folder / "password"
        password_file.write_text(PASSWORD)
        password_file.chmod(0o644)
        _run([binaries / "initdb", "-D", data, "-U", USER, f"--pwfile={password_file}", *_INITDB], as_user, folder)
        port = _start(binaries, data, folder, as_user, _DURABLE if durable else _FAST)
        try:
            yield PostgresServer(host="127.0.0.1", port=port, socket_folder=folder)
        finally:
            _run([binaries / "pg_ctl", "stop", "-D", data, "-m", "fast", "-w", "-t", "30"], as_user, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path | None:
    found = [Path(each).parent for each in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    if found:
        return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()])
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _unprivileged(folder: Path) -> dict[str, object]:
    """Arguments for subprocess that make it another user than root."""
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam("postgres")
    except KeyError:
        account = pwd.getpwnam("nobody")
    os.chown(folder, account.pw_uid, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _start(binaries: Path, data: Path, folder: Path, as_user: dict[str, object], commits: str) -> int:
    """The port. It is free when chosen and may be taken when used, so a few are tried."""
    log = folder / "log"
    for attempt in range(3):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        options = (
            f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 {commits} "
            "-c shared_buffers=32MB -c max_connections=60 -c log_min_messages=fatal"
        )
        try:
            start = [binaries / "pg_ctl", "start", "-D", data, "-l", log, "-w", "-t", "60", "-o", options]
            _run(start, as_user, folder)
        except RuntimeError as error:
            if attempt == 2:
                raise RuntimeError(f"{error}\n{log.read_text() if log.exists() else ''}") from None
        else:
            return port
    raise AssertionError("unreachable")


def _run(command: list[object], as_user: dict[str, object], folder: Path) -> None:
    # output to a file: a pipe would stay open in the server that pg_ctl leaves running, and we would wait for ever
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            **as_user,  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {output.read().decode(errors='replace')}")
