"""Bytes of a YAML file to what it says (a policy, say), or to one line for each mistake with file, line and field."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from rebalancer.model.errors import ConfigError
from rebalancer.policy.retired import retired_keys
from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.strategies import PluginStrategy
from rebalancer.policy.schema.types import FieldError

Model = TypeVar("Model", bound=BaseModel)

_EXPECTED = {
    "missing": "required field is missing",
    "string_type": "expected a string",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "tuple_type": "expected a list",
    "model_type": "expected a mapping",
    "model_attributes_type": "expected a mapping",
    "string_unicode": "expected text that UTF-8 can carry",
}
_LONGEST_SHOWN = 120
_NOT_TEXT = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null", "timestamp", "binary"))
"""What YAML takes a key without quotes for."""


class _Loader(yaml.SafeLoader):
    """PyYAML's, but a value that its constructors stumble over is an error with a line, as all others are."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, IndexError, AttributeError, KeyError, TypeError, OverflowError):
            kind = str(node.tag).rpartition(":")[2]
            value = f"{_got(node.value)} is no {kind}" if isinstance(node, yaml.ScalarNode) else f"not a {kind}"
            raise yaml.constructor.ConstructorError(
                None, None, f"a value can't be understood: {value}", node.start_mark
            ) from None


def load_policy(
    data: bytes, *, source: str, args_of: Callable[[str], type[BaseModel]] | None = None
) -> RebalancerPolicy:
    """Parse and check a policy. `source` is the file name for messages; `args_of` gives what checks the arguments of
    a plugin, by its name, or raises ConfigError; without it they are taken as they are.

    Raises ConfigError with every mistake, a line each.
    """
    document = Document.read(data, source=source, kind="RebalancerPolicy")
    if renamed := [str(document.mistake(at, what)) for at, what in retired_keys(document.value)]:
        raise ConfigError("\n".join(renamed))
    policy = document.checked(RebalancerPolicy, document.value)
    for index, strategy in enumerate(policy.strategies):
        if args_of is not None and isinstance(strategy, PluginStrategy):
            try:
                args = args_of(strategy.name)
            except ConfigError as error:
                raise document.mistake(("strategies", index, "name"), str(error)) from None
            document.checked(args, strategy.args, at=("strategies", index, "args"))
    return policy


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file, and which line its fields stand in."""

    source: str
    root: yaml.Node
    value: dict[str, Any]

    @classmethod
    def read(cls, data: bytes, *, source: str, kind: str) -> "Document":
        """Raises ConfigError unless it is one mapping, each key of which is text and stands once."""
        try:
            root = yaml.compose(data, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise ConfigError(f"{source}:{line}: not YAML: {error.problem or error.context}") from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: an escape that is no character
            raise ConfigError(f"{source}:1: not YAML: {' '.join(str(error).split())}") from None
        except RecursionError:
            raise ConfigError(f"{source}:1: nested too deeply") from None
        if root is None:
            raise ConfigError(f"{source}:1: the file is empty: expected a {kind}")
        if wrong := _wrong_keys(root):
            raise ConfigError("\n".join(f"{source}:{line}: {field}: {what}" for line, field, what in wrong))
        try:
            value = _Loader(data).get_single_data()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(f"{source}:{line}: {error.problem or error.context}") from None
        except RecursionError:
            raise ConfigError(f"{source}:1: nested too deeply") from None
        if not isinstance(value, dict):
            raise ConfigError(f"{source}:1: expected a mapping with apiVersion and kind, got {_kind_of(value)}")
        return cls(source, root, value)

    def checked(self, model: type[Model], value: Any, at: Sequence[str | int] = ()) -> Model:
        """`value`, which stands at `at`, as a model; raises ConfigError with a line for each mistake."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            lines = [self._line_for(each, model, at) for each in error.errors()]
            raise ConfigError("\n".join(dict.fromkeys(lines))) from None

    def mistake(self, at: Sequence[str | int], what: str) -> ConfigError:
        """The error that says what is wrong with the field at `at`."""
        return ConfigError(f"{self.source}:{_locate(self.root, at)}: {_shown(at)}: {what}")

    def place(self, at: Sequence[str | int]) -> tuple[str, int]:
        """(the field at `at` as a path, its line)"""
        return _shown(at), _locate(self.root, at)

    def _line_for(self, error: ErrorDetails, model: type[BaseModel], at: Sequence[str | int]) -> str:
        where = _Where.of([part for part in error["loc"] if not _is_union_branch(part)], model)
        location = list(where.fields)
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, FieldError):
            location += cause.way
        place = [*at, *location]
        line = _locate(self.root, place)
        return f"{self.source}:{line}: {_shown(place) or 'policy'}: {_expected(error, where)}"


@dataclass(frozen=True, slots=True)
class _Where:
    """Where in the schema an error is."""

    fields: tuple[str | int, ...]
    """The way there, as it stands in the file: without the tags of unions."""
    section: type[BaseModel]
    """What the last field stands in."""
    others: Mapping[str, type[BaseModel]]
    """Tag -> the same section in the other branches of a union on the way, where they have one."""

    @classmethod
    def of(cls, location: Sequence[str | int], model: type[BaseModel]) -> "_Where":
        fields: list[str | int] = []
        section, others = model, dict[str, type[BaseModel]]()
        annotation: Any = model
        candidates: dict[str, Any] = {}
        for part in location:
            branches = _branches(annotation)
            if part in branches:
                annotation = branches[str(part)]
                candidates = {tag: branch for tag, branch in branches.items() if tag != part}
                continue
            fields.append(part)
            inner = _model_in(annotation)
            if isinstance(part, int) or inner is None:
                continue
            section = inner
            others = {tag: found for tag, each in candidates.items() if (found := _model_in(each)) is not None}
            annotation = _annotation_of(section, part)
            candidates = {tag: _annotation_of(each, part) for tag, each in others.items()}
        return cls(tuple(fields), section, others)


