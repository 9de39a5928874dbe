import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import textwrap

import pytest

from serving.web import sockets
from serving.web.sockets import PortInUseError, open_socket, url_of
from tests.support.running_process import ROOT


def test_port_zero_takes_a_free_port():
    with open_socket("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_address_for_all_machines_is_shown_as_loopback():
    with open_socket("0.0.0.0", 0) as listener:  # noqa: S104
        assert url_of(listener).startswith("http://127.0.0.1:")


def test_taken_port_is_refused_with_a_remedy():
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortInUseError) as caught:
            open_socket("127.0.0.1", port)
    assert str(caught.value) == (
        f"Port {port} on 127.0.0.1 is in use. Stop the program that listens on it, or "
        "choose another port with --port."
    )


def test_port_can_be_taken_again_right_after():
    with open_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    open_socket("127.0.0.1", port).close()


def test_address_of_another_machine_is_refused():
    with pytest.raises(OSError, match=r"Cannot listen on 192\.0\.2\.1:0"):
        open_socket("192.0.2.1", 0)


def test_name_that_is_no_address_is_refused():
    with pytest.raises(OSError, match="`host` must be"):
        open_socket("no such host", 0)


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_out_of_range_is_refused(port):
    with pytest.raises(ValueError, match="`port` must be 0 to 65535"):
        open_socket("127.0.0.1", port)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_all_servers_after_the_requests_under_way(number):
    script = """
        import asyncio

        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        from serving.web.sockets import open_socket, serve, url_of


        async def slow(request):
            print("started", flush=True)
            await asyncio.sleep(0.5)
            return PlainTextResponse("done")


        apps = [Starlette(routes=[Route("/", slow)]) for _ in range(2)]
        listeners = [open_socket("127.0.0.1", 0) for _ in apps]
        for listener in listeners:
            print(listener.getsockname()[1], flush=True)
        serve(list(zip(apps, listeners)))
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, contextlib.ExitStack() as opened:
        try:
            ports = [int(process.stdout.readline()) for _ in range(2)]
            clients = [
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                for port in ports
            ]
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            for _ in clients:
                assert process.stdout.readline() == "started\n"
            process.send_signal(number)
            for client in clients:
                client.settimeout(60)
                answer = b""
                while piece := client.recv(4096):
                    answer += piece
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
                assert answer.endswith(b"done")
            assert process.wait(timeout=60) == 0, process.stderr.read()
        finally:
            process.kill()


def test_process_that_starts_is_ended_by_sigterm():
    script = (
        "import time; from serving.web.sockets import exit_on_sigterm; "
        "exit_on_sigterm(); print('starting', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout.readline() == "starting\n"
            process.terminate()
            # Not the default action, which the first process of a container lacks.
            assert process.wait(60) == 143
        finally:
            process.kill()


def test_full_files_are_logged_once_a_minute(caplog):
    async def fail_often():
        loop = asyncio.get_running_loop()
        sockets._tell_once_of_full_files(loop)
        for _ in range(1000):
            loop.call_exception_handler(
                {
                    "message": "socket.accept() out of system resource",
                    "exception": OSError(24, "Too many open files"),
                }
            )
        loop.call_exception_handler({"message": "something else"})

    asyncio.run(fail_often())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "No connection can be accepted ([Errno 24] Too many open files). Raise the "
        "limit of open files.",
        "something else",
    ]


def test_sigterm_ends_a_process_that_swallows_its_exit():
    code = (
        "import contextlib, signal, time\n"
        "from serving.web.sockets import exit_on_sigterm\n"
        "exit_on_sigterm(0.1)\n"
        "with contextlib.suppress(SystemExit):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120)
    assert ended.returncode == 143
