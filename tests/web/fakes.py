"""Payloads, an inbox in memory, and the smallest ASGI client."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rebalancer.model.decisions.alerts import Alert, Received
from rebalancer.model.parts import FailedParts
from rebalancer.policy import RebalancerPolicy
from rebalancer.web import Auth, Metrics, WebPorts, make_app
from rebalancer.web.app import BODY_SECONDS, MAX_BODY_BYTES, ReadyCheck
from tests.builders import a_policy

JSON = {"content-type": "application/json"}
GO_ZERO = "0001-01-01T00:00:00Z"


def an_alert(**fields: Any) -> dict[str, Any]:
    """One alert as Alertmanager 0.28 sends it."""
    return {
        "status": "firing",
        "labels": {"alertname": "NodeCPUHigh", "node": "n1", "severity": "warning"},
        "annotations": {"rebalancer_high": "75", "summary": "CPU of n1 over 75%"},
        "startsAt": "2026-11-21T03:10:00.123456789Z",
        "endsAt": GO_ZERO,
        "generatorURL": "http://prometheus:9090/graph?g0.expr=up&g0.tab=1",
        "fingerprint": "c4b7e5d1a2f30918",
        **fields,
    }


def a_payload(*alerts: dict[str, Any], **fields: Any) -> bytes:
    """One delivery; without alerts, one alert."""
    return json.dumps(
        {
            "version": "4",
            "groupKey": '{}:{alertname="NodeCPUHigh"}',
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "rebalancer",
            "groupLabels": {"alertname": "NodeCPUHigh"},
            "commonLabels": {"alertname": "NodeCPUHigh"},
            "commonAnnotations": {},
            "externalURL": "http://alertmanager:9093",
            "alerts": list(alerts) or [an_alert()],
            **fields,
        }
    ).encode()


def alert_policy(**alerts: Any) -> RebalancerPolicy:
    """A policy of cluster `test` with a rule for NodeCPUHigh."""
    return a_policy(alerts={"rules": [{"alert": "NodeCPUHigh", "high": 75, "target": 65}], **alerts})


class MemoryInbox:
    """Remembers what was delivered; it has nothing but `receive`."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, float], bool] = {}
        """(fingerprint, start) -> whether it is open."""
        self.alerts: list[Alert] = []
        self.fails: Exception | None = None

    def receive(self, alerts: Sequence[Alert], *, max_age_seconds: float) -> Received:
        if self.fails is not None:
            raise self.fails
        self.alerts += alerts
        opened = known = resolved = 0
        for alert in alerts:
            key = (alert.fingerprint, alert.starts_at)
            if alert.firing and key not in self.known:
                self.known[key] = True
                opened += 1
            elif not alert.firing and self.known.get(key):
                self.known[key] = False
                resolved += 1
            else:
                known += 1
        return Received(opened=opened, duplicate=known, resolved=resolved)


@dataclass
class Daemon:
    """Stands for the daemon behind the web server, and writes down its calls."""

    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    policy: RebalancerPolicy = field(default_factory=alert_policy)
    metrics: Metrics = field(default_factory=Metrics)
    woken: int = 0
    triggered: list[tuple[tuple[str, ...], str | None]] = field(default_factory=list)
    refuses: Exception | None = None
    is_alive: bool = True
    parts: FailedParts = field(default_factory=lambda: FailedParts(now=time.time, monotonic=time.monotonic))
    checks: list[ReadyCheck] = field(default_factory=lambda: [ReadyCheck("cache", True, "")])

    def wake(self) -> None:
        self.woken += 1

    def trigger(self, nodes: Sequence[str], strategy: str | None) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.triggered.append((tuple(nodes), strategy))

    def ports(self, **others: Any) -> WebPorts:
        """The daemon as the web server uses it."""
        given: dict[str, Any] = {
            "inbox": self.inbox,
            "policy": lambda: self.policy,
            "wake": self.wake,
            "trigger": self.trigger,
            "alive": lambda: self.is_alive,
            "checks": lambda: self.checks,
            "parts": self.parts,
        }
        return WebPorts(**{**given, **others})

    def app(
        self, auth: Auth | None = None, *, max_body_bytes: int = MAX_BODY_BYTES, body_seconds: float = BODY_SECONDS
    ) -> Any:
        """Its application; without `auth` everybody may post."""
        return make_app(
            self.ports(),
            auth=auth or Auth(insecure_no_auth=True),
            metrics=self.metrics,
            max_body_bytes=max_body_bytes,
            body_seconds=body_seconds,
        )

    def count(self, name: str, **labels: str) -> float:
        """A sample of its metrics."""
        value = self.metrics.registry.get_sample_value(name, labels)
        assert value is not None, f"no {name} {labels}"
        return value


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class AsgiClient:
    """Calls an ASGI application in this process, one request at a time."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: bytes | Iterable[bytes] = b"", **headers: str) -> Answer:
        return self.send("POST", path, body, headers={**JSON, **headers})

    def send(
        self, method: str, path: str, body: bytes | Iterable[bytes] = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """The answer once the request and what follows it (waking the daemon) are done."""
        return self._runner.run(self._send(method, path, body, headers or {}))

    async def _send(self, method: str, path: str, body: bytes | Iterable[bytes], headers: dict[str, str]) -> Answer:
        target, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": target,
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), text.encode("latin-1"))
                for name, text in {"host": "127.0.0.1:2", **headers}.items()
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        chunks = iter([body] if isinstance(body, bytes) else body)
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            chunk = next(chunks, None)
            return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        start = messages[0]
        return Answer(
            status=start["status"],
            headers={name.decode(): text.decode() for name, text in start["headers"]},
            body=b"".join(message.get("body", b"") for message in messages[1:]),
        )


Clients = Callable[[Any], AsgiClient]
