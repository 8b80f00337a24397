"""Objects that can't be read, in metrics and log lines of the daemon."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from rebalancer.model.cluster.obstacles import Obstacle
from rebalancer.web import Metrics

LOG = structlog.get_logger("rebalancer")

MOST_LINES = 20
"""Log lines of one look for those that begin, and as many for those that end; the rest is one line."""


@dataclass(slots=True, kw_only=True)
class ObstacleTelemetry:
    """Counts the obstacles by kind. One line is logged when an obstacle begins and one when it ends."""

    metrics: Metrics
    _known: frozenset[Obstacle] = field(default_factory=frozenset)

    def update(self, obstacles: Iterable[Obstacle]) -> None:
        """Export the obstacles that there are now."""
        now = frozenset(obstacles)
        if now == self._known:
            return
        counts = Counter(each.kind for each in now)
        for kind in {each.kind for each in now | self._known}:
            self.metrics.unreadable_objects.labels(kind=kind).set(counts[kind])
        begun, ended = sorted(now - self._known), sorted(self._known - now)
        self._known = now
        for each in begun[:MOST_LINES]:
            LOG.warning("object can't be read", object=each.object, cause=each.cause)
        for each in ended[:MOST_LINES]:
            LOG.info("object is no obstacle any more", object=each.object)
        for message, more in (("more objects can't be read", begun), ("more objects are no obstacles any more", ended)):
            if len(more) > MOST_LINES:
                LOG.warning(message, objects=len(more) - MOST_LINES)
