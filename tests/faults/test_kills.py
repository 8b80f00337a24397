"""A few kills at random moments. `make kills` does 200 on each database."""

from pathlib import Path

from rebalancer.store import upgrade
from tests.faults.oracles import Call, Row
from tests.faults.scenarios.kills import forgotten, kill_often


def test_a_daemon_that_is_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rebalancer.db'}"
    upgrade(url)
    # the first life has slow answers: with quick ones a fast machine has used up the limits before any kill
    found = kill_often(tmp_path, url, number=5, seed=6, impatient=True)
    assert found.wrong == []
    assert found.kills == 5
    assert found.evictions > 5
    assert found.in_a_call


def test_an_eviction_that_no_row_or_more_than_one_may_count_is_found() -> None:
    call = Call(cluster="test", at=0.0, uid="a", service="s", node="n", term=1)

    def rows(*outcomes: str) -> list[Row]:
        return [Row(cluster="test", uid="a", outcome=each, reserved=0.0, term=1) for each in outcomes]

    assert forgotten([call], rows("failed", "planned")) == []
    assert forgotten([call], rows("failed")) == ["a was evicted, 0 rows count it"]
    assert forgotten([call], rows("evicted", "unknown")) == ["a was evicted, 2 rows count it"]
