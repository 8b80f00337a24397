"""Clients of one Prometheus for concurrent range queries."""

from collections import Counter
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import TypeVar

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.connection.client import PrometheusClient
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

    @property
    def url(self) -> str:
        """Without user and password."""
        return self._clients[0].url

    def renew(self) -> None:
        """Read the credentials again."""
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

    def counts(
        self, query: Query, plain: str, label: str, *, start: float, end: float, before: Callable[[], None]
    ) -> Mapping[str, int]:
        """Number of series for each value of a label: the largest at several times between `start` and `end`.

        `query` counts them; where the server can't, the series of the query `plain` are counted here. `before` is
        called before each query.
        """
        step = max((end - start) / _READINGS, 1.0)

        def matrix(promql: str) -> decode.Matrix:
            before()
            one = Query(field=query.field, promql=promql)
            return self.run(
                one, lambda client: decode.matrix(client.query_range(one, start=start, end=end, step=step).result)
            )

        try:
            found = matrix(query.promql)
        except ConfigError:
            return Counter(labels.get(label, "") for labels in matrix(plain).labels)
        return {
            labels.get(label, ""): int(values.max()) for labels, values in zip(found.labels, found.values, strict=True)
        }
