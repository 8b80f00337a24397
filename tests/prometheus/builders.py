"""A cluster with addresses, a reader for it, and a Prometheus of our own words at the network's edge."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rebalancer.model.cluster.snapshot import ClusterSnapshot
from rebalancer.model.measured.usage import Usage
from rebalancer.policy.schema.usage import UsageSource
from rebalancer.prometheus.readings.reader import PrometheusUsage
from tests.builders import a_node, a_pod, cluster

OWN = {
    "nodeCPU": {"query": "node:cpu", "freshness": "node:time", "label": "node"},
    "podCPU": {"query": "pod:cpu"},
}
"""Short queries, for fakes that answer by the query's text."""


class NoProgress:
    def event(self, text: str) -> None: ...

    def step(self, label: str, done: int, total: int | None) -> None:
        pass


def a_source(url: str, *, usage: Mapping[str, Any] | None = None, **fields: Any) -> UsageSource:
    """`usage` replaces fields of the usage section, the rest those of usage.prometheus (policy spelling)."""
    return UsageSource.model_validate(
        {"stabilizationWindow": {"samples": 1, "duration": "0s"}, "prometheus": {"url": url, **fields}, **(usage or {})}
    )


def reader(url: str, *, contention: bool = False, stabilized: Sequence[str] = (), **fields: Any) -> PrometheusUsage:
    return PrometheusUsage(a_source(url, **fields), NoProgress(), contention=contention, stabilized=stabilized)


def read(url: str, snapshot: ClusterSnapshot, *, contention: bool = False, **fields: Any) -> Usage:
    with closing(reader(url, contention=contention, **fields)) as opened:
        return opened.read(snapshot)


def a_cluster(
    nodes: Mapping[str, Sequence[str]],
    pods: Mapping[str, str] | None = None,
    *,
    cpu: float = 4000.0,
    taken: float | None = None,
    **pod_fields: Any,
) -> ClusterSnapshot:
    """`nodes` = {name: addresses}, `pods` = {"namespace/name": node}; taken now."""
    made = [
        a_pod(key.split("/")[1], node, namespace=key.split("/")[0], **pod_fields) for key, node in (pods or {}).items()
    ]
    snapshot = cluster([a_node(name, cpu=cpu) for name in nodes], made)
    return replace(
        snapshot,
        taken=time.time() if taken is None else taken,
        nodes=replace(snapshot.nodes, addresses=tuple(tuple(each) for each in nodes.values())),
    )


Reply = tuple[int, bytes | str | dict[str, Any]]


@dataclass
class Asked:
    """One request, as the fake got it."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]


@dataclass
class Fake:
    """An HTTP server that answers as `answer` says, and remembers what it was asked."""

    url: str
    answer: Callable[[Asked], Reply]
    asked: list[Asked] = field(default_factory=list)
    reply_headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


def vector(
    series: Sequence[tuple[Mapping[str, str], object]], *, at: float | None = None, **fields: Any
) -> dict[str, Any]:
    at = time.time() if at is None else at
    rows = [{"metric": dict(labels), "value": [at, str(value)]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": rows}, **fields}


def by_query(answers: Mapping[str, Any]) -> Callable[[Asked], Reply]:
    """Answers by the text of the query; a query that isn't there has no series."""
    return lambda asked: (200, answers.get(asked.params.get("query", ""), vector([])))


def usual(values: Mapping[str, object], *, at: float | None = None, age: float = 10.0) -> dict[str, Any]:
    """What a healthy source answers to the queries of OWN: {node: share}."""
    at = time.time() if at is None else at
    return {
        "node:cpu": vector([({"node": name}, value) for name, value in values.items()], at=at),
        "node:time": vector([({"node": name}, at - age) for name in values], at=at),
        "pod:cpu": vector([({"namespace": "shop", "pod": "web-0"}, 0.5)], at=at),
    }


@contextmanager
def fake_prometheus(answer: Callable[[Asked], Reply] | Mapping[str, Any]) -> Iterator[Fake]:
    fake = Fake(url="", answer=answer if callable(answer) else by_query(answer))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            query = parse_qs(parts.query) | parse_qs(body)
            asked = Asked(
                method=self.command,
                path=parts.path,
                params={name: values[0] for name, values in query.items()},
                headers=dict(self.headers),
            )
            fake.asked.append(asked)
            status, content = fake.answer(asked)
            data = json.dumps(content) if isinstance(content, dict) else content
            data = data.encode() if isinstance(data, str) else data
            try:
                self.send_response(status)
                for name, value in fake.reply_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
