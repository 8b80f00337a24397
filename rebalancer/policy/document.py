"""A YAML document with the line of each field; every mistake is one line with file, line and field."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from rebalancer.model.errors import ConfigError
from rebalancer.policy.schema.types import CorrectableError, FieldError

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
    "string_unicode": "expected valid UTF-8 text",
    "string_too_short": "expected text that is not empty",
    "literal_error": "expected {expected}",
    "too_short": "expected at least {min_length} entry",
    "finite_number": "expected a finite number",
    "greater_than_equal": "expected at least {ge:g}",
    "less_than_equal": "expected at most {le:g}",
    "greater_than": "expected more than {gt:g}",
}
"""Type of a pydantic error -> message, with the error's context."""
_WITHOUT_VALUE = ("missing", "string_too_short", "too_short")
_WITH_KIND = ("literal_error", "tuple_type", "dict_type", "int_type", "float_type", "string_type", "bool_type")
"""Types of errors that name a list or a mapping given instead of a value."""
_MAX_SHOWN_CHARS = 120
MAX_EXPANDED = 100_000
"""Values that aliases and merge keys may add to those which are written in a document: a few lines that name each other
can stand for billions."""
_NOT_TEXT = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null", "timestamp", "binary"))
"""Tags that YAML gives to unquoted keys which are not text."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, with a line for values that its constructors fail on."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, IndexError, AttributeError, KeyError, TypeError, OverflowError):
            kind = str(node.tag).rpartition(":")[2]
            value = f"{_shown_value(node.value)} is no {kind}" if isinstance(node, yaml.ScalarNode) else f"not a {kind}"
            raise yaml.constructor.ConstructorError(None, None, f"invalid value: {value}", node.start_mark) from None


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file, its value, and the line of each field."""

    source: str
    root: yaml.Node
    value: dict[str, Any]

    @classmethod
    def read(cls, data: bytes, *, source: str, kind: str) -> "Document":
        """Raises ConfigError unless it is one mapping with unique text keys."""
        try:
            loader = _Loader(data)
            root = loader.get_single_node()
            if root is None:
                raise ConfigError(f"{source}:1: the file is empty: expected a {kind}")
            if wrong := _wrong_keys(root):
                raise ConfigError("\n".join(f"{source}:{line}: {field}: {what}" for line, field, what in wrong))
            if (line := _unbounded(root)) is not None:
                raise ConfigError(
                    f"{source}:{line}: aliases and merge keys add more than {MAX_EXPANDED:,} values: write them out"
                )
            value = loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = "" if isinstance(error, yaml.constructor.ConstructorError) else "not YAML: "
            if error.problem and "'\\t'" in error.problem:
                error.problem += ": write spaces instead of the tab"
            raise ConfigError(
                f"{source}:{mark.line + 1 if mark else 1}: {what}{error.problem or error.context}"
            ) from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: invalid escapes
            raise ConfigError(f"{source}:1: not YAML: {' '.join(str(error).split())}") from None
        except RecursionError:
            raise ConfigError(f"{source}:1: nested too deeply") from None
        if not isinstance(value, dict):
            raise ConfigError(f"{source}:1: expected a mapping with apiVersion and kind, got {_kind_of(value)}")
        return cls(source, root, value)

    def checked(self, model: type[Model], value: Any, at: Sequence[str | int] = ()) -> Model:
        """Validate `value`, found at `at`, as a model. Raises ConfigError with a line for each mistake."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            # a default that follows from a field with a mistake is no mistake of its own
            own = [each for each in error.errors() if each["type"] != "default_factory_not_called"]
            lines = [self._line_for(each, model, at) for each in own]
            raise ConfigError("\n".join(dict.fromkeys(lines))) from None

    def mistake(self, at: Sequence[str | int], what: str) -> ConfigError:
        """An error about the field at `at`."""
        return ConfigError(f"{self.source}:{_locate(self.root, at)}: {_shown(at)}: {what}")

    def place(self, at: Sequence[str | int]) -> tuple[str, int]:
        """(path, line) of the field at `at`."""
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
    """Location of an error in the schema."""

    fields: tuple[str | int, ...]
    """Path in the file: without the tags of unions."""
    section: type[BaseModel]
    """The section that holds the last field."""
    others: Mapping[str, type[BaseModel]]
    """Tag -> the corresponding section in the other branches of a union on the path, if any."""

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
    """(line, field, mistake) of every duplicate key and every key that is not text. Aliased nodes are visited once."""
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
                    found.append((line, field, "duplicate key"))
                seen.add(name)
                waiting.append((child, field))
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(child, f"{path}[{index}]") for index, child in enumerate(node.value)]
    return sorted(found)


def _unbounded(root: yaml.Node) -> int | None:
    """The line of the innermost value that expands to more than MAX_EXPANDED values beyond those which are written;
    None when there is none. A merge counts like an alias. What contains itself counts once: it is a mistake of another
    kind."""
    sizes: dict[int, int] = {}
    written = 0

    def size_of(node: yaml.Node) -> int:
        nonlocal written
        if id(node) not in sizes:
            sizes[id(node)] = 1
            written += 1
            inner: list[yaml.Node] = []
            if isinstance(node, yaml.MappingNode):
                inner = [each for pair in node.value for each in pair]
            elif isinstance(node, yaml.SequenceNode):
                inner = node.value
            sizes[id(node)] = size = 1 + sum(map(size_of, inner))
            if size - written > MAX_EXPANDED:
                raise _UnboundedError(node.start_mark.line + 1)
        return sizes[id(node)]

    try:
        size_of(root)
    except _UnboundedError as found:
        return found.line
    return None


class _UnboundedError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _kind_of(value: Any) -> str:
    return {list: "a list", dict: "a mapping", str: "a string", type(None): "nothing"}.get(
        type(value), type(value).__name__
    )


def _is_union_branch(part: Any) -> bool:
    # pydantic adds the branch of a union ("function-before[...]") to the location
    return isinstance(part, str) and (part.startswith("function-") or part == "[key]")


def _locate(root: yaml.Node, location: Sequence[Any]) -> int:
    """The line of the deepest existing node on the path `location`."""
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
    """A key, printable and of limited length."""
    text = str(part)
    shown = text if text.isprintable() and text else repr(text)
    return shown if len(shown) <= _MAX_SHOWN_CHARS else shown[:_MAX_SHOWN_CHARS] + " …"


def _shown_value(given: Any) -> str:
    """A value of limited length, without credentials in a URL."""
    if isinstance(given, list | dict):
        return _kind_of(given)
    try:
        text = str(given).lower() if isinstance(given, bool) else repr(given)
    except ValueError:  # Python limits the digits of an int
        text = "a number of thousands of digits"
    text = re.sub(r"//\S*@", "//***@", text)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + " …"


def _expected(error: ErrorDetails, where: _Where) -> str:
    kind, given, context = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(str(where.fields[-1]), where)
    if kind == "unknown_name":
        return _unknown_name(given, context["known"])
    cause = context.get("error")
    if isinstance(cause, FieldError):  # a check over several fields already states their values
        return str(cause)
    if kind == "value_error":
        text = str(cause)
    else:
        text = _EXPECTED[kind].format(**context) if kind in _EXPECTED else error["msg"]
    if kind == "missing" and (purpose := _purpose(str(where.fields[-1]), where.section)):
        return f"{text}: {purpose}"
    if given is None and kind not in _WITHOUT_VALUE:
        return f"{text}, got nothing: write a value, or remove the key"
    shows = kind not in _WITHOUT_VALUE and isinstance(given, str | int | float)
    got = f", got {_shown_value(given)}" if shows or kind in _WITH_KIND else ""
    write = cause.write if isinstance(cause, CorrectableError) else _correction(kind, given, context)
    return text + got + (f": write {write}" if write else "")


def _purpose(field: str, section: type[BaseModel]) -> str | None:
    """The first sentence of a field's documentation, in one line."""
    known = next((f for name, f in section.model_fields.items() if (f.alias or name) == field), None)
    text = " ".join(((known and known.description) or "").split())
    sentence = re.split(r"[.:](?: |$)", text, maxsplit=1)[0]
    return sentence[:1].lower() + sentence[1:] or None


