"""A mistake in the policy file is answered with file, line, field and what was expected, one line each."""

# ruff: noqa: E501 (a table of mistakes is read row by row)

from pathlib import Path

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import RebalancerPolicy, load_policy

POLICIES = sorted((Path(__file__).parents[2] / "policies").glob("*.yaml"))

GOOD = """\
apiVersion: rebalancer.dev/v1alpha1
kind: RebalancerPolicy
cluster: my-cluster
pools:
  - name: general
    selector:
      matchLabels: {pool: general}
      matchExpressions:
        - {key: role, operator: NotIn, values: [control-plane]}
    thresholds:
      high: 75
      target: 65
      low: 55
usage:
  source: Prometheus
  prometheus:
    url: http://prometheus:9090
    timeout: 15s
    headers: {X-Scope-OrgID: team}
    nodeCPU:
      label: instance
    podCPU:
      podLabel: pod
  rateWindow: 5m
  maxSampleAge: 3m
  minCoverage: 80
  stabilizationWindow: {samples: 3, duration: 2m}
strategies:
  - name: LowNodeUtilization
    args: {source: CPU}
    pools: [general]
guards:
  jobPods: false
  priorityBelow: 1000
  minAge: 5m
  minReplicas: 2
  namespaces:
    exclude: [kube-system]
  labels:
    include: {matchLabels: {app: web}}
  ours:
    database: {matchLabels: {app: pg}}
limits:
  perCycle: 2
"""


