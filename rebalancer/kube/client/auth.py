"""Credentials, as the `kubernetes` package reads them: kubeconfig, context, in-cluster.

The package reads a kubeconfig's `tokenFile` and a plugin's answer without expiry only once. A daemon outlives both, so
`Credentials.reload` reads the kubeconfig again; the package's own refresh hook still runs for every request.
"""

import logging
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, incluster_config, kube_config
from urllib3.util import parse_url

from rebalancer.kube.client.kubeconfig import check_kubeconfig
from rebalancer.model.errors import ConfigError
from rebalancer.model.secrets import SECRET_FLAG, redacted, redacted_output, remember

DEFAULT_KUBECONFIG = "~/.kube/config"
POOLED_CONNECTIONS = 32
_SHOWN_CHARS = 300


class Credentials:
    """The API server's address and the credentials for it.

    `load` makes a fresh `Configuration` on each call.
    """

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self.configuration = load()

    @property
    def server(self) -> str:
        """The API server's URL, without credentials that it may contain."""
        return str(parse_url(self.configuration.host.rstrip("/"))._replace(auth=None))

    def headers(self) -> dict[str, str]:
        """The current Authorization header; empty without a token.

        Raises ConfigError when a token file or plugin stopped working.
        """
        try:
            with _package_log():
                token = self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # noqa: BLE001 - token files, plugins and clouds fail in their own ways
            raise ConfigError(f"credentials can't be refreshed: {_one_line(error)}") from None
        if token:
            remember(token.rpartition(" ")[2])
        # A token file usually ends in a newline, which no header may hold.
        return {"Authorization": token.strip()} if token else {}

    def reload(self) -> None:
        """Read everything again, plugins included. Raises ConfigError."""
        self.configuration = self._load()

    def pool(self) -> Any:
        """A urllib3 pool manager with the package's TLS, client certificate and proxy settings."""
        if not self.configuration.verify_ssl:
            # requested in the kubeconfig; urllib3 would warn on every single request
            warnings.filterwarnings("ignore", message="Unverified HTTPS request")
        try:
            return RESTClientObject(self.configuration).pool_manager
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.server}: TLS or proxy settings can't be used: {_one_line(error)}") from None


def find_credentials(kubeconfig: str | None, context: str | None) -> Credentials:
    """The credentials that kubectl would use: an explicit file, $KUBECONFIG, ~/.kube/config, then the pod's own.

    `kubeconfig` may list several files, as $KUBECONFIG does. Raises ConfigError.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG")
    paths = named or DEFAULT_KUBECONFIG
    present = [path for path in paths.split(os.pathsep) if path and Path(path).expanduser().exists()]
    if kubeconfig and not present:
        raise ConfigError(f"{kubeconfig}: no such kubeconfig file")
    if not present and context is None and os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return Credentials(_from_pod)
    if not present:
        looked = f"$KUBECONFIG ({named})" if named else DEFAULT_KUBECONFIG
        raise ConfigError(
            f"no kubeconfig: {looked} doesn't exist, and this process doesn't run in a pod (use --kubeconfig)"
        )
    return Credentials(lambda: _from_file(paths, context))


def _from_file(paths: str, context: str | None) -> Any:
    check_kubeconfig(paths)
    configuration = _blank()
    try:
        with suppress(Exception):  # a broken file is named below
            remember(*_secrets_of(_user(paths, context)))
        with _package_log() as logged:
            kube_config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=paths, context=context, client_configuration=configuration
            )
        user = _user(paths, context)
    except Exception as error:  # noqa: BLE001 - the package lets YAML's and its own slips through
        raise ConfigError(f"{paths}: the kubeconfig can't be used: {_one_line(error)}") from None
    # The package logs a plugin's failure and goes on without credentials: report it before the server answers 401.
    if "exec" in user and "BearerToken" not in configuration.api_key and not configuration.cert_file:
        command = (user["exec"] or {}).get("command", "?")
        why = redacted_output(" ".join(" ".join(logged).split()))[:_SHOWN_CHARS] or "run it by hand to see why"
        raise ConfigError(f"{paths}: the credential plugin {command!r} returned no credentials: {why}")
    return configuration


def _user(paths: str, context: str | None) -> dict[str, Any]:
    config = kube_config.KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]
    chosen = config["contexts"].get_with_name(context or config["current-context"])["context"]
    name = chosen.safe_get("user")
    found = config["users"].get_with_name(name, safe=True) if name else None
    return dict(found.value.get("user") or {}) if found else {}


def _secrets_of(user: dict[str, Any]) -> list[str]:
    """Values of a kubeconfig's user that must not be printed; for a plugin those of its variables, and of its flags
    that are named like a secret."""
    plugin = user.get("exec") or {}
    values = [user.get(key) for key in ("token", "password", "client-key-data")]
    values += [variable.get("value") for variable in plugin.get("env") or ()]
    words = [str(each) for each in plugin.get("args") or ()]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if flag := SECRET_FLAG.fullmatch(word):
            values.append(flag[2] or following)
    return [str(each) for each in values if each]


def _from_pod() -> Any:
    configuration = _blank()
    try:
        incluster_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ConfigError(f"the pod's service account can't be used: {_one_line(error)}") from None
    return configuration


def _blank() -> Any:
    configuration = Configuration()
    # Otherwise the package silently sends a GET that answers 429 or 503 four times.
    configuration.retries = 0
    # A watch for each of a dozen kinds keeps its connection, and the others are reused.
    configuration.connection_pool_maxsize = POOLED_CONNECTIONS
    return configuration


@contextmanager
def _package_log() -> Iterator[list[str]]:
    """Capture what the package logs in this thread.

    It uses the root logger, which would print, and which would get a handler to stderr for good if it has none.
    """
    logged: list[str] = []
    thread = threading.get_ident()

    def keep(record: logging.LogRecord) -> bool:
        if record.thread != thread or record.module != "kube_config":
            return True
        logged.append(record.getMessage())
        return False

    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addHandler(nothing)
    root.addFilter(keep)
    try:
        yield logged
    finally:
        root.removeFilter(keep)
        root.removeHandler(nothing)


def _one_line(error: BaseException) -> str:
    # The package names a broken entry by its whole content, token included: nothing behind a brace is printed.
    text = redacted(str(error).split("{", 1)[0])
    return re.sub(r"\s+", " ", text).strip() or type(error).__name__
