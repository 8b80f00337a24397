"""The HTTP endpoints. Calls to the daemon run in threads: everything behind them is synchronous."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rebalancer.model.decisions.alerts import Received
from rebalancer.model.decisions.ports import Inbox
from rebalancer.model.decisions.proposals import Proposal
from rebalancer.model.errors import ConfigError, RebalancerError, UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.parts import FailedParts
from rebalancer.policy import RebalancerPolicy
from rebalancer.web.alerts import MAX_ALERTS, PayloadError, one_line, read_payload, select
from rebalancer.web.http.auth import Auth, Denial
from rebalancer.web.http.bodies import error, read_body
from rebalancer.web.http.origin import foreign
from rebalancer.web.metrics import Metrics
from rebalancer.web.pages.dashboard import dashboard_routes
from rebalancer.web.pages.proposals import Approvals, approval_routes
from rebalancer.web.pages.views import Views

logger = logging.getLogger("rebalancer.web")

MAX_BODY_BYTES = 16 << 20
BODY_SECONDS = 10.0
READY_SECONDS = 4.0
"""The kubelet waits for five."""

NAMES_SHOWN = 5
"""Of unknown resources in one answer."""
_RETRY = {"retry-after": "10"}
_Endpoint = Callable[[Request], Awaitable[Response]]
_T = TypeVar("_T")


class ReadyCheck(NamedTuple):
    """One line of /readyz."""

    name: str
    ok: bool
    sentence: str
    """Reason of a failure, or what was checked; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPorts:
    """The daemon, as the web server uses it. All are called from several threads at once."""

    inbox: Inbox
    """Only `receive` is called."""
    policy: Callable[[], RebalancerPolicy]
    """The one that holds now."""
    wake: Callable[[], None]
    """Alerts are in the inbox."""
    trigger: Callable[[Sequence[str], str | None], None]
    """Request a cycle for these nodes, and one strategy (None = all).

    Raises UnsafeDataError when this replica doesn't lead, ConfigError for names that it doesn't know.
    """
    alive: Callable[[], bool]
    """False ends the process (liveness). Must answer at once."""
    checks: Callable[[], Sequence[ReadyCheck]]
    """Ready when all are ok."""
    views: Views | None = None
    """What the dashboard shows; None: there is none."""
    views_open: bool = False
    """The dashboard needs no credentials."""
    views_hosts: frozenset[str] = frozenset()
    """Names, beside its own, under which a dashboard without credentials answers; in lower case."""
    approvals: Approvals | None = None
    """Signed links to proposals; None: there are none."""
    proposals: Callable[[], Sequence[Proposal]] = tuple
    """The newest, for the dashboard."""
    parts: FailedParts | None = None
    """Where pages that fail unexpectedly are noted."""


def make_app(
    ports: WebPorts,
    *,
    auth: Auth,
    metrics: Metrics,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
) -> Starlette:
    """The ASGI application. Probes and /metrics need no credentials; requests that change something do."""
    endpoints = _Endpoints(ports, auth, metrics, max_body_bytes, body_seconds)
    routes = [
        _route("/api/v1/alerts", "POST", endpoints.alerts, metrics),
        _route("/api/v1/trigger", "POST", endpoints.trigger, metrics),
        *_probes(ports, metrics),
        _route("/metrics", "GET", endpoints.metrics_page, metrics),
        *(approval_routes(ports.approvals, metrics) if ports.approvals is not None else ()),
        *_dashboard(ports, auth, metrics),
    ]
    return _application(routes, metrics)


def make_health_app(ports: WebPorts, *, metrics: Metrics) -> Starlette:
    """The ASGI application of a listener for probes alone, with threads of its own."""
    return _application(_probes(ports, metrics), metrics)


def _application(routes: Sequence[Route], metrics: Metrics) -> Starlette:
    async def no_such_route(_: Request, exception: Exception) -> Response:
        assert isinstance(exception, HTTPException)
        metrics.http_requests.labels(route="other", code=str(exception.status_code)).inc()
        return error(exception.status_code, exception.detail, exception.headers)

    app = Starlette(routes=routes, exception_handlers={HTTPException: no_such_route})
    app.router.redirect_slashes = False
    return app


