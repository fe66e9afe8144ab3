"""Files from the network: of a limited size, in a limited time, and never by a less safe way than was asked for."""

import queue
import threading
import urllib.request
from http.client import HTTPMessage, IncompleteRead
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request

TIMEOUT = 30.0
"""Seconds to wait for the next bytes of a server."""

LONGEST = 600.0
"""Seconds that a file may take in all."""

CHUNK = 2**16


def download(url: str, largest: int) -> bytes:
    """The content of a file of at most ``largest`` bytes.

    Raises:
        OSError, http.client.HTTPException, ValueError: what is wrong with the network, the server or the file.
    """
    found: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()
    given_up = threading.Event()

    def read() -> None:
        try:
            found.put(_read(url, largest, given_up))
        except Exception as error:
            if isinstance(error, HTTPError):
                error.close()  # it is an answer too, with a connection
            found.put(error)

    # Timeouts of sockets alone bound neither the names that are looked up nor a server that sends a byte at a time.
    threading.Thread(target=read, daemon=True).start()
    try:
        content = found.get(timeout=LONGEST)
    except queue.Empty:
        raise TimeoutError(f"it took longer than {LONGEST:g} seconds") from None
    finally:
        given_up.set()
    if isinstance(content, Exception):
        raise content
    return content


def _read(url: str, largest: int, given_up: threading.Event) -> bytes:
    content = bytearray()
    with urllib.request.build_opener(SafeRedirects).open(url, timeout=TIMEOUT) as response:
        while not given_up.is_set() and (chunk := response.read1(CHUNK)):
            content += chunk
            if len(content) > largest:
                raise ValueError(f"it has more than {largest} bytes")
        if missing := getattr(response, "length", None):
            raise IncompleteRead(bytes(content), missing)
    return bytes(content)


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a server to another address, but not from HTTPS to plain HTTP, which anyone on the way can change."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Any:
        """The request of the new address."""
        if req.type == "https" and not newurl.startswith("https:"):
            raise HTTPError(req.full_url, code, f"it leads to {newurl}, which is not HTTPS", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
