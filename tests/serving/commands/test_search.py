"""`python -m serving search` and `page`, and the command line as a whole."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from serving.__main__ import _parser, main
from serving.client import Credentials
from tests.support.search_fixtures import (
    PURE,
    SHADES,
    write_color_model,
    write_image,
)
from tests.support.serving_commands import (
    EVERY,
    lines_of_table,
    model_of,
)

ROOT = Path(__file__).parents[3]


def color_of(id_):
    """The color that `write_gallery_images` gives to an image."""
    name, _, shade = id_.removesuffix(".png").partition("/")
    return [max(channel, SHADES[shade]) for channel in PURE[name]]


def nearest_by_definition(color, ids=EVERY):
    """All ids by the cosine of their colors with one: the model's own definition."""
    rows = np.array([color_of(id_) for id_ in ids], dtype=np.float64)
    query = np.array(color, dtype=np.float64)
    cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    order = np.argsort(-cosines)
    return [ids[row] for row in order], cosines[order]


# search


def test_search_prints_the_nearest_images_first(built, run):
    image = write_image(built / "query.png", (250, 30, 10))
    code, out, err = run(
        "search", image, "--index", built / "index", *model_of(built), "-k", "4"
    )
    assert (code, err) == (0, "")
    ids, cosines = nearest_by_definition((250, 30, 10))
    assert out.splitlines()[0] == str(image)
    expected = [
        [f"{cosine:.4f}", id_.partition("/")[0], id_]
        for id_, cosine in zip(ids[:4], cosines, strict=False)
    ]
    assert lines_of_table(out) == expected


