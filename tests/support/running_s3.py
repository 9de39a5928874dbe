"""An S3 of this machine: moto's server, in a thread of the test."""

import contextlib

import httpx2
from moto.server import ThreadedMotoServer

KEY, SECRET = "AKIA-of-this-test", "secret-of-this-test"


@contextlib.contextmanager
def running_s3(environment):
    """Serve an empty S3; yields the file system of its buckets.

    Args:
        environment: The environment of this process (`pytest.MonkeyPatch`), which is
            to name the server.
    """
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        # All servers of a process have the same buckets.
        httpx2.post(f"{url}/moto-api/reset", trust_env=False, timeout=60)
        with s3_at(environment, url) as system:
            yield system
    finally:
        server.stop()


@contextlib.contextmanager
def s3_at(environment, url):
    """Let this process find S3 at an address; yields the file system."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        environment.setenv(name, value)
    # They keep the address that they were made with.
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield s3fs.S3FileSystem(use_listings_cache=False)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