def _correction(kind: str, given: Any, context: Mapping[str, Any]) -> str | None:
    """What to type instead of a wrong value whose meaning is clear."""
    if kind == "tuple_type" and isinstance(given, str | int) and not isinstance(given, bool):
        return f"[{_shown_value(given).strip(chr(39))}]"
    if kind == "bool_type" and isinstance(given, str):
        meant = {**dict.fromkeys(("false", "no", "off"), "false"), **dict.fromkeys(("true", "yes", "on"), "true")}
        return f"{meant[given.lower()]} without quotes" if given.lower() in meant else None
    if kind == "int_type" and isinstance(given, str) and given.isdecimal():
        return f"{_shown_value(given).strip(chr(39))} without quotes"
    if kind == "literal_error" and isinstance(given, str):
        known = {each.lower(): each for each in re.findall(r"'([^']+)'", context["expected"])}
        near = _near(given.lower(), list(known), cutoff=0.75)
        return known[near] if near else None
    return None


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
    return (
        f"expected a strategy, got {_shown_value(name)}{meant}; known: {', '.join(known)}, or domain/Name of a plugin"
    )


def _near(name: str, known: Sequence[str], cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def _fields(model: type[BaseModel]) -> list[str]:
    """The keys of a section."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _annotation_of(model: type[BaseModel], key: str) -> Any:
    return next((f.annotation for name, f in model.model_fields.items() if (f.alias or name) == key), None)


def _branches(annotation: Any) -> dict[str, type[BaseModel]]:
    """Tag -> model of a tagged union."""
    inner = get_args(annotation)
    tags = [each.tag for each in inner if isinstance(each, Tag)]
    return {tags[0]: inner[0]} if tags else {tag: model for each in inner for tag, model in _branches(each).items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in getattr(annotation, "__args__", ()) if (found := _model_in(each))), None)
