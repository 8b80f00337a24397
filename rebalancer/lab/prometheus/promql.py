"""The part of PromQL that the lab supports: one plain selector, or `timestamp()` of one.

And of the contention counters `max by (...) (rate(selector[5m]))`, or the same of one rate divided by another; of
gauges `sum by (...)` and `max by (...)` of a selector, of the difference of two, or of such an aggregation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SELECTOR = re.compile(r"^\s*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(?:\{(?P<matchers>.*)\})?\s*$", re.DOTALL)
_MATCHER = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<op>=~|!~|!=|=)\s*
        (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|`(?P<raw>[^`]*)`)\s*(?:,|$)""",
    re.VERBOSE,
)
_MAX_BY = re.compile(r"^\s*max\s+by\s*\((?P<labels>[\w\s,]*)\)\s*\((?P<inner>.*)\)\s*$", re.DOTALL)
_AGGREGATION = re.compile(r"^\s*(?P<op>sum|max)\s+by\s*\((?P<labels>[\w\s,]*)\)\s*\((?P<inner>.*)\)\s*$", re.DOTALL)
_RATE = re.compile(r"^\s*rate\s*\((?P<selector>.*?)\[(?P<window>\w+)\]\s*\)\s*", re.DOTALL)
_TIMESTAMP = re.compile(r"^\s*timestamp\s*\((?P<inner>.*)\)\s*$", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class NotPlainError(ValueError):
    """PromQL that the lab doesn't support."""

    def __init__(self, query: str) -> None:
        super().__init__(
            f"the lab answers plain selectors only, not: {query}: start it at --speed 1, with prometheus and promtool "
            "installed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher; `op` is =, !=, =~ or !~."""

    label: str
    op: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Regular expressions are anchored; an absent label is empty."""
        have = labels.get(self.label, "")
        if self.op in ("=", "!="):
            return (have == self.value) is (self.op == "=")
        return (re.fullmatch(self.value, have) is not None) is (self.op == "=~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A parsed query."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    timestamps: bool = False
    """`timestamp(<selector>)`: sample times instead of values."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(matcher.matches(labels) for matcher in self.matchers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`max by (labels) (rate(counter[window]))`, or `rate(counter[window]) / rate(per[window])` in the middle."""

    labels: tuple[str, ...]
    counter: Selector
    window: str
    per: Selector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """`sum` or `max` by labels, of a selector, of the difference of two, or of another aggregation."""

    by_sum: bool
    labels: tuple[str, ...]
    of: "Selector | Aggregation"
    less: Selector | None = None


def parse_aggregation(query: str) -> Aggregation | None:
    """Parse a query of gauges; None where it is none. Raises NotPlainError for one that the lab doesn't support."""
    outer = _AGGREGATION.match(query)
    if outer is None or "rate" in outer["inner"]:
        return None
    labels = tuple(each.strip() for each in outer["labels"].split(",") if each.strip())
    of: Selector | Aggregation | None = parse_aggregation(outer["inner"])
    less = None
    if of is None:
        first, minus, second = outer["inner"].partition(" - ")
        of, less = parse(first), parse(second) if minus else None
    return Aggregation(by_sum=outer["op"] == "sum", labels=labels, of=of, less=less)


def parse_rate(query: str) -> Rate | None:
    """Parse a query of rates; None where it is none. Raises NotPlainError for one that the lab doesn't support."""
    outer = _MAX_BY.match(query)
    if outer is None:
        return None
    labels = tuple(each.strip() for each in outer["labels"].split(",") if each.strip())
    first = _RATE.match(outer["inner"])
    if first is None:
        raise NotPlainError(query)
    counter, window, rest = parse(first["selector"]), first["window"], outer["inner"][first.end() :]
    if not rest:
        return Rate(labels=labels, counter=counter, window=window)
    second = _RATE.fullmatch(rest.removeprefix("/"))
    if not rest.startswith("/") or second is None or second["window"] != window:
        raise NotPlainError(query)
    return Rate(labels=labels, counter=counter, window=window, per=parse(second["selector"]))


def parse(query: str) -> Selector:
    """Parse a query. Raises NotPlainError for everything but a selector or the timestamp of one."""
    wrapped = _TIMESTAMP.match(query)
    match = _SELECTOR.match(wrapped["inner"] if wrapped else query)
    if match is None:
        raise NotPlainError(query)
    matchers = _matchers(query, match["matchers"] or "")
    name = match["name"] or next((each.value for each in matchers if each.label == "__name__" and each.op == "="), "")
    if not name:
        raise NotPlainError(query)
    rest = tuple(each for each in matchers if each.label != "__name__")
    return Selector(name=name, matchers=rest, timestamps=wrapped is not None)


def _matchers(query: str, text: str) -> list[Matcher]:
    found, at = [], 0
    while at < len(text.rstrip()):
        match = _MATCHER.match(text, at)
        if match is None:
            raise NotPlainError(query)
        quoted = match["double"] if match["double"] is not None else match["single"]
        value = match["raw"] if quoted is None else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), quoted)
        if match["op"] in ("=~", "!~"):
            try:
                re.compile(value)
            except re.error:
                raise NotPlainError(query) from None
        found.append(Matcher(label=match["label"], op=match["op"], value=value))
        at = match.end()
    return found
