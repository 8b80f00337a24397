"""The policy file's JSON Schema, for editors and for the reference."""

from typing import Any

from rebalancer.policy.schema import RebalancerPolicy

SCHEMA_ID = "https://rebalancer.dev/schemas/policy/v1alpha1.json"


def policy_schema() -> dict[str, Any]:
    """Draft 2020-12, with every field's description."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **RebalancerPolicy.model_json_schema(by_alias=True),
    }
