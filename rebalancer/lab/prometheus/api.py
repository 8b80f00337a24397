"""The Prometheus HTTP API, for the queries that `promql.py` parses.

Source: https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import asyncio
import math
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from rebalancer.lab.prometheus.promql import NotPlainError, Rate, parse, parse_aggregation, parse_rate
from rebalancer.lab.prometheus.rates import ContentionRates
from rebalancer.lab.prometheus.row import Row
from rebalancer.lab.prometheus.series import SeriesBook
from rebalancer.lab.serving import ServedLab, json_response
from rebalancer.model.notation.arrays import Floats

_MOST_POINTS = 11_000
_FORWARD_SECONDS = 60.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


class _BadDataError(ValueError):
    """A parameter that can't be used."""


class PrometheusApi:
    """Answers every path under `/prometheus`."""

    def __init__(self, lab: ServedLab) -> None:
        self._lab = lab
        self._series = SeriesBook.of(lab)
        self._rates = ContentionRates(model=lab.contention, faults=lab.faults)

    async def __call__(self, request: Request) -> Response:
        """One request."""
        required = self._lab.prometheus_auth
        if required is not None and request.headers.get("authorization") != required:
            return PlainTextResponse("Unauthorized", 401, {"WWW-Authenticate": "Basic"})
        path = request.url.path.removeprefix("/prometheus").rstrip("/")
        if path in ("", "/-/ready", "/-/healthy"):
            return PlainTextResponse("Prometheus Server is Ready.\n")
        parameters: dict[str, list[str]] = {}
        for key, value in request.query_params.multi_items():
            parameters.setdefault(key, []).append(value)
        if request.method == "POST":
            for key, value in parse_qsl((await request.body()).decode(errors="replace")):
                parameters.setdefault(key, []).append(value)
        try:
            # In a thread: a range over days of many pods takes a while, and watches must go on.
            data = await asyncio.to_thread(self._data, path, parameters)
        except NotPlainError as error:
            if self._lab.full_prometheus_url is not None:
                return await asyncio.to_thread(_forwarded, self._lab.full_prometheus_url + path, parameters)
            return json_response({"status": "error", "errorType": "bad_data", "error": str(error)}, 400)
        except _BadDataError as error:
            return json_response({"status": "error", "errorType": "bad_data", "error": str(error)}, 400)
        if data is None:
            return PlainTextResponse("404 page not found\n", 404)
        body: dict[str, Any] = {"status": "success", "data": data}
        if self._lab.faults.state.partial:
            body["warnings"] = [self._lab.faults.state.partial]
        return json_response(body)

    def _data(self, path: str, parameters: dict[str, list[str]]) -> Any:
        # in milliseconds, truncated as by Prometheus: a rounded one could lie in the future
        now = math.floor(self._lab.clock.now() * 1000.0) / 1000.0
        one = {key: values[-1] for key, values in parameters.items()}
        match path:
            case "/api/v1/query":
                at = _time(one["time"]) if one.get("time") else now
                query = _required(one, "query")
                if (rate := None if parse_aggregation(query) else parse_rate(query)) is not None:
                    return self._rate_vector(rate, at)
                return self._instant(query, at)
            case "/api/v1/query_range":
                return self._range(one)
            case "/api/v1/series":
                return self._matching(parameters, now)
            case "/api/v1/labels":
                return ["__name__", "container", "instance", "job", "namespace", "node", "pod"]
            case "/api/v1/label/__name__/values":
                return self._series.names()
            case "/api/v1/status/buildinfo":
                return {"version": "3.0.0+rebalancer.lab", "revision": "", "branch": "", "goVersion": ""}
        return None

    def _rows(self, query: str, times: Floats) -> list[Row]:
        aggregation = parse_aggregation(query)
        return (
            self._series.select(parse(query), times)
            if aggregation is None
            else self._series.aggregate(aggregation, times)
        )

    def _instant(self, query: str, at: float) -> dict[str, Any]:
        rows = self._rows(query, np.array([at]))
        stamp = round(at, 3)
        shown = (row for row in rows if row.present[0])
        result = [{"metric": row.labels, "value": [stamp, _text(float(row.values[0]))]} for row in shown]
        return {"resultType": "vector", "result": result}

    def _rate_vector(self, rate: Rate, at: float) -> dict[str, Any]:
        found = self._rates.select(rate, at=at, window_seconds=_duration(rate.window))
        result = [{"metric": labels, "value": [round(at, 3), _text(value)]} for labels, value in found]
        return {"resultType": "vector", "result": result}

    def _range(self, one: dict[str, str]) -> dict[str, Any]:
        query = _required(one, "query")
        start, end = _time(_required(one, "start")), _time(_required(one, "end"))
        step = _duration(_required(one, "step"))
        if end < start:
            raise _BadDataError('invalid parameter "end": end timestamp must not be before start time')
        if step <= 0:
            raise _BadDataError('invalid parameter "step": zero or negative step widths are not accepted')
        count = math.floor((end - start) / step + 1e-9) + 1
        if count > _MOST_POINTS:
            raise _BadDataError(
                "exceeded maximum resolution of 11,000 points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        times: Floats = start + step * np.arange(count, dtype=np.float64)
        rows = self._rows(query, times)
        stamps = [round(moment, 3) for moment in times.tolist()]
        return {"resultType": "matrix", "result": [_matrix(row, stamps) for row in rows]}

    def _matching(self, parameters: dict[str, list[str]], now: float) -> list[dict[str, str]]:
        queries = parameters.get("match[]") or []
        if not queries:
            raise _BadDataError("no match[] parameter provided")
        end = _time(parameters["end"][-1]) if "end" in parameters else now
        found: list[dict[str, str]] = []
        for query in queries:
            found += [row.labels for row in self._series.select(parse(query), np.array([min(end, now)]))]
        return found


def _forwarded(url: str, parameters: dict[str, list[str]]) -> Response:
    """The answer of the real Prometheus."""
    request = urllib.request.Request(url, data=urlencode(parameters, doseq=True).encode())
    try:
        with urllib.request.urlopen(request, timeout=_FORWARD_SECONDS) as answer:
            return Response(answer.read(), answer.status, media_type="application/json")
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.read(), error.code, media_type="application/json")
    except OSError as error:
        return PlainTextResponse(f"the real Prometheus of the lab: {error}\n", 502)


def _matrix(row: Row, stamps: list[float]) -> dict[str, Any]:
    values = row.values.tolist()
    points = [[stamp, _text(value)] for stamp, value, here in zip(stamps, values, row.present, strict=True) if here]
    return {"metric": row.labels, "values": points}


def _text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value.is_integer() else repr(value)


def _required(parameters: dict[str, str], name: str) -> str:
    if not parameters.get(name):
        raise _BadDataError(f'invalid parameter "{name}": missing')
    return parameters[name]


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise _BadDataError(f'cannot parse "{text}" to a valid timestamp') from None


def _duration(text: str) -> float:
    for unit in sorted(_UNITS, key=len, reverse=True):
        if text.endswith(unit):
            try:
                return float(text.removesuffix(unit)) * _UNITS[unit]
            except ValueError:
                break
    try:
        return float(text)
    except ValueError:
        raise _BadDataError(f'cannot parse "{text}" to a valid duration') from None
