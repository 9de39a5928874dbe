"""Every code block of the documentation runs, and every command in it exists."""

import doctest
import importlib
import operator
import pkgutil
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import serving.__main__
import tfdml
import tfdml.__main__
import training.__main__
from benchmarks.data_sets import __main__ as data_sets
from benchmarks.papers import __main__ as papers
from tests.support.autodiff import value_and_gradient
from tests.support.docs_script import docs_script
from tests.support.running_grpc import running_grpc
from tests.support.running_server import running
from tests.support.search_fixtures import endpoint_of, write_color_model, write_image
from tests.support.served import load_servable
from tfdml.losses import LogRatioLoss

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
# What measured the losses, and is reported and drawn in these pages.
RECORDS = ROOT / "docs" / "records"
RESULTS = [
    [str(RECORDS / "results" / f"{name}.jsonl") for name in names]
    for names in (
        ("emoji", "furniture", "pose"),
        ("losses",),
        ("headline",),
        ("recent",),
    )
]
MODULES = sorted(m.name for m in pkgutil.walk_packages(tfdml.__path__, "tfdml."))
pages = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: str(page.relative_to(ROOT))
)


def blocks(page, language):
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pages
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(page, "python"))
    # The applications are inside the installed package, and beside it in a checkout.
    code = re.sub(r"^from tfdml\.(serving|training)\b", r"from \1", code, flags=re.M)
    if "127.0.0.1:8501" not in code:
        exec(compile(code, page.name, "exec"), {"__name__": "docs"})  # noqa: S102
        return
    write_color_model(tmp_path / "demo" / "1")
    for name in ("cat.jpg", "dog.png"):
        write_image(tmp_path / name, (200, 100, 50))
    servable = load_servable("demo", tmp_path / "demo")
    with (
        running(endpoint_of(tmp_path / "demo")) as url,
        running_grpc([servable]) as stubs,
    ):
        code = code.replace("http://127.0.0.1:8501", url)
        code = code.replace("127.0.0.1:8500", stubs.server.address)
        exec(compile(code, page.name, "exec"), {"__name__": "docs"})  # noqa: S102


@pages
def test_commands_exist(page):
    verbs = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    modules = {
        "benchmarks.data_sets": data_sets,
        "serving": serving.__main__,
        "training": training.__main__,
    }
    for line in "\n".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert words[1] in verbs, line
        elif words[:2] == ["python", "-m"]:
            modules[words[2]]._parser().parse_args(words[3:])
        elif words[:1] == ["tfdml"]:
            if words[1:] != ["--help"]:
                tfdml.__main__._parser().parse_args(words[1:])
        elif words:
            assert words[0] in ("git", "cd", "pip", "grpcurl"), line


