"""Writes `rebalancer/lab/apiserver/protobuf_fields.json` from the Go modules k8s.io/api and k8s.io/apimachinery.

    python -m tests.programs.protobuf_fields /path/to/k8s.io/api@v0.33.2 /path/to/k8s.io/apimachinery@v0.33.2

Field numbers and types are in the `generated.proto` files, JSON names and pointers in the tags of the Go types.
"""

import json
import re
import sys
from pathlib import Path

from rebalancer.lab.apiserver import protobuf
from rebalancer.lab.apiserver.protobuf import ROOTS

_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(optional|repeated|map<string, ([.\w]+)>)\s+(?:([.\w]+)\s+)?(\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"^\s*(?:\w+\s+)?(\S+)\s+`json:\"([^\"]*)\" protobuf:\"\w+,(\d+),", re.MULTILINE)
_SCALARS = {"string": "s", "bool": "b", "bytes": "y", "double": "d"}
_SCALARS |= dict.fromkeys(("int32", "int64", "uint32", "uint64"), "i")


def _short(name: str, package: str) -> str:
    """`core/v1.Pod` for `.k8s.io.api.core.v1.Pod`."""
    if name in _SCALARS:
        return _SCALARS[name]
    full = name.lstrip(".") if "." in name else f"{package}.{name}"
    return "/".join(full.rsplit(".", 3)[1:3]) + "." + full.rsplit(".", 1)[1]


def fields_of(folder: Path) -> dict[str, dict[str, str]]:
    """Message -> field number -> `name:type`, of one package. See `protobuf.py` for the types."""
    text = (folder / "generated.proto").read_text()
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    assert package is not None
    tags: dict[tuple[str, str], tuple[str, str]] = {}
    for source in sorted(folder.glob("*.go")):
        if source.name == "generated.pb.go":
            continue
        for struct, body in _STRUCT.findall(source.read_text()):
            for type_, name, number in _TAGGED.findall(body):
                tags[struct, number] = (type_, name)
    found: dict[str, dict[str, str]] = {}
    for message, body in _MESSAGE.findall(text):
        entry = found[_short(message, package[1])] = {}
        for label, of_map, type_, name, number in _FIELD.findall(body):
            go, tag = tags.get((message, number), ("", name))
            json_name, _, options = tag.partition(",")
            kind = _short(of_map or type_, package[1])
            kind = "{}" + kind if of_map else "[]" + kind if label == "repeated" else kind
            # a scalar that Go leaves out when it is zero, unless it is a pointer
            empty = "?" if kind in "sbid" and "omitempty" in options and not go.startswith("*") else ""
            entry[number] = f"{'' if 'inline' in options else json_name}:{kind}{empty}"
    return found


def main(api: Path, machinery: Path) -> None:
    """Write the messages that the roots reach."""
    every: dict[str, dict[str, str]] = {}
    for proto in sorted([*api.glob("*/v*/generated.proto"), *machinery.glob("pkg/**/generated.proto")]):
        if "testapigroup" not in proto.parts:
            every |= fields_of(proto.parent)
    waiting, kept = list(ROOTS), dict[str, dict[str, str]]()
    while waiting:
        name = waiting.pop()
        if name in kept or name in protobuf.SPECIAL:
            continue
        kept[name] = every[name]
        for entry in kept[name].values():
            of = entry.split(":", 1)[1].rstrip("?").removeprefix("[]").removeprefix("{}")
            waiting += [of] if "." in of else []
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    target = Path(protobuf.__file__).with_name("protobuf_fields.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
