"""Settings from the environment."""

import pytest

from rebalancer.bootstrap.process.settings import Settings


def test_the_newline_at_the_end_of_a_secret_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REBALANCER_DATABASE", "postgresql://user@host/name\n")
    assert Settings().database == "postgresql://user@host/name"
