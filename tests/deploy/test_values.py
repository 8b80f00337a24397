"""The chart's values, without helm: the schema is strict, fits them, and templates use just what is there."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import yaml

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.policy import load_policy
from tests.deploy.readers.chart_schema import violations
from tests.deploy.readers.manifests import CHART, ROOT, VARIANTS, variant_file

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
IMAGE = {"image": {"repository": "rebalancer"}}
TEMPLATES = "\n".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """As helm lays one file of values over another."""
    out = copy.deepcopy(base)
    for name, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merged(out[name], value) if both else value
    return out


def mistakes(over: dict[str, Any]) -> list[str]:
    return list(violations(merged(merged(VALUES, IMAGE), over), SCHEMA, SCHEMA))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_values_of_every_variant_fit_the_schema(variant: str) -> None:
    assert mistakes(yaml.safe_load(variant_file(variant).read_text()) or {}) == []


@pytest.mark.parametrize(
    "over",
    [
        {"dryrun": False},
        {"dryRun": "false"},
        {"replicas": 0, "database": {"kind": "postgresql"}},
        {"database": {"kind": "mysql"}},
        {"database": {"kind": "postgresql", "postgresql": {"secretName": ""}}},
        {"database": {"sqlite": {"size": "5"}}},
        {"image": {"digest": "sha256:12"}},
        {"policy": ["a list"]},
        {"kind": "DaemonSet"},
        {"cronJob": {"schedule": "hourly"}},
        {"logLevel": "verbose"},
        {"fullnameOverride": "Upper"},
        {"service": {"type": "ExternalName"}},
        {"ingress": {"hosts": [{"host": "rebalancer.example"}]}},
        {"podDisruptionBudget": {"maxUnavailable": 0}},
        {"livenessProbe": {"httpGet": {"path": "/"}}},
        {"extraArgs": [1]},
        {"extraEnv": [{"value": "without a name"}]},
        {"serviceAccount": {"name": "Upper"}},
        {"webhook": {"bearerToken": {"token": "in plain text"}}},
        {"dashboard": False},
        {"service": {"port": 70000}},
        {"networkPolicy": {"prometheusPorts": []}},
        {"monitoring": {"prometheusRule": {"hotNodes": {"for": "5 minutes"}}}},
        {"monitoring": {"prometheusRule": {"runbookUrl": "runbook.md"}}},
        {"monitoring": {"prometheusRule": {"runbookUrl": "https://docs.example/"}}},
        {"terminationGracePeriodSeconds": 5},
        {"podAnnotations": {"number": 1}},
    ],
    ids=str,
)
def test_a_mistake_in_the_values_is_refused(over: dict[str, Any]) -> None:
    assert len(mistakes(over)) == 1


def test_two_replicas_are_fine_with_postgresql() -> None:
    assert mistakes({"replicas": 2, "database": {"kind": "postgresql"}}) == []


# Kubernetes' own objects, which the API server checks
FREE = {
    "affinity",
    "dnsConfig",
    "podSecurityContext",
    "securityContext",
    "global",
    "monitoring.serviceMonitor.tlsConfig",
}


def objects_of(schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for name, each in schema.get("properties", {}).items():
        path = f"{at}.{name}".lstrip(".")
        found = SCHEMA["definitions"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        if found.get("type") == "object":
            yield path, found
            yield from objects_of(found, path)


def test_every_object_of_the_schema_refuses_what_it_doesnt_know() -> None:
    open_ones = {path for path, found in objects_of(SCHEMA) if found.get("additionalProperties", True) is True}
    assert open_ones == FREE
    assert SCHEMA["additionalProperties"] is False


def leaves(values: dict[str, Any], at: str = "") -> Iterator[str]:
    for name, value in values.items():
        path = f"{at}.{name}".lstrip(".")
        yield path
        if isinstance(value, dict):
            yield from leaves(value, path)


def test_every_value_is_in_the_schema_and_every_field_of_the_schema_is_a_value() -> None:
    def known(schema: dict[str, Any], at: str = "") -> Iterator[str]:
        for name, each in schema.get("properties", {}).items():
            path = f"{at}.{name}".lstrip(".")
            yield path
            yield from known(SCHEMA["definitions"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each, path)

    # below these the keys are Kubernetes', or the user's
    free = (
        "startupProbe.",
        "livenessProbe.",
        "readinessProbe.",
        "podSecurityContext.",
        "securityContext.",
        "resources.requests.",
        "resources.limits.",
        "monitoring.dashboard.labels.",
    )
    values = {path for path in leaves(VALUES) if not path.startswith(free)}
    assert values == {path for path in known(SCHEMA) if not path.startswith(free)} - {"global"}


def test_templates_name_only_values_that_are_there() -> None:
    named = set(re.findall(r"\.Values\.([A-Za-z0-9_.]+)", TEMPLATES))
    assert named
    assert named <= set(leaves(VALUES))


def test_every_value_is_used_by_a_template() -> None:
    words = set(re.findall(r"\w+", TEMPLATES))
    unused = {path for path in leaves(VALUES) if path.rpartition(".")[2] not in words}
    given_as_a_whole = (
        "podSecurityContext.",
        "securityContext.",
        "resources.",
        "monitoring.dashboard.labels.",
        "startupProbe.",
        "livenessProbe.",
        "readinessProbe.",
    )
    # `enabled` is for the condition of a parent chart
    assert {path for path in unused if not path.startswith(given_as_a_whole)} - {"enabled"} == set()


def test_the_charts_page_has_a_row_for_every_value_as_helm_docs_writes_it() -> None:
    page = (CHART / "README.md").read_text()
    rows = re.findall(r"^\| ([\w.]+) \| (\w+) \| `(.*?)` \| (.+) \|$", page.partition("\n## Values\n")[2], re.M)
    documented = {key for key, *_ in rows}
    assert [key for key, *_ in rows] == sorted(documented)
    for path in leaves(VALUES):
        above = {path[: at.start()] for at in re.finditer(r"\.", path)}
        inner = {other for other in documented if other.startswith(f"{path}.")}
        assert path in documented or above & documented or inner, path
    for key, kind, default, description in rows:
        value: Any = VALUES
        for part in key.split("."):
            value = value[part]
        assert json.loads(default) == value, key
        names = {bool: "bool", int: "int", str: "string", list: "list", dict: "object", type(None): "object"}
        assert names[type(value)] == kind, key
        assert description.endswith("."), key


def test_the_chart_says_where_it_comes_from() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["home"].startswith("https://")
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    assert all(each.keys() == {"name", "email", "url"} for each in chart["maintainers"])
    assert chart["maintainers"]
    assert chart["annotations"]["artifacthub.io/license"] == "Apache-2.0"


def test_the_log_level_may_be_what_the_program_knows_and_is_its_default() -> None:
    field = Settings.model_fields["log_level"]
    assert VALUES["logLevel"] == field.default
    assert SCHEMA["properties"]["logLevel"]["enum"] == list(get_args(field.annotation))


def test_the_dashboard_may_be_what_the_program_knows_and_is_its_default() -> None:
    field = Settings.model_fields["dashboard"]
    assert VALUES["dashboard"] == field.default
    assert SCHEMA["properties"]["dashboard"]["enum"] == list(get_args(field.annotation))


def test_the_charts_policy_is_the_balanced_one_with_the_alert_that_the_chart_fires() -> None:
    ours = load_policy((CHART / "files" / "policy.yaml").read_bytes(), source="policy.yaml")
    balanced = load_policy((ROOT / "policies" / "balanced.yaml").read_bytes(), source="balanced.yaml")
    assert [rule.alert for rule in ours.alerts.rules] == ["NodeCPUHigh"]
    assert ours.model_copy(update={"alerts": balanced.alerts}) == balanced
