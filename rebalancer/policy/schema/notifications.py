"""The `notifications` section of the policy file: who is notified of what."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from rebalancer.model.records.notifications import Event
from rebalancer.policy.schema.types import AsTuple, FieldError, NonEmpty, Section
from rebalancer.policy.schema.usage import BasicAuth

TEMPLATE_VARIABLES = ("event", "cluster", "title", "text", "resolved", "labels")
"""Variables of a template, as `Notification` has them."""


def _event(value: Any) -> Any:
    if value not in list(Event):
        raise ValueError(f"expected {', '.join(list(Event)[:-1])} or {list(Event)[-1]}")
    return Event(value)


EventName = Annotated[Event, BeforeValidator(_event), WithJsonSchema({"enum": [str(each) for each in Event]})]


class SlackWebhook(Section):
    """An incoming webhook of Slack, or of a service that takes the same JSON (Mattermost, Rocket.Chat)."""

    url_file: NonEmpty
    """File that holds the webhook's URL, which is a secret. Read again for each notification."""


class AlertmanagerApi(Section):
    """Alertmanager's API, version 2. A notification becomes an alert that Alertmanager groups, routes and silences."""

    url: Annotated[str, WithJsonSchema({"type": "string", "pattern": r"^https?://\S+$"})]
    """Base URL, without /api/v2."""
    bearer_token_file: NonEmpty | None = None
    """File that holds a bearer token."""
    basic_auth: BasicAuth | None = None
    ca_file: NonEmpty | None = None
    """PEM file of the CA certificates to trust instead of the system's."""

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")) or any(char.isspace() for char in url):
            raise ValueError("expected a URL such as http://alertmanager:9093")
        if url.rstrip("/").endswith("/api/v2"):
            raise ValueError("expected a URL without /api/v2, which is added to it")
        return url

    @model_validator(mode="after")
    def _one_authentication(self) -> "AlertmanagerApi":
        if self.bearer_token_file and self.basic_auth:
            raise FieldError("basicAuth", "expected bearerTokenFile or basicAuth, not both")
        return self


class Receiver(Section):
    """One receiver of notifications: `slack` or `alertmanager`."""

    name: NonEmpty
    """Name in metrics and log lines."""
    events: Annotated[tuple[EventName, ...], AsTuple, Field(min_length=1)] = tuple(Event)
    """Evictions: pods were evicted in a cycle. Proposal: evictions need an approval. CircuitBreaker: one opened or
    closed. NotEffective: a node was not cooled by its evictions."""
    slack: SlackWebhook | None = None
    """Incoming webhook."""
    alertmanager: AlertmanagerApi | None = None
    """Alertmanager."""
    template: NonEmpty | None = None
    """Jinja2 template of the message, with `event`, `cluster`, `title`, `text`, `resolved` and `labels`. Default: title
    and text. For Alertmanager it is the annotation `description`."""

    @field_validator("template")
    @classmethod
    def _can_be_rendered(cls, template: str | None) -> str | None:
        if template is None:
            return None
        from jinja2 import TemplateSyntaxError, meta
        from jinja2.sandbox import SandboxedEnvironment

        try:
            used = meta.find_undeclared_variables(SandboxedEnvironment().parse(template))
        except TemplateSyntaxError as error:
            raise ValueError(f"expected a Jinja2 template: {error.message}") from None
        if unknown := sorted(used - set(TEMPLATE_VARIABLES)):
            raise ValueError(f"expected variables among {', '.join(TEMPLATE_VARIABLES)}, not {', '.join(unknown)}")
        return template

    @model_validator(mode="after")
    def _one_kind(self) -> "Receiver":
        if (self.slack is None) == (self.alertmanager is None):
            raise ValueError("expected slack or alertmanager, one of them")
        return self


class Notifications(Section):
    """Notifications of the daemon. Without receivers nothing is sent."""

    receivers: Annotated[tuple[Receiver, ...], AsTuple] = ()
    """Receivers."""

    @field_validator("receivers")
    @classmethod
    def _distinct_names(cls, receivers: tuple[Receiver, ...]) -> tuple[Receiver, ...]:
        names = [each.name for each in receivers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected distinct receiver names, got {', '.join(twice)} more than once")
        return receivers
