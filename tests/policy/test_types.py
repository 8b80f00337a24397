"""Scalars of the policy, its JSON Schema, and what its defaults promise."""

from typing import Any

import pytest
from pydantic import BaseModel

from rebalancer.model.cluster.match import selector_matches
from rebalancer.policy import RebalancerPolicy
from rebalancer.policy.schema.guards import Guards
from rebalancer.policy.schema.policy import SCHEMA_ID, policy_schema
from rebalancer.policy.schema.types import Selector, format_duration, parse_duration
from tests.builders import a_policy


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("8d", 691_200), ("1d1h1m1s", 90_061), ("36h", 129_600),
        ("007s", 7),
    ],
)  # fmt: skip
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", ["", "5", "m", "5 m", "1m1h", "5M", "-5m", "1.5h", "5ms", "5m\n", " 5m", 5, 5.0, None, True, ["5m"]]
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration(value)


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 3_600, 86_399, 86_400, 90_061, 691_200])
def test_durations_round_trip(seconds: int) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(5_400, "1h30m"), (0, "0s"), (0.4, "0s"), (59.6, "1m"), (86_400, "1d"), (90, "1m30s")]
)
def test_durations_are_written_in_the_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_selector_selects_as_kubernetes_does() -> None:
    selector = Selector.model_validate(
        {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]}
    )
    compiled = selector.compiled()
    assert selector_matches(compiled, {"a": "1"})
    assert selector_matches(compiled, {"a": "1", "b": "y"})
    assert not selector_matches(compiled, {"a": "1", "b": "x"})
    assert not selector_matches(compiled, {"b": "y"})
    assert Selector().is_empty
    assert not selector.is_empty
    assert selector_matches(Selector().compiled(), {})


def test_the_defaults_protect() -> None:
    guards = Guards()
    assert not any((guards.job_pods, guards.host_path, guards.disk_empty_dir, guards.persistent_volumes))
    assert guards.owner_kinds == ()
    assert guards.min_age == 300
    assert guards.min_replicas == 2
    assert guards.namespaces.exclude == ("kube-system",)
    assert a_policy().usage.min_coverage == 80
    assert RebalancerPolicy.model_fields["guards"].default == guards


# ---- JSON Schema

SCHEMA = policy_schema()
SECTIONS = {"RebalancerPolicy": SCHEMA, **SCHEMA["$defs"]}


def test_the_schema_says_which_it_is() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"] == SCHEMA_ID
    assert SCHEMA["required"] == ["apiVersion", "kind", "cluster", "pools", "usage", "strategies"]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_is_closed_and_described(name: str) -> None:
    section = SECTIONS[name]
    assert section["additionalProperties"] is False
    assert section["description"]
    assert section["properties"]


def fields_without_description() -> list[str]:
    """Fields that neither say what they are nor point to a section that does."""
    return [
        f"{name}.{key}"
        for name, section in SECTIONS.items()
        for key, field in section["properties"].items()
        if "description" not in field and "$ref" not in str(field)
    ]


def test_every_field_of_every_section_is_described() -> None:
    assert fields_without_description() == []


def test_keys_of_the_schema_are_those_of_a_policy_file() -> None:
    dumped = a_policy().model_dump(mode="json", by_alias=True)
    assert set(dumped) == set(SCHEMA["properties"])
    for key, section in (("usage", "UsageSource"), ("guards", "Guards"), ("limits", "Limits")):
        assert set(dumped[key]) == set(SECTIONS[section]["properties"])
    assert not any("_" in key for section in SECTIONS.values() for key in section["properties"])


def test_defaults_in_the_schema_are_written_as_in_a_file() -> None:
    usage = SECTIONS["UsageSource"]["properties"]
    assert (usage["rateWindow"]["default"], usage["maxSampleAge"]["default"]) == ("5m", "3m")
    assert SECTIONS["StabilizationWindow"]["properties"]["duration"]["default"] == "2m"
    assert SECTIONS["Guards"]["properties"]["minAge"]["default"] == "5m"


def test_defaults_of_sections_are_written_as_in_a_file() -> None:
    default = SECTIONS["UsageSource"]["properties"]["stabilizationWindow"]["default"]
    assert default == {"samples": 3, "duration": "2m"}


def test_every_section_forbids_the_unknown_and_cannot_be_changed() -> None:
    def sections(model: type[BaseModel]) -> set[type[BaseModel]]:
        found = {model}
        for each in model.__subclasses__():
            found |= sections(each)
        return found

    for model in sections(RebalancerPolicy.__mro__[1]):  # type: ignore[arg-type]
        assert model.model_config["extra"] == "forbid"
        assert model.model_config["strict"]
        assert model.model_config["frozen"]
        assert model.__doc__
