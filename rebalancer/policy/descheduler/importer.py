"""Conversion of a DeschedulerPolicy of kubernetes-sigs/descheduler, with a list of differences.

Every key is either converted or listed with the reason. If a restriction has no equivalent, the result restricts more,
never less. The result is validated like any policy.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from rebalancer.model.errors import ConfigError
from rebalancer.policy.descheduler.document import API_VERSION, ARGS, KIND, DeschedulerPolicy
from rebalancer.policy.descheduler.guards import node_selector, read_guards, together
from rebalancer.policy.descheduler.notes import DECIDE, DIFFERENT, UNSUPPORTED, Difference, FieldPath, Keys, Notes
from rebalancer.policy.descheduler.strategies import FINISHED, Made, make_strategy
from rebalancer.policy.descheduler.utilization import ImportedThresholds
from rebalancer.policy.document import Document
from rebalancer.policy.loader import load_policy
from rebalancer.policy.schema.types import format_duration

OLD_API_VERSION = "descheduler/v1alpha1"
REWRITE = "; write its strategies as plugins of a profile first"
OLD_FIELDS = frozenset(
    ("evictLocalStoragePods", "evictSystemCriticalPods", "evictFailedBarePods", "evictDaemonSetPods", "ignorePvcPods")
)
"""Of v1alpha1, at the top level; arguments of DefaultEvictor in v1alpha2."""
CLUSTER = "my-cluster"
PROMETHEUS_URL = "http://prometheus-operated.monitoring.svc:9090"
CYCLE = 300.0
"""The descheduler's default interval in seconds: its limits per run become limits per window of this length, or of its
own interval where that is longer."""
ALWAYS = (
    ("guards", "pods that are not Ready, in a rollout, or without allowed disruptions are not evicted"),
    (
        "guards",
        "a pod's annotation descheduler.alpha.kubernetes.io/evict lifts no protection; with any value but true it "
        "forbids the eviction",
    ),
    ("guards.jobPods", "pods of Jobs are not evicted"),
    ("guards.namespaces", "pods of kube-system are not evicted"),
    ("limits", "limits that are not set have defaults, counted in the database across restarts"),
)
"""Differences of every import: (path in the RebalancerPolicy, why)."""
EVICTOR = "DefaultEvictor"
STAYING = ("PodLifeTime", "RemovePodsHavingTooManyRestarts")
"""Strategies whose replacements may come back to their node; in the descheduler nodeFit asks for another one."""
WORKING = ("deschedule", "balance")
BALANCING = {
    "HighNodeUtilization",
    "LowNodeUtilization",
    "RemoveDuplicates",
    "RemovePodsViolatingTopologySpreadConstraint",
}
"""Strategies of the extension point `balance`; the others are of `deschedule`."""
FILTERS = ("filter", "preevictionfilter", "preEvictionFilter")
OTHER_POINTS = (*FILTERS, "presort", "sort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import."""

    text: str
    """A RebalancerPolicy, with comments where the user must decide."""
    differences: tuple[Difference, ...]


def import_policy(
    data: bytes,
    *,
    source: str,
    cluster: str | None = None,
    prometheus_url: str | None = None,
    interval: float | None = None,
) -> Imported:
    """`interval`: seconds between two runs of the descheduler; None if they are not known.

    Raises ConfigError with a line for each mistake, and if no strategy can be converted.
    """
    document = Document.read(data, source=source, kind=KIND)
    for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.value.get(key) != wanted:
            raise document.mistake(
                (key,), f"expected {wanted}, got {document.value.get(key)!r}{_advice(document.value)}"
            )
    plain = _without_nulls(document.value)
    if "strategies" in plain and "profiles" not in plain:  # values of an old chart, which names no apiVersion
        why = f"expected profiles of {API_VERSION}, got strategies of {OLD_API_VERSION}{REWRITE}"
        raise document.mistake(("strategies",), why)
    if old := [each for each in plain if each in OLD_FIELDS]:
        why = f"field of {OLD_API_VERSION}, which the descheduler ignores: remove it, or set it in args of {EVICTOR}"
        raise document.mistake((old[0],), why)
    document.checked(DeschedulerPolicy, plain)
    notes = Notes(document)
    work = _Import(document, notes, Keys(plain, (), notes), cluster, prometheus_url, interval)
    text = work.text()
    notes.close(plain)
    load_policy(text.encode(), source=f"conversion of {source}")
    return Imported(text=text, differences=notes.sorted())


