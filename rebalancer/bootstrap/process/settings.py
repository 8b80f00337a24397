"""Settings of the process: flags, then REBALANCER_* variables. Rules for evictions stand in the policy."""

from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def _web_address(value: str) -> str:
    if not value.startswith(("https://", "http://")):
        raise ValueError("expected a URL that begins with https:// or http://")
    return value


WebAddress = Annotated[str, AfterValidator(_web_address)]


class Settings(BaseSettings):
    """Settings of one process."""

    model_config = SettingsConfigDict(
        env_prefix="REBALANCER_",
        extra="ignore",
        populate_by_name=True,
        str_strip_whitespace=True,  # a Secret often ends with a newline
    )

    database: str = "sqlite:///rebalancer.db"
    """URL of the database: `sqlite:///FILE` or `postgresql://...`."""
    history_dir: str = "rebalancer-history"
    """Folder of the day blocks for forecasts: a cache that can be deleted."""
    kubeconfig: str | None = None
    context: str | None = None
    lease_namespace: str | None = None
    """Namespace of the cluster's Lease; default: the pod's own namespace, kube-system outside a pod."""
    lease_name: str = "rebalancer"
    pod_name: str | None = Field(default=None, validation_alias=AliasChoices("pod_name", "POD_NAME"))
    pod_namespace: str | None = Field(default=None, validation_alias=AliasChoices("pod_namespace", "POD_NAMESPACE"))

    pod_uid: str | None = Field(default=None, validation_alias=AliasChoices("pod_uid", "POD_UID"))
    listen: str | None = None
    """Address and port of the daemon's web server. Default: port 8080, on all addresses with a token or password and on
    127.0.0.1 without."""
    health_listen: str | None = None
    """Address and port of a listener of its own for /livez and /readyz, without TLS. `listen` serves them too."""
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    """Both or none; read again when they change."""
    bearer_token_file: str | None = None
    """Bearer token that the webhook and the API require; read again when it changes."""
    basic_auth_file: str | None = None
    """The same as `user:password`."""
    insecure_no_auth: bool = False
    """Without a token or password the webhook and the API reject all requests, unless this is set. It needs a loopback
    address in `listen`."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that the daemon logs."""
    dashboard: Literal["on", "open", "off"] = "on"
    """on: pages with the API's authentication (a browser needs `basic_auth_file`). open: without. off: no pages."""
    dashboard_hosts: str = ""
    """Host names, separated by commas, under which a dashboard without credentials answers, beside IP addresses,
    localhost and names of Services."""

    @property
    def dashboard_names(self) -> frozenset[str]:
        """`dashboard_hosts`, in lower case."""
        names = (each.strip().lower().removesuffix(".") for each in self.dashboard_hosts.split(","))
        return frozenset(each for each in names if each)

    approval_key_file: str | None = None
    """File with the key that signs links to proposals, a secret of at least 32 bytes. Without it there are no links."""
    dashboard_url: WebAddress | None = None
    """URL under which people reach the web server. Notifications of proposals have links with it."""
    grafana_url: WebAddress | None = None
    """URL of the Grafana dashboard; the dashboard's pages link to it."""
    docs_url: WebAddress | None = None
    """Base URL of the repository's files, such as https://HOST/OWNER/rebalancer/blob/main; the dashboard's pages link
    the runbook and the reasons there."""

    @property
    def own_pod(self) -> tuple[str, str] | None:
        """(namespace, name) of the daemon's own pod."""
        return (self.pod_namespace, self.pod_name) if self.pod_namespace and self.pod_name else None

    @property
    def lease_at(self) -> tuple[str, str]:
        """(namespace, name) of the Lease."""
        return self.lease_namespace or self.pod_namespace or "kube-system", self.lease_name
