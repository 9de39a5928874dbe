import threading
import time

import pytest

from serving.web.image_memory import ImageMemory
from serving.web.memory_limit import (
    default_image_bytes,
    default_message_bytes,
    memory_limit,
)
from serving.web.status import StatusCode, StatusError

LONG = 60.0


def started(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_images_within_the_budget_are_decoded_at_one_time():
    memory = ImageMemory(100)
    with memory.hold(40, LONG), memory.hold(60, LONG), memory.hold(0, LONG):
        pass


def test_image_beyond_the_budget_waits_for_one_that_ends():
    memory = ImageMemory(100)
    has_memory = threading.Event()

    def wait():
        with memory.hold(41, LONG):
            has_memory.set()

    memory.take(60, LONG)
    thread = started(wait)
    assert not has_memory.wait(0.05)
    memory.give_back(60)
    thread.join(LONG)
    assert has_memory.is_set()


def test_large_image_that_waits_goes_before_small_ones_that_came_later():
    memory = ImageMemory(100)
    order = []
    memory.take(60, LONG)

    def take(size):
        memory.take(size, LONG)
        order.append(size)

    threads = []
    for size in (90, 20):
        threads.append(started(lambda size=size: take(size)))
        until(lambda: len(memory._waiting) == len(threads))
    memory.give_back(60)
    threads[0].join(LONG)
    assert order == [90]
    memory.give_back(90)
    threads[1].join(LONG)
    assert order == [90, 20]


def test_image_above_the_whole_budget_is_refused_at_once():
    memory = ImageMemory(100_000_000)
    with pytest.raises(StatusError) as refused:
        memory.take(100_000_001, LONG)
    assert refused.value.code == StatusCode.INVALID_ARGUMENT
    assert str(refused.value) == (
        "The image needs 101 MB of memory to be decoded; this service has 100 MB for "
        "it. Send a smaller image; or give the service more memory, or more of it to "
        "this by `--image-memory-bytes`."
    )


def test_wait_that_takes_too_long_ends_and_lets_others_pass():
    memory = ImageMemory(100)
    memory.take(60, LONG)
    with pytest.raises(StatusError) as refused:
        memory.take(90, 0.0)
    assert refused.value.code == StatusCode.UNAVAILABLE
    memory.take(40, 0.0)


def test_budget_is_given_back_after_an_error():
    memory = ImageMemory(100)
    with pytest.raises(KeyError), memory.hold(100, LONG):
        raise KeyError
    memory.take(100, 0.0)


def test_budget_below_1_is_refused():
    with pytest.raises(ValueError, match="`most_bytes` must be at least 1"):
        ImageMemory(0)


def test_whole_budget_is_handed_out_once_to_many_threads():
    memory = ImageMemory(10)
    held, most = 0, 0
    lock = threading.Lock()

    def work(size):
        nonlocal held, most
        for _ in range(50):
            with memory.hold(size, LONG):
                with lock:
                    held += size
                    most = max(most, held)
                with lock:
                    held -= size

    threads = [started(lambda size=size: work(size)) for size in (1, 3, 4, 7, 10)]
    for thread in threads:
        thread.join(LONG)
    assert (held, memory._held) == (0, 0)
    assert 7 <= most <= 10


def test_memory_limit_is_at_most_that_of_the_machine():
    assert 2**20 < memory_limit() < 2**50


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/\n", {"memory.max": "1048576"}),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "1048576"}),
        ("0::/docker/1f\n", {"memory.max": "1048576"}),
        ("0::/../../outside\n", {"memory.max": "1048576"}),
        (
            "4:cpu,memory:/a\n0::/\n",
            {
                "memory/a/memory.limit_in_bytes": "1048576",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
        ),
    ],
)
def test_limit_of_the_container_is_found(tmp_path, groups, files):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert memory_limit(tmp_path) == 2**20
    # This process has more than that in use already.
    assert default_image_bytes(tmp_path) == 64 * 2**20


def test_machine_without_control_groups_has_its_own_limit(tmp_path):
    limit = memory_limit(tmp_path)
    assert 64 * 2**20 <= default_image_bytes(tmp_path) <= limit / 2
    assert 64 * 2**20 <= default_message_bytes(tmp_path) <= limit / 4
