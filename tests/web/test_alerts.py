"""Alertmanager's payload to alerts, and which of them concern us."""

import json
from typing import Any

import pytest

from rebalancer.web.alerts import (
    MAX_ALERTS,
    MAX_ANNOTATION_LENGTH,
    MAX_LABELS,
    MAX_VALUE_LENGTH,
    Ignored,
    PayloadError,
    fingerprint,
    read_payload,
    select,
)
from tests.web.fakes import GO_ZERO, a_payload, alert_policy, an_alert


def test_a_firing_alert_is_read_with_its_nanoseconds_and_has_not_ended() -> None:
    (alert,) = read_payload(a_payload()).alerts

    assert alert.name == "NodeCPUHigh"
    assert alert.firing
    assert alert.fingerprint == "c4b7e5d1a2f30918"
    assert alert.labels == {"alertname": "NodeCPUHigh", "node": "n1", "severity": "warning"}
    assert alert.annotations["rebalancer_high"] == "75"
    assert alert.starts_at == pytest.approx(1795230600.123457, abs=1e-6)
    assert alert.ends_at is None


@pytest.mark.parametrize(
    ("ends", "ends_at"),
    [("2026-11-21T05:10:00+02:00", 1795230600.0), (GO_ZERO, None), (None, None)],
    ids=["known", "zero", "absent"],
)
def test_a_resolved_alert_has_its_end_if_that_is_known(ends: str | None, ends_at: float | None) -> None:
    (alert,) = read_payload(a_payload(an_alert(status="resolved", endsAt=ends))).alerts

    assert not alert.firing
    assert alert.ends_at == ends_at


def test_an_end_that_is_announced_for_a_firing_alert_is_kept() -> None:
    (alert,) = read_payload(a_payload(an_alert(endsAt="2030-01-01T00:00:00Z"))).alerts

    assert alert.ends_at == 1_893_456_000.0
    assert (alert.fires_at(1_893_455_999.0), alert.fires_at(1_893_456_000.0)) == (True, False)


def test_a_delivery_of_grafanas_contact_point_is_read_like_alertmanagers() -> None:
    """With the fields of its documentation."""
    alert = {
        "status": "firing",
        "labels": {"alertname": "NodeCPUHigh", "node": "n1", "grafana_folder": "nodes"},
        "annotations": {"rebalancer_high": "75"},
        "startsAt": "2026-11-21T09:51:03.157076+02:00",
        "endsAt": GO_ZERO,
        "generatorURL": "https://grafana.example/alerting/1afz29v7z/edit",
        "fingerprint": "c6eadffa33fcdf37",
        "silenceURL": "https://grafana.example/alerting/silence/new?matchers=alertname%3DT2",
        "dashboardURL": "",
        "panelURL": "",
        "values": {"B": 84.23943737541908, "C": 1},
        "valueString": "[ var='B' labels={} value=84.2 ]",
        "orgId": 1,
    }
    delivery = {
        "receiver": "rebalancer",
        "status": "firing",
        "orgId": 1,
        "alerts": [alert],
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "https://grafana.example/",
        "version": "1",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "title": "[FIRING:1]",
        "state": "alerting",
        "message": "**Firing**",
    }
    (read,) = read_payload(json.dumps(delivery).encode()).alerts
    assert (read.name, read.firing, read.ends_at) == ("NodeCPUHigh", True, None)
    assert (read.labels["node"], read.annotations["rebalancer_high"]) == ("n1", "75")


def test_unknown_fields_are_ignored_and_alerts_and_annotations_may_be_absent() -> None:
    body = a_payload(an_alert(silenceURL="http://x", extra={"deep": [1, None]}), notificationReason="new", more=[1.5])

    assert len(read_payload(body).alerts) == 1
    assert read_payload(b'{"version": "4", "alerts": []}').alerts == ()
    assert read_payload(a_payload(an_alert(annotations=None))).alerts[0].annotations == {}