def test_query_is_moved_toward_its_nearest_images(built, run, run_json):
    image = write_image(built / "query.png", (250, 30, 10))
    asked = ["search", image, "--index", built / "index", *model_of(built), "-k", "9"]
    document = run_json(*asked, "--expand", "2")
    ids, cosines = nearest_by_definition((250, 30, 10))
    rows = np.array([(250, 30, 10), *map(color_of, ids[:2])], dtype=np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    moved = rows[0] + cosines[:2] ** 3 @ rows[1:]
    _, expected = nearest_by_definition(moved)
    (result,) = document["results"]
    np.testing.assert_allclose(
        [hit["similarity"] for hit in result["hits"]], expected, atol=1e-5
    )
    code, _, err = run(*asked, "--expand", "-1")
    assert code == 1
    assert "--expand must be at least 0" in err


@pytest.mark.parametrize("expand", [0, 2])
def test_images_together_and_negatives_are_combined(built, run, run_json, expand):
    colors = {"a.png": (250, 30, 10), "b.png": (200, 220, 0), "c.png": (10, 10, 240)}
    files = [write_image(built / name, color) for name, color in colors.items()]
    rows = np.array(list(colors.values()), dtype=np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    asked = ["search", *files[:2], "--index", built / "index", *model_of(built)]
    asked += ["-k", "9", "--expand", expand, "--not-like", files[2]]

    def expected(query):
        ids, cosines = nearest_by_definition(query)
        if expand:
            near = np.array([color_of(id_) for id_ in ids[:expand]], dtype=np.float64)
            near /= np.linalg.norm(near, axis=1, keepdims=True)
            query = query / np.linalg.norm(query) + cosines[:expand] ** 3 @ near
            ids, cosines = nearest_by_definition(query)
        return dict(zip(ids, cosines, strict=True))

    def check(result, query, names):
        assert result["queries"] == [str(file) for file in names]
        assert result["negatives"] == [str(files[2])]
        found = {hit["id"]: hit["similarity"] for hit in result["hits"]}
        assert found == pytest.approx(expected(query), abs=1e-5)

    together = [*asked, "--together", "--negative-weight", "0.3"]
    (result,) = run_json(*together)["results"]
    check(result, rows[:2].mean(axis=0) - 0.3 * rows[2], files[:2])
    assert result["query"] is None
    each = run_json(*asked)["results"]
    for result, file, row in zip(each, files[:2], rows[:2], strict=True):
        check(result, row - 0.5 * rows[2], [file])
        assert result["query"] == str(file)
    code, out, _ = run(*together)
    assert code == 0
    assert out.splitlines()[0] == f"{files[0]}, {files[1]}, not like {files[2]}"


def test_broken_image_among_several_is_named(built, run):
    good = write_image(built / "good.png", (250, 30, 10))
    broken = built / "broken.png"
    broken.write_bytes(b"no image")
    rest = ["--index", built / "index", *model_of(built)]
    for words in (
        ["search", good, broken, "--together"],
        ["search", good, "--not-like", broken],
    ):
        code, _, err = run(*words, *rest)
        assert code == 1
        assert f"'{broken}': This file cannot be read" in err
    code, _, err = run("search", good, "--not-like", built / "nowhere.png", *rest)
    assert code == 1
    assert "nowhere.png' is gone" in err
    crop = ["--together", "--crop", "0,0,1,1"]
    code, _, err = run("search", good, good, *crop, *rest)
    assert code == 1
    assert "--crop must not be given with --text, or several images" in err


def test_json_of_a_search_has_the_same_hits(built, run_json):
    image = write_image(built / "query.png", (250, 30, 10))
    document = run_json(
        "search", image, "--index", built / "index", *model_of(built), "-k", "9"
    )
    assert document.keys() == {"index", "k", "results"}
    (result,) = document["results"]
    ids, cosines = nearest_by_definition((250, 30, 10))
    assert result.keys() == {"query", "hits"}
    assert result["query"] == str(image)
    assert [hit["id"] for hit in result["hits"]] == ids
    np.testing.assert_allclose(
        [hit["similarity"] for hit in result["hits"]], cosines, atol=1e-5
    )
    assert result["hits"][0]["class"] == "red"
    assert result["hits"][0]["attributes"] == {}


def test_an_endpoint_answers_as_the_model_in_this_process(built, colors_url, run_json):
    images = [
        write_image(built / f"{number}.png", color)
        for number, color in enumerate([(250, 30, 10), (10, 90, 200)])
    ]
    command = ["search", *images, "--index", built / "index"]
    local = run_json(*command, *model_of(built))
    remote = run_json(*command, "--endpoint", colors_url)
    assert [r["query"] for r in local["results"]] == list(map(str, images))
    for one, other in zip(local["results"], remote["results"], strict=True):
        assert [h["id"] for h in one["hits"]] == [h["id"] for h in other["hits"]]
        np.testing.assert_allclose(
            [h["similarity"] for h in one["hits"]],
            [h["similarity"] for h in other["hits"]],
            atol=1e-3,
        )


def test_filter_and_exclusions_decide_what_may_be_found(built, run_json):
    image = write_image(built / "query.png", (250, 30, 10))
    command = ["search", image, "--index", built / "index", *model_of(built)]
    where = '{"class": ["red", "blue"]}'
    excluded = ["--exclude", "red/clear.png", "--exclude", "nothing/of/the/kind.png"]
    found = run_json(*command, "--where", where, *excluded)
    left = [
        id_ for id_ in EVERY if not id_.startswith("green") and id_ != "red/clear.png"
    ]
    ids = [hit["id"] for hit in found["results"][0]["hits"]]
    assert ids == nearest_by_definition((250, 30, 10), left)[0]


def test_search_that_leaves_nothing_says_so(built, run, run_json):
    image = write_image(built / "query.png", (250, 30, 10))
    command = ["search", image, "--index", built / "index", *model_of(built)]
    command += ["--where", '{"class": "yellow"}']
    code, out, _ = run(*command)
    assert code == 0
    assert "There are no images left to find." in out
    assert run_json(*command)["results"][0]["hits"] == []


def test_crop_searches_with_a_part_of_the_image(built, run_json):
    image = built / "halves.png"
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = PURE["green"]
    pixels[:, 20:] = PURE["blue"]
    Image.fromarray(pixels).save(image)
    command = ["search", image, "--index", built / "index", *model_of(built)]
    for crop, expected in (("0,0,0.5,1", "green"), ("0.5,0,0.5,1", "blue")):
        (result,) = run_json(*command, "-k", "1", "--crop", crop)["results"]
        assert result["hits"][0]["id"] == f"{expected}/clear.png"
        assert result["hits"][0]["similarity"] == pytest.approx(1, abs=1e-5)


def test_image_may_come_from_the_standard_input(built, monkeypatch, run_json):
    image = write_image(built / "query.bmp", (10, 10, 250))
    stdin = io.TextIOWrapper(io.BytesIO(image.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    command = ["search", "-", "--index", built / "index", *model_of(built), "-k", "1"]
    (result,) = run_json(*command)["results"]
    assert result["query"] == "-"
    assert result["hits"][0]["class"] == "blue"


@pytest.mark.parametrize(
    ("color", "is_match"), [((255, 0, 0), True), ((200, 200, 0), False)]
)
def test_calibrated_search_says_whether_there_is_a_match(
    built, calibrated, color, is_match, run, run_json
):
    image = write_image(built / "query.png", color)
    command = ["search", image, "--index", calibrated, *model_of(built), "-k", "9"]
    _, cosines = nearest_by_definition(color)
    assert bool(cosines[0] >= 0.9) is is_match
    (result,) = run_json(*command)["results"]
    assert result["match"] is is_match
    assert result["threshold"] == 0.9
    assert result["recall_at_threshold"] == 0.8
    assert [hit["match"] for hit in result["hits"]] == (cosines >= 0.9).tolist()
    _, out, _ = run(*command)
    assert ("no match" in out.splitlines()[0]) is not is_match
    meaning = "at which 80% of the queries that have a match get it"
    assert (meaning in out.splitlines()[0]) is not is_match
    words = ["yes" if cosine >= 0.9 else "no" for cosine in cosines]
    assert [row[1] for row in lines_of_table(out)] == words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--where", "class=red"], "--where must be JSON"),
        (["--where", '["red"]'], "must be an object of conditions"),
        (["--where", '{"price": 3}'], "must name attributes of the index"),
        (["--crop", "0,0,1"], "must be four numbers"),
        (["--crop", "0,0,2,1"], "inside it"),
        (["--crop", "left"], "--crop must be X,Y,WIDTH,HEIGHT"),
        (["-k", "0"], "`k` must be"),
        (
            ["--negative-weight", "1"],
            "--negative-weight must be at least 0 and below 1",
        ),
        (["--negative-weight", "nan"], "--negative-weight must be at least 0"),
        (["--not-like", "-", "--not-like", "-"], "can be given only once"),
    ],
)
def test_wrong_option_of_a_search_is_one_line(built, options, message, run):
    image = write_image(built / "query.png", (250, 30, 10))
    code, out, err = run(
        "search", image, "--index", built / "index", *model_of(built), *options
    )
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err


def test_search_without_an_image_or_a_text_tower_is_refused(built, run):
    rest = ["--index", built / "index", *model_of(built)]
    assert "Name an image to search with" in run("search", *rest)[2]
    assert "--text must not be empty" in run("search", "--text", " ", *rest)[2]
    code, _, err = run("search", "--text", "red", *rest)
    assert code == 1
    assert "`text` needs a model with a text tower" in err


def test_broken_and_missing_images_are_named(built, run):
    broken = built / "broken.png"
    broken.write_bytes(b"no image")
    rest = ["--index", built / "index", *model_of(built)]
    assert "broken.png" in run("search", broken, *rest)[2]
    code, _, err = run("search", built / "nowhere.png", *rest)
    assert code == 1
    assert "nowhere.png" in err


def test_an_image_of_any_format_that_is_indexed_is_added_too(built, tmp_path, run_json):
    shutil.copytree(built / "index", tmp_path / "index")
    write_image(tmp_path / "more" / "blue" / "a.ppm", (0, 0, 255))
    added = run_json(
        "index", "add", tmp_path / "index", tmp_path / "more", *model_of(built)
    )
    assert (added["added"], added["skipped"]) == (1, [])
    (stored,) = (tmp_path / "index" / "pictures").iterdir()
    assert stored.read_bytes() == (tmp_path / "more" / "blue" / "a.ppm").read_bytes()


def test_another_model_is_refused(built, tmp_path, run):
    image = write_image(built / "query.png", (250, 30, 10))
    write_color_model(tmp_path / "colors" / "1", tint=(1, 2, 3))
    code, _, err = run(
        "search", image, "--index", built / "index", "--model", tmp_path / "colors"
    )
    assert code == 1
    assert "model" in err


# page


def test_options_of_the_page_reach_it(tmp_path, monkeypatch, run):
    calls = []
    monkeypatch.setattr(
        "serving.search.app.app.run", lambda *a, **k: calls.append((a, k))
    )
    monkeypatch.setattr("serving.web.log.configure", lambda *a: calls.append(a))
    for name, token in (("own", "0123456789abcdef"), ("its", "fedcba9876543210")):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    words = [
        "page",
        "a",
        "--endpoint",
        "grpcs://h/m",
        "--images",
        "there",
        "--editable",
    ]
    words += [
        "--endpoint-token-file",
        tmp_path / "its",
        "--token-file",
        tmp_path / "own",
    ]
    words += ["--compare", "b", "--compare-endpoint", "grpcs://h/n", "--port", "7"]
    assert run(*words, "--log-format", "json")[0] == 0
    (log_format,), (where, options) = calls
    assert log_format == "json"
    assert where == ("a", "grpcs://h/m")
    assert options["credentials"] == Credentials("fedcba9876543210")
    options["access"].check("Bearer 0123456789abcdef")
    assert options["compare"] == "b"
    assert options["compare_endpoint"] == "grpcs://h/n"
    assert options["editable"]
    assert not options["allow_url"]
    assert options["tls"] is None
    assert (options["host"], options["port"]) == ("127.0.0.1", 7)


# The command line as a whole


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["index", "photos", "indexes/a", "--model", "m"], "index build IMAGES INDEX"),
        (["index"], "index build IMAGES INDEX"),
        (["merge", "indexes/a", "shards/1"], "index merge INDEX SHARD"),
        (["search", str(ROOT), "--endpoint", "http://h/v1/models/m"], "page INDEX"),
    ],
)
def test_a_command_of_before_is_reported_of_the_new_one(words, remedy, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"`tfdml {remedy}" in capsys.readouterr().err


def test_other_wrong_words_get_no_hint(capsys):
    with pytest.raises(SystemExit):
        main(["tidy"])
    assert "merge" not in capsys.readouterr().err


def commands_of(parser, path=()):
    """Every command and each below it, as the words that name it."""
    yield path
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, child in action.choices.items():
                yield from commands_of(child, (*path, name))


def test_help_of_no_command_waits_for_a_slow_import():
    commands = [[*path, "--help"] for path in commands_of(_parser())]
    assert ["index", "verify", "--help"] in commands
    program = f"""
import sys
from serving.__main__ import main
for words in {commands!r}:
    try:
        main(words)
    except SystemExit as ended:
        assert ended.code == 0
slow = {{"tensorflow", "keras", "scann", "numpy", "PIL", "starlette", "sklearn"}}
print(sorted(slow & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == "[]\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_goes_to_a_terminal_alone_and_not_beside_json(built):
    import pty
    import termios

    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    command = ["index", "duplicates", str(built / "index")]
    program = f"""
import sys
from serving.__main__ import main
assert main({[*command, "--json"]!r}) == 0
print("first", file=sys.stderr)
assert main({command!r}) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.DEVNULL,
        stderr=writing,
        cwd=ROOT,
    )
    os.close(writing)
    shown = b""
    try:
        while chunk := os.read(reading, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(reading)
    assert done.returncode == 0, shown
    with_json, without = shown.split(b"first")
    assert b"comparing" not in with_json
    assert b"comparing" in without
