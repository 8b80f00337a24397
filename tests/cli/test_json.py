"""The encoder of JSON documents and the schema made from dataclasses."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jsonschema import Draft202012Validator

from rebalancer.cli.output.json import encode, pick
from rebalancer.cli.output.json_schema import schema_of
from rebalancer.model.cluster.owners import Service
from rebalancer.model.notation.document import INLINE, Count, Day, Instant, Shown
from rebalancer.model.reason import Reason


@dataclass(frozen=True)
class Inner:
    """An inner record."""

    cpu_share: float
    """0..1"""
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    """A record."""

    made_at: Instant
    day: Annotated[Day, Shown(name="from_day")]
    nodes: tuple[Count, ...]
    inner: Annotated[Inner, INLINE]
    other: Inner | None


RECORD = Outer(made_at=0.0, day=1, nodes=(1, 2), inner=Inner(math.nan), other=Inner(0.5, "b"))


def test_a_dataclass_is_an_object_with_its_metadata_applied() -> None:
    assert encode(RECORD) == {
        "madeAt": "1970-01-01T00:00:00+00:00",
        "fromDay": "1970-01-02",
        "nodes": [1, 2],
        "cpuShare": None,
        "kind": "a",
        "other": {"cpuShare": 0.5, "kind": "b"},
    }


def test_codes_and_services_are_text_and_unknown_numbers_null() -> None:
    found: dict[str, Any] = {Reason.NO_POD_USAGE: Service(kind="CronJob", namespace="batch", name="report")}
    assert encode(found | {"most": math.inf}) == {str(Reason.NO_POD_USAGE): "batch/report", "most": None}


def test_attributes_are_picked_in_camel_case() -> None:
    assert pick(RECORD.inner, "cpu_share", "kind") == {"cpuShare": RECORD.inner.cpu_share, "kind": "a"}


def test_the_schema_describes_what_the_encoder_writes() -> None:
    schema = schema_of(Outer, version="2", schema_id="https://example.org/schema.json")
    Draft202012Validator.check_schema(schema)
    document = {"schemaVersion": "2", **encode(RECORD)}
    validator = Draft202012Validator(schema)
    assert list(validator.iter_errors(document)) == []
    assert set(schema["required"]) == document.keys()
    assert schema["properties"]["cpuShare"]["description"] == "0..1"
    for wrong in ({"nodes": [-1]}, {"kind": "c"}, {"madeAt": 0}, {"other": {"kind": "a"}}, {"schemaVersion": "1"}):
        assert not validator.is_valid(document | wrong), wrong