def _route(path: str, method: str, endpoint: _Endpoint, metrics: Metrics) -> Route:
    return Route(path, _answering(path, endpoint, metrics), methods=[method])


def _probes(ports: WebPorts, metrics: Metrics) -> list[Route]:
    probes = _Probes(ports)
    return [_route("/livez", "GET", probes.livez, metrics), _route("/readyz", "GET", probes.readyz, metrics)]


def _dashboard(ports: WebPorts, auth: Auth, metrics: Metrics) -> list[Route]:
    if ports.views is None:
        return []
    auth = Auth(insecure_no_auth=True) if ports.views_open else auth
    return dashboard_routes(
        ports.views, auth, metrics, hosts=ports.views_hosts, parts=ports.parts, proposals=ports.proposals
    )


def _answering(route: str, endpoint: _Endpoint, metrics: Metrics) -> _Endpoint:
    """The endpoint with an answer for everything that may go wrong in it; what is our fault is answered 503, because
    Alertmanager sends again after a 5xx, and never after a 4xx."""

    async def answer(request: Request) -> Response:
        try:
            response = await endpoint(request)
        except HTTPException as exception:
            response = error(exception.status_code, exception.detail, exception.headers)
        except RebalancerError as problem:
            logger.warning("%s: answered 503: %s", route, problem)
            response = error(503, "not possible at the moment, see the log", _RETRY)
        except Exception:  # whatever it is: without an answer of ours it would be a 500, and the reason in no log
            logger.exception("%s: answered 503", route)
            response = error(503, "an internal error, see the log", _RETRY)
        metrics.http_requests.labels(route=route, code=str(response.status_code)).inc()
        return response

    return answer


class _Trigger(msgspec.Struct, forbid_unknown_fields=True):
    nodes: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=253)]], msgspec.Meta(min_length=1, max_length=1000)
    ]
    strategy: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] | None = None


