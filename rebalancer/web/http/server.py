"""The HTTP server: uvicorn in a thread of its own, with bounded connections and TLS whose files may change."""

import asyncio
import ipaddress
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from starlette.types import ASGIApp

from rebalancer.model.errors import ConfigError
from rebalancer.web.http.connections import MAX_HEAD_BYTES, BoundedProtocol, BoundedTls, Connections
from rebalancer.web.http.files import FileReader
from rebalancer.web.http.listening import ReservedSocket

logger = logging.getLogger("rebalancer.web")

MAX_CONNECTIONS = 256
MAX_OF_CLIENT = 64
"""Connections of one address."""

KEEP_ALIVE_SECONDS = 75
TLS_LOOK_SECONDS = 1

_START_SECONDS = 10.0


class WebServer:
    """Serves an application until it is stopped."""

    def __init__(
        self,
        app: ASGIApp,
        listen: str,
        *,
        tls_cert_file: str | None = None,
        tls_key_file: str | None = None,
        name: str = "web",
    ) -> None:
        """`listen` is `ADDRESS:PORT`, `[ADDRESS]:PORT` for IPv6; port 0 takes a free one. `name` is the thread's.

        Raises ConfigError.
        """
        self._app = app
        self._name = name
        self._listen = listen
        self._host, self._port = parse_listen(listen)
        if bool(tls_cert_file) != bool(tls_key_file):
            raise ConfigError("TLS: expected both a certificate file and a key file, got one of them")
        self._tls = _Tls(tls_cert_file, tls_key_file) if tls_cert_file and tls_key_file else None
        self._tls_thread = ThreadPoolExecutor(1, "web-tls")
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The one that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """Where it is found from this host."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._tls else 'http'}://{shown}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether its thread lives."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Return when it listens. Raises ConfigError."""
        connections = Connections(most=MAX_CONNECTIONS, most_of_client=min(MAX_OF_CLIENT, MAX_CONNECTIONS))
        protocol = type("Protocol", (BoundedProtocol,), {"connections_of_listener": connections})
        if self._tls is not None:
            # not uvicorn's TLS: it counts a connection only after the handshake
            protocol = type("TlsProtocol", (BoundedTls,), {"protocol": protocol, "context": self._tls.load()})
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            ws="none",
            http=protocol,
            loop="asyncio",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            callback_notify=self._look_at_tls if self._tls else None,
            timeout_notify=TLS_LOOK_SECONDS,
        )
        config.load()
        listening = self._bind()
        connections.closed = listening.take_reserves
        self._port = listening.getsockname()[1]
        server = self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name=self._name, daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                self.stop(0.0)
                listening.close()
                raise ConfigError(f"listen {self._listen}: the web server did not start, see the log")
            time.sleep(0.005)

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Take no new requests, end those that run, break off what takes longer. False when its thread still lives."""
        if self._server is None or self._thread is None:
            return True
        self._server.config.timeout_graceful_shutdown = max(1, round(timeout_seconds))
        self._server.should_exit = True
        self._thread.join(timeout_seconds + 2.0)
        return not self._thread.is_alive()

    def _bind(self) -> ReservedSocket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio sets TCP_NODELAY only where the protocol is named
        listening = ReservedSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self._port))
            # here and not in the thread: another process may have bound it as we did, and only one can listen
            listening.listen(128)
        except OSError as error:
            listening.close()
            raise ConfigError(f"listen {self._listen}: {error.strerror}") from None
        return listening

    async def _look_at_tls(self) -> None:
        if self._tls is not None:
            # the files may hang
            contents = await asyncio.get_running_loop().run_in_executor(self._tls_thread, self._tls.read)
            self._tls.look(contents)


def parse_listen(text: str) -> tuple[str, int]:
    """`[::]:8080` -> ("::", 8080); without an address all of them. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    in_brackets = bare != host
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > 65535 or (":" in bare) != in_brackets:
        raise ConfigError(f"listen: expected ADDRESS:PORT, got {text!r}")
    return bare or "0.0.0.0", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this host can reach the address. Another name than `localhost` may be anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Tls:
    """The context that connections are made with, kept up to date with its files."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        self._files = (cert_file, key_file)
        self._readers = (FileReader(cert_file), FileReader(key_file))
        self._context = _empty_context()
        self._loaded: tuple[bytes, bytes] | None = None
        self._complained = ""

    def load(self) -> ssl.SSLContext:
        """The context. Raises ConfigError."""
        contents = self.read()
        try:
            self._take(contents)
        except (OSError, ValueError) as error:
            raise ConfigError(self._problem(error)) from None
        return self._context

    def read(self) -> tuple[bytes, bytes] | OSError:
        """The contents of certificate and key, or why they can't be read. Takes seconds where a file hangs."""
        try:
            return self._readers[0].read(), self._readers[1].read()
        except OSError as error:
            return error

    def look(self, contents: tuple[bytes, bytes] | OSError) -> None:
        """Take the files' contents where they have changed; keep what there was where they can't be used."""
        if contents == self._loaded:
            self._complained = ""
            return
        try:
            self._take(contents)
        except (OSError, ValueError) as error:
            problem = self._problem(error)
            if problem != self._complained:
                logger.warning("%s: the old certificate stays", problem)
            self._complained = problem
            return
        self._complained = ""
        logger.info("TLS: %s was reloaded", self._files[0])

    def _take(self, contents: tuple[bytes, bytes] | OSError) -> None:
        if isinstance(contents, OSError):
            raise contents
        # a certificate without its key would spoil the live context, so another one is tried first
        for context in (_empty_context(), self._context):
            context.load_cert_chain(*self._files, password=lambda: "")
        self._loaded = contents

    def _problem(self, error: OSError | ValueError) -> str:
        if isinstance(error, ssl.SSLError):
            what = (error.reason or "not a certificate and its key in PEM").lower().replace("_", " ")
            return f"TLS: {self._files[0]} and {self._files[1]}: {what}"
        return f"TLS: {getattr(error, 'filename', None) or self._files[0]}: {getattr(error, 'strerror', None) or error}"


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
