"""Client, ledger and clock of a replica, with places where faults happen."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Literal

import urllib3

from rebalancer.kube.client.auth import find_credentials
from rebalancer.kube.client.client import AnswerLostError, ApiClient
from rebalancer.kube.leader.lease import LeaseLock
from rebalancer.model.decisions.limits import Denied
from rebalancer.model.errors import ConnectError
from rebalancer.store import SqlLedger

ONE_POD = re.compile(r"/pods/[^/]+$")
EVICTION = re.compile(r"/pods/[^/]+/eviction$")
PAGE = b"<html><body>Sign in</body></html>"


class Point(StrEnum):
    """Where an eviction is interrupted."""

    RESERVED = "reserved"
    """Before a single pod is read: again before its eviction, or to reconcile one."""
    READ = "read"
    """Before the lease is checked for the last time."""
    UNDER_WAY = "under way"
    """After that check: the call leaves."""
    ANSWERED = "answered"
    """The call was carried out, the replica has no answer yet."""


class Killed(BaseException):
    """The replica's process ends here."""


class InterruptedClient(ApiClient):
    """Calls `at` at every point of an eviction."""

    def __init__(self, kubeconfig: str, *, user_agent: str, at: Callable[[Point, str], None]) -> None:
        super().__init__(
            credentials=find_credentials(kubeconfig, None), user_agent=user_agent, sleep=lambda _seconds: None
        )
        self._at = at
        self.cut_off = False
        """No answer arrives."""
        self.page: Literal[0, 200, 500] = 0
        """Status of the page that a proxy answers the next eviction with; 0 = none."""
        self.page_instead = False
        """The proxy doesn't pass the eviction on."""

    def _send(self, method: str, path: str, *, timeouts: Any = None, **options: Any) -> urllib3.BaseHTTPResponse:
        if EVICTION.search(path):
            return self._evict(method, path, timeouts, options)
        if method == "GET" and ONE_POD.search(path):
            self._at(Point.RESERVED, path)
        if self.cut_off:
            raise AnswerLostError(f"{self.server}: cut off")
        return super()._send(method, path, timeouts=timeouts, **options)

    def _evict(self, method: str, path: str, timeouts: Any, options: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        def limits() -> Any:
            self._at(Point.READ, path)
            found = timeouts()
            self._at(Point.UNDER_WAY, path)
            return found

        page, self.page = self.page, 0
        if page and self.page_instead:
            limits()
            return urllib3.HTTPResponse(body=PAGE, status=page, preload_content=True)
        response = super()._send(method, path, timeouts=limits, **options)
        self._at(Point.ANSWERED, path)
        if self.cut_off:
            raise AnswerLostError(f"{self.server}: cut off")
        return urllib3.HTTPResponse(body=PAGE, status=page, preload_content=True) if page else response


class WatchedLedger(SqlLedger):
    """Knows which reservations were answered, and loses commits or their answers."""

    def __init__(self, *, before_reserve: Callable[[], str], **fields: Any) -> None:
        """`before_reserve` returns what a database without a proxy loses: `commit`, `answer` or nothing."""
        super().__init__(**fields)
        self._before_reserve = before_reserve
        self.certain: set[str] = set()
        """`namespace/pod` of reservations whose commit was answered."""

    def reserve_all(self, report: Any, evictions: Any, **options: Any) -> list[int | Denied]:
        lost = self._before_reserve()
        if lost == "commit":
            raise ConnectError("the database is away")
        answers = super().reserve_all(report, evictions, **options)
        if lost == "answer":
            raise ConnectError("the database is away")
        for (eviction, _), answer in zip(evictions, answers, strict=True):
            if not isinstance(answer, Denied):
                self.certain.add(f"{eviction.namespace}/{eviction.pod}")
        return answers


class SteppedLock(LeaseLock):
    """Renewed by the fleet's steps."""

    def keep(self) -> None:
        """No thread."""


class OneAttempt:
    """In the place of the event `stopping`: leadership is tried for once."""

    def __init__(self) -> None:
        self._over = False

    def is_set(self) -> bool:
        return self._over

    def wait(self, _seconds: float) -> bool:
        self._over = True
        return True


class ReplicaClock:
    """The fleet's time with an offset: clocks of machines are set back and forward."""

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._now, self.sleep = now, sleep
        self.offset = 0.0

    def now(self) -> float:
        return self._now() + self.offset
