import argparse
import errno
import logging
import os
import re
import signal
import subprocess
import sys
import warnings

import pytest

from tests.support.small_images import write_shapes
from tests.support.training_runs import RECIPE
from tfdml.command_line import run_command
from tfdml.messages import LONGEST
from tfdml.quiet import VERBOSE


def parser_that(action):
    def run(parsed):
        if action is not None:
            raise action

    parser = argparse.ArgumentParser()
    parser.set_defaults(run_command=run)
    return parser


@pytest.mark.parametrize(
    ("action", "code", "printed"),
    [
        (None, 0, ""),
        (ValueError("`k` must be 1."), 1, "error: `k` must be 1.\n"),
        (FileNotFoundError("no x.png"), 1, "error: no x.png\n"),
        (MemoryError(), 1, "error: MemoryError\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_becomes_one_line_and_an_exit_code(action, code, printed, capsys):
    assert run_command(parser_that(action), []) == code
    assert capsys.readouterr().err == printed


def test_an_error_is_short_and_printable_whatever_a_file_holds(capsys):
    long = ValueError("`k` must be 1.\n\x1b[31m" + "x" * 10**6 + " Give 1.")
    assert run_command(parser_that(long), []) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: `k` must be 1.\n\\x1b[31mxxx")
    assert printed.endswith("xxx Give 1.\n")
    assert len(printed) <= len("error: ") + LONGEST + 1


def test_a_full_disk_is_told_with_what_to_do(capsys):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "data/" + "x" * 1000)
    assert run_command(parser_that(full), []) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: The disk is full: there is no room for data/xxx")
    assert printed.endswith("x. Make room on it, and run the command again.\n")
    assert len(printed) <= LONGEST
    # What a library of others writes may have no name.
    run_command(parser_that(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), [])
    assert "no room for what the command writes. " in capsys.readouterr().err
    run_command(parser_that(OSError(errno.ENOSPC, "Nothing is lost", "state")), [])
    assert "Nothing is lost: 'state'" in capsys.readouterr().err


@pytest.mark.parametrize("bug", [ZeroDivisionError, TypeError, KeyError])
def test_a_bug_keeps_its_traceback(bug):
    with pytest.raises(bug):
        run_command(parser_that(bug()), [])


def test_a_missing_package_is_one_line(capsys):
    error = ModuleNotFoundError("No module named 'scann'.", name="scann")
    assert run_command(parser_that(error), []) == 1
    assert capsys.readouterr().err == "error: No module named 'scann'.\n"


def test_a_missing_file_of_ours_keeps_its_traceback():
    with pytest.raises(ModuleNotFoundError):
        run_command(parser_that(ModuleNotFoundError("x", name="serving.x")), [])


def warn_of(name):
    """Warn from a module of that name."""
    code = "import warnings\nwarnings.warn('`k` is\\nlarge.', stacklevel=2)"
    exec(code, {"__name__": name})  # noqa: S102


def parser_that_warns(module):
    def run(parsed):
        warn_of(module)
        logging.getLogger("absl").warning("of absl")

    parser = argparse.ArgumentParser()
    parser.set_defaults(run_command=run)
    return parser


@pytest.mark.parametrize(
    ("module", "verbose", "printed"),
    [
        ("tfdml.losses._base", "", "warning: `k` is\nlarge.\n"),
        ("training.run.fit", "0", "warning: `k` is\nlarge.\n"),
        ("keras.src.models", "", ""),
    ],
)
def test_warnings_of_other_libraries_are_hidden(
    module, verbose, printed, capsys, monkeypatch
):
    monkeypatch.setenv(VERBOSE, verbose)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run_command(parser_that_warns(module), []) == 0
    assert capsys.readouterr().err == printed


def test_warnings_of_other_libraries_are_shown_when_asked_for(monkeypatch, caplog):
    monkeypatch.setenv(VERBOSE, "1")
    with pytest.warns(UserWarning, match="large"):
        assert run_command(parser_that_warns("keras.src.models"), []) == 0
    assert caplog.messages == ["of absl"]


def test_a_command_leaves_warnings_as_they_were():
    level, shown = logging.getLogger("keras").level, warnings.showwarning
    assert run_command(parser_that(None), []) == 0
    assert (logging.getLogger("keras").level, warnings.showwarning) == (level, shown)


NATIVE = """
import argparse, os, sys
from tfdml.command_line import run_command

LINES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written",
    "I0000 00:00:1796049424.222959   18636 device_compiler.h:196] Compiled cluster",
    "E0000 00:00:1796049424.222959   18636 cuda_executor.cc:1] no GPU",
    "2026-11-30 13:49:44.805929: E external/xla/cuda_platform.cc:51] failed call",
    "2026-11-30 13:49:44.805929: W bfc_allocator.cc:1] Allocator ran out of memory",
    "2026-11-30 13:49:44.805929: W gpu_device.cc:1] Cannot dlopen some GPU libraries",
    "a line of a library of the system",
    "F0000 00:00:1796049424.222959   18636 bfc.cc:1] Check failed: fatal",
]

def run(parsed):
    print("of the command", file=sys.stderr)
    for line in LINES:
        os.write(2, (line + chr(10)).encode())
    if ENDS == "error":
        raise ValueError("wrong")
    if ENDS == "abort":
        os.abort()

parser = argparse.ArgumentParser()
parser.set_defaults(run_command=run, job="try")
code = run_command(parser, [])
print("after", file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the lines are not filtered there")
@pytest.mark.parametrize(
    ("ends", "verbose", "count"),
    [("well", "", 4), ("error", "", 4), ("abort", "", 4), ("well", "1", 8)],
)
def test_lines_that_libraries_write_themselves_are_filtered(ends, verbose, count):
    program = NATIVE.replace("ENDS", repr(ends))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, VERBOSE: verbose, "PYTHONPATH": os.path.abspath(os.curdir)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == {"well": 0, "error": 1, "abort": -signal.SIGABRT}[ends]
    lines = done.stderr.splitlines()
    kept = [
        line for line in lines if re.search("memory|dlopen|system|Check failed", line)
    ]
    assert len(kept) == 4
    own = ["of the command"]
    own += {"well": ["after"], "error": ["error: wrong", "after"], "abort": []}[ends]
    assert [line for line in lines if line in own] == own
    if ends != "abort":  # whose trace may follow
        assert len(lines) == count + len(own)


IMPORTS = """
import os, sys
from tfdml.quiet import quiet_imports

with quiet_imports():
    os.write(2, b"I0000 00:00:1796049424.222959   18636 port.cc:153] oneDNN" + b"\\n")
    print("of the server", file=sys.stderr)
os.write(2, b"E0000 00:00:1796049424.222959   18636 later.cc:1] error" + b"\\n")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the lines are not filtered there")
@pytest.mark.parametrize(("verbose", "count"), [("", 2), ("1", 3)])
def test_lines_of_imports_alone_are_filtered_in_a_server(verbose, count):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        env={**os.environ, VERBOSE: verbose, "PYTHONPATH": os.path.abspath(os.curdir)},
        capture_output=True,
        text=True,
    )
    lines = done.stderr.splitlines()
    assert len(lines) == count
    assert "of the server" in lines
    assert "later.cc" in lines[-1]


JOBS = {"loading", "fit", "read", "reading raw pixels", "embedding", "training"}
JOBS |= {"epoch 1/2", "epoch 2/2", "export", "index build", "building the index"}


@pytest.mark.slow
def test_commands_into_files_print_nothing_of_other_libraries(tmp_path):
    """The machine of this test may have no GPU, of which TensorFlow would warn."""
    write_shapes(tmp_path / "images", classes=10, images_per_class=4)
    recipe = RECIPE.format(images=tmp_path / "images")
    # XLA says when it has compiled.
    recipe = recipe.replace("jit_compile = false", "jit_compile = true")
    (tmp_path / "recipe.toml").write_text(recipe)
    model = tmp_path / "models" / "m"
    commands = [
        ("training", "fit", "recipe.toml", "--run", "run"),
        ("serving", "export", "run", str(model / "1")),
        ("serving", "index", "build", "images", "index", "--model", str(model)),
        ("serving", "export", "run", "model.onnx", "--format", "onnx"),
        ("serving", "export", "run", "model.tflite", "--format", "litert"),
    ]
    program = f"""
import importlib
for application, *words in {commands!r}:
    assert importlib.import_module(application + ".__main__").main(words) == 0
"""
    hidden = ("TF_CPP_MIN_LOG_LEVEL", "PYTHONWARNINGS", VERBOSE)
    variables = {k: v for k, v in os.environ.items() if k not in hidden}
    root = os.path.abspath(os.curdir)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**variables, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.partition(":")[0] not in JOBS] == []
    assert "Epoch 2/2" in done.stdout
