"""nginx as a proxy in front of our servers, on a socket that the test has opened."""

import contextlib
import os
import shutil
import subprocess

import pytest

from serving.web.sockets import open_socket, url_of
from tests.support.running_process import stop

_CONFIG = """
daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address}{protocol};
        {body}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder, body, *, protocol=""):
    """Run nginx with the content of a `server` block; yields its address.

    Where it is not installed, the test is skipped.

    Args:
        folder: An empty folder for its files.
        body: What stands in the block.
        protocol: What follows the address of `listen`, such as " http2".
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("The proxy of these tests is nginx: apt-get install nginx-light")
    with open_socket("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        file = folder / "nginx.conf"
        address = f"{host}:{port}"
        file.write_text(
            _CONFIG.format(folder=folder, address=address, protocol=protocol, body=body)
        )
        # It takes the socket over, as from the nginx before an upgrade: no other
        # program can have the port, and who connects before it answers waits.
        listener.setblocking(False)  # as nginx makes its own
        descriptor = listener.fileno()
        process = subprocess.Popen(
            [program, "-p", folder, "-c", file, "-e", "stderr"],
            env={"NGINX": f"{descriptor};"},
            pass_fds=[descriptor],
        )
        try:
            yield url_of(listener)
        finally:
            stop(process)
