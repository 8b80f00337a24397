"""A small lab for each test, and a client that can't do anything clever."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from rebalancer.lab import Lab, Scenario, node, scenario, workload


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """Plain HTTP; a status of 400 and more is an answer like any other."""

    url: str
    agent: str = "test-client"

    def __call__(
        self, path: str, *, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "User-Agent": self.agent, **(headers or {})}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return Answer(response.status, _decoded(response.read()), dict(response.headers))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _decoded(error.read()), dict(error.headers))

    def evict(self, pod: dict[str, Any], *, uid: str | None = None, dry_run: bool = False) -> Answer:
        meta = pod["metadata"]
        options: dict[str, Any] = {"preconditions": {"uid": uid or meta["uid"]}}
        if dry_run:
            options["dryRun"] = ["All"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options}
        body["metadata"] = {"name": meta["name"], "namespace": meta["namespace"]}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        return self(path, method="POST", body=body)


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode()


@pytest.fixture
def start() -> Iterator[Callable[..., Lab]]:
    """Starts labs that end with the test. Fast: 60 lab seconds in each real one."""
    with ExitStack() as stack:

        def begin(spec: Scenario | str | None = None, *, speed: float = 60.0, **more: Any) -> Lab:
            return stack.enter_context(Lab.start(spec or three_nodes(), speed=speed, **more))

        yield begin


@pytest.fixture
def lab(start: Callable[..., Lab]) -> Lab:
    """With the three nodes."""
    return start()


@pytest.fixture
def client(lab: Lab) -> Client:
    return Client(lab.url)


def three_nodes(*workloads: Any, **fields: Any) -> Scenario:
    """Three machines of 8 cores; `a` runs four pods of `web`, one and a half cores each."""
    web = workload(
        "web", namespace="shop", place={"a": 4}, cpu_request="500m", memory_request="512Mi", cpu={"base": 1.5}
    )
    nodes = [node(name, cpu=8, memory="32Gi", pool="general", overhead_cores=0.2) for name in "abc"]
    timing = {"start_seconds": 6.0, "stop_seconds": 3.0, **fields}
    return scenario(nodes=nodes, workloads=workloads or (web,), **timing)
