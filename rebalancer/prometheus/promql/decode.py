"""Prometheus' responses, from bytes to columns.

Values are JSON strings ("NaN" and "+Inf" among them, which msgspec's lax floats refuse), so they are decoded as text
and converted here. 150,000 series take about half a second: typed structs for the needed labels only, no dicts. Source
of the format: https://prometheus.io/docs/prometheus/latest/querying/api/#expression-query-result-formats
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from rebalancer.model.measured.history import Grid
from rebalancer.model.notation.arrays import Floats
from rebalancer.model.notation.decoding import JsonDecoder, json_decoder, new_json_decoder
from rebalancer.prometheus.promql.series import PodLabels, PodSeries, SharedPodSeries

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no JSON of the expected form."""

Point = tuple[float, str]
T = TypeVar("T")

SUCCESS = "success"
"""The `status` of a response without an error, whatever its HTTP status."""

CONTAINER_LABEL = "container"
MARKED_PARTIAL = "isPartial: not every storage node of VictoriaMetrics has answered"


class BadAnswerError(Exception):
    """A body that is no response of Prometheus. The message names what was expected."""


class NoSeriesError(BadAnswerError):
    """A result of another type: a scalar, a string."""


class Envelope(msgspec.Struct, frozen=True, rename={"error_type": "errorType", "is_partial": "isPartial"}):
    """The envelope of every response."""

    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()
    is_partial: bool = False
    """VictoriaMetrics' mark of storage nodes missing from a response; it sends no warnings."""


class Result(msgspec.Struct, frozen=True, rename={"type": "resultType"}):
    """The result of a query, still undecoded."""

    type: str
    result: msgspec.Raw


class _Sample(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str] = {}
    value: Point | None = None
    """None for a native histogram, which is no usage."""


class _Series(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str] = {}
    values: tuple[Point, ...] = ()


class _PodSample(msgspec.Struct, frozen=True, gc=False):
    metric: msgspec.Raw = msgspec.Raw(b"{}")
    value: Point | None = None


