"""Alertmanager's webhook payload, version 4, and Grafana's, to alerts; and which of them concern us.

Sources: Alertmanager's configuration reference, `webhook_config`; Grafana's webhook contact point. Unknown fields are
ignored: both add some over time.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

import msgspec

from rebalancer.model.decisions.alerts import Alert
from rebalancer.model.notation.decoding import json_decoder
from rebalancer.model.notation.resource_names import CPU
from rebalancer.policy.schema.alerts import Alerts

MAX_ALERTS = 10_000
"""Of one delivery; the others are ignored."""

MAX_LABELS = 64
MAX_NAME_LENGTH = 256
MAX_VALUE_LENGTH = 4096
MAX_ANNOTATION_LENGTH = 1024
"""Longer ones are cut: only two short ones are read."""


class PayloadError(ValueError):
    """A body that is no payload of Alertmanager's: one line."""


class Ignored(StrEnum):
    """Why an alert is counted and forgotten."""

    NO_RULE = "no_rule"
    OTHER_CLUSTER = "other_cluster"
    NO_CLUSTER = "no_cluster"
    """The policy asks for the cluster label and the alert has none."""
    UNKNOWN_RESOURCE = "unknown_resource"
    """It names a resource that isn't measured."""
    TOO_MANY = "too_many"
    """After the first MAX_ALERTS of its delivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """The alerts of a payload that concern us."""

    alerts: tuple[Alert, ...]
    ignored: Mapping[Ignored, int]
    """How many of the others, by reason."""
    unknown_resources: tuple[str, ...] = ()
    """Names of resources that aren't measured."""


_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
_Value = Annotated[str, msgspec.Meta(max_length=MAX_VALUE_LENGTH)]
_Labels = Annotated[dict[_Name, _Value], msgspec.Meta(max_length=MAX_LABELS)]
_Annotations = Annotated[dict[_Name, str], msgspec.Meta(max_length=MAX_LABELS)]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _Alert(msgspec.Struct, rename="camel"):
    status: Literal["firing", "resolved"]
    labels: _Labels
    starts_at: _Time
    annotations: _Annotations | None = None
    ends_at: _Time | None = None
    fingerprint: Annotated[str, msgspec.Meta(pattern=r"\A[0-9A-Za-z_-]{0,64}\Z")] = ""


class _Payload(msgspec.Struct):
    version: Literal["1", "4"]
    """4: Alertmanager's; 1: Grafana's, with the same alerts."""
    alerts: list[_Alert]


_DECODER = json_decoder(_Payload)


class Delivery(NamedTuple):
    """The alerts of one delivery, in its order."""

    alerts: tuple[Alert, ...]
    too_many: int = 0
    """How many came after the first MAX_ALERTS."""


def read_payload(body: bytes) -> Delivery:
    """Raises PayloadError."""
    try:
        payload = _DECODER.decode(body)
    except RecursionError:
        raise PayloadError("not a payload of Alertmanager or Grafana: nested too deeply") from None
    except UnicodeDecodeError:
        raise PayloadError("not a payload of Alertmanager or Grafana: not UTF-8") from None
    except msgspec.MsgspecError as error:
        raise PayloadError(f"not a payload of Alertmanager or Grafana: {one_line(str(error))}") from None
    alerts = tuple(_alert(each, index) for index, each in enumerate(payload.alerts[:MAX_ALERTS]))
    return Delivery(alerts, len(payload.alerts) - len(alerts))


def select(delivery: Delivery, policy: Alerts, cluster: str, resources: Collection[str] = (CPU,)) -> Selected:
    """The alerts that a rule names and that are not another cluster's, about one of these `resources`."""
    mine: list[Alert] = []
    unknown: set[str] = set()
    ignored: Counter[Ignored] = Counter({Ignored.TOO_MANY: delivery.too_many} if delivery.too_many else {})
    for alert in delivery.alerts:
        reason = _why_not(alert, policy, cluster)
        if reason is None and (resource := policy.resource_of(alert)) not in resources:
            reason = Ignored.UNKNOWN_RESOURCE
            unknown.add(resource)
        if reason is None:
            mine.append(alert)
        else:
            ignored[reason] += 1
    return Selected(alerts=tuple(mine), ignored=dict(ignored), unknown_resources=tuple(sorted(unknown)))


def one_line(text: str, at_most: int = 300) -> str:
    """A message as one printable line."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else "?" for each in line[:at_most])


def _why_not(alert: Alert, policy: Alerts, cluster: str) -> Ignored | None:
    if policy.rule_for(alert) is None:
        return Ignored.NO_RULE
    # Prometheus holds a label without a value for one that isn't there
    theirs = alert.labels.get(policy.cluster_label, "")
    if theirs == cluster:
        return None
    if theirs:
        return Ignored.OTHER_CLUSTER
    return Ignored.NO_CLUSTER if policy.require_cluster else None


def _alert(wire: _Alert, index: int) -> Alert:
    where = f"$.alerts[{index}]"
    # databases can't keep it in a text
    if any("\0" in name or "\0" in value for name, value in wire.labels.items()):
        raise PayloadError(f"expected labels without NUL characters - at `{where}.labels`")
    starts_at = _seconds(wire.starts_at, f"{where}.startsAt")
    if starts_at <= 0:
        raise PayloadError(f"expected a time after 1970 - at `{where}.startsAt`")
    ends_at = None if wire.ends_at is None else _ended(wire.ends_at, f"{where}.endsAt")
    return Alert(
        fingerprint=wire.fingerprint or fingerprint(wire.labels),
        firing=wire.status == "firing",
        labels=wire.labels,
        annotations={_cut(name): _cut(value) for name, value in (wire.annotations or {}).items()},
        starts_at=starts_at,
        ends_at=ends_at,
    )


def _cut(text: str) -> str:
    return text[:MAX_ANNOTATION_LENGTH].replace("\0", "\ufffd")


def _ended(moment: datetime, where: str) -> float | None:
    # Go's zero time: not known
    return _seconds(moment, where) if moment.year > 1 else None


def _seconds(moment: datetime, where: str) -> float:
    seconds = moment.timestamp()
    # the last day of the year 9999 is the year 10000 in a zone, which neither datetime nor a database can keep
    if seconds >= _END_OF_TIME:
        raise PayloadError(f"expected a time before the year 9999 - at `{where}`")
    return seconds


def fingerprint(labels: Mapping[str, str]) -> str:
    """What Alertmanager calls an alert with these labels; old versions don't send it.

    FNV-1a, 64 bits, over the sorted names and values, each ended by the byte 255 (`model.LabelSet.Fingerprint` of
    Prometheus' common library): the same name before and after an upgrade of Alertmanager.
    """
    state = 14695981039346656037
    for name in sorted(labels):
        for byte in (*name.encode(), 255, *labels[name].encode(), 255):
            state = (state ^ byte) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"
