"""Clients of one Prometheus for concurrent range queries."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.notation.arrays import Floats
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.connection.client import PrometheusClient, TooMuchError
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import Query

AT_ONCE = 2
"""Concurrent queries."""
_READINGS = 4
"""The series of a span are counted this many times, and once at its end; a value's largest count is used."""

T = TypeVar("T")


class ClientPool:
    """As many clients as queries may run at once; each is used by one thread at a time."""

    def __init__(self, settings: Prometheus) -> None:
        self._clients = [PrometheusClient(settings) for _ in range(AT_ONCE)]
        self._free: SimpleQueue[PrometheusClient] = SimpleQueue()
        for client in self._clients:
            self._free.put(client)
        self._too_long = math.inf
        """Seconds of the shortest range that was refused."""

    @property
    def url(self) -> str:
        """Without user and password."""
        return self._clients[0].url

    def renew(self) -> None:
        """Read the credentials again, and try long ranges again."""
        self._too_long = math.inf
        for client in self._clients:
            client.renew()

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def run(self, query: Query, read: Callable[[PrometheusClient], T]) -> T:
        """`read` with a free client. Raises ConfigError for a result of another type, ConnectError for a broken
        response, and the client's errors."""
        client = self._free.get()
        try:
            return read(client)
        except decode.NoSeriesError as error:
            raise ConfigError(f"{query.field}: {error}") from None
        except decode.BadAnswerError as error:
            raise ConnectError(f"Prometheus at {client.url}: broken answer to {query.field}: {error}") from None
        finally:
            self._free.put(client)

    def in_halves(self, times: Floats, read: Callable[[Floats], T], *, fewest: int = 1) -> list[T]:
        """What `read` gives for all times, or for halves of them, of at least `fewest`, where their range is too much
        for one query."""
        seconds = float(times[-1] - times[0])
        if len(times) <= fewest:
            return [read(times)]
        if seconds < self._too_long:
            try:
                return [read(times)]
            except TooMuchError:
                self._too_long = min(self._too_long, seconds)
        return [each for half in np.array_split(times, 2) for each in self.in_halves(half, read, fewest=fewest)]

    def counts(
        self, query: Query, plain: str, label: str, *, start: float, end: float, before: Callable[[], None]
    ) -> Mapping[str, int]:
        """Number of series for each value of a label: the largest at several times between `start` and `end`.

        `query` counts them; where the server can't, the series of the query `plain` are counted here. `before` is
        called before each query.
        """
        step = max((end - start) / _READINGS, 1.0)
        times: Floats = start + step * np.arange(int((end - start) / step + 1e-6) + 1, dtype=np.float64)

        def matrices(promql: str) -> list[decode.Matrix]:
            one = Query(field=query.field, promql=promql)

            def read(here: Floats) -> decode.Matrix:
                before()
                first, last = float(here[0]), float(here[-1])
                return self.run(
                    one, lambda client: decode.matrix(client.query_range(one, start=first, end=last, step=step).result)
                )

            return self.in_halves(times, read)

        try:
            found = matrices(query.promql)
        except ConfigError:
            series = {tuple(sorted(labels.items())): labels for part in matrices(plain) for labels in part.labels}
            return Counter(labels.get(label, "") for labels in series.values())
        counts: Counter[str] = Counter()
        for part in found:
            for labels, values in zip(part.labels, part.values, strict=True):
                counts |= Counter({labels.get(label, ""): int(values.max())})
        return counts
