import importlib.machinery
import sys
import types

import pytest

from tfdml.command_parser import CommandParser, command


def parser_of_commands(hints=None):
    parser = CommandParser(prog="shop", hints=hints)
    commands = parser.add_subparsers(required=True)
    for name in ("evaluate", "export"):
        commands.add_parser(name).set_defaults(run_command=print)
    return parser


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("evalute", "There is no command 'evalute'. Did you mean `shop evaluate`?"),
        ("sell", "There is no command 'sell'. `shop --help` lists the commands."),
        ("train", "There is no command 'train'. Use fit."),
        ("x" * 10**5, "`shop --help` lists the commands."),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest(word, told, capsys):
    with pytest.raises(SystemExit) as ended:
        parser_of_commands({"train": "Use fit."}).parse_args([word])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert told in printed
    assert len(printed) < 600


def test_a_missing_command_is_answered_with_the_general_hint(capsys):
    with pytest.raises(SystemExit):
        parser_of_commands({"": "Begin with export."}).parse_args([])
    assert capsys.readouterr().err.endswith("COMMAND. Begin with export.\n")


def test_messages_name_a_command_as_this_process_was_started(monkeypatch):
    assert command("serving", "index build") == "tfdml index build"
    started = types.ModuleType("__main__")
    started.__spec__ = importlib.machinery.ModuleSpec("training.__main__", None)
    monkeypatch.setitem(sys.modules, "__main__", started)
    assert command("serving", "index build") == "python -m serving index build"
