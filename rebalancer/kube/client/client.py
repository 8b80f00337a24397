"""Raw requests to the API server, with timeouts, retries and a one-line message for each failure."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import tenacity
import urllib3
from urllib3 import exceptions as broken

from rebalancer.kube.client.auth import Credentials, find_credentials
from rebalancer.kube.client.stream import LineStream
from rebalancer.kube.client.transport import GZIP, TRANSPORT_ERRORS, as_far_as_read, cause, whole
from rebalancer.model.errors import ConnectError, UnsafeDataError
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.secrets import redacted

T = TypeVar("T")
NOT_READABLE = frozenset({403, 404})
"""Statuses of a list that we may not read, or that the server doesn't have."""
RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
JSON = "application/json"
CREDENTIALS_MIN_AGE_SECONDS = 60.0


class NotSentError(ConnectError):
    """No connection was made: the server has not received the request."""


class AnswerLostError(ConnectError):
    """The request may have reached the server; no response came."""


class SilentError(AnswerLostError):
    """No data within the read timeout."""


class StatusError(ConnectError):
    """The API server answered with an error status."""

    def __init__(self, message: str, *, status: int, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        """The Retry-After of the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of a request, in seconds."""

    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    """Until the head of the answer, then until the end of its body; of a stream until each piece of it."""
    total_seconds: float | None = None
    """Connecting and reading together: time spent connecting is taken from the read timeout. Name look-up is not
    counted."""


Limits = Timeouts | Callable[[], Timeouts] | None
"""Timeouts of a request, or a callable evaluated right before it is sent (which may raise NotSentError instead); None:
the client's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Attempts of a GET. Waits are the server's Retry-After, or grow from `base_seconds` with jitter."""

    attempts: int = 4
    base_seconds: float = 0.25
    longest_wait_seconds: float = 10.0
    total_seconds: float = 60.0
    """No new attempt starts after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource as URLs and RBAC rules name it. The core group is the empty string."""

    group: str
    version: str
    plural: str

    @property
    def rbac_name(self) -> str:
        """`pods`, `deployments.apps`: the name in errors and RBAC rules."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path: of the whole cluster without `namespace`, of the collection without `name`."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The API server's answer to an error or an eviction (`metav1.Status`), as far as it is used."""

    kind: str = ""
    """`Status`; anything else was written by something between the API server and us."""
    status: str = ""
    """Success or Failure."""
    message: str = ""
    reason: str = ""
    details: "StatusDetails | None" = None

    @property
    def causes(self) -> tuple[str, ...]:
        """The machine-readable reasons of the causes."""
        return tuple(cause.reason for cause in self.details.causes or ()) if self.details else ()


class StatusCause(msgspec.Struct, frozen=True):
    """A cause of a Status: a code and a sentence."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """Causes of a Status."""

    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: float = 0.0


def status_of(body: bytes) -> Status:
    """The Status in an error's body; for a body of another kind (a proxy's), its first line as message."""
    try:
        return json_decoder(Status).decode(redacted(body.decode("utf-8", "replace")))
    except (msgspec.DecodeError, RecursionError):
        # redacted before it is cut: half a secret isn't recognized
        lines = redacted(body.decode("utf-8", "replace")).strip().splitlines()
        return Status(message=lines[0][:200] if lines else "")


def retry_after_seconds(response: urllib3.BaseHTTPResponse) -> float | None:
    """The Retry-After header in seconds; None when absent or given as a date, which the API server never does."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None


def growing_wait(base_seconds: float) -> tenacity.wait.wait_base:
    """A wait that doubles with each attempt, from 0.5 to 1.5 times `base_seconds`."""
    return tenacity.wait_exponential(base_seconds / 2) + tenacity.wait_random_exponential(base_seconds)