def mistakes(text: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_policy(text if isinstance(text, bytes) else text.encode(), source="p.yaml")
    assert caught.value.exit_code == 4
    return str(caught.value).splitlines()


def with_change(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must stand in GOOD just once"
    return GOOD.replace(old, new)


def line_of(text: str, fragment: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if fragment in line)


def test_a_good_policy_loads() -> None:
    policy = load_policy(GOOD.encode(), source="p.yaml")
    assert policy.cluster == "my-cluster"
    assert policy.usage.rate_window == 300.0
    assert policy.pools[0].thresholds is not None
    assert policy.pools[0].thresholds.high == 75.0


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_the_shipped_policies_load_and_say_in_comments_what_they_are_for(path: Path) -> None:
    data = path.read_bytes()
    assert isinstance(load_policy(data, source=path.name), RebalancerPolicy)
    assert data.decode().startswith(f"# {path.stem}")


def test_six_policies_are_shipped() -> None:
    assert [path.stem for path in POLICIES] == [
        "balanced", "community", "conservative", "demo", "drain", "maintenance"
    ]  # fmt: skip


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_policy_survives_being_written_and_read_again(path: Path) -> None:
    policy = load_policy(path.read_bytes(), source=path.name)
    written = yaml.safe_dump(policy.model_dump(mode="json", by_alias=True, exclude_unset=True))
    assert load_policy(written.encode(), source="again.yaml") == policy


# ---- one mistake: its line, field and what was expected

# (a line of GOOD, what stands there instead, a fragment of the line that is blamed, field, what was expected)
MISTAKES: list[tuple[str, str, str, str, str]] = [
    # unknown or misplaced keys, at each level
    ("cluster: my-cluster", "cluster: my-cluster\ncolour: red", "colour", "colour", "unknown field"),
    ("cluster: my-cluster", "cluster: my-cluster\nhigh: 75", "high: 75", "high", "unknown field"),
    ("  - name: general", "  - nam: x\n    name: general", "nam: x", "pools[0].nam", "unknown field, did you mean name?"),
    ("      matchLabels: {pool", "      labels: {}\n      matchLabels: {pool", "labels: {}", "pools[0].selector.labels", "unknown field; known here: matchLabels, matchExpressions"),
    ("{key: role,", "{key: role, value: x,", "key: role", "pools[0].selector.matchExpressions[0].value", "did you mean values?"),
    ("      low: 55", "      low: 55\n      lo: 5", "lo: 5", "pools[0].thresholds.lo", "did you mean low?"),
    ("  minCoverage: 80", "  minCoverag: 80", "minCoverag:", "usage.minCoverag", "did you mean minCoverage?"),
    ("    timeout: 15s", "    timeot: 15s", "timeot", "usage.prometheus.timeot", "did you mean timeout?"),
    ("      label: instance", "      labels: instance", "labels: instance", "usage.prometheus.nodeCPU.labels", "did you mean label?"),
    ("      podLabel: pod", "      pod: pod", "pod: pod", "usage.prometheus.podCPU.pod", "unknown field"),
    ("{samples: 3,", "{sample: 3,", "sample:", "usage.stabilizationWindow.sample", "did you mean samples?"),
    ("    args: {source: CPU}", "    arg: {source: CPU}", "arg:", "strategies[0].arg", "did you mean args?"),
    ("{source: CPU}", "{sourc: CPU}", "sourc:", "strategies[0].args.sourc", "did you mean source?"),
    ("  minReplicas: 2", "  minReplica: 2", "minReplica:", "guards.minReplica", "did you mean minReplicas?"),
    ("    exclude: [kube-system]", "    excludes: [kube-system]", "excludes", "guards.namespaces.excludes", "did you mean exclude?"),
    ("    include: {match", "    includ: {match", "includ:", "guards.labels.includ", "did you mean include?"),
    ("    database: {match", "    db: {match", "db:", "guards.ours.db", "unknown field; known here: rebalancer, prometheus, database"),
    ("  perCycle: 2", "  percycle: 2", "percycle", "limits.percycle", "did you mean perCycle?"),
    ("  minReplicas: 2", "  min_replicas: 2", "min_replicas", "guards.min_replicas", "did you mean minReplicas?"),
    # wrong types
    ("cluster: my-cluster", "cluster: 5", "cluster", "cluster", "expected a string, got 5"),
    ("      high: 75", '      high: "75"', "high:", "pools[0].thresholds.high", "expected a percentage between 1 and 100, got '75': write 75 without quotes"),
    ("      high: 75", "      high: true", "high:", "pools[0].thresholds.high", "expected a percentage"),
    ("      high: 75", "      high: [75]", "high:", "pools[0].thresholds.high", "expected a percentage"),
    ("  perCycle: 2", "  perCycle: ten", "perCycle", "limits.perCycle", "expected a whole number, got 'ten'"),
    ("  perCycle: 2", "  perCycle: 1.5", "perCycle", "limits.perCycle", "expected a whole number, got 1.5"),
    ("  perCycle: 2", "  perCycle: true", "perCycle", "limits.perCycle", "expected a whole number, got true"),
    ("  jobPods: false", '  jobPods: "no"', "jobPods", "guards.jobPods", "expected true or false, got 'no'"),
    ("    exclude: [kube-system]", "    exclude: kube-system", "exclude", "guards.namespaces.exclude", "expected a list, got 'kube-system'"),
    ("    exclude: [kube-system]", "    exclude: [1]", "exclude", "guards.namespaces.exclude[0]", "expected a string, got 1"),
    ("{pool: general}", "{pool: 1}", "pool: 1", "pools[0].selector.matchLabels.pool", "expected a string, got 1"),
    ("  stabilizationWindow: {samples: 3, duration: 2m}", "  stabilizationWindow: 3", "stabilizationWindow", "usage.stabilizationWindow", "expected a mapping"),
    ("    pools: [general]", "    pools: general", "pools: general", "strategies[0].pools", "expected a list"),
    ("    headers: {X-Scope-OrgID: team}", "    headers: {X: 1}", "headers", "usage.prometheus.headers.X", "expected a string"),
    # durations
    ("  rateWindow: 5m", "  rateWindow: 300", "rateWindow", "usage.rateWindow", "expected a duration such as 90s, 5m, 1h30m or 8d, got 300"),
    ("  minAge: 5m", "  minAge: 5 minutes", "minAge", "guards.minAge", "expected a duration such as"),
    ("  minAge: 5m", "  minAge: -5m", "minAge", "guards.minAge", "expected a duration such as"),
    ("  minAge: 5m", "  minAge: 1.5h", "minAge", "guards.minAge", "expected a duration such as"),
    ("  minAge: 5m", '  minAge: ""', "minAge", "guards.minAge", "expected a duration such as"),
    ("  rateWindow: 5m", "  rateWindow: 10s", "rateWindow", "usage.rateWindow", "expected at least 30s"),
    ("    timeout: 15s", "    timeout: 0s", "timeout", "usage.prometheus.timeout", "expected at least "),
    ("  maxSampleAge: 3m", "  maxSampleAge: 0s", "maxSampleAge", "usage.maxSampleAge", "expected at least 1s"),
    # out of range
    ("      high: 75", "      high: 101", "high:", "pools[0].thresholds.high", "expected a percentage between 1 and 100, got 101"),
    ("      high: 75", "      high: 0.75", "high:", "pools[0].thresholds.high", "expected a percentage between 1 and 100, got 0.75"),
    ("      high: 75", "      high: .nan", "high:", "pools[0].thresholds.high", "expected a percentage between 1 and 100, got nan"),
    ("      high: 75", "      high: .inf", "high:", "pools[0].thresholds.high", "expected a percentage between 1 and 100, got inf"),
    ("      low: 55", "      low: -1", "low:", "pools[0].thresholds.low", "expected percentage points between 0 and 100, got -1"),
    ("  minCoverage: 80", "  minCoverage: 0", "minCoverage", "usage.minCoverage", "expected a percentage between 1 and 100, got 0"),
    ("  perCycle: 2", "  perCycle: -1", "perCycle", "limits.perCycle", "expected at least 0, got -1"),
    ("{samples: 3,", "{samples: 0,", "samples", "usage.stabilizationWindow.samples", "expected at least 1, got 0"),
    # several fields that don't agree
    ("      target: 65", "      target: 75", "target", "pools[0].thresholds.target", "expected target < high, got target 75 and high 75"),
    ("      target: 65", "      target: 80", "target", "pools[0].thresholds.target", "expected target < high, got target 80 and high 75"),
    ("      low: 55", "      low: 66", "low: 66", "pools[0].thresholds.low", "expected 1 <= low <= target, got low 66 and target 65"),
    ("      low: 55", "      low: 0", "low: 0", "pools[0].thresholds.low", "expected 1 <= low <= target"),
    ("      low: 55", "      low: 55\n      relativeToMean: true", "thresholds", "pools[0].thresholds.floor", "expected a floor with relativeToMean"),
    ("      low: 55", "      low: 55\n      floor: 30", "floor", "pools[0].thresholds.floor", "expected floor only with relativeToMean"),
    ("  priorityBelow: 1000", "  priorityBelow: 1000\n  priorityClassBelow: high", "priorityClassBelow", "guards.priorityClassBelow", "not both"),
    ("    timeout: 15s", "    bearerTokenFile: t\n    basicAuth: {username: u, passwordFile: p}", "basicAuth", "usage.prometheus.basicAuth", "not both"),
    ("      label: instance", "      query: up", "nodeCPU", "usage.prometheus.nodeCPU.freshness", "expected freshness"),
    ("    pools: [general]", "    pools: [other]", "pools: [other]", "strategies[0].pools", "expected pools of this policy (general), got 'other'"),
    ("{source: CPU}", "{source: Requests}", "pools:", "pools", "expected pool general to have requestThresholds"),
    # values that are not among the known ones
    ("kind: RebalancerPolicy", "kind: DeschedulerPolicy", "kind", "kind", "expected RebalancerPolicy: `rebalancer policy import` converts this file"),
    ("dev/v1alpha1", "dev/v2", "apiVersion", "apiVersion", "expected 'rebalancer.dev/v1alpha1', got 'rebalancer.dev/v2'"),
    ("  source: Prometheus", "  source: Datadog", "source: Datadog", "usage.source", "expected 'Prometheus' or 'MetricsServer', got 'Datadog'"),
    ("  - name: LowNodeUtilization", "  - name: HighNode", "name: HighNode", "strategies[0].name", "expected a strategy, got 'HighNode' (did you mean HighNodeUtilization?); known: LowNodeUtilization, HighNode"),
    ("operator: NotIn", "operator: notIn", "notIn", "pools[0].selector.matchExpressions[0].operator", "expected In, NotIn, Exists or DoesNotExist, got 'notIn'"),
    (", values: [control-plane]", "", "key: role", "pools[0].selector.matchExpressions[0]", "expected values with In and NotIn only"),
    ("operator: NotIn", "operator: Exists", "key: role", "pools[0].selector.matchExpressions[0]", "expected values with In and NotIn only, got Exists with 1"),
    ("cluster: my-cluster", "cluster: My_Cluster", "cluster", "cluster", "expected a name such as prod-eu-1"),
    ("http://prom", "ftp://prom", "url", "usage.prometheus.url", "expected a URL such as http://prometheus:9090"),
    ("  - name: general", '  - name: ""', "name:", "pools[0].name", "expected text that is not empty"),
    # missing
    ("cluster: my-cluster\n", "", "apiVersion", "cluster", "required field is missing"),
    ("  - name: general\n    selector:", "  - selector:", "selector:", "pools[0].name", "required field is missing"),
    ("      high: 75\n", "", "thresholds:", "pools[0].thresholds.high", "required field is missing"),
    ("    url: http://prometheus:9090\n", "", "prometheus:", "usage.prometheus.url", "required field is missing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "blamed", "field", "expected"), MISTAKES, ids=[f"{m[3]}-{i}" for i, m in enumerate(MISTAKES)]
)
def test_a_mistake_gives_file_line_field_and_what_was_expected(
    old: str, new: str, blamed: str, field: str, expected: str
) -> None:
    text = with_change(old, new)
    (message,) = mistakes(text)
    assert message.startswith(f"p.yaml:{line_of(text, blamed)}: {field}: ")
    assert expected in message


def test_every_mistake_is_named_at_once_in_its_own_line() -> None:
    text = with_change("      high: 75", "      high: 750").replace("perCycle: 2", "perCycle: two")
    fields = [each.split(": ")[1] for each in mistakes(text.replace("  jobPods", "  jobPod"))]
    assert fields == ["pools[0].thresholds.high", "guards.jobPod", "limits.perCycle"]


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        ("strategies: []", "expected at least 1 entry"),
        ("strategies: ~", "expected a list, got nothing: write a value, or remove the key"),
    ],
)
def test_a_policy_without_a_strategy_is_none(strategies: str, expected: str) -> None:
    text = with_change(GOOD[GOOD.index("strategies:") : GOOD.index("guards:")], strategies + "\n")
    (message,) = mistakes(text)
    assert message == f"p.yaml:{line_of(text, 'strategies')}: strategies: {expected}"


def test_pools_have_distinct_names() -> None:
    text = with_change(
        "usage:\n", "  - {name: general, selector: {}, thresholds: {high: 9, target: 8, low: 7}}\nusage:\n"
    )
    (message,) = mistakes(text)
    assert message == "p.yaml:4: pools: expected distinct pool names, got general more than once"


def test_prometheus_must_be_configured_unless_it_is_not_used() -> None:
    section = GOOD[GOOD.index("  prometheus:") : GOOD.index("  rateWindow")]
    (message,) = mistakes(with_change(section, ""))
    assert message == "p.yaml:14: usage.prometheus: expected usage.prometheus with source Prometheus"
    other = with_change(section, "").replace("source: Prometheus", "source: MetricsServer")
    assert load_policy(other.encode(), source="p.yaml").usage.prometheus is None


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ("{high: {cpu: 50}, target: {cpu: 50}, low: {cpu: 20}}", "expected low <= target < high for cpu, got 20, 50 and 50"),
        ("{high: {cpu: 60}, target: {cpu: 50}, low: {cpu: 51}}", "expected low <= target < high for cpu"),
        ("{high: {cpu: 60}, target: {memory: 50}, low: {cpu: 20}}", "expected the same resources"),
        ("{high: {}, target: {}, low: {}}", "expected the same resources"),
        ("{high: {cpu: 60}}", "requestThresholds.target: required field is missing"),
        ("{high: {disk: 60}, target: {disk: 50}, low: {disk: 20}}", "expected cpu, memory, pods or an extended resource"),
    ],
)  # fmt: skip
def test_request_thresholds_are_in_order_for_each_resource(thresholds: str, message: str) -> None:
    found = mistakes(with_change("    thresholds:\n", f"    requestThresholds: {thresholds}\n    thresholds:\n"))
    assert all(each.startswith("p.yaml:10: pools[0].requestThresholds") for each in found)
    assert message in found[0]