def anchors(page):
    """The anchors of the headings of a page, as GitHub and the site have them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    names = set(re.findall(r'<a id="([^"]+)"></a>', text))
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", title).strip().lower()
        names.add(words.replace(" ", "-"))
    return names


@pages
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text("utf-8"))
    for target, anchor in links:
        other = page.parent / target if target else page
        assert other.exists(), target
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{target}#{anchor}"


def public_names():
    """Every public name of the library, without its room."""
    rooms = [name for name in tfdml.__all__ if not name.startswith("_")]
    return {name for room in rooms for name in getattr(tfdml, room).__all__}


# What the tables name besides the library, or define themselves.
NOT_OURS = {"Dense", "EarlyStopping", "ModelCheckpoint", "OneTripletLoss", "SOP"}


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("docs/migration/*.md")), ids=lambda page: page.stem
)
def test_what_takes_the_place_of_other_libraries_exists(page):
    text = page.read_text("utf-8")
    for name in re.findall(r"\btfdml((?:\.[A-Za-z]\w*)+)", text):
        operator.attrgetter(name[1:])(tfdml)
    rows = re.findall(r"^\|(?:[^|`]|`[^`]*`)*\|((?:[^|`]|`[^`]*`)*)\|", text, re.M)
    codes = [code for row in rows for code in re.findall("`([^`]*)`", row)]
    names = {n for code in codes for n in re.findall(r'(?<![\w."-])[A-Z]\w{2,}', code)}
    assert len(names) > 3
    assert not names - public_names() - NOT_OURS - {"None", "True", "False"}


def test_each_loss_is_in_one_family():
    bases = {
        "ContinuousLoss",
        "DistillationLoss",
        "MetricLoss",
        "PairLoss",
        "ProxyLoss",
    }
    page = ROOT / "docs" / "losses.md"
    table = page.read_text("utf-8").partition("\n## The families\n")[2]
    rows = re.findall(r"^\| \[.*\]\((losses/.*)\) \| (.*) \|$", table, re.MULTILINE)
    families = [
        (name, target)
        for target, names in rows
        for name in re.findall(r"`(\w+Loss)`", names)
    ]
    names = sorted(name for name, _ in families)
    public = {name for name in tfdml.losses.__all__ if name.endswith("Loss")}
    assert names == sorted(public - bases)
    for name, target in families:
        assert re.search(rf"\b{name}\b", (page.parent / target).read_text("utf-8"))


@pytest.fixture(scope="module")
def figures():
    """docs/figures.py, which draws the figures."""
    return docs_script("figures")


def shown_figures():
    """Text and file of each figure that a page shows."""
    return {
        page.parent / target: alt
        for page in PAGES
        for alt, target in re.findall(
            r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")
        )
    }


def differs(committed, drawn):
    """Return whether two figures differ by more than the fonts, which move a pixel."""
    old, new = (
        np.asarray(Image.open(file).convert("RGB"), dtype=float)
        for file in (committed, drawn)
    )
    return old.shape != new.shape or np.abs(old - new).mean() >= 1


def test_figures_are_small_and_described_in_words():
    for file, alt in shown_figures().items():
        assert len(alt) > 40, f"say what {file.name} shows"
        assert file.stat().st_size < 100_000, file.name


@pytest.mark.slow
def test_script_draws_every_figure_of_the_losses(figures, tmp_path):
    pytest.importorskip("matplotlib")
    figures.draw(tmp_path)
    shown = {file.stem for file in shown_figures() if file.parent == figures.FOLDER}
    assert shown == figures.FIGURES.keys()
    for file in figures.FOLDER.iterdir():
        assert not differs(file, tmp_path / file.name), "run `make figures`"


@pytest.mark.slow
def test_every_figure_of_the_results_is_drawn_from_their_files(tmp_path):
    pytest.importorskip("matplotlib")
    folder = RECORDS / "results"
    for files in RESULTS:
        papers.main(["figures", *files, "--folder", str(tmp_path)])
    shown = {file for file in shown_figures() if file.parent == folder}
    assert shown == set(folder.glob("*.png"))
    for file in shown:
        assert not differs(file, tmp_path / file.name), "run `make figures`"


@pytest.mark.slow
def test_every_table_of_the_results_is_written_from_their_files(capsys):
    def rows(page):
        lines = (RECORDS / page).read_text("utf-8").splitlines()
        return [line for line in lines if line.startswith("| ")]

    for files in RESULTS:
        assert papers.main(["tables", *files]) == 0
    written = set(capsys.readouterr().out.splitlines())
    losses = [row for row in rows("results.md") if row.count("|") > 10]
    assert len(losses) > 40
    for page, least in (("headline", 90), ("recent", 60), ("studies", 100)):
        of_page = rows(f"results/{page}.md")
        assert len(of_page) > least
        assert not {*losses, *of_page} - written


def test_reference_lists_each_public_name_once():
    module = docs_script("make_api")
    rooms = {name for name in tfdml.__all__ if not name.startswith("_")}
    assert set(module.ROOMS) == rooms
    for room in rooms:
        names = getattr(tfdml, room).__all__
        assert len(names) == len(set(names))
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run `make api`"


def test_navigation_of_the_site_names_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"[\w./-]+\.(?:md|ipynb)$", navigation, re.MULTILINE)
    docs = ROOT / "docs"
    there = [*docs.glob("**/*.md"), *docs.glob("notebooks/*.ipynb")]
    pages = [page.relative_to(docs).as_posix() for page in there]
    rooms = [name for name in tfdml.__all__ if not name.startswith("_")]
    assert sorted(named) == sorted(
        [*pages, *(f"reference/tfdml.{room}.md" for room in rooms)]
    )


@pytest.mark.slow
def test_weights_in_the_log_ratio_figure_are_its_gradient(figures):
    generator = np.random.default_rng(0)
    poses, x = generator.normal(size=(2, 7, 3))
    off = ~np.eye(7, dtype=bool)
    gaps, labels = x[:, None] - x, np.square(poses[:, None] - poses).sum(axis=2)
    _, slopes = figures.log_ratio_weights(labels, np.square(gaps).sum(axis=2))
    weights = np.zeros((7, 7))
    weights[off] = slopes.ravel()
    # D = ||a - i||^2 moves both of its ends.
    moved = 2 * ((weights + weights.T)[..., None] * gaps).sum(axis=1)
    loss = LogRatioLoss(epsilon=0.0, reduction="sum", dtype="float64")
    _, gradient = value_and_gradient(lambda x: loss(poses, x), x)
    np.testing.assert_allclose(gradient, moved, rtol=1e-6)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    names = {"np": importlib.import_module("numpy"), **vars(module)}
    result = doctest.testmod(module, extraglobs=names)
    assert result.failed == 0
