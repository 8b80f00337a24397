"""Ordinary mistakes in a policy: the whole line that a person reads, with what to type."""

# ruff: noqa: E501 (a table of mistakes is read row by row)

import pytest
import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy import load_policy
from tests.policy.test_loader import GOOD, with_change

# (a line of GOOD, what stands there instead, the whole message)
MISTAKES = [
    ('cluster: my-cluster', 'cluster: My_Cluster', "p.yaml:3: cluster: expected a name such as prod-eu-1: lower-case letters, digits, - and ., at most 63 characters, got 'My_Cluster'"),
    ('cluster: my-cluster', 'cluster:', 'p.yaml:3: cluster: expected a string, got nothing: write a value, or remove the key'),
    ('cluster: my-cluster\n', '', 'p.yaml:1: cluster: required field is missing: name of the cluster in records and in the Lease'),
    ('kind: RebalancerPolicy', 'kind: DeschedulerPolicy', 'p.yaml:2: kind: expected RebalancerPolicy: `rebalancer policy import` converts this file'),
    ('dev/v1alpha1', 'dev/v1', "p.yaml:1: apiVersion: expected 'rebalancer.dev/v1alpha1', got 'rebalancer.dev/v1': write rebalancer.dev/v1alpha1"),
    ('      high: 75', '      high: 120%', "p.yaml:11: pools[0].thresholds.high: expected a percentage between 1 and 100, got '120%'"),
    ('      high: 75', "      high: '75'", "p.yaml:11: pools[0].thresholds.high: expected a percentage between 1 and 100, got '75': write 75 without quotes"),
    ('      high: 75', '      high: 0.75', 'p.yaml:11: pools[0].thresholds.high: expected a percentage between 1 and 100, got 0.75: write 75 for 75%'),
    ('      high: 75', '      high: 750', 'p.yaml:11: pools[0].thresholds.high: expected a percentage between 1 and 100, got 750'),
    ('      high: 75\n', '', 'p.yaml:10: pools[0].thresholds.high: required field is missing: a node above it is hot'),
    ('      high: 75', '      higher: 75\n      high: 75', 'p.yaml:11: pools[0].thresholds.higher: unknown field, did you mean high?'),
    ('      target: 65', '      target: 75', 'p.yaml:12: pools[0].thresholds.target: expected target < high, got target 75 and high 75'),
    ('      low: 55', '      low: 70', 'p.yaml:13: pools[0].thresholds.low: expected 1 <= low <= target, got low 70 and target 65'),
    ('      matchLabels: {pool: general}', '      matchLabels: pool=general', "p.yaml:7: pools[0].selector.matchLabels: expected a mapping, got 'pool=general'"),
    ('operator: NotIn', 'operator: notin', "p.yaml:9: pools[0].selector.matchExpressions[0].operator: expected In, NotIn, Exists or DoesNotExist, got 'notin'"),
    (', values: [control-plane]', ', values: control-plane', "p.yaml:9: pools[0].selector.matchExpressions[0].values: expected a list, got 'control-plane': write [control-plane]"),
    ('    url: http://prometheus:9090', '    url: prometheus:9090', "p.yaml:17: usage.prometheus.url: expected a URL such as http://prometheus:9090 (other characters percent-encoded), got 'prometheus:9090'"),
    ('    url: http://prometheus:9090', '    url: http://prometheus:9090/api/v1', "p.yaml:17: usage.prometheus.url: expected a URL without /api/v1, which is added to it, got 'http://prometheus:9090/api/v1'"),
    ('    url: http://prometheus:9090', '    url:', 'p.yaml:17: usage.prometheus.url: expected a string, got nothing: write a value, or remove the key'),
    ('    timeout: 15s', '    timeout: 15', 'p.yaml:18: usage.prometheus.timeout: expected a duration such as 90s, 5m, 1h30m or 8d, got 15: write 15s for seconds'),
    ('  rateWindow: 5m', '  rateWindow: 5 minutes', "p.yaml:24: usage.rateWindow: expected a duration such as 90s, 5m, 1h30m or 8d, got '5 minutes'"),
    ('  rateWindow: 5m', '  rateWindow: 10s', "p.yaml:24: usage.rateWindow: expected at least 30s, got '10s'"),
    ('  minCoverage: 80', '  minCoverage: 0.8', 'p.yaml:26: usage.minCoverage: expected a percentage between 1 and 100, got 0.8: write 80 for 80%'),
    ('  source: Prometheus', '  source: prometheus', "p.yaml:15: usage.source: expected 'Prometheus' or 'MetricsServer', got 'prometheus': write Prometheus"),
    ('{samples: 3, duration: 2m}', '{samples: 0, duration: 2m}', 'p.yaml:27: usage.stabilizationWindow.samples: expected at least 1, got 0'),
    ('  - name: LowNodeUtilization', '  - name: LowNodeUtilisation', "p.yaml:29: strategies[0].name: expected a strategy, got 'LowNodeUtilisation' (did you mean LowNodeUtilization?); known: LowNodeUtilization, HighNodeUtilization, RemoveDuplicates, RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingNodeAffinity, RemovePodsViolatingNodeTaints, RemovePodsViolatingTopologySpreadConstraint, RemovePodsHavingTooManyRestarts, PodLifeTime, RemoveFailedPods, NodeMaintenance, MakeRoom, PoolPreference, Interference, ServiceSpread, or domain/Name of a plugin"),
    ('    args: {source: CPU}', '    args: {source: Memory}', "p.yaml:30: strategies[0].args.source: expected 'CPU' or 'Requests', got 'Memory'"),
    ('    args: {source: CPU}', '    args: {threshold: 50}', 'p.yaml:30: strategies[0].args.threshold: unknown field; known here: source'),
    ('    args: {source: CPU}', '    args: {bestEffort: true}', 'p.yaml:30: strategies[0].args.bestEffort: `LowNodeUtilization.bestEffort` is now `planner.worth: Aggressive`'),
    ('    pools: [general]', '    pools: [gpu]', "p.yaml:31: strategies[0].pools: expected pools of this policy (general), got 'gpu'"),
    ('    pools: [general]', '    pools: general', "p.yaml:31: strategies[0].pools: expected a list, got 'general': write [general]"),
    ('  jobPods: false', "  jobPods: 'no'", "p.yaml:33: guards.jobPods: expected true or false, got 'no': write false without quotes"),
    ('  minAge: 5m', '  minAge: 5', 'p.yaml:35: guards.minAge: expected a duration such as 90s, 5m, 1h30m or 8d, got 5: write 5s for seconds'),
    ('    exclude: [kube-system]', '    exclude: kube-system', "p.yaml:38: guards.namespaces.exclude: expected a list, got 'kube-system': write [kube-system]"),
    ('  perCycle: 2', '  perCycle: ten', "p.yaml:44: limits.perCycle: expected a whole number, got 'ten'"),
    ('  perCycle: 2', '  perCycle: 2\n  perCycle: 3', 'p.yaml:45: limits.perCycle: duplicate key'),
    ('  perCycle: 2', '  perCycle: 2\n  cluster: {inFlight: 0%}', "p.yaml:45: limits.cluster.inFlight: expected a whole number, or a percentage from 1% to 100%, got '0%': write 0 for none"),
    ('  perCycle: 2', '  perCycle: 2\n  service: {evictions: [{max: 1}]}', 'p.yaml:45: limits.service.evictions[0].per: required field is missing: length of the sliding window'),
    ('  perCycle: 2', '  perCycle: 2\n  node: {evictions: {max: 1, per: 1h}}', 'p.yaml:45: limits.node.evictions: expected a list, got a mapping'),
    ('  perCycle: 2', '  perCycle: 2\nforecast: {mode: On}', "p.yaml:45: forecast.mode: expected 'Off', 'Observe' or 'Act', got true"),
    ('  perCycle: 2', '  perCycle: 2\nsteering: {mode: Off}', 'p.yaml:45: steering: `steering` is now `softTaint`'),
    ('  perCycle: 2', "  perCycle: 2\nwindows:\n  cluster:\n    - {kind: Allow, schedule: '9-17 * * *', duration: 8h}", "p.yaml:47: windows.cluster[0].schedule: expected five cron fields (minute hour day-of-month month weekday), got '9-17 * * *'"),
    ('  perCycle: 2', "  perCycle: 2\nwindows:\n  cluster:\n    - {kind: Allow, schedule: '0 9 * * 1-5', duration: 8h, timeZone: CET+1}", "p.yaml:47: windows.cluster[0].timeZone: expected an IANA time zone such as Europe/Berlin, got 'CET+1'"),
    ('  perCycle: 2', "  perCycle: 2\nwindows:\n  cluster:\n    - {kind: Allow, schedule: '0 9 * * 1-5'}", 'p.yaml:47: windows.cluster[0].duration: required field is missing: duration from each start, at most 366d, as elapsed time'),
    ('  perCycle: 2', '  perCycle: 2\n\tlimits: 3', "p.yaml:45: not YAML: found character '\\t' that cannot start any token: write spaces instead of the tab"),
    ('  perCycle: 2', '  perCycle: 2\nlists: {deny: [{}]}', 'p.yaml:45: lists.deny[0]: expected a rule with at least one field: without any it would match every pod'),
    ('  perCycle: 2', '  perCycle: 2\nserviceLevels: {levels: [{name: gold!, evict: true}]}', "p.yaml:45: serviceLevels.levels[0].name: expected a label value such as gold: letters, digits, -, _ and ., at most 63 characters, got 'gold!'"),
    ('  perCycle: 2', '  perCycle: 2\nlists: {deny: [{services: [cart]}]}', "p.yaml:45: lists.deny[0].services[0]: expected namespace/name, for example shop/cart or */cart, got 'cart'"),
    ('    exclude: [kube-system]', '    exclude: [1]', 'p.yaml:38: guards.namespaces.exclude[0]: expected a string, got 1'),
    ('  perCycle: 2', '  perCycle: "2"', "p.yaml:44: limits.perCycle: expected a whole number, got '2': write 2 without quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[f"{i}" for i, _ in enumerate(MISTAKES)])
def test_a_mistake_is_answered_with_what_to_type(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_policy(with_change(old, new).encode(), source="p.yaml")
    assert str(caught.value) == message


def test_there_are_forty_mistakes_at_least() -> None:
    assert len({message for _, _, message in MISTAKES}) >= 40


@pytest.mark.parametrize("section", ["forecast", "softTaint"])
@pytest.mark.parametrize("written", ["Off", "off", '"Off"', "false"])
def test_off_may_be_written_as_the_documentation_shows_it(section: str, written: str) -> None:
    policy = load_policy(f"{GOOD}{section}: {{mode: {written}}}\n".encode(), source="p.yaml")
    mode = policy.forecast.mode if section == "forecast" else policy.soft_taint.mode
    assert mode == "Off"


def test_a_percentage_may_carry_its_sign() -> None:
    policy = load_policy(with_change("      high: 75", "      high: 75%").encode(), source="p.yaml")
    assert policy.pools[0].thresholds is not None
    assert policy.pools[0].thresholds.high == 75.0


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/api/v1/", "/prometheus/api/v1", "/api/v1/query"])
def test_the_path_of_the_api_at_the_end_of_a_url_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="expected a URL without /api"):
        load_policy(with_change("http://prometheus:9090", f"http://prometheus:9090{path}").encode(), source="p.yaml")


@pytest.mark.parametrize(
    "path", ["/api/datasources/proxy/1", "/api/v1/namespaces/m/services/p:9090/proxy", "/api/prom"]
)
def test_the_path_of_a_proxy_is_accepted(path: str) -> None:
    policy = load_policy(
        with_change("http://prometheus:9090", f"http://prometheus:9090{path}").encode(), source="p.yaml"
    )
    assert policy.usage.prometheus is not None
    assert policy.usage.prometheus.url.endswith(path)


WRONG = [None, True, -1, 0.5, "0%", [], {}, float("nan")]
LIBRARY_WORDS = (
    "Input should",
    "valid ",
    "^",
    "[a-z",
    "function-",
    "dict",
    "tuple",
    "None",
    "True",
    "NoneType",
    "pydantic",
)


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, each in inner for path in _paths(each, (*at, key)))]


def _changed(document: dict[str, object], at: tuple[str | int, ...], wrong: object) -> str:
    copy = yaml.safe_load(yaml.safe_dump(document))
    holder = copy
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = wrong
    return str(yaml.safe_dump(copy))


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_no_message_speaks_the_language_of_a_library(wrong: object) -> None:
    document = yaml.safe_load(GOOD)
    for at in _paths(document)[1:]:
        try:
            load_policy(_changed(document, at, wrong).encode(), source="p.yaml")
        except ConfigError as error:
            lines = [line.partition(": ")[2] for line in str(error).splitlines()]
            assert not [line for line in lines if any(word in line for word in LIBRARY_WORDS)]
