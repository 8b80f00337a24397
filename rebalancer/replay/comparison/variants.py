"""Variants of a policy for a replay, and the choice among their runs.

A sweep is `FIELD=VALUE,VALUE`: a field as in the policy's own messages, and values in YAML. Several sweeps multiply.
A list's entry is named by its index or its `name`: `pools[0].thresholds.high` or `pools[general].thresholds.high`.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel

from rebalancer.model.errors import ConfigError
from rebalancer.model.recordings.recording import Recording
from rebalancer.model.recordings.replay import HOUR_MINUTES, ReplayRun
from rebalancer.policy.document import Document
from rebalancer.policy.loader import checked_policy
from rebalancer.policy.schema.policy import RebalancerPolicy

MOST_VARIANTS = 64
_MOST_SHOWN_CHARS = 40
_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\]]+)\]")
"""One part of a field: a key, or an index, name or key in brackets."""
_FIELD = re.compile(r"[^.\[\]]+(\.[^.\[\]]+|\[[^\]]+\])*")

Path = tuple[str | int, ...]


class Value(NamedTuple):
    """A value of a sweep."""

    text: str
    """In labels: as given, or the names of the windows that it consists of."""
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One field with the values that it takes."""

    field: str
    """As given."""
    path: Path
    """Keys and indices in the policy file."""
    values: tuple[Value, ...]


Change = Callable[[Recording], Recording]
"""A change of what was recorded, such as of the requests of a service. Can be pickled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy that differs from the file by the fields of the sweeps, or a recording that differs from what was."""

    label: str
    """`high=70, cluster=nights`: the end of each field that tells it from the others, and its value."""
    policy: RebalancerPolicy
    part: str
    """The fields of the sweeps as YAML, to paste into the policy."""
    change: Change | None = None
    """Makes the recording of its run; nodes, pods and usage stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """All combinations of the sweeps."""

    policies: tuple[Variant, ...]
    """The first sweep varies slowest."""
    left_out: tuple[str, ...] = ()
    """Combinations that are no valid policy, although each of their values is in a valid one: `high=65, target=65` with
    its mistake."""


def variants(
    data: bytes, *, source: str, sweeps: Sequence[str], args_of: Callable[[str], type[BaseModel]] | None = None
) -> Variants:
    """The policies of `sweeps`, options as given, from the policy file's bytes. `source` is its name in messages.

    Raises ConfigError with a line for each mistake in the options or in the file.
    """
    document = Document.read(data, source=source, kind="RebalancerPolicy")
    checked_policy(document, args_of=args_of)
    read = [_read(text, document.value) for text in sweeps]
    for one, other in combinations(read, 2):
        if one.path[: len(other.path)] == other.path[: len(one.path)]:
            raise ConfigError(
                f"--sweep {other.field}: it is in --sweep {one.field} too: write all values in one option"
            )
    if (count := prod(len(each.values) for each in read)) > MOST_VARIANTS:
        raise ConfigError(f"--sweep: expected at most {MOST_VARIANTS} policies, got {count}: give fewer values")
    names = _short_names(read)
    made, mistakes = list[Variant](), list[tuple[tuple[int, ...], str, str]]()
    valid = set[tuple[int, int]]()
    for chosen in product(*(range(len(each.values)) for each in read)):
        values = [each.values[at] for each, at in zip(read, chosen, strict=True)]
        label = ", ".join(f"{name}={value.text}" for name, value in zip(names, values, strict=True))
        changed = unshared(document.value)
        for each, value in zip(read, values, strict=True):
            put(changed, each.path, value.value)
        try:
            policy = checked_policy(replace(document, value=changed), args_of=args_of)
        except ConfigError as error:
            mistakes.append((chosen, label, _without_place(str(error), source)))
            continue
        made.append(Variant(label=label, policy=policy, part=_part(changed, [each.path for each in read])))
        valid |= set(enumerate(chosen))
    if not made:
        valid = {(sweep, 0) for sweep in range(1, len(read))}
        mistakes = mistakes[:1]
    wrong = {
        f"--sweep {read[sweep].field}={read[sweep].values[at].text}": what
        for chosen, _, what in reversed(mistakes)
        for sweep, at in enumerate(chosen)
        if (sweep, at) not in valid
    }
    if wrong:
        raise ConfigError("\n".join(f"{option}: {what}" for option, what in reversed(wrong.items())))
    return Variants(policies=tuple(made), left_out=tuple(f"{label}: {what}" for _, label, what in mistakes))


def _read(text: str, document: Mapping[str, Any]) -> Sweep:
    field, _, given = (each.strip() for each in text.partition("="))
    if not field or not given:
        raise ConfigError(f"--sweep {text}: expected a field and its values, such as pools[0].thresholds.high=70,75,80")
    if not _FIELD.fullmatch(field):
        raise ConfigError(f"--sweep {field}: expected a field such as pools[general].thresholds.high")
    return Sweep(field=field, path=_resolved(field, document), values=_values(field, given))


def _values(field: str, given: str) -> tuple[Value, ...]:
    """The values of an option, which are the entries of a YAML list without its brackets."""
    text = f"[{given}]"
    try:
        root, values = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(
            f"--sweep {field}: expected YAML values separated by commas, got {_shortened(given)}: "
            "write quotes around text with special characters"
        ) from None
    assert isinstance(root, yaml.SequenceNode)
    out: list[Value] = []
    for node, value in zip(root.value, values, strict=True):
        shown = _names_in(value) or _shortened(text[node.start_mark.index : node.end_mark.index])
        if value is False and shown.lower() == "off":
            value = "Off"  # noqa: PLW2901 (the choice of that name; YAML reads it as false)
        if any(each.value == value for each in out):
            raise ConfigError(f"--sweep {field}: {shown} is given twice")
        # the place distinguishes lists of windows with the same names
        out.append(Value(f"{shown} ({len(out) + 1})" if any(each.text == shown for each in out) else shown, value))
    return tuple(out)


def _names_in(value: Any) -> str:
    """`nights+weekend` for a list of entries with names; empty for others."""
    named = isinstance(value, list) and all(isinstance(each, dict) and each.get("name") for each in value)
    return "+".join(str(each["name"]) for each in value) if named else ""


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_SHOWN_CHARS else text[: _MOST_SHOWN_CHARS - 1] + "…"


def _resolved(field: str, document: Mapping[str, Any]) -> Path:
    """Keys and indices. Keys that the file doesn't have are left to the validation."""
    value: Any = document
    path: list[str | int] = []
    for match in _PART.finditer(field):
        part: str | int = match[1] or match[2]
        before = field[: match.start()]
        if isinstance(value, list):
            path.append(at := _index(f"--sweep {field}", str(part), value))
            value = value[at]
            continue
        if value is None and str(part).isdecimal():
            raise ConfigError(
                f"--sweep {field}: the policy file has no {before}: write it there first, or give whole lists as values"
            )
        if value is not None and not isinstance(value, dict):
            raise ConfigError(f"--sweep {field}: {before} is a value in the policy file, it has no fields")
        path.append(part)
        value = (value or {}).get(part)
    return tuple(path)


