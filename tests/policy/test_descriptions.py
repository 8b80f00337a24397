"""What a field is for, in the JSON Schema of the policy."""

from typing import ClassVar

from pydantic import BaseModel

from rebalancer.policy.schema.descriptions import described
from rebalancer.policy.schema.policy import policy_schema

SCHEMA = policy_schema()


class _Below(BaseModel):
    """A model with and without a text."""

    told: int
    """One line,
    and another."""
    untold: int
    limit: ClassVar[int] = 3
    """Of no field."""


class _Further(_Below):
    """One that extends it."""

    own: int
    """Of its own."""


def test_the_text_below_a_field_describes_it_in_the_models_that_extend_it() -> None:
    assert described(_Further) == {"told": "One line,\nand another.", "own": "Of its own."}


def test_a_field_that_is_a_section_is_described_beside_its_reference() -> None:
    assert SCHEMA["properties"]["planner"]["description"] == "How a plan is made."


def test_a_duration_has_the_text_of_its_field() -> None:
    assert SCHEMA["$defs"]["Window"]["properties"]["duration"]["description"].startswith("Duration from each start")


def test_a_model_without_source_has_no_descriptions() -> None:
    made = type("Made", (BaseModel,), {"__annotations__": {"size": int}, "__module__": "builtins"})
    assert described(made) == {}