class _Line(msgspec.Struct, frozen=True, gc=False):
    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One value for each series."""

    labels: Sequence[Mapping[str, str]]
    values: Floats
    """(series,)"""
    at: float
    """Evaluation time, seconds since the epoch; NaN for an empty vector."""

    def items(self) -> Iterator[tuple[Mapping[str, str], float]]:
        """Labels and value of each series."""
        return zip(self.labels, self.values.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Several values for each series."""

    labels: Sequence[Mapping[str, str]]
    times: Sequence[Floats]
    values: Sequence[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVector:
    """One value for each pod series."""

    table: PodSeries
    series: NDArray[np.int64]
    """(series,) numbers in the table"""
    values: Floats
    """(series,) cores"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Series over time, their values still text."""

    labels: Sequence[Mapping[str, str]]
    values: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLines:
    """The same for pods; a label that is missing is an empty string."""

    namespaces: Sequence[str]
    pods: Sequence[str]
    nodes: Sequence[str]
    containers: Sequence[str]
    values: Sequence[msgspec.Raw]


def envelope(body: bytes) -> Envelope:
    """The envelope; a response that is marked partial gets a warning.

    Raises BadAnswerError when the bytes are no JSON, or JSON of another form.
    """
    try:
        found = json_decoder(Envelope).decode(body)
    except UNDECODABLE as error:
        raise _undecodable(error) from None
    return msgspec.structs.replace(found, warnings=(*found.warnings, MARKED_PARTIAL)) if found.is_partial else found


def result(data: msgspec.Raw) -> Result:
    """The `data` of a query's response. Raises BadAnswerError."""
    return _decoded(data, Result)


def vector(answer: Result) -> Vector:
    """Raises BadAnswerError when it isn't a vector of numbers."""
    samples = _decoded(_of_type(answer, "vector"), list[_Sample])
    points = [each.value for each in samples]
    return Vector(
        labels=[each.metric for each in samples],
        values=_floats([point[1] if point else "NaN" for point in points]),
        at=next((point[0] for point in points if point), float("nan")),
    )


def matrix(answer: Result) -> Matrix:
    """Raises BadAnswerError when it isn't a matrix of numbers."""
    series = _decoded(_of_type(answer, "matrix"), list[_Series])
    return Matrix(
        labels=[each.metric for each in series],
        times=[np.array([point[0] for point in each.values]) for each in series],
        values=[_floats([point[1] for point in each.values]) for each in series],
    )


def lines(answer: Result) -> Lines:
    """Raises BadAnswerError when it isn't a matrix."""
    series = _decoded(_of_type(answer, "matrix"), list[_Line])
    return Lines(labels=[each.metric for each in series], values=[each.values for each in series])


def grid(values: Sequence[msgspec.Raw], *, start: float, step: float, count: int) -> Grid:
    """(series, count) figures at start, start + step, …; NaN where there is none.

    No Python object is made for a sample: `[[t,"v"],…]` without brackets and quotes is a list of numbers, which numpy
    reads at once. Raises BadAnswerError.
    """
    out: Grid = np.full((len(values), count), np.nan, dtype=np.float32)
    texts = [bytes(each) for each in values]
    points = np.array([text.count(b'"') // 2 for text in texts], dtype=np.int64)
    if not points.sum():
        return out
    text = b",".join(text for text, has in zip(texts, points.tolist(), strict=True) if has)
    try:
        numbers = np.fromstring(text.translate(None, b'[]" \n'), dtype=np.float64, sep=",")
    except (ValueError, DeprecationWarning) as error:
        raise BadAnswerError(f"not a number ({error})") from None
    if len(numbers) != 2 * points.sum():
        raise BadAnswerError("not pairs of a time and a number")
    at = np.rint((numbers[0::2] - start) / step)
    rows = np.repeat(np.arange(len(values)), points)
    inside = (at >= 0) & (at < count)
    with np.errstate(over="ignore"):
        out[rows[inside], at[inside].astype(np.int64)] = numbers[1::2][inside]
    return out


class PodDecoder:
    """Decodes large pod vectors and matrices, with a struct made once for the policy's label names. For several threads
    at once.

    `namespace`, `pod` and `node` are label names; they must differ, and none may be `container` (ValueError).
    """

    def __init__(self, *, namespace: str, pod: str, node: str) -> None:
        labels = msgspec.defstruct(
            "PodLabels",
            [("namespace", str, ""), ("pod", str, ""), ("node", str, ""), ("container", str, "")],
            rename={"namespace": namespace, "pod": pod, "node": node, "container": CONTAINER_LABEL},
            frozen=True,
            gc=False,
        )
        line = msgspec.defstruct(
            "PodLine", [("metric", labels), ("values", msgspec.Raw, msgspec.Raw(b"[]"))], frozen=True, gc=False
        )
        of_labels: JsonDecoder[Any] = new_json_decoder(labels)
        self._decoder = json_decoder(list[_PodSample])
        self._series = SharedPodSeries(lambda raw: cast(PodLabels, _decoded_by(of_labels, raw)))
        self._lines: JsonDecoder[Any] = new_json_decoder(list[line])  # type: ignore[valid-type]

    def vector(self, answer: Result) -> PodVector:
        """Raises BadAnswerError when it isn't a vector of numbers."""
        samples = _decoded_by(self._decoder, _of_type(answer, "vector"))
        table, series = self._series.numbers([each.metric for each in samples])
        return PodVector(
            table=table,
            series=series,
            values=_floats([each.value[1] if each.value else "NaN" for each in samples]),
        )

    def lines(self, answer: Result) -> PodLines:
        """Raises BadAnswerError when it isn't a matrix."""
        series = _decoded_by(self._lines, _of_type(answer, "matrix"))
        return PodLines(
            namespaces=[each.metric.namespace for each in series],
            pods=[each.metric.pod for each in series],
            nodes=[each.metric.node for each in series],
            containers=[each.metric.container for each in series],
            values=[each.values for each in series],
        )


def _of_type(answer: Result, wanted: str) -> msgspec.Raw:
    if answer.type != wanted:
        raise NoSeriesError(f"expected series (a {wanted}), got a {answer.type}")
    return answer.result


def _undecodable(error: Exception) -> BadAnswerError:
    detail = "nested too deeply" if isinstance(error, RecursionError) else error
    return BadAnswerError(f"not Prometheus' JSON ({detail})")


def _decoded(raw: msgspec.Raw, kind: type[T]) -> T:
    return _decoded_by(json_decoder(kind), raw)


def _decoded_by(decoder: JsonDecoder[T], raw: msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        raise _undecodable(error) from None


def _floats(texts: list[str]) -> Floats:
    try:
        return np.array([float(text) for text in texts], dtype=np.float64)
    except ValueError as error:
        raise BadAnswerError(f"not a number ({error})") from None