def _index(option: str, part: str, entries: Sequence[Any]) -> int:
    """The index of a list's entry, by its number or name."""
    if part.isdecimal() and int(part) < len(entries):
        return int(part)
    names = [str(each["name"]) for each in entries if isinstance(each, dict) and "name" in each]
    if part in names:
        return names.index(part)
    if near := difflib.get_close_matches(part, names, n=1):
        raise ConfigError(f"{option}: no entry [{part}], did you mean [{near[0]}]?")
    known = ", ".join(f"[{each}]" for each in names) or f"[0] to [{len(entries) - 1}]"
    raise ConfigError(f"{option}: no entry [{part}]; known: {known if entries else 'none, the list is empty'}")


def _short_names(sweeps: Sequence[Sweep]) -> list[str]:
    """The shortest end of each field that no other one has."""
    fields = [[match[0] for match in _PART.finditer(each.field)] for each in sweeps]
    out = []
    for at, parts in enumerate(fields):
        others = [other for number, other in enumerate(fields) if number != at]
        # an index alone names nothing
        ends = (parts[-length:] for length in range(1, len(parts) + 1) if not parts[-length].startswith("["))
        end = next((end for end in ends if all(other[-len(end) :] != end for other in others)), parts)
        out.append("".join(end).removeprefix("."))
    return out


