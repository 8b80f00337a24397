"""Requests to Slack-compatible webhooks and Alertmanager."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests import PreparedRequest
from requests.auth import AuthBase
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from rebalancer.model.errors import ConfigError, ConnectError
from rebalancer.model.notifications import Notification
from rebalancer.model.secrets import redacted, remember
from rebalancer.notifications import rendering
from rebalancer.policy.schema.notifications import AlertmanagerApi, Receiver, SlackWebhook

TIMEOUT_SECONDS = 10.0
TRIES = 3
_SHOWN_CHARS = 200


class _Passing(Exception):  # noqa: N818 -- never leaves this module
    """May succeed when tried again."""


class _Authorization(AuthBase):
    """Sets the header, or leaves it out. Without one `requests` would read ~/.netrc."""

    def __init__(self, header: str = "") -> None:
        self._header = header

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._header:
            request.headers["Authorization"] = self._header
        return request


def send(receiver: Receiver, notification: Notification) -> None:
    """Send a notification, up to three times while it may succeed.

    Raises ConfigError for a file that can't be read and for a request that the receiver refuses, ConnectError when it
    isn't reached. No message contains the webhook's URL.
    """
    attempts = Retrying(
        stop=stop_after_attempt(TRIES),
        wait=wait_exponential(multiplier=0.5, max=5),
        retry=retry_if_exception_type(_Passing),
        reraise=True,
    )
    try:
        attempts(_post, _request(receiver, notification))
    except _Passing as error:
        raise ConnectError(f"receiver {receiver.name}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"receiver {receiver.name}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    url: str
    body: Any
    authorization: AuthBase
    verify: bool | str = True


def _request(receiver: Receiver, notification: Notification) -> _Request:
    if receiver.slack is not None:
        body = rendering.slack(notification, receiver.template)
        return _Request(url=_webhook_url(receiver.slack), body=body, authorization=_Authorization())
    assert receiver.alertmanager is not None
    settings = receiver.alertmanager
    return _Request(
        url=settings.url.rstrip("/") + "/api/v2/alerts",
        body=rendering.alertmanager(notification, receiver.template),
        authorization=_authorization(settings),
        verify=settings.ca_file or True,
    )


def _post(request: _Request) -> None:
    try:
        answer = requests.post(
            request.url,
            json=request.body,
            auth=request.authorization,
            verify=request.verify,
            timeout=TIMEOUT_SECONDS,
            allow_redirects=False,
        )
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema):
        raise ConfigError("expected an http or https URL") from None
    except OSError as error:  # those of `requests` too; their text has the URL
        raise _Passing(f"not reached: {type(error).__name__}") from None
    text = redacted(answer.text[:_SHOWN_CHARS]).strip()
    detail = f"HTTP {answer.status_code}" + (f": {text}" if text else "")
    if answer.status_code == 429 or answer.status_code >= 500:
        raise _Passing(detail)
    if answer.status_code >= 300:
        raise ConfigError(detail)


def _webhook_url(webhook: SlackWebhook) -> str:
    url = _text(webhook.url_file, "slack.urlFile")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"slack.urlFile: expected an http or https URL in {webhook.url_file}")
    remember(url, url.partition("://")[2])
    return url


def _authorization(settings: AlertmanagerApi) -> _Authorization:
    if settings.bearer_token_file:
        token = _text(settings.bearer_token_file, "alertmanager.bearerTokenFile")
        remember(token)
        return _Authorization(f"Bearer {token}")
    if settings.basic_auth:
        password = _text(settings.basic_auth.password_file, "alertmanager.basicAuth.passwordFile")
        encoded = base64.b64encode(f"{settings.basic_auth.username}:{password}".encode()).decode("ascii")
        remember(password, encoded)
        return _Authorization(f"Basic {encoded}")
    return _Authorization()


def _text(path: str, field: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{field}: can't read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{field}: expected text in {path}") from None
    if not text or not text.isprintable():
        raise ConfigError(f"{field}: expected one line in {path}")
    return text
