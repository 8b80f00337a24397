"""What is notified, in which words, and how it reaches Slack and a real Alertmanager."""

# ruff: noqa: E501 (a table of mistakes is read row by row)

import json
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rebalancer.constraints.moves.in_flight import LateEvictions
from rebalancer.model.decisions.eviction import Outcome as Answer
from rebalancer.model.decisions.plan import CycleReport, NodeLine, Trigger
from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.records.effect import Assessment, Outcome, Step
from rebalancer.model.records.notifications import Event, Notification
from rebalancer.notifications import messages, sending
from rebalancer.notifications.outbox import MAX_WAITING, Outbox
from rebalancer.notifications.rendering import alertmanager, message, slack
from rebalancer.policy import load_policy
from rebalancer.policy.schema.notifications import Receiver
from rebalancer.policy.schema.safety import CircuitBreaker
from tests.builders import NOW, an_eviction
from tests.notifications.fakes import webhook
from tests.policy.test_loader import GOOD
from tests.real.servers.alertmanager import alertmanager_server


def a_cycle(*pods: tuple[str, str], dry_run: bool = False, answer: Answer = Answer.EVICTED) -> CycleReport:
    return CycleReport(
        id="c",
        cluster="prod",
        trigger=Trigger.ALERT,
        dry_run=dry_run,
        started_at=NOW,
        finished_at=NOW + 1,
        nodes=[
            NodeLine(name="n1", pool="general", cpu_before=0.91, cpu_planned=0.68, hot=True, hot_by=("cpu",), high=0.75)
        ],
        evictions=[an_eviction(node=node, pod=pod, outcome=answer) for node, pod in pods],
    )


def an_assessment(**fields: Any) -> Assessment:
    given: dict[str, Any] = {
        "cycle": "c", "node": "n1", "pool": "general", "strategy": "LowNodeUtilization", "trigger": "alert",
        "step": Step.SETTLED, "last_eviction_at": NOW, "due_at": NOW + 900, "before_share": 0.91, "planned_share": 0.64,
        "target": 0.65, "high": 0.75, "capacity": 4000.0, "pods": (), "assessed_at": NOW + 901, "after_share": 0.84,
        "outcome": Outcome.REPLACEMENTS_RETURNED, "detail": "91% to 84%",
    }  # fmt: skip
    return Assessment(**{**given, **fields})


def a_notification(**fields: Any) -> Notification:
    given: dict[str, Any] = {
        "event": Event.EVICTIONS, "cluster": "prod", "title": "t", "text": "x", "at": NOW, "ends_at": NOW + 60,
    }  # fmt: skip
    return Notification(**{**given, **fields})


def to_slack(url: str, folder: Path, **fields: Any) -> Receiver:
    (folder / "url").write_text(url + "\n")
    return Receiver.model_validate({"name": "team", "slack": {"urlFile": str(folder / "url")}, **fields})


# ---- what is notified


def test_the_evictions_of_a_cycle_are_one_notification_with_before_and_planned() -> None:
    [found] = messages.evictions(a_cycle(("n1", "web-1"), ("n1", "web-2"), ("n2", "api-1")))
    assert found.title == "prod: 3 pods evicted from 2 nodes"
    assert found.text.splitlines() == [
        "n1 (91% -> 68% planned): shop/web-1, shop/web-2",
        "n2: shop/api-1",
        "Hot node-hours of the next hour, if loads stay, 1 -> 0 (-100%): 3 evictions, 3 for each hour relieved",
    ]
    assert found.labels == {"trigger": "alert"}


@pytest.mark.parametrize(
    "report", [a_cycle(), a_cycle(("n1", "a"), dry_run=True), a_cycle(("n1", "a"), answer=Answer.REFUSED)]
)
def test_a_dry_run_and_a_cycle_without_evictions_are_not_notified(report: CycleReport) -> None:
    assert messages.evictions(report) == []


def test_a_node_that_was_not_cooled_is_notified_once_settled() -> None:
    [found] = messages.not_effective("prod", [an_assessment(), an_assessment(step=Step.HOUR)])
    assert found.title == "prod: node n1 was not cooled by its evictions: 84%, target 65%"
    assert found.text == "91% to 84%"


@pytest.mark.parametrize(
    "fields", [{"outcome": Outcome.COOLED}, {"outcome": Outcome.UNKNOWN}, {"late": True}, {"before_share": 0.6}]
)
def test_a_node_that_was_cooled_or_not_measured_or_not_hot_is_not_notified(fields: dict[str, Any]) -> None:
    assert messages.not_effective("prod", [an_assessment(**fields)]) == []


def test_a_circuit_breaker_is_notified_when_it_opens_and_when_it_closes() -> None:
    reason = {"pool general": "2 late in pool general, 2 stop it"}
    [opened] = messages.circuit_breakers("prod", {}, reason, now=NOW)
    [open_still] = messages.circuit_breakers("prod", reason, reason, now=NOW + 60)
    [closed] = messages.circuit_breakers("prod", reason, {}, now=NOW + 120)
    assert (opened.title, opened.text) == ("prod: circuit breaker of pool general open", reason["pool general"])
    assert (opened.repeated, open_still.repeated, closed.repeated) == (False, True, False)
    assert (opened.resolved, open_still.resolved, closed.resolved) == (False, False, True)
    assert opened.labels == closed.labels


