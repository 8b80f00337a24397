"""Declared events: times of higher usage in pools."""

from collections.abc import Sequence

import numpy as np

from rebalancer.model.measured.history import STEP_SECONDS
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.forecast import Event


def uplift(events: Sequence[Event], pool: str, times: Floats) -> Floats:
    """Factor of a pool's usage at steps that begin at `times` (any shape, seconds since the epoch)."""
    out = np.ones(times.shape)
    for event in events:
        if not event.pools or pool in event.pools:
            out[(times + STEP_SECONDS > event.from_) & (times < event.to)] *= 1.0 + event.uplift / 100.0
    return out


def touching(events: Sequence[Event], pool: str, begin: float, end: float) -> tuple[str, ...]:
    """Names of a pool's events that overlap [begin, end)."""
    return tuple(
        event.name
        for event in events
        if (not event.pools or pool in event.pools) and event.from_ < end and event.to > begin
    )
