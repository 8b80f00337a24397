"""Signed links: a page with the proposal and a button, and what the button does.

The signature takes the place of credentials. Opening the link changes nothing, for chat programs open links to preview
them; the button's request does, once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rebalancer.model.decisions.approval_links import ACTIONS, PATH, ApprovalLinks
from rebalancer.model.decisions.proposals import OPEN, Proposal, ProposalState
from rebalancer.model.errors import RebalancerError, UnsafeDataError
from rebalancer.model.notation.figures import clock_time
from rebalancer.web.http.origin import foreign_form
from rebalancer.web.metrics import Metrics
from rebalancer.web.pages.dashboard import PAGE_HEADERS
from rebalancer.web.pages.render import render

logger = logging.getLogger("rebalancer.web")

BY = "signed link"
"""Who decided, in the records."""

HEADERS = {**PAGE_HEADERS, "referrer-policy": "same-origin"}
"""With no-referrer a browser would send the button's request as one of no origin."""

_ROUTE = f"{PATH}/{{id}}"


class Desk(Protocol):
    """The proposals, as people decide on them. All raise ConnectError when the database is unavailable."""

    def all(self) -> Sequence[Proposal]:
        """The newest, those first that are open."""
        ...

    def named(self, name: str) -> Proposal | None: ...

    def approve(self, name: str, *, by: str) -> Proposal:
        """Raises UnsafeDataError where it is not open."""
        ...

    def reject(self, name: str, *, by: str) -> Proposal: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """What the links need."""

    desk: Desk
    links: ApprovalLinks
    cluster: Callable[[], str]
    now: Callable[[], float]
    """Seconds since the epoch."""
    wake: Callable[[], None]
    """Something was approved."""


class _RefusedError(Exception):
    """A link that does nothing, and the line that says why."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


def approval_routes(approvals: Approvals, metrics: Metrics) -> list[Route]:
    """The route of all links. They need no credentials."""
    threads = ThreadPoolExecutor(2, "web-approvals")

    async def endpoint(request: Request) -> Response:
        answer = partial(_answer, approvals, request)
        response = await asyncio.get_running_loop().run_in_executor(threads, answer)
        metrics.http_requests.labels(route=_ROUTE, code=str(response.status_code)).inc()
        return response

    return [Route(_ROUTE, endpoint, methods=["GET", "POST"])]


def _answer(approvals: Approvals, request: Request) -> Response:
    try:
        proposal, action = _checked(approvals, request)
        if request.method != "POST":
            return _page(200, proposal=proposal, action=action)
        if (problem := foreign_form(request.headers)) is not None:
            raise _RefusedError(*problem)
        try:
            decide = approvals.desk.approve if action == "approve" else approvals.desk.reject
            decided = decide(proposal.id, by=BY)
        except UnsafeDataError as error:
            raise _RefusedError(410, str(error)) from None
        logger.info("proposal %s: %s by a signed link", decided.id, decided.state)
        return _page(200, after=BackgroundTask(approvals.wake), proposal=decided, action="", line=_done(decided))
    except _RefusedError as refused:
        # neither the link nor its signature is logged
        logger.warning("%s: answered %d: %s", _ROUTE, refused.status, refused.line)
        return _page(refused.status, proposal=None, action="", line=refused.line)
    except RebalancerError as problem:
        logger.warning("%s: answered 503: %s", _ROUTE, problem)
        return _page(503, proposal=None, action="", line="Not possible at the moment: see the log.")
    except Exception:  # the browser gets a page with status 500, and the daemon goes on
        logger.exception("%s: answered 500", _ROUTE)
        return _page(500, proposal=None, action="", line="An internal error: see the log.")


def _checked(approvals: Approvals, request: Request) -> tuple[Proposal, str]:
    """The proposal and the action of a link that may be used now."""
    name, query = request.path_params["id"], request.query_params
    action, expires, signature = (query.get(each, "") for each in ("action", "expires", "signature"))
    if not approvals.links.is_signed(approvals.cluster(), name, action, expires, signature) or action not in ACTIONS:
        raise _RefusedError(403, "The link is not valid.")
    if approvals.now() >= float(expires):
        raise _RefusedError(410, f"The link expired at {clock_time(float(expires))}.")
    proposal = approvals.desk.named(name)
    if proposal is None:
        raise _RefusedError(410, f"There is no proposal {name} any more.")
    takes = (ProposalState.PROPOSED,) if action == "approve" else OPEN
    if proposal.state not in takes:
        raise _RefusedError(410, f"Proposal {name}: {proposal.closed}.")
    return proposal, action


def _done(proposal: Proposal) -> str:
    if proposal.state is ProposalState.APPROVED:
        return "Approved: the leader begins within seconds, or after the cycle that is running."
    return "Rejected: nothing is evicted."


def _page(status: int, *, after: BackgroundTask | None = None, line: str = "", **shown: object) -> Response:
    return HTMLResponse(render("approval.html", line=line, **shown), status, HEADERS, background=after)
