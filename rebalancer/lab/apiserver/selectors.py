"""Label and field selectors as they stand in a query string.

Sources: apimachinery `labels.Parse` and `fields.ParseSelector`; field names: the registry's `strategy.go` files.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from rebalancer.lab.objects.errors import bad_request
from rebalancer.lab.objects.kinds import Obj
from rebalancer.model.cluster.match import requirement_matches
from rebalancer.model.cluster.objects import Requirement

Predicate = Callable[[Obj], bool]

_SET = re.compile(r"^(?P<key>[^\s!=()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^\s!=()]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s!=()]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=()]+)$")

_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector. Raises ApiError 400."""
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    return tuple(_requirement(part) for part in parts)


def _requirement(part: str) -> Requirement:
    if match := _SET.match(part):
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(key=match["key"], operator="In" if match["op"] == "in" else "NotIn", values=values)
    if match := _EQUAL.match(part):
        return Requirement(
            key=match["key"], operator="NotIn" if match["op"] == "!=" else "In", values=(match["value"],)
        )
    if match := _EXISTS.match(part):
        return Requirement(key=match["key"], operator="DoesNotExist" if match["not"] else "Exists")
    raise bad_request(f"unable to parse requirement: {part!r}")


def field_of(obj: Obj, path: str) -> str:
    """The value at a dotted path as field selectors compare it; a missing one is empty."""
    value: Any = obj
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path == "spec.unschedulable" else ""
    return str(value)


def predicate(plural: str, *, label_selector: str = "", field_selector: str = "", namespace: str = "") -> Predicate:
    """Whether a list or watch with these parameters shows an object. Raises ApiError 400."""
    requirements = parse_labels(label_selector)
    fields: list[tuple[str, bool, str]] = []
    for part in filter(None, (each.strip() for each in field_selector.split(","))):
        match = re.match(r"^(?P<path>[^!=]+)(?P<op>==|!=|=)(?P<value>.*)$", part)
        if match is None:
            raise bad_request(f"invalid field selector: {part!r}")
        if match["path"] not in _COMMON_FIELDS + _FIELDS.get(plural, ()):
            raise bad_request(f'"{match["path"]}" is not a known field selector: only "metadata.name", ...')
        fields.append((match["path"], match["op"] != "!=", match["value"]))

    def shows(obj: Obj) -> bool:
        if namespace and obj["metadata"].get("namespace") != namespace:
            return False
        if requirements:
            labels = obj["metadata"].get("labels") or {}
            if not all(requirement_matches(each, labels) for each in requirements):
                return False
        return all((field_of(obj, path) == value) is wanted for path, wanted, value in fields)

    return shows
