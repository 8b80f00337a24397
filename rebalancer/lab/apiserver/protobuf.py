"""Reads the protobuf bodies that kubectl and Helm send: their typed clients (`create`, `auth can-i`, Helm's releases)
send nothing else, and don't fall back to JSON. Answers are JSON, which these clients accept too.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding. Field numbers and names are in
`protobuf_fields.json`, which `tests/programs/protobuf_fields.py` writes from the modules of Kubernetes. A field is
`name:type`; no name: the fields of the message belong to the outer object. Types: s, b, i, d, y (base64) or a message;
`[]` before it is a list, `{}` a map; `?` behind it: left out when zero.
"""

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from rebalancer.lab.objects.errors import bad_request
from rebalancer.lab.objects.kinds import KINDS, Obj

Wire = int | bytes

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _package(group: str, version: str) -> str:
    return f"{group.partition('.')[0] or 'core'}/{version}"


ROOTS = (
    *(f"{_package(kind.group, kind.version)}.{kind.kind}" for kind in KINDS if kind.group != "metrics.k8s.io"),
    "policy/v1.Eviction",
    "autoscaling/v1.HorizontalPodAutoscaler",
    "autoscaling/v1.Scale",
    "authorization/v1.SelfSubjectAccessReview",
    "authorization/v1.SelfSubjectRulesReview",
    "authentication/v1.SelfSubjectReview",
    "meta/v1.DeleteOptions",
)
"""Messages that a request's body can be."""


def decode(body: bytes) -> Obj:
    """The object in a request's body, as JSON has it. Raises ApiError 400."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is not protobuf of Kubernetes: it does not begin with its four bytes")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        type_meta = dict(_fields(_bytes(envelope.get(1, b""))))
        api_version, kind = (_bytes(type_meta.get(number, b"")).decode() for number in (1, 2))
        group, _, version = api_version.rpartition("/")
        name = "meta/v1.DeleteOptions" if kind == "DeleteOptions" else f"{_package(group, version)}.{kind}"
        if name not in ROOTS:
            raise bad_request(f"no kind {kind!r} is registered for version {api_version!r}")
        return {"apiVersion": api_version, "kind": kind, **_message(name, _bytes(envelope.get(2, b"")))}
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, TypeError, ValueError) as error:
        raise bad_request(f"the protobuf body can't be decoded: {error}") from None


@cache
def _table() -> dict[str, dict[int, tuple[str, str]]]:
    text = resources.files(__package__).joinpath("protobuf_fields.json").read_text()
    return {
        name: {int(number): (entry.partition(":")[0], entry.partition(":")[2]) for number, entry in fields.items()}
        for name, fields in json.loads(text).items()
    }


def _message(name: str, data: bytes) -> Any:
    special = SPECIAL.get(name)
    if special is not None:
        return special(data)
    found: Obj = {}
    known = _table()[name]
    for number, wire in _fields(data):
        if number not in known:
            continue  # of a newer version
        field, type_ = known[number]
        if type_.startswith("{}"):
            pair = dict(_fields(_bytes(wire)))
            key = _bytes(pair.get(1, b"")).decode()
            found.setdefault(field, {})[key] = _value(type_[2:], pair[2]) if 2 in pair else _zero(type_[2:])
        elif type_.startswith("[]"):
            found.setdefault(field, []).extend(_repeated(type_[2:], wire))
        else:
            value = _value(type_.rstrip("?"), wire)
            if not field:
                found |= value
            elif value is not None and (value or not type_.endswith("?")):
                found[field] = value
    return found


def _repeated(type_: str, wire: Wire) -> list[Any]:
    if type_ in "ib" and isinstance(wire, bytes):  # packed
        values, at = [], 0
        while at < len(wire):
            value, at = _varint(wire, at)
            values.append(_value(type_, value))
        return values
    return [_value(type_, wire)]


def _zero(type_: str) -> Any:
    return {"s": "", "y": "", "i": 0, "b": False, "d": 0.0}.get(type_, {})


def _value(type_: str, wire: Wire) -> Any:
    match type_:
        case "s":
            return _bytes(wire).decode()
        case "y":
            return base64.b64encode(_bytes(wire)).decode()
        case "b":
            return bool(wire)
        case "i":
            return _signed(wire)
        case "d":
            return struct.unpack("<d", _bytes(wire))[0]
    return _message(type_, _bytes(wire))


def _bytes(wire: Wire) -> bytes:
    if not isinstance(wire, bytes):
        raise TypeError("a number where a text or a message is expected")
    return wire


def _signed(wire: Wire) -> int:
    if not isinstance(wire, int):
        raise TypeError("a text where a number is expected")
    return wire - (1 << 64) if wire >= 1 << 63 else wire


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size = {_FIXED64: 8, _FIXED32: 4}.get(key & 7, 0)
        if key & 7 == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if key & 7 == _BYTES:
            size, at = _varint(data, at)
        elif not size:
            raise ValueError(f"wire type {key & 7}")
        if at + size > len(data):
            raise ValueError("it ends too early")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _time(data: bytes) -> str | None:
    numbers = {number: _signed(wire) for number, wire in _fields(data)}
    if not numbers:
        return None
    moment = datetime.fromtimestamp(numbers.get(1, 0), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(data: bytes) -> str | None:
    numbers = {number: _signed(wire) for number, wire in _fields(data)}
    if not numbers:
        return None
    moment = datetime.fromtimestamp(numbers.get(1, 0), UTC).replace(microsecond=numbers.get(2, 0) // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _text(data: bytes) -> str:
    return _bytes(dict(_fields(data)).get(1, b"")).decode()


def _int_or_string(data: bytes) -> int | str:
    found = dict(_fields(data))
    return _bytes(found.get(3, b"")).decode() if found.get(1) else _signed(found.get(2, 0))


def _raw_json(data: bytes) -> Any:
    raw = _bytes(dict(_fields(data)).get(1, b""))
    return json.loads(raw) if raw else None


def _items(data: bytes) -> list[str]:
    return [_bytes(wire).decode() for _, wire in _fields(data)]


SPECIAL: dict[str, Callable[[bytes], Any]] = {
    "meta/v1.Time": _time,
    "meta/v1.MicroTime": _micro_time,
    "api/resource.Quantity": _text,
    "util/intstr.IntOrString": _int_or_string,
    "pkg/runtime.RawExtension": _raw_json,
    "meta/v1.FieldsV1": _raw_json,
    "authorization/v1.ExtraValue": _items,
    "authentication/v1.ExtraValue": _items,
}
"""Messages whose JSON is not an object."""
