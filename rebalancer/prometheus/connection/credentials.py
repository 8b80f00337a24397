"""Credentials of a request. Files are read for every cycle, because their secrets rotate."""

import base64
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from requests import PreparedRequest
from requests.auth import AuthBase

from rebalancer.model.errors import ConfigError
from rebalancer.model.secrets import remember
from rebalancer.policy.schema.usage import BasicAuth, Prometheus

FIELD = "usage.prometheus"

SECRET_HEADER = re.compile("auth|token|key|secret|cookie|password", re.IGNORECASE)
"""In the name of a header whose value is a secret."""


class Login(AuthBase):
    """Sets the Authorization header, or omits it.

    Always passed to `requests`: without one it would read ~/.netrc and override the token.
    """

    def __init__(self, *, header: str = "", secrets: tuple[str, ...] = ()) -> None:
        self._header = header
        remember(*secrets)

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if self._header:
            request.headers["Authorization"] = self._header
        return request


class Server(Protocol):
    """A section of the policy that names a server and credentials for it."""

    @property
    def url(self) -> str: ...
    @property
    def bearer_token_file(self) -> str | None: ...
    @property
    def basic_auth(self) -> BasicAuth | None: ...


def login(settings: Server, field: str = FIELD) -> Login:
    """Read the policy's credentials. `field` is the path of the section. Raises ConfigError naming file and field."""
    if settings.bearer_token_file:
        token = secret(settings.bearer_token_file, f"{field}.bearerTokenFile")
        return Login(header=f"Bearer {token}", secrets=(token,))
    if settings.basic_auth:
        password = secret(settings.basic_auth.password_file, f"{field}.basicAuth.passwordFile")
        return _basic(settings.basic_auth.username, password)
    parts = _split(settings.url, field)
    if parts.username or parts.password:
        return _basic(unquote(parts.username or ""), unquote(parts.password or ""))
    return Login()


def shown_url(url: str, field: str = FIELD) -> str:
    """The URL without user, password, query and trailing slash: for messages, and as a base of paths."""
    parts = _split(url, field)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def verification(settings: Prometheus) -> bool | str:
    """The `verify` argument of `requests`. Raises ConfigError when the CA file can't be used."""
    return not settings.insecure_skip_verify and trusted(settings.ca_file, f"{FIELD}.caFile")


def trusted(ca_file: str | None, field: str) -> bool | str:
    """The same of a CA file, found at `field` of the policy; None = the system's."""
    if not ca_file:
        return True
    try:
        ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError:
        raise ConfigError(f"{field}: expected certificates in PEM form in {ca_file}") from None
    except OSError as error:
        raise ConfigError(f"{field}: can't read {ca_file}: {error.strerror or error}") from None
    return ca_file


def headers(settings: Prometheus) -> Mapping[str, str]:
    """The policy's extra headers. Raises ConfigError for one that HTTP can't carry."""
    for name, value in settings.headers.items():
        if not name.isascii() or not name.isprintable() or not name.strip() or not _one_line(value):
            raise ConfigError(f"usage.prometheus.headers: {name!r} is not a header that HTTP can carry")
        if SECRET_HEADER.search(name):
            remember(value)
    return dict(settings.headers)


def _split(url: str, field: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 -- raises for a port that is no number
    except ValueError as error:
        raise ConfigError(f"{field}.url: not a URL: {error}") from None
    return parts


def _basic(username: str, password: str) -> Login:
    encoded = base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
    return Login(header=f"Basic {encoded}", secrets=(encoded, password) if password else (encoded,))


def secret(path: str, field: str) -> str:
    """The one line of a file. Raises ConfigError naming file and field."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{field}: can't read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{field}: expected text in {path}") from None
    if not text:
        raise ConfigError(f"{field}: {path} is empty")
    if not _one_line(text):
        raise ConfigError(f"{field}: expected one line of printable characters in {path}")
    return text


def _one_line(text: str) -> bool:
    return all(char.isprintable() or char == "\t" for char in text) and _latin(text)


def _latin(text: str) -> bool:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