class _Probes:
    """What the kubelet asks. No file, no database and no other request delays /livez."""

    def __init__(self, ports: WebPorts) -> None:
        self._ports = ports
        self._threads = ThreadPoolExecutor(2, "web-ready")

    async def livez(self, _: Request) -> Response:
        """GET /livez."""
        alive = self._ports.alive()
        return PlainTextResponse("ok\n" if alive else "not alive, see the log\n", 200 if alive else 503)

    async def readyz(self, request: Request) -> Response:
        """GET /readyz: with `?verbose`, or when something is wrong, each check in words."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                checks = await _in_thread(self._threads, self._ports.checks)
        except TimeoutError:
            return PlainTextResponse(
                f"the checks did not answer within {READY_SECONDS:g} s\nreadyz check failed\n", 503
            )
        ready = all(check.ok for check in checks)
        if ready and "verbose" not in request.query_params:
            return PlainTextResponse("ok\n")
        lines = [_line(check) for check in checks]
        text = "\n".join([*lines, f"readyz check {'passed' if ready else 'failed'}\n"])
        return PlainTextResponse(text, 200 if ready else 503)


class _Endpoints:
    def __init__(self, ports: WebPorts, auth: Auth, metrics: Metrics, max_body_bytes: int, body_seconds: float) -> None:
        self._ports = ports
        self._auth = auth
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._body_seconds = body_seconds
        # apart, so that deliveries that wait for the database hold up no probe
        self._api_threads = ThreadPoolExecutor(4, "web-api")
        self._page_threads = ThreadPoolExecutor(2, "web-pages")

    async def alerts(self, request: Request) -> Response:
        """POST /api/v1/alerts: 200 only after the alerts are in the inbox."""
        await self._let_change(request)
        body = await read_body(request, max_bytes=self._max_body_bytes, seconds=self._body_seconds)
        return await _in_thread(self._api_threads, lambda: self._receive(body))

    def _receive(self, body: bytes) -> Response:
        try:
            delivery = read_payload(body)
        except PayloadError as problem:
            logger.warning("/api/v1/alerts: answered 400: %s", problem)
            return error(400, str(problem))
        policy = self._ports.policy()
        selected = select(delivery, policy.alerts, policy.cluster, policy.measured_resources)
        received = Received()
        if selected.alerts:
            received = self._ports.inbox.receive(selected.alerts, max_age_seconds=policy.alerts.max_age)
        results = {"opened": received.opened, "duplicate": received.duplicate, "resolved": received.resolved}
        for result, count in {**results, "deferred": received.deferred}.items():
            self._metrics.alerts_received.labels(result=result).inc(count)
        for reason, count in selected.ignored.items():
            self._metrics.alerts_ignored.labels(reason=reason.value).inc(count)
        ignored = {reason.value: count for reason, count in selected.ignored.items()}
        after = BackgroundTask(self._wake) if selected.alerts else None
        answer: dict[str, Any] = {**results, "ignored": ignored}
        if selected.unknown_resources:
            names = ", ".join(one_line(repr(name), 80) for name in selected.unknown_resources[:NAMES_SHOWN])
            known = ", ".join(policy.measured_resources)
            answer["error"] = f"expected {policy.alerts.resource_annotation} to be one of {known}, got {names}"
            logger.warning("/api/v1/alerts: alerts ignored: %s", answer["error"])
        if delivery.too_many:
            logger.warning("/api/v1/alerts: %d alerts of a delivery ignored: at most %d", delivery.too_many, MAX_ALERTS)
        if not received.deferred:
            return JSONResponse(answer, background=after)
        # the same delivery again: what is written already takes no time then
        missing = f"{received.deferred} of {len(selected.alerts)} alerts are not written yet: send all again"
        logger.warning("/api/v1/alerts: answered 503: %s", missing)
        answer |= {"deferred": received.deferred, "error": missing}
        return JSONResponse(answer, 503, _RETRY, background=after)

    async def _wake(self) -> None:
        try:
            await _in_thread(self._api_threads, self._ports.wake)
        except Exception:  # the response is sent and the alerts are stored: the daemon's own clock finds them
            logger.exception("/api/v1/alerts: the daemon could not be woken")

    async def trigger(self, request: Request) -> Response:
        """POST /api/v1/trigger: request a cycle for some nodes."""
        await self._let_change(request)
        body = await read_body(request, max_bytes=self._max_body_bytes, seconds=self._body_seconds)
        return await _in_thread(self._api_threads, lambda: self._ask_for_cycle(body))

    def _ask_for_cycle(self, body: bytes) -> Response:
        try:
            wanted = json_decoder(_Trigger).decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            return error(400, f'expected {{"nodes": [NAME, ...], "strategy": NAME}}: {problem}')
        try:
            self._ports.trigger(tuple(wanted.nodes), wanted.strategy)
        except UnsafeDataError as problem:
            return error(409, str(problem))
        except ConfigError as problem:
            return error(400, str(problem))
        return JSONResponse({"nodes": len(wanted.nodes)}, 202)

    async def metrics_page(self, request: Request) -> Response:
        """GET /metrics."""
        accept = request.headers.get("accept", "")
        page, content_type = await _in_thread(self._page_threads, lambda: self._metrics.page(accept))
        return Response(page, headers={"content-type": content_type})

    async def _let_change(self, request: Request) -> None:
        """Raises HTTPException unless the request may change something."""
        if (problem := foreign(request.headers, without_credentials=self._auth.open)) is not None:
            logger.warning("%s: answered %d: %s", request.url.path, *problem)
            raise HTTPException(*problem)
        denial = await self._auth.denial_of(request.headers.getlist("authorization"))
        if denial is None:
            return
        self._metrics.auth_failures.labels(reason=denial.value).inc()
        if denial is Denial.NO_SECRET:
            # not the caller's fault: Alertmanager is to send again
            raise HTTPException(503, "closed: the credentials can't be read, see the log", _RETRY)
        if not self._auth.configured:
            message = "closed: neither a bearer token nor basic auth is configured"
        elif denial is Denial.MISSING:
            message = "credentials are needed"
        else:
            message = "wrong credentials"
        raise HTTPException(401, message, {"www-authenticate": self._auth.challenge})


async def _in_thread(threads: Executor, call: Callable[[], _T]) -> _T:
    return await asyncio.get_running_loop().run_in_executor(threads, call)


def _line(check: ReadyCheck) -> str:
    sentence = f": {one_line(check.sentence)}" if check.sentence else ""
    return f"[{'+' if check.ok else '-'}]{check.name} {'ok' if check.ok else 'failed'}{sentence}"
