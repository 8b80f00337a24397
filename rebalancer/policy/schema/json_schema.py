"""The policy file's JSON Schema, for editors and for the reference."""

from typing import Any

from rebalancer.policy.schema.policy import RebalancerPolicy
from rebalancer.policy.schema.types import DURATION_PATTERN, format_duration

SCHEMA_ID = "https://rebalancer.dev/schemas/policy/v1alpha1.json"


def policy_schema() -> dict[str, Any]:
    """Draft 2020-12, with every field's description."""
    schema = RebalancerPolicy.model_json_schema(by_alias=True)
    for section in (schema, *schema["$defs"].values()):
        for field in section.get("properties", {}).values():
            # inside, durations are seconds; a file says 2m
            if field.get("pattern") == DURATION_PATTERN and "default" in field:
                field["default"] = format_duration(field["default"])
            if field.get("type") == "array" and "minLength" in field:  # what a list in Python's clothes turns it into
                field["minItems"] = field.pop("minLength")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
