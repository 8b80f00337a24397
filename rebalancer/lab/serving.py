"""Shared by the lab's HTTP servers: their view of the running lab, and JSON responses."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
from starlette.responses import Response

from rebalancer.lab.clock import LabClock
from rebalancer.lab.controlplane.cluster import Cluster
from rebalancer.lab.faults import Switchboard
from rebalancer.lab.loads.contention import ContentionModel
from rebalancer.lab.loads.truth import Truth
from rebalancer.lab.loads.usage import UsageModel
from rebalancer.lab.log import EventLog


class MetricsText(Protocol):
    """The page that a Prometheus scrapes."""

    def text(self) -> str: ...


class ServedLab(Protocol):
    """The part of `Lab` that its servers use."""

    cluster: Cluster
    clock: LabClock
    log: EventLog
    faults: Switchboard
    usage: UsageModel
    contention: ContentionModel
    truth: Truth
    token: str | None
    """Bearer token of the Kubernetes API; None: no authentication."""
    prometheus_auth: str | None
    """Authorization header of the Prometheus API; None: no authentication."""
    url: str
    full_prometheus_url: str | None
    """URL of a real Prometheus that has scraped the lab; None: PromQL beyond the lab's own is refused."""
    on_stop: set[Callable[[], None]]
    """Callbacks that end the open streams when the lab stops."""

    @property
    def metrics_page(self) -> MetricsText: ...

    @property
    def stopping(self) -> bool: ...


def json_response(body: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with a JSON body."""
    return Response(msgspec.json.encode(body), code, dict(headers or {}), media_type="application/json")
