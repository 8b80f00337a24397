"""The part of JSON Schema that the chart's schema is written in, for machines without helm."""

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "null": (type(None),),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
KEYWORDS = {
    "$schema", "$ref", "title", "description", "type", "properties", "additionalProperties", "required", "items",
    "enum", "const", "pattern", "minLength", "minItems", "minimum", "maximum", "if", "then", "definitions",
}  # fmt: skip


def violations(value: Any, schema: Any, root: Any, at: str = "") -> Iterator[str]:
    """Where `value` is not what the schema says, in words. Raises ValueError for a keyword that isn't known here."""
    if unknown := schema.keys() - KEYWORDS:
        raise ValueError(f"{at}: not known here: {', '.join(sorted(unknown))}")
    if "$ref" in schema:
        yield from violations(value, root["definitions"][schema["$ref"].removeprefix("#/definitions/")], root, at)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        yield f"{at}: expected {' or '.join(types)}, got {value!r}"
        return
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if value not in allowed:
        yield f"{at}: got {value!r}"
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0) or not re.search(schema.get("pattern", ""), value):
            yield f"{at}: got {value!r}"
    elif isinstance(value, (int, float)):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            yield f"{at}: got {value!r}"
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{at}: too short"
        for index, each in enumerate(value):
            yield from violations(each, schema.get("items", {}), root, f"{at}[{index}]")
    elif isinstance(value, dict):
        yield from _in_object(value, schema, root, at)


def _in_object(value: dict[str, Any], schema: Any, root: Any, at: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at}.{name}: missing"
    for name, each in value.items():
        if name in known:
            yield from violations(each, known[name], root, f"{at}.{name}")
        elif others is False:
            yield f"{at}.{name}: not known"
        elif isinstance(others, dict):
            yield from violations(each, others, root, f"{at}.{name}")
    if "if" in schema and not list(violations(value, schema["if"], root, at)):
        yield from violations(value, schema["then"], root, at)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])