# ---- not even a mapping


@pytest.mark.parametrize(
    "url",
    [
        "https://prometheus", "http://u:p%40@h:9090/a/b", "http://[::1]:9090", "http://[fe80::1%25eth0]:1", "http://a_b:65535/",
        "http://192.168.1.1", "http://h:", "http://h?x",
    ],
)  # fmt: skip
def test_a_url_that_can_be_read_is_taken_as_it_is(url: str) -> None:
    policy = load_policy(with_change("http://prometheus:9090", f'"{url}"').encode(), source="p.yaml")
    assert policy.usage.prometheus is not None
    assert policy.usage.prometheus.url == url


@pytest.mark.parametrize("url", ["http://me:hunter2@h:99999", "ftp://me:hunter2@h", "http://me:hun/ter2@h"])
def test_the_password_of_a_wrong_url_is_not_repeated(url: str) -> None:
    (message,) = mistakes(with_change("http://prometheus:9090", url))
    assert "ter2" not in message


@pytest.mark.parametrize(
    ("window", "field", "expected"),
    [
        ("{samples: 3, duration: 61m}", "duration", "expected at most 1h, got 1h1m"),
        ("{samples: 3, duration: 8d}", "duration", "expected at most 1h, got 8d"),
        ("{samples: 26, duration: 2m}", "samples", "expected at most 25 over 2m"),
        ("{samples: 2, duration: 0s}", "samples", "expected at most 1 over 0s"),
        ("{samples: 1" + "0" * 400 + ", duration: 2m}", "samples", "expected at most 25 over 2m"),
    ],
)
def test_a_stabilization_window_that_no_sampling_can_fill_is_a_mistake(window: str, field: str, expected: str) -> None:
    text = with_change("{samples: 3, duration: 2m}", window)
    (message,) = mistakes(text)
    line = line_of(text, "stabilizationWindow")
    assert message.startswith(f"p.yaml:{line}: usage.stabilizationWindow.{field}: {expected}")


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm() -> None:
    data = b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()
    assert load_policy(data, source="p.yaml") == load_policy(GOOD.encode(), source="p.yaml")


def test_a_policy_is_not_changed_after_it_is_read() -> None:
    policy = load_policy(GOOD.encode(), source="p.yaml")
    with pytest.raises(ValueError, match="frozen"):
        policy.limits.per_cycle = 99
