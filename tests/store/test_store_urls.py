"""Whether a database is there, and what a password does to messages."""

import sqlite3
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.store import database_exists, open_engine
from rebalancer.store.db.engine import as_model_error

REFUSED = 'connection to server at "127.0.0.1", port 1 failed: Connection refused'


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:///{}?timeout=5", "sqlite:///file:{}?mode=ro&uri=true"])
def test_a_sqlite_database_is_there_when_its_file_is(form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    url = form.format(path)
    assert not database_exists(url)
    path.touch()
    assert database_exists(url)
    assert not database_exists(f"sqlite:///{tmp_path}/missing/x.db")


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@127.0.0.1:1/db", "postgres://[::1]/db", "postgresql://u:p[x@h/db", "postgresql:///db"]
)
def test_a_server_is_always_there_without_a_call(url: str) -> None:
    assert database_exists(url)


@pytest.mark.parametrize(
    "url",
    ["", "rebalancer.db", "sqlite://", "mysql://u:hunter2@h/db", "postgresql://[::1/db", "postgresql://u:hunter2@h"],
)
def test_a_url_that_is_none_of_ours_is_a_mistake_here_too(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^database URL: ") as caught:
        database_exists(url)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_looked_at_is_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/{'x' * 300}"
    for use in (database_exists, open_engine):
        with pytest.raises(ConfigError, match=r"the file can't be looked at: File name too long$") as caught:
            use(url)
        assert "\n" not in str(caught.value)


def message_of(url: str, text: str, error: type[Exception] = psycopg.OperationalError) -> str:
    failed = DBAPIError if error is not psycopg.OperationalError else OperationalError
    return str(as_model_error(failed("SELECT 1", {}, error(text)), make_url(url)))


@pytest.mark.parametrize("password", ["p", "e", "ti", "127"])
def test_a_short_password_is_neither_shown_nor_replaced_inside_of_words(password: str) -> None:
    message = message_of(f"postgresql://u:{password}@127.0.0.1:1/db", f"{REFUSED} (password {password})")
    assert message == (
        "postgresql://u:***@127.0.0.1:1/db: OperationalError: Connection refused "
        "(the rest is held back: it may hold the password)"
    )


def test_a_short_password_in_an_option_counts_too() -> None:
    message = message_of("postgresql://u@h/db?sslpassword=p&password=longenough", f"{REFUSED}: p")
    assert "***ort" not in message
    assert message.endswith("Connection refused (the rest is held back: it may hold the password)")


@pytest.mark.parametrize("password", ["hunt", "p%40ss", "hunter2"])
def test_a_longer_password_is_replaced_and_the_rest_is_shown(password: str) -> None:
    message = message_of(f"postgresql://u:{password}@h/db", f"{REFUSED}: {password}")
    assert message == f"postgresql://u:***@h/db: {REFUSED}: ***"


def test_without_a_password_all_is_shown() -> None:
    assert message_of("postgresql://u@h/db", REFUSED) == f"postgresql://u@h/db: {REFUSED}"


def test_a_server_that_refuses_is_an_error_with_a_short_password_too() -> None:
    with pytest.raises(ConnectError, match=r"OperationalError: Connection refused \(the rest is held back"):
        open_engine("postgresql://u:p@127.0.0.1:1/db")


def test_a_missing_table_is_still_known_behind_a_short_password() -> None:
    # the kind of error isn't derived from the words that are held back
    message = message_of("sqlite:///x.db?password=p", "no such table: cycles", sqlite3.OperationalError)
    assert "run `rebalancer db upgrade`" in message
