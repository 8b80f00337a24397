"""One HTTP call to Prometheus, over `prometheus_api_client`'s connection.

The package keeps the session, the headers and the adapter. The calls are made here, because it has no default timeout,
drops `warnings` (the mark of a partial response), never retries POST, and decodes responses into nested dicts. Queries
are read-only, so all of them may be repeated.
"""

import http.client
import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)
from urllib3 import exceptions as broken

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.secrets import redacted
from rebalancer.policy.schema.usage import Prometheus
from rebalancer.prometheus.connection import credentials
from rebalancer.prometheus.promql import decode
from rebalancer.prometheus.promql.queries import Query

_ATTEMPTS = 3
_LONGEST_GET = 1500
"""Longest query, in characters, that is sent in a URL; proxies cut at 4 KiB to 8 KiB, and escaping triples some."""
_PASSING = frozenset({429, 502, 503, 504})
_LIMITS = frozenset({"timeout", "canceled", "execution"})
"""Types of errors of a query that was understood, and ended by a limit (or by its result)."""
_TOO_LONG = "query time range exceeds the limit"
"""In the message of Thanos, Cortex and Mimir. Their status is 400, with `bad_data` if any type, as for an error in
PromQL."""
_CHUNK_BYTES = 1 << 18
_SHOWN_CHARS = 300
_MOST_BYTES = 1 << 28
_INFO = "PromQL info:"
_log = logging.getLogger(__name__)


class _Passing(PrometheusApiClientException):
    """A transient failure: a refused connection, a truncated response, throttling."""


class TooMuchError(ConnectError):
    """The query exceeds a limit of Prometheus (time, samples, range) or of this client (size): a smaller one may
    succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a query."""

    result: decode.Result
    warnings: tuple[str, ...]
    """Not empty: the response is partial."""
    infos: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    status: int
    content_type: str
    location: str
    body: bytes


