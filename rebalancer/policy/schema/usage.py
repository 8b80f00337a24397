"""The `usage` section of the policy file: where measured usage comes from and when it is trusted."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy.schema.types import (
    AsTuple,
    Duration,
    FieldError,
    Format,
    NonEmpty,
    Percent,
    Section,
    at_least,
    format_duration,
)

_URL = re.compile(
    r"https?://(?:[^/?#\[\]\s]*@)?(?:\[(?P<six>[^\[\]\s]+)\]|[^/?#\[\]\\:@\s]+)(?::(?P<port>\d{0,5}))?(?:[/?#]\S*)?"
)
_API = re.compile(r"[^/](?P<path>/api(?:/v1(?:/query(?:_range)?)?)?)/?$")
"""The path of the API at the end of a URL. Elsewhere it may be the path of a proxy."""
_MAX_STABILIZATION_SECONDS = 3600.0
_MIN_STEP_SECONDS = 5.0
"""Smallest step of range queries. The longest window then has 720 points; Prometheus allows 11,000."""


class BasicAuth(Section):
    """Basic authentication. The password file is read again for each cycle."""

    username: NonEmpty
    """User name."""
    password_file: NonEmpty
    """File that holds the password."""


class NodeQuery(Section):
    """Source of node CPU."""

    query: NonEmpty | None = None
    """PromQL with one series per node. Default: node_exporter's counters as a share of the node's CPUs."""
    unit: Literal["share", "cores"] = "share"
    """Unit of a custom `query`: a share of capacity (0..1), or cores in use."""
    freshness: NonEmpty | None = None
    """PromQL for the time of the *raw* sample, with the same node label. Required with a custom `query`, because
    `timestamp()` of a recording rule is the time of the rule's evaluation, not of the scrape."""
    label: NonEmpty = "instance"
    """Label that identifies the node."""
    node_by: Literal["Auto", "Name", "Address", "NodeInfo", "Uname"] = "Auto"
    """Content of that label: the node's name, one of its addresses (a port is ignored), or an instance to look up in
    `kube_node_info` or `node_uname_info`. Auto tries these in order."""

    @model_validator(mode="after")
    def _freshness_with_own_query(self) -> "NodeQuery":
        if self.query is not None and self.freshness is None:
            raise FieldError("freshness", "expected freshness (PromQL for the raw samples' time) with a custom query")
        return self


class PodQuery(Section):
    """Source of pod CPU."""

    query: NonEmpty | None = None
    """PromQL in cores with one series per pod. Default: cAdvisor's counters of named containers, without duplicates."""
    namespace_label: NonEmpty = "namespace"
    """Label that holds the pod's namespace."""
    pod_label: NonEmpty = "pod"
    """Label that holds the pod's name."""
    node_label: NonEmpty = "node"
    """Label that holds the node. If series lack it, pods that left a node are known from rebalancer's records only."""


class ResourceQueries(Section):
    """Source of a resource besides CPU. All its queries use the same unit. Series are matched by the labels of
    `nodeCPU` and `podCPU`."""

    name: Annotated[
        str,
        Format(
            r"^[a-z0-9]([-a-z0-9./]{0,61}[a-z0-9])?$",
            "a name such as disk-busy: lower-case letters, digits, -, . and /, at most 63 characters",
        ),
    ]
    """Name of the resource, for example `disk-busy`. `memory` replaces the default queries for memory."""
    node: NonEmpty
    """PromQL with one series per node: the amount in use. Without `capacity` it is a share, 0..1."""
    capacity: NonEmpty | None = None
    """PromQL with one series per node: the amount that is the whole node."""
    pod: NonEmpty
    """PromQL with one series per pod: the amount that it uses."""

    @field_validator("name")
    @classmethod
    def _not_cpu(cls, name: str) -> str:
        if name in (CPU, "pods"):
            raise ValueError(f"expected a resource besides cpu and pods, got {name}: see nodeCPU and podCPU")
        return name


class RangeQueries(Section):
    """Load on Prometheus from reading the last days' CPU. Each day is read once, in queries of at most 2,000 series and
    288 points, two at a time."""

    queries_per_hour: Annotated[int, Field(ge=1)] = 600
    """Maximum number of range queries per hour; the rest follows in the next hour. 150,000 pods on 5,000 nodes take
    about 200 queries per day of history."""


