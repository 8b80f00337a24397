"""The dashboard's pages: read-only HTML without external resources.

They need the same credentials as the API; a browser sends them once a basic auth file is configured. Views are read in
threads of their own, so that a slow database delays neither probes nor alerts.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from rebalancer.model.decisions.proposals import Proposal
from rebalancer.model.errors import RebalancerError
from rebalancer.model.notation.document import DIMENSIONS, Dimension
from rebalancer.model.notation.kinds import plain_name
from rebalancer.model.parts import FailedParts, ends_process
from rebalancer.web.alerts import one_line
from rebalancer.web.http.auth import Auth, Denial
from rebalancer.web.http.origin import foreign_host
from rebalancer.web.metrics import Metrics
from rebalancer.web.pages import charts
from rebalancer.web.pages.plot import Mark
from rebalancer.web.pages.render import MEDIA_TYPES, link, render, segment, static
from rebalancer.web.pages.report_page import body
from rebalancer.web.pages.views import Curve, NodeSelection, NodeState, PolicyField, SearchPage, Views

logger = logging.getLogger("rebalancer.web")

HOUR = 3600.0
REFRESH_SECONDS = (5, 10, 30, 60)
"""A page with scripts updates itself so often. The first is the default; without scripts it is `?refresh=` alone."""
RANGES = {"1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 7 * 24 * HOUR, "30d": 30 * 24 * HOUR}
"""Values of `?last=`, and seconds."""
NODE_RANGES = ("6h", "24h", "7d")
"""Those of a node's chart: the day blocks of a week are kept."""
DEFAULT_RANGE = "24h"
ANY_TIME = "all"
CYCLE_RANGES = (*RANGES, ANY_TIME)
"""Those of the list of cycles, which is in pages."""
MOST_DAYS = 366
DAYS = 7


SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
REPLAY_HEADERS = {
    **SECURITY_HEADERS,
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""A replay is a file from the disk with its style inside."""
PAGE_HEADERS = {**SECURITY_HEADERS, "cache-control": "no-store"}
STATIC_HEADERS = {**SECURITY_HEADERS, "cache-control": "public, max-age=31536000, immutable"}


class _PageError(Exception):
    """A page that can't be shown, with its status."""

    def __init__(self, status: int, title: str, text: str) -> None:
        super().__init__(text)
        self.status, self.title, self.text = status, title, text


def dashboard_routes(
    views: Views,
    auth: Auth,
    metrics: Metrics,
    *,
    hosts: frozenset[str] = frozenset(),
    parts: FailedParts | None = None,
    proposals: Callable[[], Sequence[Proposal]] = tuple,
) -> list[Route]:
    """The routes of all pages and of their static files. `auth` guards the pages; style and script are public.

    Without credentials the pages answer only under names of their own and under `hosts`: a page of another site whose
    name was made to resolve to this address (DNS rebinding) could read them. Pages that fail unexpectedly are noted in
    `parts`. `proposals`: the newest ones. Pages only show them.
    """
    pages, failing = _Pages(views, proposals), parts or FailedParts(now=time.time, monotonic=time.monotonic)
    threads = ThreadPoolExecutor(2, "web-dashboard")

    def route(path: str, page: Callable[[Request], Response]) -> Route:
        async def endpoint(request: Request) -> Response:
            denial = await auth.denial_of(request.headers.getlist("authorization"))
            if auth.open and (problem := foreign_host(request.headers, hosts=hosts)) is not None:
                logger.warning("%s: answered %d: %s", path, *problem)
                response: Response = HTMLResponse(render("denied.html", text=problem.sentence), 403, PAGE_HEADERS)
            elif denial is not None:
                metrics.auth_failures.labels(reason=denial.value).inc()
                response = _denied(auth, denial)
            else:
                answer = partial(_answer, path, page, request, views, failing)
                response = await asyncio.get_running_loop().run_in_executor(threads, answer)
            metrics.http_requests.labels(route=path, code=str(response.status_code)).inc()
            return response

        return Route(path, endpoint, methods=["GET"])

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        there = name in MEDIA_TYPES
        metrics.http_requests.labels(route="/static/{name}", code="200" if there else "404").inc()
        if not there:
            return Response("no such file\n", 404, SECURITY_HEADERS, "text/plain")
        return Response(static(name), headers={**STATIC_HEADERS, "content-type": MEDIA_TYPES[name]})

    return [
        route("/", pages.overview),
        route("/nodes", pages.nodes),
        route("/nodes/{name:path}", pages.node),
        route("/search", pages.search),
        route("/evictions", pages.evictions),
        route("/cycles", pages.cycles),
        route("/cycles/{id:path}", pages.cycle),
        route("/proposals", pages.proposals),
        route("/limits", pages.limits),
        route("/services", pages.services),
        route("/services/{name:path}", pages.service),
        route("/policy", pages.policy),
        route("/reports", pages.reports),
        route("/replay", pages.replay),
        Route("/static/{name}", file, methods=["GET"]),
    ]


def _answer(
    path: str, page: Callable[[Request], Response], request: Request, views: Views, parts: FailedParts
) -> Response:
    """The page, or an error page."""
    name = f"page {path}"
    try:
        made = page(request)
        parts.worked(name)
        return made
    except _PageError as problem:
        return _error_page(views, problem.status, problem.title, problem.text)
    except RebalancerError as problem:
        logger.warning("%s: answered 503: %s", path, problem)
        return _error_page(views, 503, "Temporarily unavailable", one_line(str(problem)))
    except Exception as error:  # the browser gets a page with status 500, and the daemon goes on
        logger.exception("%s: answered 500", path)
        if not ends_process(error):
            parts.failed(name, error)
        return _error_page(views, 500, "An internal error", "See the log.")


def _error_page(views: Views, status: int, title: str, text: str) -> Response:
    try:
        head = views.head()
    except Exception:
        logger.exception("the head of the dashboard")
        return Response(f"{title}: {text}\n", status, PAGE_HEADERS, "text/plain")
    context = {"head": head, "path": "", "refresh": 0, "reload": 0, "refresh_link": "", "choices": ()}
    return HTMLResponse(render("error.html", title=title, text=text, **context), status, PAGE_HEADERS)


def _denied(auth: Auth, denial: Denial) -> Response:
    if denial is Denial.NO_SECRET:
        text = "The credentials are unreadable, see the log."
        return HTMLResponse(render("denied.html", text=text), 503, {**PAGE_HEADERS, "retry-after": "10"})
    if not auth.configured:
        text = "Neither a bearer token nor basic auth is configured, so access is denied."
    elif auth.takes_basic:
        text = "User and password are needed."
    else:
        text = "A bearer token is needed. For browsers configure basic auth, or open the dashboard."
    return HTMLResponse(render("denied.html", text=text), 401, {**PAGE_HEADERS, "www-authenticate": auth.asks_people})


class _Pages:
    """One method a page; all run in a thread."""

    def __init__(self, views: Views, proposals: Callable[[], Sequence[Proposal]]) -> None:
        self._views, self._proposals = views, proposals

    def overview(self, request: Request) -> Response:
        return self._page("overview.html", request, page=self._views.overview(_selection(request)), heat=charts.heat)

    def nodes(self, request: Request) -> Response:
        selection = _selection(request)
        shown = self._views.map(selection)
        if selection.text and selection.text in (line.name for line in shown.nodes):
            return RedirectResponse(f"/nodes/{segment(selection.text)}", 303, PAGE_HEADERS)
        return self._page("nodes.html", request, map=shown)

    def node(self, request: Request) -> Response:
        name = request.path_params["name"]
        last = _range(request, NODE_RANGES)
        page = self._views.node(name, behind=RANGES[last]) if name else None
        if page is None:
            raise _PageError(404, "No such node", f"Neither the cluster nor the database has a node {_short(name)}.")
        marks = [
            Mark(at=each.reserved.planned_at, text=f"{each.namespace}/{each.pod}")
            for each in page.evictions
            if each.happened
        ]
        return self._page(
            "node.html",
            request,
            page=page,
            curve=charts.curve(page.curve, page.line, marks),
            hours=_hours(page.curve),
            last=last,
            ranges=NODE_RANGES,
            bars=charts.account_bars,
        )

    def search(self, request: Request) -> Response:
        text = plain_name(request.query_params.get("q", ""))
        page = self._views.search(text) if text else SearchPage(text="")
        if text in (line.name for line in page.nodes):
            return RedirectResponse(f"/nodes/{segment(text)}", 303, PAGE_HEADERS)
        return self._page("search.html", request, every=30, page=page)

    def evictions(self, request: Request) -> Response:
        last = _range(request, tuple(RANGES))
        page = self._views.timeline(RANGES[last])
        shown = {"page": page, "picture": charts.timeline(page), "last": last, "ranges": tuple(RANGES)}
        return self._page("evictions.html", request, every=30, **shown)

    def policy(self, request: Request) -> Response:
        sections: dict[str, list[PolicyField]] = {}
        for each in self._views.policy():
            sections.setdefault(each.section, []).append(each)
        return self._page("policy.html", request, every=30, sections=sections)

    def cycles(self, request: Request) -> Response:
        last = _range(request, CYCLE_RANGES, default=ANY_TIME)
        page = self._views.cycles(
            before=_time(request, "before"),
            after=_time(request, "after"),
            acted=request.query_params.get("acted") == "1",
            behind=RANGES.get(last, math.inf),
        )
        kept = last if last in RANGES else ""
        return self._page("cycles.html", request, page=page, last=last, kept=kept, ranges=CYCLE_RANGES)

    def cycle(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        page = self._views.cycle(wanted) if wanted else None
        if page is None:
            text = f"The database has no cycle {_short(wanted)} of this cluster; old ones are removed."
            raise _PageError(404, "No such cycle", text)
        every = REFRESH_SECONDS[0] if page.record.summary.finished_at is None else 60
        return self._page("cycle.html", request, every=every, page=page, bars=charts.account_bars)

    def proposals(self, request: Request) -> Response:
        return self._page("proposals.html", request, every=10, proposals=self._proposals())

    def limits(self, request: Request) -> Response:
        return self._page("limits.html", request, every=10, page=self._views.limits())

    def services(self, request: Request) -> Response:
        text = request.query_params.get("q", "").strip()
        page = self._views.services(days=_days(request, 30), text=text)
        return self._page("services.html", request, every=60, page=page)

    def service(self, request: Request) -> Response:
        name = request.path_params["name"]
        page = self._views.service(name) if name else None
        if page is None:
            raise _PageError(404, "No such service", f"The database has no eviction of a service {_short(name)}.")
        return self._page("service.html", request, page=page)

    def reports(self, request: Request) -> Response:
        page = self._views.reports(days=_days(request, DAYS), by=_dimension(request))
        return self._page("reports.html", request, every=60, page=page, **body(page.report, links=True))

    def replay(self, request: Request) -> Response:
        page = self._views.replay()
        if page is None:
            text = "None is in this replica's history folder: run `rebalancer replay` with its REBALANCER_HISTORY_DIR."
            raise _PageError(404, "No replay", text)
        return HTMLResponse(page, headers=REPLAY_HEADERS)

    def _page(self, template: str, request: Request, *, every: int = REFRESH_SECONDS[0], **context: Any) -> Response:
        """`every` is the interval of updates in seconds where none is chosen."""
        chosen = request.query_params.get("refresh", "")
        reload = int(chosen) if chosen in map(str, REFRESH_SECONDS) else 0
        kept = {name: value for name, value in request.query_params.items() if name != "refresh"}
        text = render(
            template,
            head=self._views.head(),
            path=request.url.path,
            refresh=0 if chosen == "off" else reload or every,
            reload=reload,
            refresh_link=partial(_refresh_link, request.url.path, kept),
            choices=REFRESH_SECONDS,
            **context,
        )
        return HTMLResponse(text, headers=PAGE_HEADERS)


class _Hour(NamedTuple):
    """The highest shares of one hour."""

    at: float
    past: float | None
    ahead: float | None


def _hours(curve: Curve) -> list[_Hour]:
    past, ahead = _highest(curve.past), _highest(curve.ahead)
    return [_Hour(hour * HOUR, past.get(hour), ahead.get(hour)) for hour in sorted(past.keys() | ahead.keys())]


def _highest(points: Sequence[tuple[float, float | None]]) -> dict[int, float]:
    out: dict[int, float] = {}
    for at, share in points:
        if share is not None:
            hour = int(at // HOUR)
            out[hour] = max(out.get(hour, 0.0), share)
    return out


def _refresh_link(path: str, kept: Mapping[str, str], seconds: int | str) -> str:
    return link(path, **{**kept, "refresh": seconds})


def _selection(request: Request) -> NodeSelection:
    query = request.query_params
    state = query.get("state", "")
    if state and state not in [each.value for each in NodeState]:
        raise _bad("state", ", ".join(NodeState))
    first = query.get("first", "0")
    if not (first.isascii() and first.isdecimal() and len(first) < 9):
        raise _bad("first", "a number")
    return NodeSelection(
        pool=query.get("pool") or None,
        state=NodeState(state) if state else None,
        text=query.get("q", "").strip(),
        first=int(first),
    )


def _time(request: Request, name: str) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        at = float(text)
    except ValueError:
        at = -1.0
    if not 0 <= at < 1e11:
        raise _bad(name, "seconds since 1970")
    return at


def _days(request: Request, otherwise: int) -> int:
    text = request.query_params.get("days", str(otherwise))
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= MOST_DAYS):
        raise _bad("days", f"1 to {MOST_DAYS}")
    return int(text)


def _range(request: Request, known: Sequence[str], *, default: str = DEFAULT_RANGE) -> str:
    text = request.query_params.get("last", default)
    if text not in known:
        raise _bad("last", ", ".join(known))
    return text


def _dimension(request: Request) -> Dimension | None:
    text = request.query_params.get("by", "")
    if not text:
        return None
    for each in DIMENSIONS:
        if each == text:
            return each
    raise _bad("by", ", ".join(DIMENSIONS))


def _bad(name: str, expected: str) -> _PageError:
    return _PageError(400, "Invalid address", f"{name}: expected {expected}.")


def _short(name: str) -> str:
    return one_line(name, 100)
