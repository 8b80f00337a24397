"""Plan files: JSON with a digest, written by `plan --out` and read by `run --plan`.

The digest is SHA-256 over the other fields, in an order and with spaces that don't depend on the writer. It detects an
edit. It is no signature: who can write the file can write the digest.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

from rebalancer.cli.common import read_file, shown_path
from rebalancer.cli.output.json import as_text, encode
from rebalancer.cli.output.json_schema import schema_of
from rebalancer.model.decisions.plan_file import PlanFile, PlannedEviction, PlannedTarget
from rebalancer.model.errors import ConfigError

SCHEMA_VERSION: Final = "1"
SCHEMA_ID: Final = "https://rebalancer.dev/schemas/plan/v1.json"

R = TypeVar("R")


def plan_file_schema() -> dict[str, Any]:
    """The JSON Schema of plan files."""
    return schema_of(PlanFile, version=SCHEMA_VERSION, schema_id=SCHEMA_ID)


def plan_file_text(plan: PlanFile) -> str:
    """The content of the file, with its digest."""
    document = {"schemaVersion": SCHEMA_VERSION, **encode(plan)}
    del document["digest"]
    return as_text(with_digest(document))


def with_digest(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document without its digest, and that."""
    return {**document, "digest": digest_of(document)}


def digest_of(document: Mapping[str, Any]) -> str:
    """Of a document without its digest."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_plan_file(path: Path) -> PlanFile:
    """Raises ConfigError for a file that can't be read, is no plan file, or was altered."""
    source = shown_path(path)
    try:
        document = json.loads(read_file(path), object_pairs_hook=_distinct)
        version, digest = document.pop("schemaVersion"), document.pop("digest")
        if version != SCHEMA_VERSION:
            raise ConfigError(f"{source}: expected schemaVersion {SCHEMA_VERSION}, got {version!r}")
        if digest != digest_of({"schemaVersion": version, **document}):
            raise ConfigError(f"{source}: altered since `rebalancer plan --out` wrote it: its digest doesn't match")
        return _plan(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ConfigError(f"{source}: expected a file that `rebalancer plan --out` wrote") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key twice")
    return out


def _plan(document: Mapping[str, Any]) -> PlanFile:
    evictions = tuple(
        _record(
            PlannedEviction,
            each,
            cpuMillicores=math.nan if each["cpuMillicores"] is None else each["cpuMillicores"],
            targetNodes=tuple(_record(PlannedTarget, one) for one in each["targetNodes"]),
        )
        for each in document["evictions"]
    )
    times = {name: datetime.fromisoformat(document[name]).timestamp() for name in ("takenAt", "expiresAt")}
    return _record(PlanFile, document, evictions=evictions, **times)


def _record(kind: type[R], document: Mapping[str, Any], **read: Any) -> R:
    """The record of an object of the document; `read` are fields that have been read already. Raises TypeError."""
    values = {_snake(name): value for name, value in {**document, **read}.items()}
    hints = get_type_hints(kind)
    if wrong := [name for name, value in values.items() if not _fits(value, hints[name])]:
        raise TypeError(wrong[0])
    return kind(**values)


def _fits(value: Any, hint: Any) -> bool:
    if hint in (str, bool):
        return isinstance(value, hint)
    return isinstance(value, tuple) or (isinstance(value, int | float) and not isinstance(value, bool)) or value is None


def _snake(name: str) -> str:
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
