"""A worker in its lab, for the tests of what it does with alerts and requests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.test_worker import Around, around


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Around]:
    with around(tmp_path) as made:
        yield made
