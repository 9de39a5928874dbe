"""Generate load: one prepared request, asked again and again by many clients.

    python -m benchmarks.serving.load grpc 127.0.0.1:8500 PATH BODY_FILE

`put_load` runs h2load (Debian's nghttp2-client) where it is installed, because it costs
the cores that it shares with the server least, and else this module as a process: gRPC
by `grpc.aio`, REST by bare asyncio streams. In both, each client has a connection of
its own and waits for the answer before it asks again.
"""

import argparse
import asyncio
import contextlib
import json
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_H2LOAD = "h2load"
_SPARE_SECONDS = 60
_Ask = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Load:
    """What the clients saw.

    Attributes:
        rate: Right answers a second.
        answers: Right answers.
        errors: Requests with another answer, or none.
        times_ms: How long each right answer took.
        client_cpu_seconds: CPU time of the clients, all together.
        seconds: How long the load lasted.
    """

    rate: float
    answers: int
    errors: int
    times_ms: Sequence[float]
    client_cpu_seconds: float
    seconds: float


def has_h2load() -> bool:
    """Return whether h2load is installed."""
    return shutil.which(_H2LOAD) is not None


def grpc_frame(message: bytes) -> bytes:
    """Put the prefix of gRPC before a message: not compressed, and its length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def put_load(
    protocol: str,
    address: str,
    path: str,
    body: bytes,
    *,
    clients: int,
    seconds: float,
    reply_bytes: int | None = None,
    tool: str = _H2LOAD,
) -> Load:
    """Ask for a while.

    Args:
        protocol: `"grpc"` or `"rest"`.
        address: Host and port.
        path: Of the method, with its slash.
        body: The serialized message, or the JSON.
        clients: How many ask at one time, at least 1.
        seconds: How long.
        reply_bytes: Length of a right answer of gRPC, which tells its errors: their
            HTTP status is 200.
        tool: `"h2load"` or `"python"`.

    Returns:
        What the clients saw.

    Raises:
        RuntimeError: The clients could not run.
    """
    run = _h2load if tool == _H2LOAD else _python
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "body"
        file.write_bytes(grpc_frame(body) if protocol == "grpc" else body)
        return run(protocol, address, path, file, clients, seconds, reply_bytes)


def _h2load(
    protocol: str,
    address: str,
    path: str,
    file: Path,
    clients: int,
    seconds: float,
    reply_bytes: int | None,
) -> Load:
    log = file.with_name("log")
    command = [
        _H2LOAD,
        "--duration",
        f"{round(1000 * seconds)}ms",
        "--clients",
        str(clients),
    ]
    command += ["--data", str(file), "--log-file", str(log)]
    if protocol == "grpc":
        command += ["--header", "content-type: application/grpc"]
        command += ["--header", "te: trailers"]
    else:
        command += ["--h1", "--header", "content-type: application/json"]
    text, cpu = _run([*command, f"http://{address}{path}"], seconds)
    done, errors = _h2load_counts(text, reply_bytes if protocol == "grpc" else None)
    rows = [line.split("\t") for line in log.read_text("ascii").splitlines()]
    times = [int(took) / 1000 for _, status, took in rows if status == "200"]
    return Load(done / seconds, done, errors, times, cpu, seconds)


def _h2load_counts(text: str, reply_bytes: int | None) -> tuple[int, int]:
    """Read right and wrong answers out of what h2load prints."""
    total = re.search(
        r"requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, "
        r"(\d+) failed, (\d+) errored, (\d+) timeout",
        text,
    )
    # What was asked by the end of the time and not answered is no error.
    traffic = re.search(r"\((\d+)\) data", text)
    if total is None or traffic is None:
        raise RuntimeError(f"h2load printed something else:\n{text[-1000:]}")
    done, succeeded, failed, _, timed_out = map(int, total.groups())
    if reply_bytes is not None:
        # An error of gRPC has no message, and 5 bytes come before each that is one.
        right, rest = divmod(int(traffic[1]), reply_bytes + 5)
        succeeded = min(succeeded, right) - bool(rest)
    return max(succeeded, 0), max(done - succeeded, failed) + timed_out


def _python(
    protocol: str,
    address: str,
    path: str,
    file: Path,
    clients: int,
    seconds: float,
    reply_bytes: int | None,
) -> Load:
    command = [sys.executable, "-m", "benchmarks.serving.load", protocol, address, path]
    command += [str(file), "--clients", str(clients), "--seconds", str(seconds)]
    if reply_bytes is not None:
        command += ["--reply-bytes", str(reply_bytes)]
    text, _ = _run(command, seconds)
    return Load(**json.loads(text.splitlines()[-1]))


def _run(command: Sequence[str], seconds: float) -> tuple[str, float]:
    """Run a command; returns what it printed, and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds + _SPARE_SECONDS,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(run.stdout + run.stderr)[-1000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return run.stdout, cpu


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.serving.load")
    made.add_argument("protocol", choices=("grpc", "rest"))
    made.add_argument("address", help="host and port")
    made.add_argument("path", help="of the method")
    made.add_argument("body", type=Path, help="file of it")
    made.add_argument("--clients", type=int, default=1, help="at one time (1)")
    made.add_argument("--seconds", type=float, default=5, help="how long (5)")
    made.add_argument("--reply-bytes", type=int, help="of a right answer of gRPC")
    print(json.dumps(asdict(asyncio.run(_ask(made.parse_args(arguments))))))
    return 0


async def _ask(options: argparse.Namespace) -> Load:
    body = options.body.read_bytes()
    counts = {"done": 0, "errors": 0}
    times: list[float] = []
    client = _grpc_client if options.protocol == "grpc" else _rest_client

    async def work(ask: _Ask, end: float) -> None:
        while (before := time.perf_counter()) < end:
            right = await ask()
            after = time.perf_counter()
            if after > end:
                return  # as h2load: what is under way at the end does not count
            counts["done" if right else "errors"] += 1
            if right:
                times.append(1000 * (after - before))

    async with contextlib.AsyncExitStack() as stack:
        # All have imported and connected before the time begins.
        asks = [
            await stack.enter_async_context(client(options, body, number))
            for number in range(options.clients)
        ]
        cpu, end = time.process_time(), time.perf_counter() + options.seconds
        await asyncio.gather(*(work(ask, end) for ask in asks))
        cpu = time.process_time() - cpu
    done, errors = counts["done"], counts["errors"]
    return Load(done / options.seconds, done, errors, times, cpu, options.seconds)


@contextlib.asynccontextmanager
async def _grpc_client(
    options: argparse.Namespace, body: bytes, number: int
) -> AsyncIterator[_Ask]:
    import grpc

    # Channels of the same options would share a connection.
    own = [("benchmark.client", number)]
    async with grpc.aio.insecure_channel(options.address, options=own) as channel:
        async with asyncio.timeout(_SPARE_SECONDS):
            await channel.channel_ready()
        call = channel.unary_unary(options.path)
        message = body[len(grpc_frame(b"")) :]  # gRPC puts its own prefix before it

        async def ask() -> bool:
            try:
                reply = await call(message, timeout=_SPARE_SECONDS)
            except grpc.aio.AioRpcError:
                return False
            return options.reply_bytes in (None, len(reply))

        yield ask


@contextlib.asynccontextmanager
async def _rest_client(
    options: argparse.Namespace, body: bytes, number: int
) -> AsyncIterator[_Ask]:
    host, _, port = options.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {options.path} HTTP/1.1\r\nHost: {options.address}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body

    async def ask() -> bool:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"\r\ncontent-length: *(\d+)\r\n", head)
        if length is None:
            raise RuntimeError(f"The answer has no length: {head!r}.")
        await reader.readexactly(int(length[1]))
        return head.startswith(b"http/1.1 200 ")

    try:
        yield ask
    finally:
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