def _wrong_keys(root: yaml.Node) -> list[tuple[int, str, str]]:
    """(line, field, what is wrong) of every key that is no text or stands twice.

    A node that aliases share is looked at once.
    """
    found: list[tuple[int, str, str]] = []
    visited: set[int] = set()
    waiting: list[tuple[yaml.Node, str]] = [(root, "")]
    while waiting:
        node, path = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, child in node.value:
                name = str(key.value)
                field = f"{path}.{_key(name)}" if path else _key(name)
                line = key.start_mark.line + 1
                if key.tag in _NOT_TEXT:
                    kind = str(key.tag).rpartition(":")[2]
                    found.append((line, field, f"expected text as a key, got {kind} (quotes would make it text)"))
                elif name in seen:
                    found.append((line, field, "the key stands twice"))
                seen.add(name)
                waiting.append((child, field))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(child, f"{path}[{index}]") for index, child in enumerate(node.value)]
    return sorted(found)


def _kind_of(value: Any) -> str:
    return {list: "a list", str: "a string", type(None): "nothing"}.get(type(value), type(value).__name__)


def _is_union_branch(part: Any) -> bool:
    # pydantic puts the tried branch of a union ("float", "function-before[...]") into the location
    return isinstance(part, str) and (part.startswith("function-") or part in ("[key]",))


def _locate(root: yaml.Node, location: Sequence[Any]) -> int:
    """The line of the deepest node on the way to `location`."""
    node, line = root, root.start_mark.line + 1
    for part in location:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == str(part):
                    line, child = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            line = child.start_mark.line + 1
        if child is None:
            return line
        node = child
    return line


def _shown(location: Sequence[Any]) -> str:
    out = ""
    for part in location:
        out += f"[{part}]" if isinstance(part, int) else (f".{_key(part)}" if out else _key(part))
    return out


def _key(part: Any) -> str:
    """A key as it may stand in a line."""
    text = str(part)
    shown = text if text.isprintable() and text else repr(text)
    return shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + " …"


def _got(given: Any) -> str:
    """A value as it may stand in a line: no longer than that, and without what a URL holds before its host."""
    try:
        text = repr(given)
    except ValueError:  # Python refuses to write so many digits
        text = "a number of thousands of digits"
    text = re.sub(r"//\S*@", "//***@", text)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + " …"


def _expected(error: ErrorDetails, where: _Where) -> str:
    kind, given, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(str(where.fields[-1]), where)
    if kind == "unknown_name":
        return _unknown_name(given, context["known"])
    if kind == "missing":
        return _EXPECTED[kind]
    if kind == "value_error":
        cause = context["error"]
        text = str(cause)
        # a check over several fields already says what it got
        return (
            text
            if isinstance(cause, FieldError) or not isinstance(given, str | int | float)
            else f"{text}, got {_got(given)}"
        )
    if kind == "literal_error":
        return f"expected {context['expected']}, got {_got(given)}"
    if kind == "string_pattern_mismatch":
        return f"expected text that matches {context['pattern']}, got {_got(given)}"
    if kind == "string_too_short":
        return "expected text that is not empty"
    if kind in ("too_short",):
        return f"expected at least {context['min_length']} entry"
    if kind == "greater_than_equal":
        return f"expected at least {context['ge']}, got {_got(given)}"
    if kind == "less_than_equal":
        return f"expected at most {context['le']:g}, got {_got(given)}"
    if kind == "greater_than":
        return f"expected more than {context['gt']:g}, got {_got(given)}"
    expected = _EXPECTED.get(kind, error["msg"])
    return f"{expected}, got {_got(given)}" if isinstance(given, str | int | float | bool) else expected


def _unknown_field(name: str, where: _Where) -> str:
    fields = _fields(where.section)
    owners = [tag for tag, section in where.others.items() if name in _fields(section)]
    known = f"known here: {', '.join(fields)}" if fields else "nothing is known here"
    if owners:
        return f"unknown field, it belongs to {', '.join(owners)}; {known}"
    near = _near(name, fields)
    return "unknown field" + (f", did you mean {near}?" if near else f"; {known}")


def _unknown_name(name: str, known: Sequence[str]) -> str:
    near = _near(name, known, cutoff=0.5)
    meant = f" (did you mean {near}?)" if near else ""
    return f"expected a strategy, got {_got(name)}{meant}; known: {', '.join(known)}, and domain/Name of a plugin"


def _near(name: str, known: Sequence[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def _fields(model: type[BaseModel]) -> list[str]:
    """The keys that the schema knows in a section."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _annotation_of(model: type[BaseModel], key: str) -> Any:
    return next((f.annotation for name, f in model.model_fields.items() if (f.alias or name) == key), None)


def _branches(annotation: Any) -> dict[str, type[BaseModel]]:
    """Tag -> model of the tagged union in an annotation."""
    inner = get_args(annotation)
    tags = [each.tag for each in inner if isinstance(each, Tag)]
    return {tags[0]: inner[0]} if tags else {tag: model for each in inner for tag, model in _branches(each).items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in getattr(annotation, "__args__", ()) if (found := _model_in(each))), None)