def test_a_breaker_of_the_cluster_is_one_and_not_one_a_pool() -> None:
    late = [an_eviction(pool=pool, service=f"shop/{pool}") for pool in ("a", "b", "c")]
    breaker = CircuitBreaker.model_validate({"lateInPool": 2, "lateInCluster": 3})
    assert list(LateEvictions(late, breaker).open_breakers()) == ["the cluster"]
    two = [replace(each, pool="a") for each in late[:2]]
    assert list(LateEvictions(two, breaker).open_breakers()) == ["pool a"]
    three = [*two, replace(late[2], pool="b")]
    assert list(LateEvictions(three, breaker).open_breakers()) == ["the cluster", "pool a"]  # the pool's stays open


# ---- rendering


def test_a_template_has_the_fields_of_the_notification() -> None:
    template = "[{{ cluster }}] {{ event }}: {{ title }} {{ labels.node }}{% if resolved %} (ended){% endif %}"
    assert message(a_notification(labels={"node": "n1"}), template) == "[prod] Evictions: t n1"
    assert message(a_notification(labels={"node": "n1"}, ends_at=NOW), template).endswith("(ended)")


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{{ title|dictsort }}", "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}"],
)
def test_a_template_that_fails_gives_the_default_text_and_the_error(template: str) -> None:
    text = message(a_notification(), template)
    assert text.startswith("t\nx\n(the template failed: ")


def test_a_template_cannot_leave_its_sandbox() -> None:
    assert "the template failed" in message(a_notification(), "{{ title.__class__.__mro__ }}")


def test_slack_reads_pods_and_not_links() -> None:
    assert slack(a_notification(title="<!channel> a & b", text=""), None) == {"text": "&lt;!channel&gt; a &amp; b"}


def test_alertmanager_gets_an_alert_that_ends_by_itself() -> None:
    [alert] = alertmanager(a_notification(labels={"trigger": "alert"}), None)
    assert alert["labels"] == {"alertname": "RebalancerEvictions", "cluster": "prod", "trigger": "alert"}
    assert alert["annotations"] == {"summary": "t", "description": "x"}
    assert alert["endsAt"] > alert["startsAt"]


# ---- sending


def test_a_webhook_gets_the_message_after_two_failures(tmp_path: Path) -> None:
    with webhook() as server:
        server.answers += [503, 429]
        sending.send(to_slack(server.url, tmp_path), a_notification(), threading.Event())
        assert server.posts == [{"text": "t\nx"}]


def test_a_refusal_and_a_dead_receiver_are_errors_without_the_url(tmp_path: Path) -> None:
    with webhook() as server:
        server.answers += [404]
        receiver = to_slack(server.url, tmp_path)
        with pytest.raises(ConfigError, match="receiver team: HTTP 404") as refused:
            sending.send(receiver, a_notification(), threading.Event())
    with pytest.raises(ConnectError, match="receiver team: not reached") as dead:
        sending.send(receiver, a_notification(), threading.Event())
    assert "secret" not in f"{refused.value}{dead.value}"