class Prometheus(Section):
    """Connection to Prometheus or a compatible API, and its queries."""

    url: Annotated[str, WithJsonSchema({"type": "string", "pattern": r"^https?://\S+$"})]
    """Base URL, without /api/v1."""
    timeout: Annotated[Duration, at_least(1)] = 15.0
    """Timeout of one query, including the connection."""
    bearer_token_file: NonEmpty | None = None
    """File that holds a bearer token. Read again for each cycle."""
    basic_auth: BasicAuth | None = None
    ca_file: NonEmpty | None = None
    """PEM file of the CA certificates to trust instead of the system's."""
    insecure_skip_verify: bool = False
    """Disables verification of the server's certificate. For tests only."""
    headers: dict[str, str] = {}
    """HTTP headers, such as `X-Scope-OrgID` for a tenant. Not for secrets."""
    node_cpu: NodeQuery = Field(default=NodeQuery(), alias="nodeCPU")
    pod_cpu: PodQuery = Field(default=PodQuery(), alias="podCPU")
    resources: Annotated[tuple[ResourceQueries, ...], AsTuple] = ()
    """Resources besides CPU. Memory is read without an entry: from node_exporter and cAdvisor."""
    history: RangeQueries = RangeQueries()

    @field_validator("url")
    @classmethod
    def _valid_url(cls, url: str) -> str:
        match = _URL.fullmatch(url)
        if match is None or not _is_address(match["six"]):
            raise ValueError("expected a URL such as http://prometheus:9090 (other characters percent-encoded)")
        if int(match["port"] or 0) > 65535:
            raise ValueError("expected a port of at most 65535")
        if api := _API.search(url):
            raise ValueError(f"expected a URL without {api['path']}, which is added to it")
        return url

    @field_validator("resources")
    @classmethod
    def _distinct_resources(cls, resources: tuple[ResourceQueries, ...]) -> tuple[ResourceQueries, ...]:
        names = [each.name for each in resources]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected distinct names of resources, got {', '.join(twice)} more than once")
        return resources

    @model_validator(mode="after")
    def _one_authentication(self) -> "Prometheus":
        if self.bearer_token_file and self.basic_auth:
            raise FieldError("basicAuth", "expected bearerTokenFile or basicAuth, not both")
        return self


def _is_address(six: str | None) -> bool:
    try:
        return six is None or bool(ipaddress.IPv6Address(six.replace("%25", "%", 1)))
    except ValueError:
        return False


class StabilizationWindow(Section):
    """How long a node must be hot before it is acted on: in this many distinct samples, over this time, and in every
    sample between."""

    samples: Annotated[int, Field(ge=1)] = 3
    """Number of distinct raw samples."""
    duration: Duration = 120.0
    """Time from the first to the last of these samples; at most 1h."""

    @model_validator(mode="after")
    def _can_be_measured(self) -> "StabilizationWindow":
        if self.duration > _MAX_STABILIZATION_SECONDS:
            longest = format_duration(_MAX_STABILIZATION_SECONDS)
            raise FieldError("duration", f"expected at most {longest}, got {format_duration(self.duration)}")
        if self.samples - 1 > self.duration / _MIN_STEP_SECONDS:  # this way round: `samples` may exceed any float
            most = int(self.duration // _MIN_STEP_SECONDS) + 1
            raise FieldError(
                "samples",
                f"expected at most {most} over {format_duration(self.duration)}: "
                f"samples are read every {format_duration(_MIN_STEP_SECONDS)} at most",
            )
        return self


class UsageSource(Section):
    """Where real CPU comes from, and when it is trusted."""

    source: Literal["Prometheus", "MetricsServer"] = "Prometheus"
    """MetricsServer is for clusters without Prometheus."""
    prometheus: Prometheus | None = None
    """Required with `source: Prometheus`."""
    rate_window: Annotated[Duration, at_least(30)] = 300.0
    """Range of the rate queries. A pod that has left still shows in the measured CPU for this long."""
    max_sample_age: Annotated[Duration, at_least(1)] = 180.0
    """A node with an older raw sample is skipped."""
    min_coverage: Percent = 80.0
    """Minimum percentage of the Ready nodes of pools with fresh usage; below it the cycle makes no plan."""
    stabilization_window: StabilizationWindow = StabilizationWindow()
    """How long a node must be hot before it is acted on."""

    @model_validator(mode="after")
    def _source_is_configured(self) -> "UsageSource":
        if self.source == "Prometheus" and self.prometheus is None:
            raise FieldError("prometheus", "expected usage.prometheus with source Prometheus")
        return self
