"""JSON Schema from dataclasses: their types, the metadata of `model.notation.document`, and their docstrings."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rebalancer.cli.output.json import camel, described, document_fields

JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema_of(record: type, *, version: str, schema_id: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of a document with `schemaVersion` and the fields of a dataclass.

    A float may be null, which is what the encoder makes of NaN. Additional fields are allowed.
    """
    definitions: dict[str, Any] = {}
    top = _object(record, definitions)
    top["properties"] = {"schemaVersion": {"const": version, "type": "string"}, **top["properties"]}
    top["required"] = ["schemaVersion", *top["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema_id, "title": record.__name__}
    return {**head, **top, "$defs": dict(sorted(definitions.items()))}


def _object(record: type, definitions: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    texts = _field_docstrings(record)
    for each in document_fields(record):
        if each.shown.inline:
            properties |= _object(each.type, definitions)["properties"]
            continue
        schema = _of_type(each.type, definitions) | dict(each.shown.schema)
        schema = _nullable(schema) if each.shown.empty_is_null else schema
        text = texts.get(each.attribute)
        properties[camel(each.name)] = {**schema, "description": text} if text else schema
    description = " ".join((record.__doc__ or "").split())
    return {"type": "object", "description": description, "properties": properties, "required": list(properties)}


def _of_type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    plain, shown = described(hint)
    if plain is not hint:
        return _of_type(plain, definitions) | dict(shown.schema)
    origin, arguments = get_origin(plain), get_args(plain)
    if origin in (Union, UnionType):
        known = [_of_type(each, definitions) for each in arguments if each is not NoneType]
        return _nullable(known[0])
    if origin is Literal:
        return {"enum": list(arguments), "type": JSON_TYPES[type(arguments[0])]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1], definitions)}
    if origin is tuple:
        return {"type": "array", "items": _of_type(arguments[0], definitions)}
    if is_dataclass(plain):
        assert isinstance(plain, type)
        if plain.__name__ not in definitions:
            definitions[plain.__name__] = {}  # a name for records inside of themselves
            definitions[plain.__name__] = _object(plain, definitions)
        return {"$ref": f"#/$defs/{plain.__name__}"}
    schema = {"type": JSON_TYPES[plain]}
    return _nullable(schema) if plain is float else schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "type" not in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": [*names, *(["null"] if "null" not in names else [])]}


def _field_docstrings(record: type) -> dict[str, str]:
    """Field -> the string below it, of the class and its bases."""
    out: dict[str, str] = {}
    for kind in reversed([each for each in record.__mro__ if is_dataclass(each)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in pairwise(body.body):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    out[name] = " ".join(words.split())
    return out
