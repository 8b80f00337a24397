"""A request's body, bounded in size and time; and errors as JSON."""

import asyncio
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from rebalancer.web.alerts import one_line


async def read_body(request: Request, *, max_bytes: int, seconds: float) -> bytes:
    """The whole body. Raises HTTPException: 413 when it is too long, 408 when it takes too long."""
    # the body of an early answer is read and dropped by the server, so that the answer arrives
    too_long = HTTPException(413, f"expected at most {max_bytes} bytes")
    said = request.headers.get("content-length", "")
    if said.isdecimal() and (len(said) > 15 or int(said) > max_bytes):
        raise too_long
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_long
    except TimeoutError:
        raise HTTPException(408, f"expected the body within {seconds:g} s", {"connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body did") from None
    return bytes(body)


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """`{"error": ...}` in one line."""
    return JSONResponse({"error": one_line(message)}, status, headers=headers)
