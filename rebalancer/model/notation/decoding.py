"""Decoders of msgspec, made by one thread at a time.

msgspec works out the fields of a Struct for the first decoder that reads it, and stores them with the class before they
are complete, because a Struct may contain itself. A second thread that decodes the same Struct in that moment follows
null pointers, and the process ends with SIGSEGV. So decoders and conversions come from here alone: ruff rejects those
of msgspec (TID251 in pyproject.toml).
"""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

JsonDecoder = msgspec.json.Decoder
MsgpackDecoder = msgspec.msgpack.Decoder

_making = threading.Lock()
_json: dict[object, JsonDecoder[Any]] = {}
_msgpack: dict[object, MsgpackDecoder[Any]] = {}


def json_decoder(kind: type[T]) -> JsonDecoder[T]:
    """The decoder of JSON to this type: one for the process, for any thread."""
    found = _json.get(kind)
    if found is None:
        found = _json[kind] = new_json_decoder(kind)
    return found


def new_json_decoder(kind: type[T]) -> JsonDecoder[T]:
    """A decoder that is not kept: for a type that is made at run time, and dropped with its decoder."""
    with _making:
        return msgspec.json.Decoder(kind)


def msgpack_decoder(kind: type[T]) -> MsgpackDecoder[T]:
    """The decoder of MessagePack to this type: one for the process, for any thread."""
    found = _msgpack.get(kind)
    if found is None:
        with _making:
            found = _msgpack[kind] = msgspec.msgpack.Decoder(kind)
    return found


def convert(value: Any, kind: type[T]) -> T:
    """Plain data as this type, like `msgspec.convert`. Raises msgspec.ValidationError."""
    json_decoder(kind)  # works out the fields of all Structs of the type
    return msgspec.convert(value, kind)
