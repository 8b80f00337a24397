"""What the tests of this room share."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.store import SqlRecords, open_records, upgrade
from tests.builders import NOW, a_node, a_policy, cluster
from tests.evaluation.scenarios import Reads, Samples, Shares
from tests.prometheus.fakes import Clock


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without a row."""
    path = tmp_path_factory.mktemp("empty") / "db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def open_at(tmp_path: Path, empty_database: Path) -> Iterator[Callable[..., Reads]]:
    """Makes a reader with a database of its own."""
    opened: list[SqlRecords] = []

    def make(shares: Shares, *, snapshot: ClusterSnapshot | None = None, **policy: Any) -> Reads:
        path = shutil.copy(empty_database, tmp_path / f"{len(opened)}.db")
        records = open_records(url=f"sqlite:///{path}", cluster="test", clock=Clock(NOW))
        opened.append(records)
        return Reads(
            samples=Samples(shares),
            records=records,
            snapshot=snapshot or cluster([a_node(name) for name in ("a", "b", "c")], []),
            policy=a_policy(**policy),
            effect=records.effect(),
        )

    yield make
    for each in opened:
        each.close()
