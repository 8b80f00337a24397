"""Who may post: a bearer token, or user and password, each from a file that may change at any time.

A file that vanishes, is empty or can't be used closes its way in; it never opens one.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from rebalancer.model.errors import ConfigError
from rebalancer.web.http.files import FileReader

logger = logging.getLogger("rebalancer.web")

LOOK_SECONDS = 1.0
"""Secret files are checked no more often."""


class Denial(StrEnum):
    """Why a request was denied."""

    MISSING = "missing"
    """No credentials were sent."""
    WRONG = "wrong"
    NO_SECRET = "no_secret"
    """The secret file is unreadable."""


class Auth:
    """Compares an Authorization header with what the files hold now."""

    def __init__(
        self,
        *,
        bearer_token_file: str | None = None,
        basic_auth_file: str | None = None,
        insecure_no_auth: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bearer = _Secret(bearer_token_file, "bearer token", monotonic) if bearer_token_file else None
        self._basic = _Secret(basic_auth_file, "user:password", monotonic, needs=b":") if basic_auth_file else None
        self._open = insecure_no_auth and self._bearer is None and self._basic is None
        self._threads = ThreadPoolExecutor(2, "web-auth")

    @property
    def challenge(self) -> str:
        """The WWW-Authenticate header of a 401."""
        return 'Basic realm="rebalancer"' if self._bearer is None and self._basic is not None else "Bearer"

    @property
    def takes_basic(self) -> bool:
        """Whether basic auth is configured, which browsers support."""
        return self._basic is not None

    @property
    def asks_people(self) -> str:
        """The WWW-Authenticate header of a 401 to a browser."""
        return 'Basic realm="rebalancer", charset="UTF-8"' if self.takes_basic else "Bearer"

    @property
    def open(self) -> bool:
        """Whether every request passes."""
        return self._open

    @property
    def configured(self) -> bool:
        """Whether any credentials are configured."""
        return self._open or self._bearer is not None or self._basic is not None

    def denial(self, headers: Sequence[str]) -> Denial | None:
        """None when the request may pass. `headers`: each Authorization header of the request. Takes seconds where a
        file hangs."""
        if self._open:
            return None
        if not headers:
            return Denial.MISSING
        # two headers could be read as one by a proxy and as the other by us
        scheme, _, rest = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
        if scheme.lower() == "bearer" and self._bearer is not None:
            return self._bearer.denial(rest.strip().encode("latin-1"))
        if scheme.lower() == "basic" and self._basic is not None:
            try:
                given = base64.b64decode(rest.strip(), validate=True)
            except (binascii.Error, ValueError):
                return Denial.WRONG
            return self._basic.denial(given)
        return Denial.WRONG

    async def denial_of(self, headers: Sequence[str]) -> Denial | None:
        """`denial` for the event loop: in a thread, because a file may hang."""
        if self._open:
            return None
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.denial, headers)

    def check_files(self) -> None:
        """Raises ConfigError for a file that can't be used now: worth a line before the daemon starts."""
        for secret in (self._bearer, self._basic):
            if secret is not None and (problem := secret.problem()):
                raise ConfigError(problem)


class _Secret:
    """One secret and its file. The secret itself is kept as a digest: of equal length, and it can't be printed."""

    def __init__(self, path: str, what: str, monotonic: Callable[[], float], needs: bytes = b"") -> None:
        self._path = path
        self._file = FileReader(path)
        self._lock = threading.Lock()
        self._what = what
        self._needs = needs
        self._monotonic = monotonic
        self._checked_at = float("-inf")
        self._digest: bytes | None = None
        self._problem = ""

    def denial(self, given: bytes) -> Denial | None:
        self._look()
        if self._digest is None:
            return Denial.NO_SECRET
        return None if hmac.compare_digest(_digest(given), self._digest) else Denial.WRONG

    def problem(self) -> str:
        """Why it can't be used; empty when it can."""
        self._look()
        return self._problem

    def _look(self) -> None:
        with self._lock:
            self._look_alone()

    def _look_alone(self) -> None:
        now = self._monotonic()
        if now - self._checked_at < LOOK_SECONDS:
            return
        self._checked_at = now
        secret, problem = self._read()
        digest = _digest(secret) if secret else None
        if problem and problem != self._problem:
            logger.warning("%s: the web API is closed to clients that send one", problem)
        elif digest != self._digest:
            logger.info("%s: the %s was read", self._path, self._what)
        self._digest, self._problem = digest, problem

    def _read(self) -> tuple[bytes, str]:
        """(secret, problem): one of them is empty."""
        try:
            secret = self._file.read().strip()
        except OSError as error:
            return b"", f"{self._path}: the {self._what} can't be read: {error.strerror}"
        if not secret:
            return b"", f"{self._path}: expected a {self._what}, got an empty file"
        if self._needs not in secret:
            return b"", f"{self._path}: expected {self._what}"
        return secret, ""


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()
