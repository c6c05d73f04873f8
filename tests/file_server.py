"""A file server on this machine that misbehaves on request."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Files:
    """What is served, how, and what was asked. `cut_at`: the connection ends after that number of bytes."""

    content: dict[str, bytes] = field(default_factory=dict)
    etag: str | None = '"one"'
    ranges: bool = True
    cut_at: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    length: int | None = None
    lengthless: bool = False
    kind: str = "application/octet-stream"
    pause_s: float = 0.0
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    sent: int = 0
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    files: Files

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        files = self.files
        files.asked.append((self.path, self.headers.get("Range")))
        if files.statuses and (status := files.statuses.pop(0)) != 200:
            return self._error(status)
        whole = files.content.get(self.path.lstrip("/"))
        if whole is None:
            return self._error(404)
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        first = int(wanted[1]) if wanted and files.ranges else 0
        if first and self.headers.get("If-Range") not in (None, files.etag):
            first = 0
        if first >= len(whole):
            return self._error(416)
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(whole) - 1}/{len(whole)}")
        if files.etag:
            self.send_header("ETag", files.etag)
        if not files.lengthless:
            self.send_header("Content-Length", str(files.length or len(whole) - first))
        self.send_header("Content-Type", files.kind)
        self.end_headers()
        limit = files.cut_at.pop(0) if files.cut_at else len(whole)
        self._send(whole[first : first + limit])
        return None

    def _send(self, content: bytes) -> None:
        step = 4096 if self.files.pause_s else len(content) or 1
        with suppress(OSError):
            for at in range(0, len(content), step):
                self.wfile.write(content[at : at + step])
                self.files.sent += len(content[at : at + step])
                time.sleep(self.files.pause_s)
        self.close_connection = True

    def _error(self, status: int) -> None:
        body = b"<html>an error page that must never be kept</html>"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Files]:
    """A server for the time of a test; loopback, a free port."""
    files = Files()
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    files.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