def test_a_missing_fingerprint_is_the_one_that_alertmanager_would_have_sent() -> None:
    alert = an_alert(labels={"name": "garland, briggs", "fear": "love is not enough"})
    del alert["fingerprint"]

    # the vector of Prometheus' common library (model/signature_test.go)
    assert read_payload(a_payload(alert)).alerts[0].fingerprint == f"{5799056148416392346:016x}"


def test_the_order_of_labels_does_not_change_the_fingerprint() -> None:
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"})
    assert fingerprint({"a": "1", "b": "2"}) != fingerprint({"a": "2", "b": "1"})
    assert fingerprint({"a": "bc"}) != fingerprint({"ab": "c"})


def test_long_annotations_are_cut_and_can_be_stored() -> None:
    (alert,) = read_payload(a_payload(an_alert(annotations={"summary": "x" * 5000, "note": "a\0b"}))).alerts

    assert alert.annotations == {"summary": "x" * MAX_ANNOTATION_LENGTH, "note": "a\ufffdb"}


def test_the_last_of_two_equal_keys_holds_as_in_go() -> None:
    body = a_payload().replace(b'"status": "firing", "labels"', b'"status": "firing", "status": "resolved", "labels"')

    assert not read_payload(body).alerts[0].firing


def _broken(**fields: Any) -> bytes:
    return a_payload(an_alert(**fields))


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (b"", "truncated"),
        (b"no json", "malformed"),
        (b"\xff\xfe{\x00}\x00", "malformed"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `version`"),
        (b'{"version": "4"}', "missing required field `alerts`"),
        (b'{"version": "5", "alerts": []}', "Invalid enum value '5' - at `$.version`"),
        (b'{"version": 4, "alerts": []}', "Expected `str`, got `int` - at `$.version`"),
        (b'{"version": "4", "alerts": null}', "Expected `array`, got `null` - at `$.alerts`"),
        (b'{"version": "4", "alerts": [' + b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"version": "4", "deep": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"version": "4", "alerts": [], "x": NaN}', "malformed"),
        (a_payload().replace(b"n1", b"\xed\xa0\x80", 1), "not UTF-8"),
        (a_payload().replace(b"n1", b"\\ud800", 1), "malformed"),
        (_broken(status="pending"), "Invalid enum value 'pending' - at `$.alerts[0].status`"),
        (_broken(status=None), "Expected `str`, got `null` - at `$.alerts[0].status`"),
        (_broken(labels=None), "Expected `object`, got `null` - at `$.alerts[0].labels`"),
        (_broken(labels={"a": 1}), "Expected `str`, got `int`"),
        (_broken(labels={"": "x"}), "length >= 1"),
        (_broken(labels={"a": "x" * (MAX_VALUE_LENGTH + 1)}), f"length <= {MAX_VALUE_LENGTH}"),
        (_broken(labels={str(each): "" for each in range(MAX_LABELS + 1)}), f"length <= {MAX_LABELS}"),
        (_broken(labels={"a": "x\0"}), "expected labels without NUL characters - at `$.alerts[0].labels`"),
        (_broken(annotations={"a": None}), "Expected `str`, got `null`"),
        (_broken(annotations={str(each): "" for each in range(MAX_LABELS + 1)}), f"length <= {MAX_LABELS}"),
        (_broken(startsAt="yesterday"), "Invalid RFC3339 encoded datetime - at `$.alerts[0].startsAt`"),
        (_broken(startsAt="2026-11-21T03:10:00"), "timezone"),
        (_broken(startsAt=1795230600), "Expected `datetime`, got `int`"),
        (_broken(startsAt=GO_ZERO), "expected a time after 1970 - at `$.alerts[0].startsAt`"),
        (_broken(endsAt="never"), "Invalid RFC3339 encoded datetime - at `$.alerts[0].endsAt`"),
        (_broken(fingerprint="x" * 65), "matching regex"),
        (_broken(fingerprint="a b"), "matching regex"),
        (_broken(fingerprint=7), "Expected `str`, got `int`"),
    ],
)
def test_what_is_no_payload_is_refused_in_one_line(body: bytes, reported: str) -> None:
    with pytest.raises(PayloadError) as caught:
        read_payload(body)

    message = str(caught.value)
    assert reported in message
    assert "\n" not in message
    assert len(message) < 400


