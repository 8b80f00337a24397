"""Bodies of requests: a notification as Slack's and Alertmanager's JSON."""

from datetime import UTC, datetime
from typing import Any

from jinja2.sandbox import SandboxedEnvironment

from rebalancer.model.records.notifications import Notification

_DEFAULT = "{{ title }}{% if text %}\n{{ text }}{% endif %}"
_MAX_CHARS = 3000
_ENVIRONMENT = SandboxedEnvironment(autoescape=False, keep_trailing_newline=False)
"""Messages are plain text, so nothing is escaped for HTML; `slack` escapes for Slack."""


def message(notification: Notification, template: str | None) -> str:
    """The text of a notification. A template that fails gives the default text and the error."""
    variables = {
        "event": str(notification.event),
        "cluster": notification.cluster,
        "title": notification.title,
        "text": notification.text,
        "resolved": notification.resolved,
        "labels": dict(notification.labels),
    }
    try:
        text = _ENVIRONMENT.from_string(template or _DEFAULT).render(variables)
    except Exception as error:  # noqa: BLE001 -- whatever a template of the user's makes Python raise; it is shown
        text = _ENVIRONMENT.from_string(_DEFAULT).render(variables) + f"\n(the template failed: {error})"
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 2] + " …"


def slack(notification: Notification, template: str | None) -> dict[str, Any]:
    """Body for an incoming webhook."""
    text = message(notification, template)
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, entity)
    return {"text": text}


def alertmanager(notification: Notification, template: str | None) -> list[dict[str, Any]]:
    """Body for `POST /api/v2/alerts`."""
    return [
        {
            "labels": {
                "alertname": f"Rebalancer{notification.event}",
                "cluster": notification.cluster,
                **notification.labels,
            },
            "annotations": {
                "summary": notification.title,
                "description": message(notification, template) if template else notification.text,
            },
            # Alertmanager keeps the earliest start of an alert that is still firing
            "startsAt": _time(notification.at),
            "endsAt": _time(notification.ends_at),
        }
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
