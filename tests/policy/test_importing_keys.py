"""Nothing of a DeschedulerPolicy is dropped in silence, and what is none is refused in one line."""

# ruff: noqa: E501 (tables are read row by row)

from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from rebalancer.model.errors import ConfigError
from rebalancer.policy.descheduler.document import ARGS, DeschedulerPolicy, Profile
from rebalancer.policy.descheduler.importer import import_policy
from rebalancer.policy.schema.types import Section, parse_duration
from tests.policy.builders import NEEDED, fields, imported, refused, reported, theirs

# ---- nothing in silence


def keys_of(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key of a format, with the way to it."""
    out = []
    for name, field in model.model_fields.items():
        here = (*prefix, field.alias or name)
        inner = [each for each in (field.annotation, *getattr(field.annotation, "__args__", ())) if isinstance(each, type) and issubclass(each, Section)]  # fmt: skip
        if inner and inner[0] is not Profile:
            out += keys_of(inner[0], here)
        elif not inner:
            out.append(here)
    return out


SAMPLES: dict[str, Any] = {
    "url": "http://p:9090", "minPodAge": "9m", "nodeSelector": "a=b", "operator": "Exists", "nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"],
    "noEvictionPolicy": "Preferred", "defaultDisabled": ["DaemonSetPods"], "extraEnabled": ["PodsWithPVC"], "matchLabels": {"q": "r"},
    "constraints": ["ScheduleAnyway"], "evictionModes": ["OnlyThresholdingResources"], "exitCodes": [3], "thresholds": {"cpu": 21}, "targetThresholds": {"cpu": 51},
    "source": "Prometheus", "nodeFit": False, "topologyBalanceNodeFit": False, "enabled": True,
}  # fmt: skip


def sample(model: type[BaseModel], way: tuple[str, ...]) -> Any:
    """A value for the key at `way`, wrapped into what it stands in; other keys of its mappings as needed."""
    field = next(f for name, f in model.model_fields.items() if (f.alias or name) == way[0])
    kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
    if len(way) > 1:
        inner = next(each for each in kinds if isinstance(each, type) and issubclass(each, Section))
        below = sample(inner, way[1:])
        needed = {f.alias or n: SAMPLES.get(f.alias or n, "n") for n, f in inner.model_fields.items() if f.is_required()}  # fmt: skip
        value = {**needed, **below, **({"operator": "In"} if way[1:] == ("values",) else {})}
        return {way[0]: [value] if any(word in str(field.annotation) for word in ("list", "tuple")) else value}
    if way[0] in SAMPLES:
        return {way[0]: SAMPLES[way[0]]}
    text = str(field.annotation)
    return {
        way[0]: ["zz"]
        if "list" in text or "tuple" in text
        else True
        if "bool" in text
        else 99
        if "int" in text
        else "zz"
    }


SKIPPED = {"apiVersion", "kind"}
"""Of arguments: they say which arguments these are."""


@pytest.mark.parametrize(
    ("plugin", "way"),
    [(plugin, way) for plugin, model in ARGS.items() for way in keys_of(model) if way[0] not in SKIPPED],
    ids=lambda value: value if isinstance(value, str) else ".".join(value),
)
def test_every_argument_changes_the_result_or_is_listed(plugin: str, way: tuple[str, ...]) -> None:
    base: dict[str, Any] = dict(NEEDED.get(plugin, {}))
    if way[0] in ("thresholds", "targetThresholds"):
        base = {key: {"cpu": 22 if key == "thresholds" else 52} for key in base}
    given = {**base, **sample(ARGS[plugin], way)}
    if plugin == "DefaultEvictor":
        before, after = (theirs(("RemoveFailedPods", {}), evictor=args) for args in (base, given))
    else:
        other = "RemoveDuplicates" if plugin == "RemoveFailedPods" else "RemoveFailedPods"
        before, after = (theirs((plugin, args), (other, {})) for args in (base, given))
    one, listed_before = imported(before)
    two, listed_after = imported(after)
    assert one != two or set(fields(listed_after)) - set(fields(listed_before))


@pytest.mark.parametrize("way", [way for way in keys_of(DeschedulerPolicy) if way[0] not in SKIPPED], ids=".".join)
def test_every_key_of_the_top_level_changes_the_result_or_is_listed(way: tuple[str, ...]) -> None:
    given = sample(DeschedulerPolicy, way)
    before, _ = imported(theirs(("RemoveDuplicates", {})))
    after, listed = imported({**theirs(("RemoveDuplicates", {})), **given})
    assert before != after or fields(listed)


def test_a_key_that_no_code_looks_at_would_be_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from rebalancer.policy.descheduler import strategies as importing_strategies

    monkeypatch.setitem(importing_strategies.SAME_ARGS, "RemoveDuplicates", ())
    _, differences = imported(theirs(("RemoveDuplicates", {"excludeOwnerKinds": ["Job"]})))
    assert reported(differences, "args.excludeOwnerKinds[0]").why == "no equivalent"


# ---- options, and what is no DeschedulerPolicy


def test_cluster_and_prometheus_can_be_given_and_then_nothing_is_left_to_decide() -> None:
    ours, differences = imported(theirs(("RemoveDuplicates", {})), cluster="blue", prometheus_url="http://p:9090")
    assert ours.cluster == "blue"
    assert ours.usage.prometheus is not None
    assert ours.usage.prometheus.url == "http://p:9090"
    assert not [each for each in differences if each.kind == "decide"]


def test_what_is_left_to_a_person_stands_as_a_comment_where_it_belongs() -> None:
    text = import_policy(yaml.safe_dump(theirs(("RemoveDuplicates", {}))).encode(), source="a/d.yaml").text
    assert text.startswith("# Converted from d.yaml ")
    lines = text.splitlines()
    assert lines[lines.index("cluster: my-cluster") - 1].startswith("# DECIDE: name of the cluster")
    assert lines[lines.index("usage:") - 1].startswith("# DECIDE: the Prometheus to read")
    assert "  # profile main" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: descheduler/v1alpha1\nkind: DeschedulerPolicy\nstrategies: {}\n", "d.yaml:1: apiVersion: expected descheduler/v1alpha2, got 'descheduler/v1alpha1'; write its strategies as plugins of a profile first"),
        ("apiVersion: descheduler/v1alpha2\nkind: Other\n", "d.yaml:2: kind: expected DeschedulerPolicy, got 'Other'"),
        ("kind: DeschedulerPolicy\n", "d.yaml:1: apiVersion: expected descheduler/v1alpha2, got None"),
        ("apiVersion: v1\nkind: ConfigMap\n", "d.yaml:1: apiVersion: expected descheduler/v1alpha2, got 'v1'; no DeschedulerPolicy is in this ConfigMap"),
        ("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n", "d.yaml:1: profiles: required field is missing"),
        ("- a\n", "d.yaml:1: expected a mapping with apiVersion and kind, got a list"),
        ("", "d.yaml:1: the file is empty: expected a DeschedulerPolicy"),
        ("a: [", "d.yaml:1: not YAML: "),
    ],
)  # fmt: skip
def test_what_is_no_descheduler_policy_of_this_version_is_refused_in_one_line(text: str, message: str) -> None:
    (answer,) = refused(text)
    assert answer.startswith(message)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"nodeFit": True}, "nodeFit", "unknown field"),
        ({"evictLocalStoragePods": True}, "evictLocalStoragePods", "field of descheduler/v1alpha1, which the descheduler ignores: remove it, or set it in args of DefaultEvictor"),
        ({"maxNoOfPodsToEvictPerNod": 1}, "maxNoOfPodsToEvictPerNod", "did you mean maxNoOfPodsToEvictPerNode?"),
        ({"maxNoOfPodsToEvictPerNode": -1}, "maxNoOfPodsToEvictPerNode", "expected at least 0, got -1"),
        ({"nodeSelector": "a in b"}, "nodeSelector", "expected a label selector such as pool=web,!gpu, got 'a in b'"),
        ({"metricsProviders": [{"source": "Datadog"}]}, "metricsProviders[0].source", "expected 'KubernetesMetrics' or 'Prometheus'"),
    ],
)  # fmt: skip
def test_a_wrong_key_of_the_top_level_is_refused_in_one_line(change: dict[str, Any], field: str, message: str) -> None:
    (answer,) = refused({**theirs(("RemoveDuplicates", {})), **change})
    assert f": {field}: " in answer
    assert message in answer


@pytest.mark.parametrize(
    ("plugin", "args", "field", "message"),
    [
        ("PodLifeTime", {"maxPodLifeTime": 5}, "maxPodLifeTime", "did you mean maxPodLifeTimeSeconds?"),
        ("LowNodeUtilization", {"thresholds": {"cpu": 5}}, "targetThresholds", "required field is missing"),
        ("LowNodeUtilization", {"thresholds": {"cpu": 101}, "targetThresholds": {"cpu": 1}}, "thresholds.cpu", "expected at most 100, got 101"),
        ("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": "5"}, "podRestartThreshold", "expected a whole number, got '5'"),
        ("DefaultEvictor", {"minPodAge": "5 minutes"}, "minPodAge", "expected a duration such as 50m or 1h30m, got '5 minutes'"),
        ("DefaultEvictor", {"priorityThreshold": {"value": 1, "name": "a"}}, "priorityThreshold.name", "not both"),
        ("DefaultEvictor", {"podProtections": {"extraEnabled": ["Pods"]}}, "podProtections.extraEnabled[0]", "expected 'PodsWithPVC'"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_in_one_line(plugin: str, args: dict[str, Any], field: str, message: str) -> None:
    policy = theirs(("RemoveDuplicates", {}), evictor=args) if plugin == "DefaultEvictor" else theirs((plugin, args))
    (answer,) = refused(policy)
    index = 1 if plugin == "DefaultEvictor" else 0
    assert f": profiles[0].pluginConfig[{index}].args.{field}: " in answer
    assert message in answer


def test_a_strategy_without_the_arguments_it_needs_is_refused() -> None:
    answers = refused(theirs(("LowNodeUtilization", {})))
    assert "profiles[0].pluginConfig[0].args.thresholds: required field is missing" in answers[0]


@pytest.mark.parametrize("cluster", ["My_Cluster", ""])
def test_a_cluster_name_that_is_none_is_refused_in_one_line(cluster: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_policy(yaml.safe_dump(theirs(("RemoveDuplicates", {}))).encode(), source="d.yaml", cluster=cluster)
    (message,) = str(caught.value).splitlines()
    assert "cluster: expected a name such as prod-eu-1" in message


def test_durations_of_ours_are_read_back_as_theirs() -> None:
    ours, _ = imported(theirs(("PodLifeTime", {"maxPodLifeTimeSeconds": 90061})))
    assert ours.strategies[0].args.max_pod_life_time == 90061 == parse_duration("1d1h1m1s")  # type: ignore[union-attr]


def test_the_result_is_the_same_each_time() -> None:
    data = yaml.safe_dump(theirs(("RemoveDuplicates", {}), ("LowNodeUtilization", NEEDED["LowNodeUtilization"]))).encode()  # fmt: skip
    assert import_policy(data, source="d.yaml") == import_policy(data, source="d.yaml")
