"""A hot episode of a pool that no periodic strategy evaluates."""

import math

from rebalancer.model.reason import MissReason
from tests.effect.builders import a_finding, an_episode
from tests.effect.test_discovery import found


def test_without_a_periodic_strategy_the_daemon_is_not_called_down() -> None:
    missed = found(an_episode(), every_seconds=math.inf)
    assert missed.miss_reason is MissReason.NOT_EVALUATED
    assert missed.detail.startswith("hot for")
    assert "no periodic strategy evaluates it" in missed.detail


def test_a_finding_long_before_the_episode_is_not_its_own() -> None:
    assert found(an_episode(), a_finding(-60), every_seconds=math.inf).discovered_at is None
    assert found(an_episode(), a_finding(-10), every_seconds=math.inf).discovered_at is not None