def test_an_answer_that_breaks_off_is_an_error_of_ours(tmp_path: Path) -> None:
    with webhook() as server:
        server.breaks_off = True
        with pytest.raises(ConnectError, match="receiver team: not reached: ChunkedEncodingError") as broken:
            sending.send(to_slack(server.url, tmp_path), a_notification(), threading.Event())
    assert "secret" not in str(broken.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    receiver = to_slack("http://127.0.0.1:1/x", tmp_path)
    (tmp_path / "url").unlink()
    with pytest.raises(ConfigError, match=r"receiver team: slack.urlFile: can't read .*/url: No such file"):
        sending.send(receiver, a_notification(), threading.Event())


@pytest.mark.parametrize("url", ["http://a..b/x", f"http://{'a' * 70}/x", "http://[::1/x", "ftp://h/x"])
def test_a_url_that_cannot_be_used_is_named_and_ends_nothing(url: str, tmp_path: Path) -> None:
    outbox, counted = an_outbox([to_slack(url, tmp_path)])
    outbox.put([a_notification()])
    outbox.send_waiting(0.01)
    assert counted.results == [("team", "failed")]


def test_an_echoed_secret_is_redacted_before_it_is_cut(tmp_path: Path) -> None:
    with webhook() as server:
        server.answers += [404]
        server.refusal = "x" * 180 + server.url
        with pytest.raises(ConfigError) as refused:
            sending.send(to_slack(server.url, tmp_path), a_notification(), threading.Event())
    assert "127.0.0.1" not in str(refused.value)


def test_what_waits_when_the_program_stops_is_dropped(tmp_path: Path) -> None:
    with webhook() as server:
        receivers, counted, stopping = [to_slack(server.url, tmp_path)], Counted(), threading.Event()
        outbox = Outbox(lambda: receivers, counted, stopping)
        outbox.put([a_notification(), a_notification()])
        stopping.set()
        outbox.send_waiting(0.01)
        assert counted.results == [("team", "dropped")] * 2
        assert server.posts == []


class Counted:
    def __init__(self) -> None:
        self.results: list[tuple[str, str]] = []

    def __call__(self, receiver: str, result: str) -> None:
        self.results.append((receiver, result))


def an_outbox(receivers: Sequence[Receiver]) -> tuple[Outbox, Counted]:
    counted = Counted()
    return Outbox(lambda: receivers, counted, threading.Event()), counted


def test_a_receiver_gets_the_events_that_it_names_and_nothing_twice(tmp_path: Path) -> None:
    with webhook() as server:
        outbox, counted = an_outbox([to_slack(server.url, tmp_path, events=["CircuitBreaker"])])
        outbox.put([a_notification(), a_notification(event=Event.CIRCUIT_BREAKER)])
        outbox.put([a_notification(event=Event.CIRCUIT_BREAKER, repeated=True)])
        outbox.send_waiting(0.01)
        assert len(server.posts) == 1
        assert counted.results == [("team", "sent")]


def test_a_receiver_that_refuses_stops_nothing(tmp_path: Path) -> None:
    with webhook() as server:
        server.answers += [403]
        outbox, counted = an_outbox([to_slack(server.url, tmp_path)])
        outbox.put([a_notification(), a_notification(title="second")])
        outbox.send_waiting(0.01)
        assert counted.results == [("team", "failed"), ("team", "sent")]
        assert server.posts == [{"text": "second\nx"}]


def test_the_oldest_is_dropped_when_too_many_wait(tmp_path: Path) -> None:
    outbox, counted = an_outbox([to_slack("http://127.0.0.1:1/x", tmp_path)])
    outbox.put(a_notification() for _ in range(MAX_WAITING + 3))
    assert counted.results == [("team", "dropped")] * 3


# ---- the policy


def test_nothing_is_sent_unless_a_receiver_is_named() -> None:
    assert load_policy(GOOD.encode(), source="p.yaml").notifications.receivers == ()


@pytest.mark.parametrize(
    ("receiver", "said"),
    [
        ("{name: a}", "notifications.receivers[0]: expected slack or alertmanager, one of them"),
        ("{name: a, slack: {urlFile: f}, events: [Pods]}", "events[0]: expected Evictions, Proposal, CircuitBreaker or NotEffective, got 'Pods'"),
        ("{name: a, slack: {urlFile: f}, events: []}", "events: expected at least 1 entry"),
        ("{name: a, slack: {url: f}}", "slack.url: unknown field"),
        ("{name: a, slack: {urlFile: f}, template: '{{ node }}'}", "template: expected variables among event, cluster, title, text, resolved, labels, not node"),
        ("{name: a, slack: {urlFile: f}, template: '{{ title'}", "template: expected a Jinja2 template: "),
        ("{name: a, alertmanager: {url: 'am:9093'}}", "alertmanager.url: expected a URL such as http://alertmanager:9093"),
        ("{name: a, alertmanager: {url: 'http://am/api/v2'}}", "alertmanager.url: expected a URL without /api/v2"),
        ("{name: a, slack: {urlFile: f}}, {name: a, slack: {urlFile: f}}", "receivers: expected distinct receiver names, got a more than once"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_receiver_is_one_line(receiver: str, said: str) -> None:
    text = f"{GOOD}notifications:\n  receivers: [{receiver}]\n"
    with pytest.raises(ConfigError) as caught:
        load_policy(text.encode(), source="p.yaml")
    [line] = [each for each in str(caught.value).splitlines() if "required" not in each]
    assert line.startswith(f"p.yaml:{len(text.splitlines())}: notifications.receivers")
    assert said in line


# ---- a real Alertmanager


def _alerts(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://{address}/api/v2/alerts", timeout=5) as answer:
        return list(json.loads(answer.read()))


@pytest.mark.real
def test_a_real_alertmanager_shows_an_open_breaker_and_forgets_a_closed_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("unused")
    with alertmanager_server("http://127.0.0.1:1/unused", token_file=tmp_path / "token") as server:
        receiver = Receiver.model_validate({"name": "am", "alertmanager": {"url": f"http://{server.address}"}})
        reason, now = {"pool general": "2 late in pool general"}, time.time()
        for notification in messages.circuit_breakers("prod", {}, reason, now=now - 60):
            sending.send(receiver, notification, threading.Event())
        for notification in messages.circuit_breakers("prod", reason, reason, now=now):
            sending.send(receiver, notification, threading.Event())
        [alert] = _alerts(server.address)
        assert alert["labels"] == {"alertname": "RebalancerCircuitBreaker", "cluster": "prod", "scope": "pool general"}
        assert alert["annotations"]["description"] == "2 late in pool general"
        assert alert["status"]["state"] in ("active", "unprocessed")
        for notification in messages.circuit_breakers("prod", reason, {}, now=now):
            sending.send(receiver, notification, threading.Event())
        assert _alerts(server.address) == []