def _advice(value: dict[str, Any]) -> str:
    """On a file of another kind or version."""
    if value.get("apiVersion") == OLD_API_VERSION:
        return REWRITE
    kind = value.get("kind", KIND)
    return "" if kind == KIND else f"; no {KIND} is in this {kind}"


def _without_nulls(value: Any) -> Any:
    """The descheduler treats a key without a value as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


class _Import:
    def __init__(
        self,
        document: Document,
        notes: Notes,
        top: Keys,
        cluster: str | None,
        prometheus_url: str | None,
        interval: float | None,
    ) -> None:
        self._document, self._notes, self._top = document, notes, top
        self._cluster, self._url, self._interval = cluster, prometheus_url, interval
        self._window = format_duration(max(CYCLE, interval or 0))
        self._pools: list[dict[str, Any]] = []
        self._thresholds: dict[str, ImportedThresholds] = {}
        self._strategies: list[tuple[str, dict[str, Any]]] = []
        self._guards: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        self._query: str | None = None
        self._comments: dict[str, list[str]] = {}

    def text(self) -> str:
        top = self._top
        top.get("apiVersion")
        top.get("kind")
        everywhere = node_selector(top.get("nodeSelector", ""), ("nodeSelector",), self._document)
        profiles = [Keys(each, ("profiles", index), self._notes) for index, each in enumerate(top.peek("profiles"))]
        read = [read_guards(self._evictor(each), everywhere, self._document, self._notes) for each in profiles]
        self._guards = read[0].merged(read[1:], self._notes)
        pools = [self._pool(guards.nodes) for guards in read]
        for profile, guards, pool in zip(profiles, read, pools, strict=True):
            self._profile(profile, pool, guards.own_labels(read))
        if not self._strategies:
            why = "; ".join(f"{each.field}: {each.why}" for each in self._notes.sorted() if each.kind == UNSUPPORTED)
            raise ConfigError(f"{self._document.source}: no strategy can be converted" + (f": {why}" if why else ""))
        for ours, why in ALWAYS:
            self._notes.add((), DIFFERENT, why, ours)
        self._rates()
        usage = self._usage()
        return self._written(usage)

    # ---- profiles

    def _evictor(self, profile: Keys) -> Keys:
        at = self._config(profile, EVICTOR)
        return Keys({}, (*profile.at, "pluginConfig"), self._notes) if at is None else at

    def _config(self, profile: Keys, name: str) -> Keys | None:
        """The validated arguments of a plugin, or None. The descheduler reads the first of several."""
        found = None
        for index, config in enumerate(profile.peek("pluginConfig", [])):
            if config["name"] == name:
                at: FieldPath = (*profile.at, "pluginConfig", index)
                if found is not None:
                    self._notes.add(at, DIFFERENT, f"the first configuration of {name} counts, as in the descheduler")
                    continue
                self._notes.took((*at, "name"))
                args = config.get("args", {})
                self._document.checked(ARGS[name], args, (*at, "args"))
                found = Keys(args, (*at, "args"), self._notes)
                if not args:
                    self._notes.took((*at, "args"))
        return found

    def _pool(self, nodes: dict[str, Any]) -> str:
        for pool in self._pools:
            if pool["selector"] == nodes:
                return str(pool["name"])
        name = f"nodes-{len(self._pools) + 1}" if self._pools else "nodes"
        self._pools.append({"name": name, "selector": nodes})
        self._thresholds[name] = ImportedThresholds()
        return name

    def _profile(self, profile: Keys, pool: str, labels: dict[str, Any]) -> None:
        name = str(profile.get("name", ""))
        switched_on = self._switched_on(profile)
        if foreign := self._foreign_filters(profile):
            why = f"{' and '.join(foreign)} may protect pods that nothing here would protect, so it is not enabled"
            for enabled in switched_on.values():
                self._notes.add(enabled, UNSUPPORTED, why)
            return
        fits = bool(self._evictor(profile).peek("nodeFit", False))
        for index, config in enumerate(profile.peek("pluginConfig", [])):
            if config["name"] not in switched_on and config["name"] != EVICTOR:
                at: FieldPath = (*profile.at, "pluginConfig", index)
                if config["name"] in ARGS:
                    self._notes.add(at, UNSUPPORTED, f"{config['name']} is not enabled in this profile")
                else:
                    self._notes.add(at, UNSUPPORTED, f"there is no strategy {config['name']}")
        for plugin, at in switched_on.items():
            args = self._config(profile, plugin)
            if args is None:
                why = f"{plugin} has no entry in pluginConfig: without one the descheduler does not start"
                self._notes.add(at, UNSUPPORTED, why)
                continue
            if fits and _of_finished_pods(plugin, args):
                why = (
                    "nodeFit keeps finished pods that fit on no other node: without it more pods would be evicted, so "
                    f"{plugin} is not enabled"
                )
                self._notes.add(at, UNSUPPORTED, why)
                self._notes.took(args.at)
                continue
            made = make_strategy(plugin, args, self._notes, self._thresholds[pool])
            if made is None:
                self._notes.took(args.at)  # why it is not enabled is said once, not of each argument
            if made is not None and fits and plugin in STAYING:
                made.args["otherNode"] = True
            if made is not None:
                self._add(made, at, name, pool, labels)

    def _switched_on(self, profile: Keys) -> dict[str, FieldPath]:
        """Enabled strategy -> path of the entry."""
        plugins = profile.section("plugins")
        out: dict[str, FieldPath] = {}
        for point in WORKING:
            chosen = plugins.section(point)
            disabled = chosen.get("disabled", [])
            if disabled:
                self._notes.add((*chosen.at, "disabled"), DIFFERENT, "no strategy is enabled by default: left out")
            for index, name in enumerate(chosen.get("enabled", [])):
                at = (*chosen.at, "enabled", index)
                if name not in ARGS or name == EVICTOR:
                    self._notes.add(at, UNSUPPORTED, f"there is no strategy {name}")
                elif (name in BALANCING) != (point == "balance"):
                    own = "balance" if name in BALANCING else "deschedule"
                    why = f"{name} is a strategy of {own}: with it here the descheduler does not start"
                    self._notes.add(at, UNSUPPORTED, why)
                elif name not in disabled and "*" not in disabled:
                    out.setdefault(name, at)
        for point in OTHER_POINTS:
            chosen = plugins.section(point)
            if set(chosen.get("enabled", [])) - {EVICTOR}:
                self._notes.add((*chosen.at, "enabled"), UNSUPPORTED, "guards filter and the planner sorts instead")
            if chosen.get("disabled", []):
                self._notes.add((*chosen.at, "disabled"), UNSUPPORTED, "guards cannot be disabled as a whole")
        return out

    def _foreign_filters(self, profile: Keys) -> list[str]:
        """Names of the profile's filters that the descheduler doesn't have itself."""
        plugins = profile.peek("plugins", {})
        return sorted({name for point in FILTERS for name in plugins.get(point, {}).get("enabled", [])} - {EVICTOR})

    def _add(self, made: Made, at: FieldPath, profile: str, pool: str, labels: dict[str, Any]) -> None:
        args = dict(made.args)
        if labels and made.by_pod:
            args["labelSelector"] = together(labels, args.get("labelSelector", {}))
        elif labels:
            self._notes.add(
                at, UNSUPPORTED, "profiles select pods by different labels, which this strategy does not support"
            )
            return
        entry: dict[str, Any] = {"name": made.name, **({"args": args} if args else {})}
        if len(self._pools) > 1:
            entry["pools"] = [pool]
        for _, before in self._strategies:
            same = before == entry or (not made.by_pod and before["name"] == made.name)
            if same and before.get("pools") == entry.get("pools"):
                self._notes.add(at, DIFFERENT, f"{made.name} is already enabled for these nodes")
                return
        self._strategies.append((profile, entry))
        for scope, field, globs in made.namespaces:
            spaces = self._guards.setdefault("namespaces", {})
            own = ["kube-system"] if field == "exclude" else []
            spaces[field] = sorted({*spaces.get(field, own), *globs})
            self._notes.add(scope, DIFFERENT, "applies to all strategies", "guards.namespaces")
        if made.per_node is not None:
            self._per_node(made.per_node[1], made.per_node[0])
        if made.query is not None:
            self._query = made.query

    # ---- limits and usage

    def _rates(self) -> None:
        top = self._top
        if (most := top.get("maxNoOfPodsToEvictPerNode")) is not None:
            self._per_node(most, ("maxNoOfPodsToEvictPerNode",))
        if (most := top.get("maxNoOfPodsToEvictPerNamespace")) is not None:
            self._limits["namespace"] = {"evictions": [{"max": most, "per": self._window}]}
            self._per_window(("maxNoOfPodsToEvictPerNamespace",), "limits.namespace")
        if (most := top.get("maxNoOfPodsToEvictTotal")) is not None:
            self._limits |= {"perCycle": most, "cluster": {"evictions": [{"max": most, "per": self._window}]}}
            self._per_window(("maxNoOfPodsToEvictTotal",), "limits.cluster")
        if self._limits and self._interval is None:
            longer = f"the descheduler's interval, if it is longer than {self._window}"
            self._notes.add((), DECIDE, f"`per` must be {longer}: it is not in the policy", "limits")
            self._comment("limits", f"DECIDE: `per` must be {longer}.")
        if top.get("gracePeriodSeconds") is not None:
            self._notes.add(("gracePeriodSeconds",), UNSUPPORTED, "each pod's own grace period applies")
        if "evictionFailureEventNotification" in top:
            top.get("evictionFailureEventNotification")
            why = "every refusal is recorded with its reason and shown by `explain`, without an Event"
            self._notes.add(("evictionFailureEventNotification",), DIFFERENT, why)

    def _per_node(self, most: int, at: FieldPath) -> None:
        before = self._limits.get("node", {}).get("evictions", [])
        least = min([most, *(each["max"] for each in before)])
        self._limits["node"] = {"evictions": [{"max": least, "per": self._window}]}
        self._per_window(at, "limits.node")

    def _per_window(self, at: FieldPath, ours: str) -> None:
        why = f"counted in a sliding window of {self._window} over all strategies, not per run"
        self._notes.add(at, DIFFERENT, why, ours)

    def _usage(self) -> dict[str, Any]:
        top, notes = self._top, self._notes
        server = bool(top.section("metricsCollector").get("enabled", False))
        url = ""
        prometheus: dict[str, Any] = {}
        for index, each in enumerate(top.peek("metricsProviders", [])):
            provider = Keys(each, ("metricsProviders", index), notes)
            if provider.get("source") == "KubernetesMetrics":
                server = True
                continue
            section = provider.section("prometheus")
            url = str(section.get("url", ""))
            if "authToken" in section:
                section.get("authToken")
                prometheus["bearerTokenFile"] = "/etc/rebalancer/prometheus/token"
                why = "mount the Secret and set the file with the token"
                notes.add((*section.at, "authToken"), DECIDE, why, "usage.prometheus.bearerTokenFile")
                self._comment("usage", "DECIDE: mount the Secret that holds the token, and set its file here.")
            else:
                why = "no token is sent; the descheduler sends its service account's"
                notes.add(section.at, DIFFERENT, why, "usage.prometheus.bearerTokenFile")
        if server and not url and self._url is None:
            return {"source": "MetricsServer"}
        if server:
            notes.add(("metricsProviders",), DIFFERENT, "there is one source of real CPU: Prometheus", "usage.source")
        if self._url is None and not url:
            notes.add(
                (),
                DECIDE,
                "real CPU decides which target nodes are allowed: set your Prometheus",
                "usage.prometheus.url",
            )
            self._comment("usage", "DECIDE: the Prometheus to read (--prometheus-url), or `source: MetricsServer`.")
        if self._url is not None and url and url != self._url:
            notes.add(("metricsProviders",), DIFFERENT, "--prometheus-url is used instead", "usage.prometheus.url")
        prometheus = {"url": self._url or url or PROMETHEUS_URL, **prometheus}
        if self._query is not None:
            prometheus["nodeCPU"] = {
                "query": self._query,
                "unit": "share",
                "label": "instance",
                "freshness": 'timestamp(node_cpu_seconds_total{mode="idle"})',
            }
            self._comment("usage", "DECIDE: `freshness` must be the time of the raw samples behind your query.")
        return {"source": "Prometheus", "prometheus": prometheus}

    # ---- output

    def _comment(self, section: str, comment: str) -> None:
        self._comments.setdefault(section, []).append(comment)

    def _written(self, usage: dict[str, Any]) -> str:
        if self._cluster is None:
            self._notes.add((), DECIDE, "set the name of the cluster (--cluster)", "cluster")
            self._comment("cluster", "DECIDE: name of the cluster in records and in the Lease (--cluster).")
        pools = [{**pool, **self._thresholds[str(pool["name"])].sections()} for pool in self._pools]
        if not any("thresholds" in pool for pool in pools):
            self._comment("pools", "With thresholds of real CPU no replacement is placed on a node above target:")
            self._comment("pools", "thresholds: {high: 75, target: 65, low: 50}")
        if self._guards.get("requireOptIn"):
            self._comment("guards", "DECIDE: a protection has no equivalent, so only pods that opt in may be evicted.")
        sections: dict[str, Any] = {
            "cluster": CLUSTER if self._cluster is None else self._cluster,
            "pools": pools,
            "usage": usage,
            "strategies": [entry for _, entry in self._strategies],
            "guards": self._guards,
            "limits": self._limits,
        }
        name = " ".join(self._document.source.rpartition("/")[2].split())
        out = f"# Converted from {name} ({KIND} {API_VERSION}). `rebalancer policy import` lists the differences.\n"
        out += "apiVersion: rebalancer.dev/v1alpha1\nkind: RebalancerPolicy\n"
        for name, section in sections.items():
            if section != {}:
                comments = "".join(f"# {each}\n" for each in self._comments.get(name, []))
                out += f"\n{comments}{self._section(name, section)}"
        return out

    def _section(self, name: str, section: Any) -> str:
        if name != "strategies":
            return _yaml({name: section})
        out, last = "strategies:\n", None
        for profile, entry in self._strategies:
            if profile and profile != last:
                out += f"  # profile {' '.join(profile.split())}\n"
            last = profile
            out += "".join(f"  {line}\n" for line in _yaml([entry]).splitlines())
        return out


def _of_finished_pods(plugin: str, args: Keys) -> bool:
    """Whether the strategy selects finished pods. They have no target node here, so no room is looked for."""
    states = set(args.peek("states", [])) if plugin == "PodLifeTime" else set()
    return plugin == "RemoveFailedPods" or bool(states & FINISHED)


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
