"""A keeper of history over a Prometheus of our own words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rebalancer.forecasting.history import HistoryKeeper
from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.history import DAY_SECONDS, SLOTS, History, date_of
from rebalancer.prometheus.history.ranges import PrometheusHistory
from rebalancer.store.blocks import BlockStore
from tests.prometheus.builders import Fake, NoProgress, a_cluster, a_source, fake_prometheus
from tests.prometheus.fakes import OWN, START, Clock, Line, Past, line

NOON = START + 12 * 3600.0 + 90.0
"""Today is DAY; 144 steps of it are over, the last of them for more than a minute."""
BEFORE = -8 * SLOTS


def lines(*, first: int = BEFORE, end: int = 2 * SLOTS) -> list[Line]:
    return [
        line("node:cpu", 1.5, node="a", first=first, end=end),
        line("node:cpu", 2.5, node="b", first=first, end=end),
        line("pod:cpu", 0.25, namespace="shop", pod="web-0", node="a", first=first, end=end),
        line("pod:cpu", 0.5, namespace="shop", pod="web-1", node="b", first=first, end=end),
    ]


def a_snapshot() -> ClusterSnapshot:
    snapshot = a_cluster({"a": ["10.0.0.1"], "b": ["10.0.0.2"]}, cpu=4000)
    return replace(snapshot, nodes=replace(snapshot.nodes, created=np.zeros(2)))


class Daemon:
    """A keeper over a Prometheus of our own words; `restart` loses what is only in memory."""

    def __init__(self, fake: Fake, past: Past, folder: Path, **fields: Any) -> None:
        self.fake, self.past, self.folder = fake, past, folder
        self.clock = past.clock
        self.stop = False
        self._fields = fields
        self._open: list[PrometheusHistory] = []
        self.restart()

    def restart(self, **fields: Any) -> None:
        source = PrometheusHistory(
            a_source(self.fake.url, **{**OWN, **self._fields, **fields}),
            clock=self.clock,
            progress=NoProgress(),
            stopping=lambda: self.stop,
        )
        self._open.append(source)
        self.keeper = HistoryKeeper(
            source=source,
            blocks=BlockStore(self.folder, cluster="one", source=source.identity),
            clock=self.clock,
            stopping=lambda: self.stop,
        )

    def update(self) -> History:
        self.past.ranges.clear()
        self.fake.asked.clear()
        return self.keeper.update(a_snapshot())

    def file(self, day: int) -> Path:
        return self.folder / "one" / f"{date_of(day)}.day"

    @property
    def asked_days(self) -> list[int]:
        """In the order in which they were asked first."""
        return list(dict.fromkeys(int((float(each["start"]) - 300) // DAY_SECONDS) for each in self.past.ranges))

    def close(self) -> None:
        for each in self._open:
            each.close()


@contextmanager
def a_daemon(
    folder: Path, *, at: float = NOON, past: Mapping[str, Any] | None = None, **fields: Any
) -> Iterator[Daemon]:
    remembered = Past(**{"lines": lines(), "clock": Clock(at), **(past or {})})
    with fake_prometheus(remembered) as fake:
        daemon = Daemon(fake, remembered, folder, **fields)
        try:
            yield daemon
        finally:
            daemon.close()
