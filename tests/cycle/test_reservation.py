"""Nothing is reserved without a term of the lease."""

from types import SimpleNamespace
from typing import Any

import pytest

from rebalancer.cycle.evict.reservation import reserve
from rebalancer.model.reason import Reason
from tests.builders import a_policy, an_eviction


class Lost:
    """A lease that is lost at one of the looks at it."""

    def __init__(self, term: int | None, holds: bool) -> None:
        self.term = term
        self._holds = holds

    def holds(self, _margin_seconds: float = 0.0) -> bool:
        return self._holds


@pytest.mark.parametrize("lease", [None, Lost(None, False), Lost(3, False), Lost(None, True)])
def test_without_a_term_that_is_held_nothing_reaches_the_ledger(lease: Lost | None) -> None:
    context: Any = SimpleNamespace(lease=lease, ledger=object(), stopping=lambda: False)
    report: Any = SimpleNamespace(dry_run=False)
    admission: Any = None
    (refusal,) = reserve(context, report, admission, [an_eviction()], a_policy())
    assert refusal is not None
    assert refusal.code is Reason.LEASE_LOST
