"""Bodies of answers, and the errors of the libraries beneath: urllib3, http.client, sockets and zlib.

They become this package's errors at one place, `ApiClient._failure`.
"""

import http.client
import time
import zlib
from io import BytesIO

import urllib3
from urllib3 import exceptions as broken

READ_BYTES = 256 * 1024
MOST_ERROR_BYTES = 1024 * 1024
"""Of the body of an error status that ends a stream. A Status has some hundred bytes."""
GZIP = "gzip"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

TRANSPORT_ERRORS = (broken.HTTPError, http.client.HTTPException, OSError, ValueError, zlib.error)
"""What sending a request and reading its answer raise. ValueError: a URL or header that HTTP can't carry, or a read of
a connection that was closed meanwhile."""


def whole(response: urllib3.BaseHTTPResponse, *, until: float) -> urllib3.BaseHTTPResponse:
    """The same response with its body unpacked, read until then on the monotonic clock.

    A read timeout applies to each read, so it never ends a body that arrives byte by byte. Raises TRANSPORT_ERRORS.
    """
    parts = []
    while part := response.read1(READ_BYTES):
        parts.append(part)
        if time.monotonic() > until:
            response.close()
            raise broken.ReadTimeoutError(None, "", "the body is too slow")  # type: ignore[arg-type]
    response.release_conn()
    body = b"".join(parts)
    if body and response.headers.get("Content-Encoding") == GZIP:
        # in one call, which lets other threads run
        body = zlib.decompress(body, _GZIP_WINDOW)
    return _in_memory(response, body)


def as_far_as_read(response: urllib3.BaseHTTPResponse, *, until: float) -> urllib3.BaseHTTPResponse:
    """The same response, an error status, with what can be read of its body: the status counts without it too.

    Until then on the monotonic clock, and MOST_ERROR_BYTES at most. Raises nothing of TRANSPORT_ERRORS.
    """
    body = b""
    try:
        while len(body) < MOST_ERROR_BYTES and time.monotonic() < until and (part := response.read1(READ_BYTES)):
            body += part
    except TRANSPORT_ERRORS:
        pass
    # not returned to the pool: what is left of the body may follow
    response.close()
    return _in_memory(response, body)


def _in_memory(response: urllib3.BaseHTTPResponse, body: bytes) -> urllib3.BaseHTTPResponse:
    return urllib3.HTTPResponse(
        body=BytesIO(body),
        headers=response.headers,
        status=response.status,
        decode_content=False,  # it is already
        enforce_content_length=False,
    )


def cause(error: BaseException) -> str:
    """The cause of a library's error in one line."""
    inner = (
        error.__cause__ or error.__context__ or next((arg for arg in error.args if isinstance(arg, Exception)), None)
    )
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    return " ".join(str(inner or error).split())
