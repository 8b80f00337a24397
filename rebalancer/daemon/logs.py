"""Logging setup: one JSON object per line on stderr with the cycle's id, or plain text on a terminal."""

import logging
import sys

import structlog

from rebalancer.model.secrets import redacted


def _redact(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """No secret is logged, whatever text it comes in."""
    return {key: redacted(value) if isinstance(value, str) else value for key, value in line.items()}


def set_up(*, as_json: bool) -> None:
    """Route all logging through structlog, including the standard `logging` of libraries."""
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
    chain += [structlog.processors.format_exc_info, _redact]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[*chain, last], foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("urllib3", "apscheduler", "uvicorn.access", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
