"""The benchmark of the endpoint measures what it says."""

import asyncio
import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.serving import __main__ as serving
from benchmarks.serving import soak as serving_soak
from benchmarks.serving import swap as serving_swap
from benchmarks.serving import throughput as serving_throughput
from benchmarks.serving import upgrade as serving_upgrade
from benchmarks.serving.cases import Case, difference
from benchmarks.serving.latency import latency
from benchmarks.serving.load import has_h2load, put_load
from benchmarks.serving.requests import PREDICT
from tests.support.running_server import running

TOOLS = [
    "python",
    pytest.param(
        "h2load",
        marks=pytest.mark.skipif(not has_h2load(), reason="h2load is not installed"),
    ),
]
BODY = b"x" * 30_000


@contextlib.contextmanager
def rest_stub(answer):
    """Serve `answer`, called with each body, at /ask; yields host and port."""

    async def ask(request):
        return await answer(await request.body())

    app = Starlette(routes=[Route("/ask", ask, methods=["POST"])])
    with running(app) as url:
        yield url.removeprefix("http://")


@contextlib.contextmanager
def grpc_stub(answer):
    """Serve `answer`, called with each message and its context; yields the address."""

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            if details.method == PREDICT:
                return grpc.unary_unary_rpc_method_handler(answer)
            return None

    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers([Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("tool", TOOLS)
def test_rest_clients_send_the_body_and_count_each_answer(tool):
    received = []

    async def answer(body):
        received.append(body)
        return Response(b'{"predictions": []}')

    with rest_stub(answer) as address:
        load = put_load(
            "rest", address, "/ask", BODY, clients=3, seconds=0.5, tool=tool
        )
    assert set(received) == {BODY}
    assert load.errors == 0
    # What is under way at the end of the time is answered and not counted.
    assert 0 <= len(received) - load.answers <= 3
    assert load.rate == load.answers / 0.5
    assert len(load.times_ms) == load.answers
    assert all(0 < took < 500 for took in load.times_ms)
    assert load.client_cpu_seconds > 0


@pytest.mark.parametrize("tool", TOOLS)
def test_grpc_clients_send_the_message_and_count_each_answer(tool):
    received = []

    def answer(message, context):
        received.append(message)
        return b"r" * 77

    with grpc_stub(answer) as address:
        load = put_load(
            "grpc",
            address,
            PREDICT,
            BODY,
            clients=3,
            seconds=0.5,
            reply_bytes=77,
            tool=tool,
        )
    assert set(received) == {BODY}
    assert load.errors == 0
    assert load.answers > 0
    assert 0 <= len(received) - load.answers <= 3


@pytest.mark.parametrize("tool", TOOLS)
def test_answers_with_an_error_status_are_errors_and_not_in_the_rate(tool):
    places = iter(range(10**9))

    async def answer(body):
        return Response(b"{}", status_code=503 if next(places) % 3 == 0 else 200)

    with rest_stub(answer) as address:
        load = put_load(
            "rest", address, "/ask", BODY, clients=1, seconds=0.5, tool=tool
        )
    assert load.errors > 0
    assert abs(load.answers - 2 * load.errors) <= 2


@pytest.mark.parametrize("tool", TOOLS)
def test_so_many_clients_ask_at_one_time_and_wait_for_their_answer(tool):
    """The first five are answered when all of them have asked."""
    all_asked = asyncio.Event()
    now, most = 0, 0

    async def answer(body):
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 5:
            all_asked.set()
        await asyncio.wait_for(all_asked.wait(), 5)
        now -= 1
        return Response(b"{}")

    with rest_stub(answer) as address:
        load = put_load(
            "rest", address, "/ask", BODY, clients=5, seconds=0.5, tool=tool
        )
    assert load.errors == 0
    assert load.answers > 5
    assert most == 5


def test_a_percentile_of_few_samples_is_none():
    times = [float(n) for n in range(1000)][::-1]
    assert latency(times) == {"samples": 1000, "p50_ms": 500.0, "p99_ms": 990.0}
    assert latency(times[1:]) == {"samples": 999, "p50_ms": 499.0, "p99_ms": None}
    assert latency([]) == {"samples": 0, "p50_ms": None, "p99_ms": None}


def test_nan_is_never_a_right_embedding():
    right = np.eye(2, 4, dtype=np.float32)
    assert difference(right, right) is None
    assert difference(right + 1e-4, right) is not None
    assert difference(right[0], right) is not None
    one = right.copy()
    one[1, 3] = np.nan
    for wrong in (one, np.full_like(right, np.nan)):
        assert difference(wrong, right) is not None


def test_growth_is_the_rise_of_the_line_of_least_squares():
    times = [10.0, 20.0, 30.0, 40.0]
    assert serving_soak.growth(times, [100.0, 101.0, 102.0, 103.0]) == pytest.approx(
        0.03
    )
    assert serving_soak.growth(times, [5.0] * 4) == pytest.approx(0)
    # The line through 0, 3, 0, 3 above 99: slope 0.6 a step, 99.6 at the first.
    assert serving_soak.growth(times, [99.0, 102.0, 99.0, 102.0]) == pytest.approx(
        3 * 0.6 / 99.6
    )
    assert serving_soak.growth([1.0], [7.0]) == 0


class WatchedServer:
    """What `soak` needs of a server, with memory that grows by a tenth a look."""

    rest_address = grpc_address = "127.0.0.1:1"

    def __init__(self):
        self.looks = 0

    def is_running(self):
        return True

    def resident_bytes(self):
        self.looks += 1
        return 100 + 10 * (self.looks - 1)

    def open_files(self):
        return 7

    def cpu_seconds(self):
        return 1.0


def test_soak_counts_unexpected_answers_and_exceptions_by_kind(tmp_path):
    def fail(clients, draw):
        raise ConnectionResetError("gone")

    good = [Case("right", lambda clients, draw: None), Case("broken", fail)]
    bad = [Case("wrong", lambda clients, draw: "an answer")]
    options = SimpleNamespace(
        minutes=1.5 / 60,
        clients=2,
        bad_share=0.5,
        interval=0.1,
        warm_share=0.0,
        seed=0,
        out=tmp_path / "out.jsonl",
    )
    record = serving_soak.soak(WatchedServer(), good, bad, options, {"device": "d"})
    asked = record["asked_by_kind"]
    assert record["requests"] == sum(asked.values())
    assert record["bad_requests"] == asked["wrong"]
    assert record["unexpected_by_kind"] == {
        "broken": asked["broken"],
        "wrong": asked["wrong"],
    }
    assert asked["right"] > 0
    assert {"broken: ConnectionResetError: gone", "wrong: an answer"} == set(
        record["examples"]
    )
    looks = [json.loads(line) for line in options.out.read_text().splitlines()]
    sizes = [look["resident_bytes"] for look in looks]
    assert sizes[:2] == [100, 110]
    assert record["growth_to_last"] == pytest.approx(sizes[-1] / 100 - 1)
    assert record["growth_of_line"] > 0


def test_an_embedding_of_another_image_or_version_is_a_failure():
    even, odd = np.eye(2, 4, dtype=np.float32), np.eye(2, 4, 2, dtype=np.float32)
    answers = serving_swap.Answers(np.stack([even, odd]))
    answers.newest = 4
    answers.add("rest", 0, even[0])
    answers.add("grpc", 1, odd[1], version=3)
    assert (answers.counts["rest"], answers.counts["grpc"]) == (1, 1)
    assert set(answers.first) == {("rest", 4), ("grpc", 3)}
    answers.add("grpc", 0, even[1], version=4)
    answers.add("grpc", 0, even[0], version=3)
    answers.add("grpc", 0, even[0], version=2)
    assert answers.counts["failed"] == 3
    assert [failure.split(": ")[1][:18] for failure in answers.failures] == [
        "an embedding of no",
        "the embedding is n",
        "version 2 answered",
    ]
    answers.add("rest", 0, np.full(4, np.nan))
    answers.add("rest", 0, even[0][:1])
    assert answers.counts["failed"] == 5


def test_summary_takes_ratios_within_a_round_and_their_median(capsys):
    def floor(kind, number, rate):
        return {
            "server": "floor",
            "floor": kind,
            "clients": 1,
            "round": number,
            "rate": rate,
            "cpu_ms": 4.0,
        }

    def served(number, rate):
        """With 400 times each: the pooled times are 0 to 1199."""
        return {
            "server": "batching",
            "protocol": "grpc",
            "clients": 1,
            "round": number,
            "rate": rate,
            "times_ms": [float(t) for t in range(400 * number, 400 * number + 400)],
            "errors": number,
            "cpu_ms": 5.0,
            "client_share": 0.01,
        }

    records = [{"server": "floor", "floor": "search", "rate": 1.0}]
    for number, (best, one, rate) in enumerate(
        [(100.0, 50.0, 40.0), (200.0, 50.0, 160.0), (100.0, 50.0, 50.0)]
    ):
        records += [floor("best", number, best), floor("batch 1", number, one)]
        records.append(floor("candidate", number, best - 1))
        records.append(floor("batch 1, after a pause", number, one / 2))
        records.append(served(number, rate))
    (row,) = serving_throughput.summary(records)
    assert (row["of_floor_least"], row["of_floor"], row["of_floor_most"]) == (
        0.4,
        0.5,
        0.8,
    )
    assert (row["of_batch_1"], row["of_batch_1_paused"]) == (1.0, 2.0)
    assert (row["samples"], row["p50_ms"], row["p99_ms"]) == (1200, 600.0, 1188.0)
    assert row["of_floor_by_cpu"] == 0.8
    assert row["errors"] == 3
    printed = capsys.readouterr().out
    assert "50.0 one by one, 25.0 one by one after a pause" in printed
    assert (
        "| grpc, batching | 1 | 50.0 | "
        "50% (100% of one by one, 200% of one by one after a pause) | "
        "40% to 80% | 80% | 1200 | 600.0 | 1188.0 | 3 |"
    ) in printed


def records_of(out):
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


@pytest.mark.full
def test_throughput_is_measured_beside_its_floor(tmp_path):
    out = tmp_path / "out.jsonl"
    few = ["--models", "demo", "--servers", "batching", "--clients", "2"]
    few += ["--rounds", "1", "--seconds", "0.5", "--batches", "1", "4"]
    assert serving.main(["throughput", *few, "--out", str(out)]) == 0
    records = records_of(out)
    searched = [r for r in records if r.get("floor") == "search"]
    tried = sorted(searched, key=lambda r: -r["rate"])[:3]
    (floor,) = [r for r in records if r.get("floor") == "best"]
    others = [r for r in records if r.get("floor") == "candidate"]
    assert len(searched) == 2 * len({1, 2, os.cpu_count()})
    assert {(r["batch"], r["threads"]) for r in [floor, *others]} == {
        (r["batch"], r["threads"]) for r in tried
    }
    assert floor["rate"] == max(r["rate"] for r in [floor, *others])
    rows = [r for r in records if r["benchmark"] == "serving_throughput_summary"]
    served = {r["protocol"]: r for r in records if r.get("server") == "batching"}
    assert {row["protocol"] for row in rows} == {"grpc", "rest"} == set(served)
    for row in rows:
        assert row["errors"] == 0
        assert row["of_floor"] == pytest.approx(row["rate"] / floor["rate"])
        assert row["cpu_ms"] > 0
        assert 0 < row["client_share"] < 1
        assert row["samples"] > 0
    assert not any("times_ms" in record for record in records)


@pytest.mark.full
def test_every_answer_of_the_soak_is_the_expected_one(tmp_path):
    out = tmp_path / "out.jsonl"
    short = ["--minutes", "0.15", "--interval", "1", "--bad-share", "0.5"]
    assert serving.main(["soak", *short, "--out", str(out)]) == 0
    *looks, whole = records_of(out)
    assert whole["examples"] == []
    assert whole["unexpected"] == 0
    assert whole["requests"] > whole["bad_requests"] > 0
    assert whole["exit_status"] == 0
    assert {look["benchmark"] for look in looks} == {"serving_soak_look"}
    assert min(look["resident_bytes"] for look in looks) > 2**20


@pytest.mark.full
def test_new_versions_answer_and_no_request_fails(tmp_path):
    out = tmp_path / "out.jsonl"
    short = ["--seconds", "21", "--every", "7", "--clients", "2"]
    assert serving.main(["swap", *short, "--out", str(out)]) == 0
    whole = records_of(out)[-1]
    assert whole["failures"] == []
    assert (whole["swaps"], whole["missed"], whole["failed"]) == (2, 0, 0)
    assert len(whole["grpc_seconds"]) == len(whole["rest_seconds"]) == 2


@pytest.mark.full
def test_a_killed_server_is_started_again_and_answers(tmp_path):
    out = tmp_path / "out.jsonl"
    assert serving.main(["restart", "--times", "1", "--out", str(out)]) == 0
    record, parts = records_of(out)
    assert record["wrong"] == []
    assert record["unit_pause_seconds"] == 1.0
    assert 0 <= record["started_seconds"] < record["rest_status_seconds"]
    assert record["grpc_status_seconds"] <= record["grpc_predict_seconds"]
    assert any("AVAILABLE" in line.upper() for _, line in record["lines"])
    assert min(parts[part] for part in ("import", "load", "warm_up")) > 0


def test_an_answer_of_one_model_and_the_index_of_another_is_mixed():
    expected = {1: [(["a", "b"], [1.0, 0.5])], 2: [(["a", "c"], [1.0, 0.7])]}
    answers = serving_upgrade.Answers(expected)

    def reply(version, *hits):
        found = [{"id": id_, "similarity": score} for id_, score in hits]
        return {"model_version": version, "hits": found}

    answers.add(0, reply(1, ("a", 1.0), ("b", 0.50001)))
    answers.add(0, reply(2, ("a", 1.0), ("c", 0.7)))
    assert answers.version == 2
    answers.add(0, reply(2, ("a", 1.0), ("b", 0.5)))  # the index of the other
    answers.add(0, reply(1, ("a", 0.9), ("b", 0.5)))  # the model of the other
    answers.add(0, reply(1, ("a", 1.0)))
    answers.fail(OSError("gone"))
    assert answers.counts == {"answers": 2, "mixed": 3, "failed": 1}
