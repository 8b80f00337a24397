"""What all tests share: PostgreSQL and Prometheus that are real, and the promise that CI skips nothing."""

import os
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from rebalancer.model import secrets
from tests.real.servers.postgres import PostgresServer, postgres_server

# on a busy machine any example may be slow
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

MAY_BE_SKIPPED = ("KUBEBUILDER_ASSETS", "the right to mount")
WAITING = ("e2e", "deploy", "prometheus", "faults")
"""Folders whose tests mostly wait for processes, longest files first."""
COMPUTING = ("stories", "store", "lab")
"""Folders whose files compute longest: begun last, one of them would be what all wait for in the end."""

LOG_CLASS = structlog.get_config()["wrapper_class"]
"""It holds the lowest level that is logged."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One real PostgreSQL for the whole run; each test makes a database of its own in it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> None:
    """The register is the process's: a word that one test uses as a password stays readable in the others."""
    secrets._known.clear()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A level that a test or its fixtures leave behind hides lines from the tests after them."""
    yield
    assert structlog.get_config()["wrapper_class"] is LOG_CLASS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The order in which files are handed out: by turns one that waits and one that computes, so that both the cores
    and the time of waiting are used."""
    waiting, computing = dict[Path, list[pytest.Item]](), dict[Path, list[pytest.Item]]()
    for item in sorted(items, key=lambda item: _place(item.path.parent.name)):
        (waiting if item.path.parent.name in WAITING else computing).setdefault(item.path, []).append(item)
    by_turns = zip_longest(waiting.values(), computing.values(), fillvalue=())
    items[:] = [item for pair in by_turns for file in pair for item in file]


def _place(folder: str) -> int:
    order = (*WAITING, *COMPUTING)
    return order.index(folder) if folder in order else len(order)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """In CI a skipped test is a missing part, and fails the run."""
    for report in _unexpected(terminalreporter):
        terminalreporter.write_line(f"must not be skipped here: {report.nodeid}: {report.longrepr}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and _unexpected(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unexpected(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    if os.environ.get("REBALANCER_NOTHING_SKIPPED") != "1":
        return []
    skipped = reporter.stats.get("skipped", [])
    return [report for report in skipped if not any(each in str(report.longrepr) for each in MAY_BE_SKIPPED)]
