"""Requests to Slack-compatible webhooks and Alertmanager."""

import threading
from dataclasses import dataclass
from typing import Any

import requests
from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential,
)

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.records.notifications import Notification
from rebalancer.model.secrets import redacted, remember
from rebalancer.notifications import rendering
from rebalancer.policy.schema.notifications import Receiver, SlackWebhook
from rebalancer.prometheus.connection.credentials import Login, login, secret, shown_url, trusted

TIMEOUT_SECONDS = 5.0
"""Of the connection, and of each read: about as long as the daemon waits for its threads when it stops."""
TRIES = 3
_READ_BYTES = 4096
_SHOWN_CHARS = 200


class _Passing(Exception):  # noqa: N818 -- never leaves this module
    """May succeed when tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    url: str
    body: Any
    login: Login
    verify: bool | str = True


def send(receiver: Receiver, notification: Notification, stopping: threading.Event) -> None:
    """Send a notification, up to three times while it may succeed and the program isn't stopping.

    Raises ConfigError for a file that can't be read and for a request that the receiver refuses, ConnectError when it
    isn't reached. No message contains the webhook's URL.
    """
    attempts = Retrying(
        stop=stop_after_attempt(TRIES) | stop_when_event_set(stopping),
        wait=wait_exponential(multiplier=0.5, max=5),
        retry=retry_if_exception_type(_Passing),
        sleep=sleep_using_event(stopping),
        reraise=True,
    )
    try:
        attempts(_post, _request(receiver, notification))
    except _Passing as error:
        raise ConnectError(f"receiver {receiver.name}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"receiver {receiver.name}: {error}") from None


def _request(receiver: Receiver, notification: Notification) -> _Request:
    if receiver.slack is not None:
        body = rendering.slack(notification, receiver.template)
        return _Request(url=_webhook_url(receiver.slack), body=body, login=Login())
    assert receiver.alertmanager is not None
    settings = receiver.alertmanager
    return _Request(
        url=f"{shown_url(settings.url, 'alertmanager')}/api/v2/alerts",
        body=rendering.alertmanager(notification, receiver.template),
        login=login(settings, "alertmanager"),
        verify=trusted(settings.ca_file, "alertmanager.caFile"),
    )


def _post(request: _Request) -> None:
    try:
        with requests.post(
            request.url,
            json=request.body,
            auth=request.login,
            verify=request.verify,
            timeout=TIMEOUT_SECONDS,
            allow_redirects=False,
            stream=True,
        ) as answer:
            # not `raw.read`, whose errors are urllib3's: a body that breaks off
            body = next(answer.iter_content(_READ_BYTES), b"")
    except requests.exceptions.RequestException as error:
        # its text has the URL; those of URLs that can't be used are ValueErrors too
        if isinstance(error, ValueError):
            raise ConfigError("expected an http or https URL") from None
        raise _Passing(f"not reached: {type(error).__name__}") from None
    except ValueError:  # of urllib3
        raise ConfigError("expected an http or https URL") from None
    except OSError as error:
        raise _Passing(f"not reached: {type(error).__name__}") from None
    # redacted before it is cut: half a secret isn't recognized
    text = redacted(body.decode("utf-8", "replace")).strip()[:_SHOWN_CHARS]
    detail = f"HTTP {answer.status_code}" + (f": {text}" if text else "")
    if answer.status_code == 429 or answer.status_code >= 500:
        raise _Passing(detail)
    if answer.status_code >= 300:
        raise ConfigError(detail)


def _webhook_url(webhook: SlackWebhook) -> str:
    url = secret(webhook.url_file, "slack.urlFile")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"slack.urlFile: expected an http or https URL in {webhook.url_file}")
    remember(url, url.partition("://")[2])
    return url
