"""Fixtures of the web server's tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.fakes import AsgiClient, Clients, Daemon


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Makes clients that end with the test."""
    made: list[AsgiClient] = []

    def make(app: Any) -> AsgiClient:
        made.append(AsgiClient(app))
        return made[-1]

    yield make
    for client in made:
        client.close()
