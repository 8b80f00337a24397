"""OpenAPI documents of the lab's kinds, and strict validation of fields. The types are those of the Python client.

`kubectl explain` reads the documents; `kubectl apply` and `create` only look there whether the server validates fields.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rebalancer.lab.objects.errors import ApiError
from rebalancer.lab.objects.kinds import KINDS, Kind, Obj

_LIST = re.compile(r"^[Ll]ist\[(.+)\]$")
_MAP = re.compile(r"^(?:[Dd]ict\[str, |dict\(str, )(.+)[\])]$")
_SCALARS: Mapping[str, Obj] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "datetime": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
}
_MODEL = re.compile(r"^([A-Z][a-z]+)?(V\d+(?:alpha\d+|beta\d+)?)([A-Z]\w*)$")
_MODELS = {("", "Event"): "CoreV1Event", ("events.k8s.io", "Event"): "EventsV1Event"}


def root(group_versions: list[tuple[str, str]]) -> Obj:
    """`/openapi/v3`."""
    paths = [f"apis/{group}/{version}" if group else f"api/{version}" for group, version in group_versions]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


@cache
def document(group: str, version: str) -> Obj | None:
    """`/openapi/v3/api/v1` or `/openapi/v3/apis/<group>/<version>`, None when there is no such version."""
    kinds = [kind for kind in KINDS if (kind.group, kind.version) == (group, version)]
    if not kinds:
        return None
    schemas: dict[str, Obj] = {}
    paths: Obj = {}
    for kind in kinds:
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        model = _model_of(kind)
        if model is None:
            continue
        _add(model, schemas)
        schemas[_title(model)]["x-kubernetes-group-version-kind"] = [gvk]
        operation = {"x-kubernetes-group-version-kind": gvk, "responses": {}}
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        path = f"{prefix}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{prefix}/{kind.plural}"
        paths[path] = {"get": operation, "post": {**operation, "parameters": _PARAMETERS}}
        paths[f"{path}/{{name}}"] = {"get": operation, "patch": {**operation, "parameters": _PARAMETERS}}
    info = {"title": "Kubernetes", "version": "lab"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def check_fields(kind: Kind, obj: Obj) -> None:
    """Strict field validation. Raises ApiError 400 that names every unknown field."""
    model = _model_of(kind)
    unknown = [] if model is None else list(_unknown(model, obj, ""))
    if unknown:
        fields = ", ".join(f'unknown field "{field}"' for field in unknown)
        what = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
        raise ApiError(400, "BadRequest", f"{what}: strict decoding error: {fields}")


def _unknown(type_: str, value: Any, at: str) -> Iterator[str]:
    if (of_list := _LIST.match(type_)) is not None:
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _unknown(of_list[1], each, f"{at}[{index}]")
    elif (of_map := _MAP.match(type_)) is not None:
        for key, each in (value if isinstance(value, dict) else {}).items():
            yield from _unknown(of_map[1], each, f"{at}.{key}")
    elif type_ not in _SCALARS and isinstance(value, dict):
        model = _model(type_)
        if not model.attribute_map:
            return
        types = {name: model.openapi_types[attribute] for attribute, name in model.attribute_map.items()}
        for key, each in value.items():
            where = f"{at}.{key}" if at else key
            if key not in types:
                yield where
            else:
                yield from _unknown(types[key], each, where)


@cache
def _model(name: str) -> Any:
    """A class of the Python client; None: it has none of that name."""
    from kubernetes.client import models  # takes a third of a second

    return getattr(models, name, None)


def _model_of(kind: Kind) -> str | None:
    """The name of a kind's type. None: the installed client has none."""
    name = _MODELS.get((kind.group, kind.kind), f"{kind.version.capitalize()}{kind.kind}")
    return name if _model(name) is not None else None


def _title(model: str) -> str:
    """`io.k8s.v1.Container` for `V1Container`: kubectl shows what is behind the last dot."""
    found = _MODEL.match(model)
    return f"io.k8s.{found[2].lower()}.{found[3]}" if found else model


def _add(name: str, schemas: dict[str, Obj]) -> None:
    if _title(name) in schemas:
        return
    model = _model(name)
    properties: Obj = {}
    schemas[_title(name)] = {"type": "object", "description": _purpose(model), "properties": properties}
    for attribute, field in model.attribute_map.items():
        shown = _schema(model.openapi_types[attribute], schemas)
        described = getattr(model, "model_fields", {}).get(attribute)
        text = (described.description if described else None) or ""
        # as Kubernetes' own documents have it: a reference cannot have a description beside it
        shown = {"allOf": [shown], "default": {}} if "$ref" in shown else shown
        properties[field] = {**shown, "description": text}


def _schema(type_: str, schemas: dict[str, Obj]) -> Obj:
    if (of_list := _LIST.match(type_)) is not None:
        return {"type": "array", "items": _schema(of_list[1], schemas)}
    if (of_map := _MAP.match(type_)) is not None:
        return {"type": "object", "additionalProperties": _schema(of_map[1], schemas)}
    if type_ in _SCALARS:
        return dict(_SCALARS[type_])
    _add(type_, schemas)
    return {"$ref": f"#/components/schemas/{_title(type_)}"}


def _purpose(model: Any) -> str:
    return (model.__doc__ or "").partition("Attributes:")[0].strip()
