"""The boundary at which an object of the API becomes a record.

It is total: an object of a wrong shape, with numbers out of range or nested too deeply costs no other object of its
page or stream anything. Of such an object every field is read by itself; the record has those that can be, and says in
`unread` why it is not the whole. A page is decoded whole first, so that a good one costs what it did without this.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields, force_setattr

from rebalancer.kube.snapshot.records import ListMeta, Object, Page
from rebalancer.model.cluster.obstacles import Obstacle, one_line
from rebalancer.model.errors import UnsafeDataError
from rebalancer.model.notation.decoding import JsonDecoder, json_decoder

R = TypeVar("R", bound=Object)
V = TypeVar("V")

UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeError, ValueError, OverflowError)
"""What decoders raise for a document that is none of the type; RecursionError: it is nested too deeply."""

NAMELESS = "(without a name that can be read)"

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],]|[^"{}\[\],]+', re.DOTALL)
_OPEN, _CLOSE, _COMMA = b"{[", b"}]", ord(",")


def read_page(body: bytes, decoder: JsonDecoder[Page[Any]], kind: type[R]) -> Page[R]:
    """One page of a list. Raises UnsafeDataError where the page itself can't be read."""
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        whole = error
    try:
        split = json_decoder(Page[msgspec.Raw]).decode(body)
        return Page(metadata=split.metadata, items=[read_object(each, kind) for each in split.items or ()])
    except UNREADABLE:
        pass
    parts = _members(body)
    try:
        head = json_decoder(ListMeta).decode(parts[b"metadata"])
        objects = _elements(parts[b"items"])
    except (KeyError, *UNREADABLE):
        raise UnsafeDataError(f"can't be read: {one_line(str(whole))}") from None
    return Page(metadata=head, items=[read_object(each, kind) for each in objects])


def read_object(raw: bytes | msgspec.Raw, kind: type[R]) -> R:
    """One object; `unread` of the record says why it is not the whole."""
    try:
        return json_decoder(kind).decode(raw)
    except UNREADABLE as error:
        cause = one_line(str(error)) or type(error).__name__
    record: R = _salvaged(bytes(raw), kind)
    force_setattr(record, "unread", cause)
    return record


def version_of(raw: bytes) -> str:
    """The resourceVersion of an object, whatever else is in it; empty without one."""
    text = _members(_members(raw).get(b"metadata", b"")).get(b"resourceVersion", b"")
    try:
        return json_decoder(str).decode(text)
    except UNREADABLE:
        return ""


def event_of(line: bytes) -> tuple[str, bytes]:
    """(type, object) of an event whose line is nested too deeply. Raises UnsafeDataError where it is no event."""
    parts = _members(line)
    try:
        return json_decoder(str).decode(parts[b"type"]), parts[b"object"]
    except (KeyError, *UNREADABLE) as error:
        raise UnsafeDataError(f"can't be read: {one_line(str(error))}") from None


def obstacle_of(kind: str, record: Object, cause: str) -> Obstacle:
    """The obstacle that a record is."""
    namespace, name, _ = record.identity
    return Obstacle(kind=kind, namespace=one_line(namespace), name=one_line(name) or NAMELESS, cause=cause)


def kept(kind: str, records: Iterable[R], keep: Callable[[R], V]) -> tuple[list[V], list[Obstacle]]:
    """What `keep` makes of each, and the obstacles among them."""
    out: list[V] = []
    obstacles = []
    for record in records:
        value, cause = try_keep(record, keep)
        if value is not None:
            out.append(value)
        if cause:
            obstacles.append(obstacle_of(kind, record, cause))
    return out, obstacles


def try_keep(record: R, keep: Callable[[R], V]) -> tuple[V | None, str]:
    """(what `keep` makes of it, why it could not be read); None where it makes nothing of it."""
    try:
        return keep(record), record.unread
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this object's
        return None, record.unread or one_line(str(error)) or type(error).__name__


def whole(record: R) -> R:
    """The record. Raises ValueError where it could not be read in full."""
    if record.unread:
        raise ValueError(record.unread)
    return record


# ---- an object in parts


def _salvaged(raw: bytes, kind: type[Any]) -> Any:
    """A record of the fields that can be read, each by itself."""
    parts = _members(raw)
    found = {}
    for each in fields(kind):
        part = parts.get(each.encode_name.encode())
        try:
            found[each.name] = json_decoder(each.type).decode(part or b"")
            continue
        except UNREADABLE:
            inner = _struct_in(each.type)
        if inner is not None and (part is not None or each.required):
            found[each.name] = _salvaged(part or b"", inner)
    return kind(**found)


def _struct_in(kind: Any) -> type[Any] | None:
    """The Struct in `Struct` or `Struct | None`."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    structs = [each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    return structs[0] if len(structs) == 1 and set(kinds) <= {structs[0], NoneType} else None


def _members(raw: bytes) -> dict[bytes, bytes]:
    """Key -> JSON of an object's members, however deep; empty where it is no object."""
    if not raw.lstrip().startswith(b"{"):
        return {}
    out = {}
    for member in _split(raw):
        key = _TOKEN.match(member.lstrip())
        if key is not None and key[0].startswith(b'"'):
            out[key[0][1:-1]] = member.lstrip()[key.end() :].lstrip().removeprefix(b":").strip()
    return out


def _elements(raw: bytes) -> Sequence[bytes]:
    """The JSON of an array's elements, however deep."""
    return list(_split(raw))


def _split(raw: bytes) -> Iterator[bytes]:
    """The parts between the commas of the outermost object or array. What is cut off has none."""
    depth, begin = 0, 0
    parts: list[bytes] = []
    for token in _TOKEN.finditer(raw):
        char = raw[token.start()]
        if char in _OPEN:
            depth += 1
            begin = token.end() if depth == 1 else begin
        elif char in _CLOSE:
            depth -= 1
            if depth == 0:
                last = raw[begin : token.start()]
                return iter([*parts, last] if parts or last.strip() else [])
        elif char == _COMMA and depth == 1:
            parts.append(raw[begin : token.start()])
            begin = token.end()
    return iter(())
