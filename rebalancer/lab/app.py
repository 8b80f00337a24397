"""The lab's HTTP server: routes, and the faults in front of them."""

import asyncio
from dataclasses import asdict

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rebalancer.lab.apiserver.api import KubernetesApi
from rebalancer.lab.faults import Switchboard
from rebalancer.lab.objects.errors import ApiError
from rebalancer.lab.prometheus import exposition
from rebalancer.lab.prometheus.api import PrometheusApi
from rebalancer.lab.serving import ServedLab, json_response

_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


def build_app(lab: ServedLab) -> ASGIApp:
    """The ASGI application of one lab."""
    kubernetes, prometheus = KubernetesApi(lab), PrometheusApi(lab)

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        page = await asyncio.to_thread(lab.metrics_page.text)
        return PlainTextResponse(page, headers={"content-type": exposition.CONTENT_TYPE})

    async def faults(request: Request) -> Response:
        if request.method == "PUT":
            try:
                lab.faults.put(await request.body())
            except msgspec.DecodeError as error:
                return json_response({"error": str(error)}, 400)
        return json_response(lab.faults.state)

    async def log(_: Request) -> Response:
        return json_response([asdict(entry) for entry in lab.log.entries()])

    async def truth(request: Request) -> Response:
        at = float(request.query_params["at"]) if "at" in request.query_params else lab.clock.now()
        high = float(request.query_params.get("high", "0.75"))
        hot = {name: asdict(node) for name, node in lab.truth.hot(high, at).items()}
        return json_response({"at": at, "nodeCpuShare": lab.truth.node_cpu_share(at), "hot": hot})

    async def kubernetes_endpoint(request: Request) -> Response:
        return await kubernetes(request)

    async def prometheus_endpoint(request: Request) -> Response:
        return await prometheus(request)

    routes = [
        *(Route(path, ready) for path in ("/healthz", "/livez", "/readyz", "/-/ready")),
        Route("/metrics", metrics),
        Route("/lab/faults", faults, methods=["GET", "PUT"]),
        Route("/lab/log", log),
        Route("/lab/truth", truth),
        Route("/prometheus", prometheus_endpoint, methods=["GET", "POST"]),
        Route("/prometheus/{rest:path}", prometheus_endpoint, methods=["GET", "POST"]),
        Route("/{rest:path}", kubernetes_endpoint, methods=_METHODS),
    ]
    return FaultGate(Starlette(routes=routes), lab.faults)


class FaultGate:
    """In front of the application: passes requests on, or breaks them as the faults demand."""

    def __init__(self, app: ASGIApp, faults: Switchboard) -> None:
        self._app = app
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        path = scope.get("path", "")
        state = self._faults.state
        is_prometheus = path.startswith(("/prometheus", "/metrics"))
        if scope["type"] != "http" or path.startswith("/lab"):
            await self._app(scope, receive, send)
            return
        if is_prometheus and state.prometheus_down:
            if state.prometheus_down == "closed":
                _transport(send).abort()
                await asyncio.sleep(0.01)  # until uvicorn has noticed
            else:
                await PlainTextResponse("Service Unavailable", 503)(scope, receive, send)
            return
        if ("prometheus" if is_prometheus else "kubernetes") not in state.sides:
            await self._app(scope, receive, send)
            return
        await asyncio.sleep(state.latency_seconds)
        answer = self._broken_answer()
        if answer is not None:
            await answer(scope, receive, send)
        elif self._faults.hits(state.cut_share):
            await self._app(scope, receive, _cutting(send))
        else:
            await self._app(scope, receive, send)

    def _broken_answer(self) -> Response | None:
        state = self._faults.state
        if self._faults.hits(state.throttled_share):
            headers = {} if state.retry_after_seconds is None else {"Retry-After": str(state.retry_after_seconds)}
            error = ApiError(429, "TooManyRequests", "too many requests, please try again later", headers=headers)
            return json_response(error.status(), 429, headers)
        if self._faults.hits(state.error_share):
            return json_response(ApiError(500, "InternalError", "Internal error occurred: a fault").status(), 500)
        if self._faults.hits(state.garbage_share):
            return Response(
                b'{"kind":"List","status":"success","items":[{"metadata":{"na', media_type="application/json"
            )
        return None


def _cutting(send: Send) -> Send:
    """A `send` that closes the connection in the middle of the first body part."""

    async def cut(message: Message) -> None:
        if message["type"] != "http.response.body":
            await send(message)
            return
        body = message.get("body", b"")
        await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        _transport(send).close()
        await asyncio.sleep(0.01)  # until uvicorn has noticed

    return cut


def _transport(send: Send) -> asyncio.Transport:
    """The connection under an ASGI `send`. ASGI has no message for closing it, so this uses uvicorn's own object."""
    transport: asyncio.Transport = send.__self__.transport  # type: ignore[attr-defined]
    return transport