def test_alerts_over_the_most_of_a_delivery_are_ignored_and_counted() -> None:
    one = json.dumps(an_alert())

    def body(count: int) -> bytes:
        return f'{{"version": "4", "alerts": [{",".join([one] * count)}]}}'.encode()

    assert read_payload(body(MAX_ALERTS)).too_many == 0
    more = read_payload(body(MAX_ALERTS + 3))
    assert len(more.alerts) == MAX_ALERTS
    counts = {Ignored.NO_RULE: MAX_ALERTS, Ignored.TOO_MANY: 3}
    assert select(more, alert_policy(rules=[]).alerts, "test").ignored == counts


RULE = {"alert": "NodeCPUHigh", "labels": {"severity": "warning"}, "high": 75}
BASE = {"alertname": "NodeCPUHigh", "node": "n1", "severity": "warning"}


@pytest.mark.parametrize(
    ("labels", "require", "why"),
    [
        (BASE, False, None),
        (BASE, True, Ignored.NO_CLUSTER),
        ({**BASE, "cluster": "test"}, True, None),
        ({**BASE, "cluster": "other"}, False, Ignored.OTHER_CLUSTER),
        ({**BASE, "cluster": "other"}, True, Ignored.OTHER_CLUSTER),
        ({**BASE, "cluster": ""}, False, None),
        ({**BASE, "cluster": ""}, True, Ignored.NO_CLUSTER),
        ({**BASE, "alertname": "Watchdog"}, False, Ignored.NO_RULE),
        ({**BASE, "severity": "critical"}, False, Ignored.NO_RULE),
        ({"alertname": "NodeCPUHigh"}, False, Ignored.NO_RULE),
        ({}, False, Ignored.NO_RULE),
        ({"alertname": "NodeCPUHigh", "severity": "warning"}, False, None),
    ],
    ids=str,
)
def test_an_alert_concerns_us_when_a_rule_names_it_and_no_other_cluster_does(
    labels: dict[str, str], require: bool, why: Ignored | None
) -> None:
    delivery = read_payload(a_payload(an_alert(labels=labels)))

    selected = select(delivery, alert_policy(rules=[RULE], requireCluster=require).alerts, "test")

    assert selected.alerts == (delivery.alerts if why is None else ())
    assert selected.ignored == ({} if why is None else {why: 1})


def selected_of(policy: dict[str, Any], *alerts: dict[str, Any]) -> tuple[int, dict[Ignored, int]]:
    """(how many are selected, those that are ignored) by a policy with these fields."""
    delivery = read_payload(a_payload(*alerts))
    selected = select(delivery, alert_policy(**policy).alerts, "test")
    assert selected.alerts == delivery.alerts[: len(selected.alerts)]
    return len(selected.alerts), dict(selected.ignored)


def test_the_cluster_label_is_the_one_of_the_policy_and_resolved_alerts_are_selected_like_firing_ones() -> None:
    of_other = an_alert(labels={**BASE, "k8s": "other", "cluster": "test"})
    assert selected_of({"clusterLabel": "k8s"}, of_other) == (0, {Ignored.OTHER_CLUSTER: 1})
    resolved = (an_alert(status="resolved"), an_alert(labels={"alertname": "Other"}))
    assert selected_of({}, *resolved) == (1, {Ignored.NO_RULE: 1})


def test_an_alert_about_an_unknown_resource_is_ignored_and_named() -> None:
    alerts = [an_alert(annotations={"rebalancer_resource": name}) for name in ("memory", "memry", "cpu")]
    policy = alert_policy()

    selected = select(read_payload(a_payload(*alerts)), policy.alerts, "test", policy.measured_resources)

    assert len(selected.alerts) == 2
    assert selected.ignored == {Ignored.UNKNOWN_RESOURCE: 1}
    assert selected.unknown_resources == ("memry",)