def put(document: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at `path`; mappings that are missing on the way are made."""
    at: Any = document
    for part in path[:-1]:
        if isinstance(at, dict) and at.get(part) is None:
            at[part] = {}
        at = at[part]
    at[path[-1]] = value


def unshared(value: Any) -> Any:
    """A copy in which what aliases of YAML share is apart."""
    if isinstance(value, dict):
        return {key: unshared(each) for key, each in value.items()}
    return [unshared(each) for each in value] if isinstance(value, list) else value


def _part(document: Mapping[str, Any], paths: Sequence[Path]) -> str:
    """The values at `paths` as YAML."""
    part: dict[str, Any] = {}
    for path in paths:
        _copy(document, part, path)
    return yaml.safe_dump(part, sort_keys=False, default_flow_style=None, allow_unicode=True, width=120)


def _copy(at: Any, part: dict[str, Any], path: Path) -> None:
    """Copy the value at `path` into `part`. A list's entry is copied with its name; without one, the whole list is."""
    key, rest = path[0], path[1:]
    inner = at[key]
    if not rest:
        part[str(key)] = inner
    elif isinstance(inner, dict):
        _copy(inner, part.setdefault(str(key), {}), rest)
    elif len(rest) > 1 and isinstance(entry := inner[rest[0]], dict) and "name" in entry:
        entries = part.setdefault(str(key), [])
        if (found := next((each for each in entries if each["name"] == entry["name"]), None)) is None:
            entries.append(found := {"name": entry["name"]})
        _copy(entry, found, rest[1:])
    else:
        part[str(key)] = inner


def _without_place(text: str, source: str) -> str:
    """A policy's mistakes in one line, without the file and line of each: the value is not in the file."""
    place = re.compile(rf"{re.escape(source)}:\d+: ")
    return "; ".join(place.sub("", line, count=1) for line in text.splitlines())


# ---- the choice


_FIGURES: Mapping[str, Callable[[ReplayRun], float]] = {
    "hot": lambda run: run.hot_share(),
    "hot-node-hours": lambda run: run.hot_node_minutes / HOUR_MINUTES,
    "evictions": lambda run: float(len(run.evictions)),
}
_TERM = re.compile(r"([a-z-]+)\s*(<=|<)\s*(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class GoalTerm:
    """One bound of a goal."""

    figure: str
    """`hot`, `hot-node-hours` or `evictions`."""
    below: bool
    """`<` instead of `<=`."""
    bound: float
    """A share for `hot`."""

    def met(self, run: ReplayRun) -> bool:
        """Whether a run keeps the bound. False where its figure isn't known."""
        figure = _FIGURES[self.figure](run)
        return figure < self.bound if self.below else figure <= self.bound


def read_goal(text: str) -> tuple[GoalTerm, ...]:
    """The bounds of `--goal`, such as `hot<=1%, evictions<=100`; all must be kept. Raises ConfigError."""
    out = []
    for part in re.split(r",|\band\b", text):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise ConfigError(
                f"--goal {text}: expected bounds such as hot<=1%, hot-node-hours<=40 or evictions<=100, "
                f"got {part.strip() or 'nothing'}"
            )
        figure, sign, number, percent = match.groups()
        if figure not in _FIGURES:
            near = difflib.get_close_matches(figure, _FIGURES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_FIGURES)}"
            raise ConfigError(f"--goal {text}: unknown figure {figure}, {hint}")
        if bool(percent) != (figure == "hot"):
            shown = f"a percentage: write hot{sign}{number}%" if figure == "hot" else f"a number: write {number}"
            raise ConfigError(f"--goal {text}: expected {figure} as {shown}")
        out.append(GoalTerm(figure, sign == "<", float(number) / 100 if percent else float(number)))
    return tuple(out)


def cheapest(runs: Sequence[ReplayRun], goal: Sequence[GoalTerm], *, end: float) -> ReplayRun | None:
    """The run with the fewest evictions, then the fewest hot node-minutes, of those that meet the goal. Runs that
    stopped before `end`, the end of the recording, count as not meeting it."""
    meeting = [run for run in _complete(runs, end) if all(term.met(run) for term in goal)]
    return min(meeting, key=lambda run: (len(run.evictions), run.hot_node_minutes), default=None)


def frontier(runs: Sequence[ReplayRun], *, end: float) -> list[ReplayRun]:
    """The runs that no other one beats in hot node-minutes or evictions without being worse in the other; fewest
    evictions first. Of equal runs the first is in it. Runs that stopped before `end` are left out."""
    out: list[ReplayRun] = []
    for run in sorted(_complete(runs, end), key=lambda run: (len(run.evictions), run.hot_node_minutes)):
        if not out or run.hot_node_minutes < out[-1].hot_node_minutes:
            out.append(run)
    return out


def _complete(runs: Sequence[ReplayRun], end: float) -> list[ReplayRun]:
    return [run for run in runs if run.until >= end]
