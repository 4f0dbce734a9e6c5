"""S3-compatible storage on loopback, in this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Storage:
    """A running server with one bucket."""

    endpoint: str

    def address(self, prefix: str, *, bucket: str = BUCKET) -> str:
        host = self.endpoint.removeprefix("http://")
        return f"s3://{bucket}/{prefix}?scheme=http&endpoint_override={host}&region=us-east-1"

    def client(self) -> "boto3.client":
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")


@contextmanager
def storage() -> Iterator[Storage]:
    """A server with an empty bucket; credentials are in the environment meanwhile."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        running = Storage(f"http://{host}:{port}")
        running.client().create_bucket(Bucket=BUCKET)
        try:
            yield running
        finally:
            server.stop()
