"""A SQLite file with a damaged page: it is an error, or the page isn't needed; never is more evicted than the limits
allow. Bits that turn within a value are not noticed: SQLite has no checksums."""

import random
import sqlite3
from pathlib import Path

import pytest

from rebalancer.model.decisions.limits import Denied
from rebalancer.model.errors import RebalancerError
from rebalancer.store import SqlLedger, SqlRecords, open_engine
from tests.store.builders import CLUSTER, NOW, SteppingClock, build_eviction, build_report, rate
from tests.store.scenarios.ledger_cluster import Cluster
from tests.store.test_ledger import WEB

AT_MOST = 40
DAMAGES = {
    "zeros": lambda page: bytes(len(page)),
    "noise": lambda page: random.Random(1).randbytes(len(page)),
    "cut off": lambda page: page[: len(page) // 2] + bytes(len(page) - len(page) // 2),
    "of another page": lambda page: page[::-1],
}


@pytest.fixture
def full(newest_sqlite_url: str, sqlite_path: Path) -> Path:
    """A file whose limit is used up, without a write-ahead log."""
    engine = open_engine(newest_sqlite_url)
    blue = Cluster(engine, SteppingClock(NOW))
    for _ in range(AT_MOST):
        assert blue.reserve(rate(WEB, AT_MOST)).reserved.record
    assert isinstance(blue.reserve(rate(WEB, AT_MOST)), Denied)
    engine.dispose()
    with sqlite3.connect(sqlite_path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sqlite_path


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_page_allows_no_eviction_beyond_a_limit(damage: str, full: Path, tmp_path: Path) -> None:
    content = full.read_bytes()
    size = int.from_bytes(content[16:18], "big")
    outcomes: dict[str, int] = {}
    for start in range(0, len(content), size):
        page = DAMAGES[damage](content[start : start + size])
        copy = tmp_path / f"{start}.db"
        copy.write_bytes(content[:start] + page + content[start + size :])
        outcome = attempt(copy)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        for each in tmp_path.glob(f"{start}.db*"):
            each.unlink()
    assert set(outcomes) <= {"an error", "denied"}
    assert outcomes["an error"] >= 2, outcomes


def attempt(file: Path) -> str:
    """What becomes of a reservation that the limit doesn't allow."""
    try:
        engine = open_engine(f"sqlite:///{file}")
    except RebalancerError:
        return "an error"
    try:
        report, clock = build_report(cycle="after the damage"), SteppingClock(NOW)
        SqlRecords(engine=engine, cluster=CLUSTER, clock=clock).begin(report)
        ledger = SqlLedger(engine=engine, cluster=CLUSTER, clock=clock)
        ledger.fence(1)
        answer = ledger.reserve(report, build_eviction(), checks=[rate(WEB, AT_MOST)], term=1)
        return "denied" if isinstance(answer, Denied) else "reserved"
    except RebalancerError:
        return "an error"
    finally:
        engine.dispose()
