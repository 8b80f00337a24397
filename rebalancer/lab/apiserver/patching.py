"""JSON merge patch (RFC 7386), JSON patch (RFC 6902), and Kubernetes' strategic merge patch.

Of the strategic merge, what the lab's kinds need: lists of objects merge by the real API's merge keys, `$patch:
delete|replace`, `$retainKeys` and `$setElementOrder` are honoured or ignored as noted. A merge key that is not in the
table means that the list is replaced, as the real one does for atomic lists; a node's taints are one.
"""

from copy import deepcopy
from typing import Any

from rebalancer.lab.objects.errors import ApiError, bad_request
from rebalancer.lab.objects.kinds import Obj

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_MERGE_KEYS = {
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
}


def apply_patch(obj: Obj, patch: Any, content_type: str) -> Obj:
    """The patched object; `obj` stays as it is. Raises ApiError 400, 415, 422."""
    kind = content_type.partition(";")[0].strip()
    if kind == JSON_PATCH:
        if not isinstance(patch, list):
            raise bad_request("a JSON patch is a list of operations")
        return _json_patch(deepcopy(obj), patch)
    if not isinstance(patch, dict):
        raise bad_request("a patch is an object")
    if kind == STRATEGIC:
        return _strategic(deepcopy(obj), patch)
    if kind in (MERGE, APPLY):
        merged: Obj = _merge(deepcopy(obj), patch)
        return merged
    raise ApiError(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type!r}")


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value)
    return result


def _strategic(target: Any, patch: Obj) -> Obj:
    result: Obj = target if isinstance(target, dict) else {}
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    for key, value in patch.items():
        if key.startswith("$"):
            continue  # $retainKeys and $setElementOrder only tidy up
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _strategic(result.get(key), value)
        elif isinstance(value, list) and key in _MERGE_KEYS and all(isinstance(each, dict) for each in value):
            result[key] = _merge_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = value
    return result


def _merge_list(have: list[Obj], patch: list[Obj], merge_key: str) -> list[Obj]:
    if any(each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if "$patch" not in each]
    result = list(have)
    for each in patch:
        at = next((i for i, old in enumerate(result) if old.get(merge_key) == each.get(merge_key)), None)
        if each.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(each)
        else:
            result[at] = _strategic(dict(result[at]), each)
    return result


def _json_patch(document: Any, operations: list[Obj]) -> Obj:
    for operation in operations:
        path = [part.replace("~1", "/").replace("~0", "~") for part in str(operation.get("path", "")).split("/")[1:]]
        try:
            _operate(document, operation, path)
        except (KeyError, IndexError, TypeError, ValueError):
            message = f"the server rejected our request due to an error in our request: {operation}"
            raise ApiError(422, "Invalid", message) from None
    result: Obj = document
    return result


def _operate(document: Any, operation: Obj, path: list[str]) -> None:
    parent = document
    for part in path[:-1]:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    key: Any = path[-1]
    if isinstance(parent, list):
        key = len(parent) if key == "-" else int(key)
    match operation.get("op"):
        case "add":
            if isinstance(parent, list):
                parent.insert(key, operation["value"])
            else:
                parent[key] = operation["value"]
        case "replace":
            _ = parent[key]  # it must be there
            parent[key] = operation["value"]
        case "remove":
            del parent[key]
        case "test":
            if parent[key] != operation["value"]:
                raise ValueError("test failed")
        case _:
            raise ValueError("unknown operation")
