"""A proxy on loopback between a reader and an object store, that does what networks and servers do.

Every fault is a `Fault`; `plan` decides, request by request, which one happens.
"""

import http.client
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 256 << 10


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass


class ResetError(Exception):
    """The connection ends with a reset."""


class Fault:
    """What goes wrong with one answer. By itself: nothing."""

    def before(self, handler):
        """Before anything is sent; true where the answer was given."""
        return False

    def headers(self, status, headers):
        return status, headers

    def send(self, handler, pieces):
        for piece in pieces:
            handler.wfile.write(piece)


class SlowFirstByte(Fault):
    def __init__(self, seconds):
        self.seconds = seconds

    def before(self, handler):
        return handler.proxy.pause(self.seconds)


class ResetAfter(Fault):
    def __init__(self, count):
        self.count = count

    def send(self, handler, pieces):
        left = self.count
        for piece in pieces:
            handler.wfile.write(piece[:left])
            left -= len(piece[:left])
            if left == 0:
                raise ResetError


class ShortBody(Fault):
    """Fewer bytes than were said, and a polite end."""

    def __init__(self, missing):
        self.missing = missing

    def send(self, handler, pieces):
        body = b"".join(pieces)
        handler.wfile.write(body[: max(len(body) - self.missing, 0)])
        handler.close_connection = True


class ShortButSaidSo(Fault):
    """Fewer bytes than were asked for, under a Content-Length of as many and the Content-Range of all."""

    def __init__(self, missing):
        self.missing = missing

    def headers(self, status, headers):
        headers["Content-Length"] = str(max(int(headers["Content-Length"]) - self.missing, 0))
        return status, headers

    def send(self, handler, pieces):
        body = b"".join(pieces)
        handler.wfile.write(body[: max(len(body) - self.missing, 0)])


class WholeForRange(Fault):
    """200 for 206."""

    def headers(self, status, headers):
        headers.pop("Content-Range", None)
        return 200, headers


class WrongRange(Fault):
    def headers(self, status, headers):
        span, _, size = headers["Content-Range"].removeprefix("bytes ").partition("/")
        first, _, last = span.partition("-")
        headers["Content-Range"] = f"bytes {int(first) + 1}-{int(last) + 1}/{int(size) + 2}"
        return status, headers


class Status(Fault):
    def __init__(self, status, headers=None):
        self.status, self.more = status, headers or {}

    def before(self, handler):
        handler.send_response(self.status)
        for name, value in {"Content-Length": "0", **self.more}.items():
            handler.send_header(name, value)
        handler.end_headers()
        return True


class NewTag(Fault):
    """The object was replaced."""

    def headers(self, status, headers):
        # Servers spell it in their own ways.
        for name in [name for name in headers if name.lower() == "etag"]:
            del headers[name]
        headers["ETag"] = '"of-another-object"'
        return status, headers


class Drip(Fault):
    """One byte a second."""

    def send(self, handler, pieces):
        for byte in b"".join(pieces):
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if handler.proxy.pause(1):
                raise ResetError


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: "FaultProxy"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.forward()

    def do_GET(self):
        self.forward()

    def forward(self):
        fault = self.proxy.decide(self.command, self.path, self.headers.get("Range"))
        try:
            if not fault.before(self):
                self.relay(fault)
        except ResetError:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True

    def relay(self, fault):
        upstream = http.client.HTTPConnection("127.0.0.1", self.proxy.upstream, timeout=60)
        try:
            # The Host goes on as it is: a signature covers it.
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() != "connection":
                    upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            left_out = ("connection", "transfer-encoding", "content-length", "date", "server")
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
            empty = self.command == "HEAD" or answer.status == 304
            if (length := answer.getheader("Content-Length")) is not None:
                headers["Content-Length"] = length
                pieces = () if empty else iter(lambda: answer.read(PIECE), b"")
            else:
                body = answer.read()
                headers["Content-Length"] = str(len(body))
                pieces = () if empty else iter([body])
            ours = answer.status == 206
            status, headers = fault.headers(answer.status, headers) if ours else (answer.status, headers)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if ours:
                fault.send(self, pieces)
            else:
                Fault.send(fault, self, pieces)
        finally:
            upstream.close()


class FaultProxy:
    """Forwards to a server on loopback. `plan(number, key, range)` is the fault of a ranged GET, or None."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.plan = lambda number, key, span: None
        self.requests = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        handler = type("Handler", (Handler,), {"proxy": self})
        self.server = Server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def decide(self, method, path, span):
        with self.lock:
            self.requests.append((time.monotonic(), method, path, span))
            number = sum(1 for _, _, _, asked in self.requests if asked) - 1
        return (self.plan(number, path, span) if span else None) or Fault()

    def pause(self, seconds):
        """Waits; true where the test ended meanwhile."""
        return self.ended.wait(seconds)

    def forget(self):
        """Forgets the requests so far, and says how many there were."""
        with self.lock:
            requests, self.requests = self.requests, []
        return requests

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
