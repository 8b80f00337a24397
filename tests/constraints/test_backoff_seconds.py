"""How long a backoff lasts."""

import pytest

from rebalancer.constraints.pauses.backoff import backoff_seconds
from tests.builders import a_policy

BACKOFF = a_policy().safety.cooldowns.webhook_backoff


def test_a_backoff_grows_with_each_time_and_is_never_longer_than_its_longest() -> None:
    lasted = [backoff_seconds(BACKOFF, count) for count in range(1, 20)]
    assert lasted[0] == BACKOFF.initial
    assert lasted[1] == pytest.approx(BACKOFF.initial * BACKOFF.factor)
    assert lasted == sorted(lasted)
    assert lasted[-1] == BACKOFF.max == 86_400.0
    assert backoff_seconds(BACKOFF, 5000) == BACKOFF.max
