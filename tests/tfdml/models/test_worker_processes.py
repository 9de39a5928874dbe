"""The runner of processes that work together."""

import os
import re

import pytest

from tests.support.worker_processes import run_together


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


NOTE_PID = "import os, sys, time; open(os.environ['NOTE'], 'w').write(str(os.getpid()))"


@pytest.mark.slow
def test_worker_that_hangs_is_named_and_killed(tmp_path):
    code = f"{NOTE_PID}; print('waiting', file=sys.stderr, flush=True); time.sleep(300)"
    files = [tmp_path / name for name in ("a", "b")]
    notes = [{"NOTE": str(file)} for file in files]
    for seconds in (5, 60):
        with pytest.raises(AssertionError) as raised:
            run_together(["-c", code], notes, timeout=seconds)
        if all(file.exists() for file in files):  # else both had not begun by then
            break
    assert re.search(
        rf"Process 0 was not done after {seconds}(.|\n)*wai", str(raised.value)
    )
    assert not any(is_alive(int(file.read_text())) for file in files)


def test_worker_that_fails_ends_the_others_that_wait_for_it(tmp_path):
    code = f"{NOTE_PID}; os.environ['NOTE'][-1] == 'b' and sys.exit('my reason')\n"
    code += "time.sleep(300)"
    files = [tmp_path / name for name in ("a", "b")]
    notes = [{"NOTE": str(file)} for file in files]
    message = r"Process 1 ended with exit code 1(.|\n)*my reason"
    with pytest.raises(AssertionError, match=message):
        run_together(["-c", code], notes)
    assert not any(is_alive(int(file.read_text())) for file in files if file.exists())


def test_output_of_each_worker_comes_back_in_order():
    texts = run_together(
        ["-c", "import os; print('I am', os.environ['ME'])"],
        [{"ME": "first"}, {"ME": "second"}],
    )
    assert texts == ["I am first\n", "I am second\n"]