class ApiClient:
    """One API server. Safe to share between threads."""

    def __init__(
        self,
        *,
        credentials: Credentials,
        user_agent: str,
        timeouts: Timeouts = Timeouts(),
        retries: Retries = Retries(),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._credentials = credentials
        self._pool: Any = credentials.pool()
        self._user_agent = user_agent
        self._timeouts = timeouts
        self._retries = retries
        self._sleep = sleep
        self._reload_lock = threading.Lock()
        self._reloaded = time.monotonic()
        self.server = credentials.server

    def get(
        self,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        accept: str = JSON,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """GET, retried on lost connections, 429, 500, 502, 503 and 504.

        Returns the last answer whatever its status; raises NotSentError or AnswerLostError when there is none.
        """
        rules = retries or self._retries
        growing = growing_wait(rules.base_seconds)

        def wait(state: tenacity.RetryCallState) -> float:
            outcome = state.outcome
            response = outcome.result() if outcome is not None and not outcome.failed else None
            stated = retry_after_seconds(response) if response is not None else None
            return min(growing(state) if stated is None else stated, rules.longest_wait_seconds)

        attempts = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(rules.attempts) | tenacity.stop_before_delay(rules.total_seconds),
            wait=wait,
            retry=tenacity.retry_if_exception_type((NotSentError, AnswerLostError))
            | tenacity.retry_if_result(lambda response: response.status in RETRIED_STATUSES),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
            sleep=self._sleep,
        )
        once = partial(self._send, "GET", path, query=query, accept=accept, timeouts=timeouts)
        response: urllib3.BaseHTTPResponse = attempts(once)
        return once() if response.status == 401 and self._reload_credentials() else response

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        query: Mapping[str, str | int] | None = None,
        content_type: str = JSON,
        user_agent: str | None = None,
        timeouts: Limits = None,
    ) -> urllib3.BaseHTTPResponse:
        """POST, PUT or PATCH, carried out at most once.

        Sent once; a second time only after a 401, with credentials read again: the server has rejected the first.
        Raises NotSentError or AnswerLostError when no response came, ConfigError when the credentials can't be read.
        """
        headers = {"Content-Type": content_type} | ({"User-Agent": user_agent} if user_agent else {})
        return self._authorized(
            partial(self._send, method, path, query=query, body=body, headers=headers, timeouts=timeouts)
        )

    def stream(
        self, path: str, *, query: Mapping[str, str | int], accept: str = JSON, timeouts: Timeouts | None = None
    ) -> LineStream:
        """GET without retries, whose body is read as it arrives; `read_seconds` bounds the time without data.

        Its `response` may have any status; that of an error has its body in memory, as far as it came. Raises
        NotSentError or AnswerLostError when no response came.
        """
        once = partial(self._send, "GET", path, query=query, accept=accept, timeouts=timeouts, streamed=True)
        response = self._authorized(once)
        limits = timeouts or self._timeouts
        if response.status != 200:
            response = as_far_as_read(response, until=time.monotonic() + self._timeouts.read_seconds)
        return LineStream(response, failed=lambda error: self._failure(error, limits), server=self.server)

    def read(
        self,
        path: str,
        kind: type[T],
        *,
        verb: str,
        resource: str,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> T | None:
        """GET one object and decode it; None for a 404. Raises ConnectError or UnsafeDataError."""
        response = self.get(path, timeouts=timeouts, retries=retries)
        if response.status == 404:
            return None
        if response.status != 200:
            raise self.error(response, verb=verb, resource=resource)
        return self.decode(response.data, kind, what=f"{verb} {resource}")

    def decode(self, body: bytes, kind: type[T], *, what: str) -> T:
        """Decode a JSON response. Raises UnsafeDataError when it has another form."""
        try:
            return json_decoder(kind).decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnsafeDataError(f"{self.server}: {what}: the answer can't be read: {error}") from None

    def error(self, response: urllib3.BaseHTTPResponse, *, verb: str, resource: str) -> StatusError:
        """One line for an error status. `resource` as in RBAC: `pods/eviction`, `leases.coordination.k8s.io`."""
        code = response.status
        message = " ".join(status_of(response.data).message.split())
        if code == 401:
            text = "the API server rejects the credentials (401): token or certificate wrong or expired"
        elif code == 403:
            name = resource if "." in resource else f"{resource} (core group)"
            text = (
                f"not allowed to {verb} {resource} (403): add a ClusterRole rule with verb {verb!r} "
                f"for {name} and bind it to the service account"
            )
        else:
            text = f"{verb} {resource}: HTTP {code}"
        return StatusError(
            f"{self.server}: {text}" + (f": {message}" if message else ""),
            status=code,
            retry_after_seconds=retry_after_seconds(response),
        )

    @property
    def timeouts(self) -> Timeouts:
        """Timeouts of requests without their own."""
        return self._timeouts

    @property
    def user_agent(self) -> str:
        """The User-Agent of every request."""
        return self._user_agent

    def close(self) -> None:
        """Close the pooled connections."""
        self._pool.clear()

    def _authorized(self, once: Callable[[], urllib3.BaseHTTPResponse]) -> urllib3.BaseHTTPResponse:
        """The answer; after a 401, that to credentials that were read again."""
        response = once()
        if response.status == 401 and self._reload_credentials():
            response.close()
            response = once()
        return response

    def _reload_credentials(self) -> bool:
        with self._reload_lock:
            if time.monotonic() - self._reloaded < CREDENTIALS_MIN_AGE_SECONDS:
                return False
            self._reloaded = time.monotonic()
            self._credentials.reload()
            self._pool = self._credentials.pool()
            return True

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: bytes | None = None,
        accept: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeouts: Limits = None,
        streamed: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        url = self._credentials.configuration.host.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        everything = {"User-Agent": self._user_agent, "Accept": accept}
        if not streamed and method == "GET":
            # fewer bytes in fewer reads; the API server compresses only large answers
            everything["Accept-Encoding"] = GZIP
        everything |= dict(headers or {}) | self._credentials.headers()
        # last, because credentials may come from a plugin, which takes time
        limits = timeouts() if callable(timeouts) else timeouts or self._timeouts
        began = time.monotonic()
        try:
            response: urllib3.BaseHTTPResponse = self._pool.request(
                method,
                url,
                body=body,
                headers=everything,
                timeout=urllib3.Timeout(
                    total=limits.total_seconds, connect=limits.connect_seconds, read=limits.read_seconds
                ),
                retries=False,
                preload_content=False,
                decode_content=streamed,
            )
            if streamed:
                return response
            left = limits.read_seconds if limits.total_seconds is None else limits.total_seconds
            return whole(response, until=(time.monotonic() if limits.total_seconds is None else began) + left)
        except TRANSPORT_ERRORS as error:
            raise self._failure(error, limits) from error

    def _failure(self, error: Exception, limits: Timeouts) -> ConnectError:
        sent, why = True, ""
        match error:
            case broken.NameResolutionError():
                sent, why = False, "its name does not resolve"
            case broken.NewConnectionError():
                sent, why = False, f"can't connect: {cause(error)}"
            case broken.ConnectTimeoutError():
                sent, why = False, f"no connection within {limits.connect_seconds:.3g} s"
            case broken.ReadTimeoutError():
                return SilentError(
                    f"{self.server}: the Kubernetes API server can't be reached: "
                    f"no answer within {limits.read_seconds:.3g} s"
                )
            case broken.SSLError():
                # A refused certificate ends the handshake; any other TLS error may come in the middle.
                sent = "CERTIFICATE_VERIFY_FAILED" not in str(error) and "WRONG_VERSION_NUMBER" not in str(error)
                why = f"TLS: {cause(error)}"
            case broken.ProxyError():
                why = f"the proxy failed: {cause(error)}"
            case _:
                why = f"the connection was cut: {cause(error)}"
        text = f"{self.server}: the Kubernetes API server can't be reached: {why}"
        return AnswerLostError(text) if sent else NotSentError(text)


def connect(
    kubeconfig: str | None,
    context: str | None,
    user_agent: str,
    *,
    timeouts: Timeouts = Timeouts(),
    retries: Retries = Retries(),
) -> ApiClient:
    """A client for the cluster that kubectl would use. Nothing is sent yet. Raises ConfigError."""
    credentials = find_credentials(kubeconfig, context)
    return ApiClient(credentials=credentials, user_agent=user_agent, timeouts=timeouts, retries=retries)
