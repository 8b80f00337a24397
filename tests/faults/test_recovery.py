"""A few of the faults that `make faults` puts a running daemon through."""

import re
from pathlib import Path

import pytest

from tests.faults.scenarios.live import KINDS, SIDES, lanes


@pytest.mark.parametrize("fault", ["Lease: 503", "evictions: proxy's page, 500"])
def test_a_daemon_recovers_by_itself_and_counts_what_happened(tmp_path: Path, fault: str) -> None:
    (lane,) = lanes(real=False, only=re.compile(f"^{fault}"))
    outcomes = list(lane(tmp_path / "lane"))
    assert [each.wrong for each in outcomes] == [(), ()]


def test_at_least_100_faults_are_tried_on_a_running_daemon() -> None:
    assert len(KINDS) * len(SIDES) >= 100
