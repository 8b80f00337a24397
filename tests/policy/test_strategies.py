"""The strategies section: each entry is read by its own schema, and every mistake names file, line and field."""

# ruff: noqa: E501 (a table of mistakes is read row by row)

import json
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from rebalancer.policy.schema.policy import policy_schema
from rebalancer.policy.schema.strategies import BUILT_IN, STRATEGY_NAMES, PluginStrategy
from tests.builders import a_policy

HEAD = """\
apiVersion: rebalancer.dev/v1alpha1
kind: RebalancerPolicy
cluster: c
pools:
  - {name: general, selector: {}, thresholds: {high: 75, target: 65, low: 55}}
  - {name: other, selector: {}, thresholds: {high: 75, target: 65, low: 55}}
usage: {prometheus: {url: "http://p:9090"}}
strategies:
"""
FIRST = len(HEAD.splitlines()) + 1
NEEDED: dict[str, dict[str, Any]] = {
    "NodeMaintenance": {"nodes": ["a"]},
    "PoolPreference": {"order": ["general", "other"]},
}
"""Arguments without which a strategy is none."""


def mistakes(strategies: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_policy((HEAD + strategies).encode(), source="p.yaml")
    return str(caught.value).splitlines()


def entry(name: str) -> dict[str, Any]:
    return {"name": name, "args": NEEDED[name]} if name in NEEDED else {"name": name}


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_every_strategy_is_read_by_its_name_alone_unless_it_needs_arguments(name: str) -> None:
    text = HEAD + yaml.safe_dump([entry(name)])
    if name == "HighNodeUtilization":
        assert load_policy(text.encode(), source="p.yaml").strategies[0].pool_thresholds == "thresholds"
    (strategy,) = load_policy(text.encode(), source="p.yaml").strategies
    assert type(strategy).__name__ == strategy.name == name
    assert (strategy.pools, strategy.interval) == (None, 120.0)


def test_who_waits_for_cpu_is_not_known_from_metrics_server() -> None:
    head = HEAD.replace('{prometheus: {url: "http://p:9090"}}', "{source: MetricsServer}")
    load_policy((head + "- name: PodLifeTime\n").encode(), source="p.yaml")
    with pytest.raises(ConfigError, match=r"p.yaml:9: strategies\[0\].name: expected usage.source Prometheus"):
        load_policy((head + "- name: Interference\n").encode(), source="p.yaml")


def test_every_class_carries_its_own_name() -> None:
    assert len(set(STRATEGY_NAMES)) == len(BUILT_IN) == 15
    for each in BUILT_IN:
        assert each.model_fields["name"].annotation.__args__ == (each.__name__,)  # type: ignore[union-attr]


def test_a_strategy_of_another_package_is_read_with_whatever_arguments_it_has() -> None:
    text = HEAD + "- name: example.com/QuietNodes\n  args: {label: x, deep: {list: [1, 2.5, null, true]}}\n"
    (strategy,) = load_policy(text.encode(), source="p.yaml").strategies
    assert isinstance(strategy, PluginStrategy)
    assert strategy.args == {"label": "x", "deep": {"list": [1, 2.5, None, True]}}
    assert not strategy.by_cpu
    assert strategy.pool_thresholds is None


# (strategies, line after the first one, field, what was expected)
MISTAKES: list[tuple[str, int, str, str]] = [
    ("- name: RemoveDuplicate\n", 0, "strategies[0].name", "expected a strategy, got 'RemoveDuplicate' (did you mean RemoveDuplicates?); known: LowNodeUtilization, "),
    ("- name: lownodeutilization\n", 0, "strategies[0].name", "(did you mean LowNodeUtilization?)"),
    ("- name: Zzz\n", 0, "strategies[0].name", "got 'Zzz'; known: LowNodeUtilization, "),
    ("- name: x.io/foo-bar\n", 0, "strategies[0].name", "or domain/Name of a plugin"),
    ("- name: 5\n", 0, "strategies[0].name", "expected a string, got 5"),
    ("- name: [PodLifeTime]\n", 0, "strategies[0].name", "expected a string"),
    ("- args: {}\n", 0, "strategies[0].name", "required field is missing"),
    ("- PodLifeTime\n", 0, "strategies[0]", "expected a mapping, got 'PodLifeTime'"),
    ("- name: PodLifeTime\n- name: PodLifeTime\n  arg: {}\n", 2, "strategies[1].arg", "unknown field, did you mean args?"),
    ("- name: PodLifeTime\n  args:\n    states: [Running]\n    maxPodLifeTimeSeconds: 5\n", 3, "strategies[0].args.maxPodLifeTimeSeconds", "unknown field, did you mean maxPodLifeTime?"),
    ("- name: PodLifeTime\n  args:\n    podRestartThreshold: 5\n", 2, "strategies[0].args.podRestartThreshold", "unknown field, it belongs to RemovePodsHavingTooManyRestarts; known here: namespaces, labelSelector, maxPodLifeTime"),
    ("- name: LowNodeUtilization\n  args:\n    mode: Drain\n", 2, "strategies[0].args.mode", "unknown field, it belongs to HighNodeUtilization; known here: source"),
    ("- name: PodLifeTime\n  args:\n    namespaces:\n      includes: []\n", 3, "strategies[0].args.namespaces.includes", "unknown field, did you mean include?"),
    ("- name: PodLifeTime\n  args:\n    namespaces: {exclude: x}\n", 2, "strategies[0].args.namespaces.exclude", "expected a list, got 'x'"),
    ("- name: PodLifeTime\n  args:\n    labelSelector:\n      matchLabels: {a: 1}\n", 3, "strategies[0].args.labelSelector.matchLabels.a", "expected a string, got 1"),
    ("- name: PodLifeTime\n  args:\n    labelSelector:\n      matchExpressions: [{key: x, operator: in}]\n", 3, "strategies[0].args.labelSelector.matchExpressions[0].operator", "expected In, NotIn, Exists or DoesNotExist, got 'in'"),
    ("- name: PodLifeTime\n  args: []\n", 1, "strategies[0].args", "expected a mapping"),
    ("- name: PodLifeTime\n  args:\n    maxPodLifeTime: 5s\n", 2, "strategies[0].args.maxPodLifeTime", "expected at least 1m, got '5s'"),
    ("- name: PodLifeTime\n  interval: 5s\n", 1, "strategies[0].interval", "expected at least 10s, got '5s'"),
    ("- name: NodeMaintenance\n", 0, "strategies[0].args", "required field is missing"),
    ("- name: NodeMaintenance\n  args: {}\n", 1, "strategies[0].args.nodeSelector", "expected nodeSelector, annotation or nodes"),
    ("- name: NodeMaintenance\n  args:\n    nodeSelector: {}\n", 2, "strategies[0].args.nodeSelector", "an empty selector would drain every node"),
    ("- name: PoolPreference\n", 0, "strategies[0].args", "required field is missing"),
    ("- name: PoolPreference\n  args:\n    order: [general]\n", 2, "strategies[0].args.order", "expected two pools or more, each once, got general"),
    ("- name: PoolPreference\n  args:\n    order: [general, general]\n", 2, "strategies[0].args.order", "expected two pools or more, each once, got general, general"),
    ("- name: PoolPreference\n  args:\n    order: [spot, general]\n", 2, "strategies[0].args.order", "expected pools of this policy (general, other), got 'spot'"),
    ("- name: HighNodeUtilization\n  args: {releaseTarget: 90}\n", 1, "strategies[0].args.releaseTarget", "expected releaseTarget < full, got releaseTarget 90 and full 85"),
    ("- name: HighNodeUtilization\n  args: {headroom: 51}\n", 1, "strategies[0].args.headroom", "expected at most 50, got 51"),
    ("- name: HighNodeUtilization\n  args: {mode: Foo}\n", 1, "strategies[0].args.mode", "expected 'Drain' or 'Release', got 'Foo'"),
    ("- name: ServiceSpread\n  args: {minCorrelation: 0}\n", 1, "strategies[0].args.minCorrelation", "expected more than 0"),
    ("- name: RemovePodsViolatingNodeAffinity\n  args: {nodeAffinityType: []}\n", 1, "strategies[0].args.nodeAffinityType", "expected at least 1 entry"),
    ("- name: PodLifeTime\n  pools: []\n", 1, "strategies[0].pools", "expected at least 1 entry"),
    ("- name: RemovePodsViolatingNodeAffinity\n  args: {nodeAffinityType: [required]}\n", 1, "strategies[0].args.nodeAffinityType[0]", "expected 'requiredDuringSchedulingIgnoredDuringExecution' or "),
    ("- name: x.io/Foo\n  argss: {}\n", 1, "strategies[0].argss", "unknown field, did you mean args?"),
    ("- name: x.io/Foo\n  args:\n    a: {b: [2020-01-01]}\n", 2, "strategies[0].args.a.b[0]", "expected what JSON can carry, got date (quotes would make it text)"),
    ("- name: PodLifeTime\n  pools: [general]\n- name: LowNodeUtilization\n  pools: [gneral]\n", 3, "strategies[1].pools", "expected pools of this policy (general, other), got 'gneral'"),
    ("- name: PodLifeTime\n- name: LowNodeUtilization\n- name: LowNodeUtilization\n  pools: [other]\n", 2, "strategies[2]", "expected LowNodeUtilization once for each pool, strategies[1] does the same for other"),
    ("- name: PodLifeTime\n- name: PodLifeTime\n  interval: 5m\n", 1, "strategies[1]", "expected PodLifeTime once for each pool, strategies[0] does the same for general, other"),
    ("- name: HighNodeUtilization\n- name: HighNodeUtilization\n  args: {headroom: 7}\n", 1, "strategies[1]", "expected HighNodeUtilization once for each pool"),
    ("- name: x.io/Foo\n- name: x.io/Foo\n", 1, "strategies[1]", "expected x.io/Foo once for each pool"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "field", "expected"), MISTAKES, ids=[f"{m[2]}-{i}" for i, m in enumerate(MISTAKES)])  # fmt: skip
def test_a_mistake_in_a_strategy_gives_file_line_field_and_what_was_expected(
    text: str, line: int, field: str, expected: str
) -> None:
    (message,) = mistakes(text)
    assert message.startswith(f"p.yaml:{FIRST + line}: {field}: ")
    assert expected in message


@pytest.mark.parametrize("name", STRATEGY_NAMES)
def test_no_message_shows_the_tag_of_the_union(name: str) -> None:
    message = mistakes(yaml.safe_dump([{**entry(name), "args": {**NEEDED.get(name, {}), "zzz": 1}, "yyy": 2}]))
    assert sorted(each.split(": ")[1] for each in message) == ["strategies[0].args.zzz", "strategies[0].yyy"]
    assert all("unknown field; known here: " in each for each in message)


@pytest.mark.parametrize(
    "text",
    [
        "- name: LowNodeUtilization\n  pools: [general]\n- name: LowNodeUtilization\n  pools: [other]\n",
        "- name: PodLifeTime\n- name: PodLifeTime\n  args: {maxPodLifeTime: 1d, namespaces: {include: [batch]}}\n",
        "- name: HighNodeUtilization\n- name: HighNodeUtilization\n  args: {mode: Release}\n",
        "- name: x.io/Foo\n- name: y.io/Foo\n",
    ],
    ids=["other pools", "other pods", "other mode", "other domain"],
)
def test_a_strategy_may_stand_twice_where_the_two_do_different_things(text: str) -> None:
    assert len(load_policy((HEAD + text).encode(), source="p.yaml").strategies) == 2


# ---- the JSON Schema, as an editor uses it


@cache
def validator() -> Any:
    schema = json.loads(json.dumps(policy_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def valid(strategies: list[dict[str, Any]]) -> bool:
    return bool(validator().is_valid({**yaml.safe_load(HEAD), "strategies": strategies}))


def test_the_schema_offers_one_branch_for_each_strategy_by_its_name() -> None:
    schema = policy_schema()
    branches = [each["$ref"].rsplit("/", 1)[1] for each in schema["properties"]["strategies"]["items"]["oneOf"]]
    assert branches == [*STRATEGY_NAMES, "PluginStrategy"]
    for name in STRATEGY_NAMES:
        assert schema["$defs"][name]["properties"]["name"]["const"] == name


@pytest.mark.parametrize("name", [*STRATEGY_NAMES, "example.com/QuietNodes"])
def test_the_schema_takes_every_strategy_and_none_with_a_field_too_many(name: str) -> None:
    assert valid([entry(name)])
    assert not valid([{**entry(name), "zzz": 1}])


def test_the_schema_refuses_what_the_loader_refuses() -> None:
    assert not valid([])
    assert not valid([{"name": "PodLifeTimes"}])
    assert not valid([{"name": "PodLifeTime", "args": {"podRestartThreshold": 5}}])
    assert not valid([{"name": "PodLifeTime", "args": {"maxPodLifeTime": 5}}])
    assert not valid([{"name": "NodeMaintenance"}])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pools": ["spot"]}, "expected general: pods return from its nodes"),
        ({"order": ["bare", "general"]}, "expected pool bare to have thresholds"),
        ({"twice": True}, "expected each pool in one order, got general in two"),
    ],
    ids=["pools without the last of the order", "a better pool without thresholds", "two orders"],
)
def test_an_order_of_pools_that_can_not_be_kept_is_a_mistake(change: dict[str, Any], message: str) -> None:
    marks = {"thresholds": {"high": 75, "target": 65}}
    pools = [
        {"name": name, "selector": {"matchLabels": {"pool": name}}} | (marks if name != "bare" else {})
        for name in ("spot", "general", "bare")
    ]
    one = {"name": "PoolPreference", "args": {"order": change.get("order", ["spot", "general"])}}
    one |= {"pools": change["pools"]} if "pools" in change else {}
    other = {"name": "PoolPreference", "args": {"order": ["general", "spot"]}}
    with pytest.raises(ValueError, match=message):
        a_policy(pools=pools, strategies=[one, other] if "twice" in change else [one])
