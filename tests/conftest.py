"""What all tests share: PostgreSQL and Prometheus that are real, and the promise that CI skips nothing."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from rebalancer.model import secrets
from tests.real.servers.postgres import PostgresServer, postgres_server

# on a busy machine any example may be slow
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

MAY_BE_SKIPPED = ("KUBEBUILDER_ASSETS", "the right to mount")
SLOW_FIRST = ("deploy", "e2e", "store", "stories", "prometheus", "lab")
"""Folders whose files take longest: begun last, one of them would be what all wait for in the end."""

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
    """The order in which files are handed out."""
    place = {folder: number for number, folder in enumerate(SLOW_FIRST)}
    items.sort(key=lambda item: place.get(item.path.parent.name, len(SLOW_FIRST)))


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
