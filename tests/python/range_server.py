"""A small object store on loopback: a folder, with ranges, ETags, listings and uploads. It keeps requests.

`http://127.0.0.1:PORT/bucket/key` is an object; with `endpoint_url` set to the server, so is `s3://bucket/key`.
"""

import contextlib
import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PIECE = 1 << 20


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request, client_address):
        pass  # a client that goes away in the middle of a body is what some tests are about


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: "RangeServer"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def do_PUT(self):
        """An object, or a part of one."""
        store, key, query = self.store, *self.asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if store.fault and (status := store.fault(self.command, key, query)):
            return self.plain(status, "", True)
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if "uploadId" in query:
            with store.lock:
                upload = store.uploads.get(query["uploadId"])
                if upload is not None:
                    upload[int(query["partNumber"])] = body, tag
            if upload is None:
                return self.plain(404, "<Error><Code>NoSuchUpload</Code></Error>", True)
        elif not store.put(key, body, self.headers.get("If-None-Match") == "*"):
            return self.plain(412, "<Error><Code>PreconditionFailed</Code></Error>", True)
        self.plain(200, "", True, ETag=tag)

    def do_POST(self):
        """The beginning of an upload, or its end: parts are put together in the order of their numbers."""
        store, key, query = self.store, *self.asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if store.fault and (status := store.fault(self.command, key, query)):
            return self.plain(status, "", True)
        if "uploads" in query:
            with store.lock:
                store.began += 1
                name = f"upload-{store.began}"
                store.uploads[name] = {}
            return self.plain(
                200,
                "<InitiateMultipartUploadResult><Bucket>bucket</Bucket><Key>k</Key>"
                f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>",
                True,
            )
        with store.lock:
            upload = store.uploads.get(query["uploadId"])
        if upload is None:
            return self.plain(404, "<Error><Code>NoSuchUpload</Code></Error>", True)
        numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)<", body)]
        tags = [tag.strip('"') for tag in re.findall(r"<ETag>(.*?)<", unescape(body, {"&quot;": '"'}))]
        sizes = [len(upload[number][0]) for number in numbers]
        wrong = [upload[number][1].strip('"') for number in numbers] != tags or numbers != sorted(upload)
        if wrong or any(size < 5 << 20 for size in sizes[:-1]):
            return self.plain(400, "<Error><Code>InvalidPart</Code></Error>", True)
        whole = b"".join(upload[number][0] for number in numbers)
        if not store.put(key, whole, self.headers.get("If-None-Match") == "*"):
            return self.plain(412, "<Error><Code>PreconditionFailed</Code></Error>", True)
        with store.lock:
            del store.uploads[query["uploadId"]]
        if store.lost and store.lost.pop():
            return self.plain(500, "", True)
        self.plain(
            200,
            "<CompleteMultipartUploadResult><Location>l</Location><Bucket>b</Bucket><Key>k</Key>"
            f'<ETag>"{len(numbers)}"</ETag></CompleteMultipartUploadResult>',
            True,
        )

    def do_DELETE(self):
        """An upload that is given up."""
        _, query = self.asked()
        with self.store.lock:
            known = self.store.uploads.pop(query.get("uploadId"), None)
        self.plain(204 if known is not None else 404, "", False)

    def asked(self):
        """The key and the words behind it."""
        url = urlsplit(self.path)
        key = unquote(url.path).lstrip("/")
        with self.store.lock:
            self.store.requests.append((self.command, key, self.headers.get("Range")))
        return key, {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}

    def answer(self, body):
        store, key, query = self.store, *self.asked()
        if query.get("list-type") == "2":
            return self.list(key.rstrip("/"), query)
        path = store.root / key
        if not path.is_file():
            missing = "NoSuchKey" if (store.root / key.split("/")[0]).is_dir() else "NoSuchBucket"
            return self.plain(404, f"<Error><Code>{missing}</Code></Error>", body)
        tag, size = store.etag(path), path.stat().st_size
        wanted = self.headers.get("If-Match")
        if wanted and store.conditional and wanted.strip('"') != tag.strip('"'):
            return self.plain(412, "<Error><Code>PreconditionFailed</Code></Error>", body)
        start, end, status = 0, size, 200
        if (given := self.headers.get("Range")) and store.ranged:
            first, _, last = given.removeprefix("bytes=").partition("-")
            start, end, status = int(first), min(int(last) + 1 if last else size, size), 206
            if start >= size:
                return self.plain(416, "", body)
        self.send_response(status)
        self.send_header("Content-Length", str(end - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        if store.tagged:
            self.send_header("ETag", tag)
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        if body:
            with path.open("rb") as file, store.sent():
                file.seek(start)
                while start < end:
                    piece = file.read(min(PIECE, end - start))
                    self.wfile.write(piece)
                    start += len(piece)

    def plain(self, status, text, body, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(text.encode())

    def list(self, bucket, query):
        root = self.store.root / bucket
        if not root.is_dir():
            return self.plain(404, "<Error><Code>NoSuchBucket</Code></Error>", True)
        prefix, flat = query.get("prefix", ""), query.get("delimiter") != "/"
        keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        keys = [key for key in keys if key.startswith(prefix) and key > query.get("continuation-token", "")]
        files = [key for key in keys if flat or "/" not in key[len(prefix) :]]
        folders = sorted({prefix + key[len(prefix) :].split("/")[0] + "/" for key in set(keys) - set(files)})
        page, rest = files[: self.store.page], files[self.store.page :]
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""

        def entry(key):
            path = root / key
            return (
                f"<Contents><Key>{escape(key)}</Key><Size>{path.stat().st_size}</Size>"
                f"<ETag>{escape(self.store.etag(path))}</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )

        found = "".join(map(entry, page)) + "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders
        )
        self.plain(
            200,
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>'
            f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{more}{found}</ListBucketResult>",
            True,
        )


class RangeServer:
    """Serves `root`, whose folders are buckets."""

    def __init__(self, root):
        self.root = Path(root)
        self.requests = []
        self.lock = threading.Lock()
        self.tagged = self.ranged = self.conditional = True
        self.page = 1000
        self.at_once = self.most_at_once = 0
        # Uploads that were begun, and their parts; what may go wrong with a request: a status, or None.
        self.uploads, self.began, self.fault, self.lost = {}, 0, None, []
        handler = type("Handler", (Handler,), {"store": self})
        self.server = Server(("127.0.0.1", 0), handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def s3(self):
        """`storage_options` that lead `s3://` here."""
        return {"endpoint_url": self.url, "skip_signature": "true", "region": "us-east-1", "timeout": "20s"}

    def etag(self, path):
        stat = path.stat()
        return (
            '"' + hashlib.md5(f"{stat.st_ino} {stat.st_mtime_ns} {stat.st_size}".encode()).hexdigest() + '"'
        )

    @contextlib.contextmanager
    def sent(self):
        """Counts the bodies that are being sent."""
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            with self.lock:
                self.at_once -= 1

    def put(self, key, body, new):
        """Make an object of it, unless there is one and it has to be new."""
        path = self.root / key
        with self.lock:
            if new and path.exists():
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            hidden = self.root / f".{path.name}"
            hidden.write_bytes(body)
            hidden.rename(path)
            return True

    def asked(self):
        """The requests since the last call."""
        with self.lock:
            requests, self.requests = self.requests, []
        return requests

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
