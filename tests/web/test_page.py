"""The webhook's page: its examples fit together."""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from rebalancer.bootstrap.process.settings import Settings
from rebalancer.web import alerts, app
from rebalancer.web.http import connections
from tests.builders import a_policy

PAGE = (Path(__file__).parents[2] / "docs" / "webhook.md").read_text()
POLICY, RULE, MEMORY, STRATEGIES, ALERT_ONLY, ALERTMANAGER = (
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
)


def test_the_examples_speak_of_the_same_alert_and_marks() -> None:
    section = a_policy(**POLICY).alerts
    (rule,) = section.rules
    alert: dict[str, Any] = RULE["spec"]["groups"][0]["rules"][0]

    assert alert["alert"] == rule.alert
    assert rule.labels.items() <= alert["labels"].items()
    assert float(alert["annotations"][section.high_annotation]) == rule.high
    assert float(alert["annotations"][section.target_annotation]) == rule.target
    assert rule.alert in ALERTMANAGER["route"]["routes"][0]["matchers"][0]


def test_the_example_about_memory_sets_what_the_policy_reads() -> None:
    section = a_policy(**POLICY).alerts
    names = (section.resource_annotation, section.high_annotation, section.target_annotation)
    assert MEMORY["annotations"] == dict(zip(names, ("memory", "85", "75"), strict=True))
    assert MEMORY["expr"].endswith(" > 85")
    assert section.lowest_target < 75


def test_the_example_of_triggers_is_a_policy_without_a_timer() -> None:
    assert math.isinf(a_policy(**ALERT_ONLY).cycle_seconds)


def test_the_example_of_strategies_names_strategies_of_its_policy() -> None:
    policy = a_policy(**STRATEGIES)

    assert {rule.strategy for rule in policy.alerts.rules} == {each.name for each in policy.strategies}


def test_the_receiver_posts_where_alerts_are_taken() -> None:
    (webhook,) = ALERTMANAGER["receivers"][1]["webhook_configs"]

    assert webhook["url"].endswith("/api/v1/alerts")
    assert webhook["send_resolved"] is True
    assert webhook["max_alerts"] == 0


def test_variables_and_bounds_on_the_page_are_those_of_the_code() -> None:
    for name in set(re.findall(r"REBALANCER_([A-Z_]+)", PAGE)):
        assert name.lower() in Settings.model_fields
    for message, bound in [
        ("first 10,000 of a delivery", alerts.MAX_ALERTS == 10_000),
        ("at most 64 labels of up to 4,096 characters", (alerts.MAX_LABELS, alerts.MAX_VALUE_LENGTH) == (64, 4096)),
        ("are cut\nat 1,024", alerts.MAX_ANNOTATION_LENGTH == 1024),
        ("over 16 MiB", app.MAX_BODY_BYTES == 16 * 2**20),
        ("within 10 s", app.BODY_SECONDS == connections.HEAD_SECONDS == 10),
    ]:
        assert message in PAGE
        assert bound, message
