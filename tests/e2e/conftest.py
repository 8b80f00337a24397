"""One lab for the tests of a file that evict nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebalancer.lab import Lab
from tests.e2e.scenarios import the_lab


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Lab]:
    with the_lab(folder) as running:
        yield running


@pytest.fixture
def kubeconfig(lab: Lab, folder: Path) -> Path:
    return folder / "kubeconfig"