class PrometheusClient:
    """A client of one Prometheus. Not for use by several threads at once.

    Errors: ConfigError for the policy's part (files, headers, PromQL), ConnectError for the server and the network. No
    message contains a secret.
    """

    def __init__(self, settings: Prometheus) -> None:
        self._settings = settings
        self.url = credentials.shown_url(settings.url)
        """Without user and password."""
        self._session = requests.Session()
        self._connection = PrometheusConnect(
            url=self.url, headers=dict(credentials.headers(settings)), session=self._session, retry=0
        )
        self.renew()
        if settings.insecure_skip_verify:
            # requested in the policy; urllib3 would warn on every single request
            warnings.filterwarnings("ignore", message="Unverified HTTPS request")

    def renew(self) -> None:
        """Before each cycle: read the credentials again and drop old connections, whose certificates may have been
        replaced."""
        self._login = credentials.login(self._settings)
        self._verify = credentials.verification(self._settings)
        self._session.close()

    def close(self) -> None:
        self._connection.close()

    def query(self, query: Query, *, at: float | None = None) -> Answer:
        """An instant query; without `at` (seconds since the epoch) at the server's own now."""
        return self._query("query", query, {} if at is None else {"time": f"{at:.3f}"})

    def query_range(self, query: Query, *, start: float, end: float, step: float) -> Answer:
        """A range query: points at start, start + step, … up to and including end."""
        return self._query("query_range", query, {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"})

    def version(self) -> str:
        """The server's version; empty where the endpoint is missing (not every server with this API has it)."""
        reply = self._sent("GET", "status/buildinfo", {})
        if reply.status == 404:
            return ""
        try:
            outside = self._succeeded(decode.envelope(self._accepted(reply, field="usage.prometheus.url").body))
            found = json_decoder(dict[str, Any]).decode(outside.data).get("version", "")
        except (decode.BadAnswerError, *decode.UNDECODABLE) as error:
            raise self._connect_error(f"the response is not Prometheus': {error}") from None
        return str(found)

    def _query(self, endpoint: str, query: Query, params: dict[str, str]) -> Answer:
        # the server's timeout equals ours, so that it doesn't go on computing after the client has timed out
        parameters = {"query": query.promql, "timeout": f"{self._settings.timeout:g}s", **params}
        long = len(query.promql) > _LONGEST_GET
        reply = self._sent("POST" if long else "GET", endpoint, parameters)
        reply = self._accepted(reply, field=query.field)
        try:
            outside = self._succeeded(decode.envelope(reply.body), field=query.field)
            result = decode.result(outside.data)
        except decode.BadAnswerError as error:
            kind = reply.content_type.partition(";")[0] or "missing"
            hint = f" Its content type is {kind}: is a login page in between?" if "json" not in kind else ""
            raise self._connect_error(f"the response is not Prometheus': {error}.{hint}") from None
        infos = outside.infos + tuple(each for each in outside.warnings if each.startswith(_INFO))
        partial = tuple(self._clean(each) for each in outside.warnings if not each.startswith(_INFO))
        return Answer(result=result, warnings=partial, infos=infos)

    def _accepted(self, reply: _Reply, *, field: str) -> _Reply:
        """The reply itself when it is a 200; otherwise raises the error that it stands for."""
        if reply.status == 200:
            return reply
        detail = self._detail(reply)
        tail = f": {detail}" if detail else ""
        # a 400 in plain text comes from the HTTP server (a plain request to a TLS port), not from the query
        if reply.status == 400 and self._error_type(reply) and _TOO_LONG not in detail:
            raise ConfigError(f"{field}: Prometheus at {self.url} refuses it{tail}")
        if reply.status in (401, 403):
            carried = (
                "the credentials"
                if self._has_credentials
                else "requests without credentials (bearerTokenFile, basicAuth)"
            )
            raise self._connect_error(f"rejects {carried} with {reply.status}{tail}")
        if 300 <= reply.status < 400:
            where = credentials.shown_url(reply.location) if reply.location else "somewhere else"
            raise self._connect_error(
                f"redirects to {where}: write the final address, or the credentials that it requires, in the policy"
            )
        if reply.status == 404:
            raise self._connect_error("has no Prometheus API there (404): is a path missing in usage.prometheus.url?")
        # 422: the query was understood, and ended by a limit (or by its result)
        too_much = reply.status == 422 or (reply.status == 503 and self._ended_the_query(reply)) or _TOO_LONG in detail
        raise self._connect_error(
            f"answered {reply.status} to {field}{tail}", TooMuchError if too_much else ConnectError
        )

    def _succeeded(self, outside: decode.Envelope, *, field: str = "usage.prometheus.url") -> decode.Envelope:
        """The envelope of a 200 itself when its status is success: proxies in front of Prometheus answer errors with
        200 too."""
        if outside.status == decode.SUCCESS:
            return outside
        detail = self._clean(outside.error)
        tail = f": {detail}" if detail else ""
        too_long = _TOO_LONG in detail
        if outside.error_type == "bad_data" and not too_long:
            raise ConfigError(f"{field}: Prometheus at {self.url} refuses it{tail}")
        kind = TooMuchError if too_long or outside.error_type in _LIMITS else ConnectError
        raise self._connect_error(f"answered {field} with status {outside.status!r}{tail}", kind)

    @property
    def _has_credentials(self) -> bool:
        return bool(self._settings.bearer_token_file or self._settings.basic_auth)

    def _sent(self, method: str, endpoint: str, params: dict[str, str]) -> _Reply:
        retrying = Retrying(
            retry=retry_if_exception_type(_Passing)
            | retry_if_result(lambda reply: reply.status in _PASSING and not self._ended_the_query(reply)),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.2, max=2.0),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        try:
            return retrying(self._sent_once, method, endpoint, params)
        except _Passing as error:
            raise self._connect_error(str(error)) from error

    def _sent_once(self, method: str, endpoint: str, params: dict[str, str]) -> _Reply:
        timeout = self._settings.timeout
        deadline = time.monotonic() + timeout
        url = f"{self._connection.url}/api/v1/{endpoint}"
        try:
            with self._session.request(
                method,
                url,
                params=params if method == "GET" else None,
                data=params if method == "POST" else None,
                headers=self._connection.headers,
                auth=self._login,
                verify=self._verify,
                timeout=timeout,
                # a redirected POST would come back as a GET without its query
                allow_redirects=False,
                stream=True,
            ) as response:
                body = self._body(response, deadline)
        except requests.exceptions.SSLError as error:
            raise self._connect_error(f"TLS fails: {_root(error)}") from error
        except requests.exceptions.Timeout as error:
            detail = f"no answer within {timeout:g} s (usage.prometheus.timeout)"
            raise self._connect_error(detail, TooMuchError) from error
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError) as error:
            raise ConfigError(f"usage.prometheus.url: {self.url} can't be used: {self._clean(_root(error))}") from error
        except (requests.exceptions.InvalidHeader, ValueError) as error:
            raise ConfigError("usage.prometheus.headers: not what HTTP can carry") from error
        except (requests.exceptions.RequestException, broken.HTTPError, http.client.HTTPException, OSError) as error:
            # of the libraries beneath too: `requests` translates their errors only where it expects them
            _log.debug("call to %s failed: %s", self.url, self._clean(_root(error)))
            raise _Passing(_root(error)) from error
        return _Reply(
            status=response.status_code,
            content_type=response.headers.get("Content-Type", ""),
            location=response.headers.get("Location", ""),
            body=body,
        )

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        """The whole body. The library's timeout applies to each read; a slow stream of bytes never exceeds it.

        Raises ReadTimeout, or _Passing for a truncated response: urllib3's own errors, which `requests` translates only
        where it reads itself.
        """
        parts, size = [], 0
        try:
            while part := response.raw.read1(_CHUNK_BYTES, decode_content=True):
                parts.append(part)
                size += len(part)
                if size > _MOST_BYTES:
                    raise self._connect_error(f"answered more than {_MOST_BYTES >> 20} MiB at once", TooMuchError)
                if time.monotonic() > deadline:
                    raise requests.exceptions.ReadTimeout
        except (broken.TimeoutError, TimeoutError) as error:
            raise requests.exceptions.ReadTimeout from error
        except requests.exceptions.RequestException:  # an OSError too
            raise
        except (broken.HTTPError, http.client.HTTPException, OSError) as error:
            _log.debug("answer of %s broke off: %s", self.url, self._clean(_root(error)))
            raise _Passing(f"its answer broke off: {_root(error)}") from error
        return b"".join(parts)

    def _ended_the_query(self, reply: _Reply) -> bool:
        """Prometheus itself ended the query (503 with `timeout`): repeating it would only add load."""
        return self._error_type(reply) in ("timeout", "canceled")

    def _error_type(self, reply: _Reply) -> str:
        """Empty when the reply isn't Prometheus' own."""
        try:
            return decode.envelope(reply.body).error_type
        except decode.BadAnswerError:
            return ""

    def _detail(self, reply: _Reply) -> str:
        try:
            return self._clean(decode.envelope(reply.body).error)
        except decode.BadAnswerError:
            # redacted before it is cut: half a secret isn't recognized
            text = redacted(reply.body.decode("utf-8", "replace"))[:_SHOWN_CHARS]
            return "" if "<" in text else self._clean(text)

    def _connect_error(self, what: str, kind: type[ConnectError] = ConnectError) -> ConnectError:
        return kind(f"Prometheus at {self.url}: {self._clean(what)}")

    def _clean(self, text: str) -> str:
        """One line, of readable length, without secrets."""
        line = " ".join(redacted(text).split())
        return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + " …"


def _root(error: BaseException) -> str:
    """The text of the innermost cause: `requests` and urllib3 wrap it three times."""
    seen: BaseException = error
    while True:
        inner = getattr(seen, "reason", None)
        if not isinstance(inner, BaseException):
            inner = next((each for each in reversed(seen.args) if isinstance(each, BaseException)), None)
        if inner is None:
            break
        seen = inner
    text = str(seen) or type(seen).__name__
    # "<urllib3…HTTPConnection object at 0x…>: Failed to …"
    return text.partition(": ")[2] or text if text.startswith(("<", "HTTP")) else text
