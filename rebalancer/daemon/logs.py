"""Logging setup: one JSON object per line on stderr with the cycle's id, or plain text on a terminal."""

import logging
import sys
import time

import structlog

from rebalancer.model.secrets import redacted


def _redact(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """No secret is logged, whatever text it comes in."""
    return {key: redacted(value) if isinstance(value, str) else value for key, value in line.items()}


def _without_memory(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Without memory every place can fail: the line says so, and has no traceback."""
    given = line.get("exc_info")
    error = given[1] if isinstance(given, tuple) else given if isinstance(given, BaseException) else sys.exc_info()[1]
    short = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error))
    if not given or not short:
        return line
    text = f"out of memory: {error or type(error).__name__}"
    return {key: value for key, value in line.items() if key != "exc_info"} | {"error": text}


REFUSED_SECONDS = 60.0
"""Interval of the log line while connections can't be accepted."""


class AcceptErrors(logging.Filter):
    """asyncio's errors at accepting a connection, one line a minute without a traceback.

    Without a free file descriptor asyncio logs one for each connection that may wait, thousands a second.
    """

    _logged = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if not record.getMessage().startswith("socket.accept() out of system resource"):
            return True
        now = time.monotonic()
        if now - self._logged < REFUSED_SECONDS:
            return False
        self._logged = now
        error = record.exc_info[1] if record.exc_info else None
        record.msg, record.args = f"connections can't be accepted: {error}", ()
        record.exc_info = None
        return True


def set_up(*, as_json: bool, level: str = "info") -> None:
    """Route all logging through structlog, including the standard `logging` of libraries.

    Libraries that log each request are logged from warnings on, whatever the level.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        # the default formatter shows local variables, which may hold a secret
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    chain: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    chain += [_without_memory, structlog.processors.format_exc_info, _redact]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[*chain, last], foreign_pre_chain=shared))
    logging.raiseExceptions = False  # a log that can't be written, on a full disk, is no reason for a traceback in it
    accepting = logging.getLogger("asyncio")
    if not any(isinstance(each, AcceptErrors) for each in accepting.filters):
        accepting.addFilter(AcceptErrors())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for chatty in ("kubernetes", "urllib3", "apscheduler", "uvicorn.access", "alembic"):
        logging.getLogger(chatty).setLevel(max(root.level, logging.WARNING))
