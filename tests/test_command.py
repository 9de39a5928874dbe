"""The command `tfdml`, which holds those of training and of serving."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import serving.__main__
import training.__main__
from tfdml.__main__ import _parser, main

ROOT = Path(__file__).parents[1]


def words_of(parser):
    (commands,) = (a.choices for a in parser._actions if isinstance(a.choices, dict))
    return set(commands)


def test_it_has_every_command_of_the_applications():
    of_training = words_of(training.__main__._parser())
    of_serving = words_of(serving.__main__._parser())
    assert words_of(_parser()) == of_training | of_serving
    assert not of_training & of_serving
    assert {"fit", "evaluate"} <= of_training
    assert {"export", "serve", "index", "search", "page"} <= of_serving


def test_the_endpoint_is_served_by_its_old_word_too():
    old, new = (
        vars(_parser().parse_args([word, "--model-base-path", "m"]))
        for word in ("run", "serve")
    )
    assert old == new


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["evalute"], "Did you mean `tfdml evaluate`?"),
        (["index", "bild"], "Did you mean `tfdml index build`?"),
        (["train"], "An embedder is trained by `tfdml fit`."),
        (["merge"], "Shards are merged by `tfdml index merge INDEX SHARD ...`."),
        ([], "usage: tfdml "),
    ],
)
def test_a_wrong_word_is_answered_with_the_right_one(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("tfdml ")


def run_elsewhere(folder, *command, **environment):
    """Run Python where this checkout is not the working folder."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_help_of_everything_waits_for_no_slow_import(tmp_path):
    code = (
        "import sys\n"
        "from tfdml.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "slow = {'keras', 'numpy', 'tensorflow', 'scann', 'PIL', 'starlette'}\n"
        "sys.exit(str(slow & set(sys.modules)) if slow & set(sys.modules) else 0)\n"
    )
    done = run_elsewhere(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "find the images nearest to an image" in done.stdout


def test_a_module_is_named_as_it_was_started(tmp_path):
    done = run_elsewhere(tmp_path, "-m", "tfdml", "fit")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m tfdml fit ")


def test_a_shell_completes_commands(tmp_path):
    pytest.importorskip("argcomplete")
    line = "tfdml eva"
    done = run_elsewhere(
        tmp_path,
        "-c",
        "import os, sys; os.dup2(1, 8); from tfdml.__main__ import main; main()",
        _ARGCOMPLETE="1",
        _ARGCOMPLETE_IFS="\n",
        COMP_LINE=line,
        COMP_POINT=str(len(line)),
        COMP_TYPE="9",
    )
    assert "evaluate" in done.stdout
