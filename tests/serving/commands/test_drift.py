"""`tfdml drift`: what it prints, draws and refuses."""

from datetime import datetime

import numpy as np
import pytest
from PIL import Image

from serving.search.gallery.gallery import load_gallery
from serving.search.gallery.query_record import QueryRecorder
from tests.support.clock import Clock
from tests.support.serving_commands import lines_of_table

NOON = datetime(2026, 11, 30, 12).timestamp()


@pytest.fixture
def recorded(calibrated, tmp_path):
    """Two queries like the gallery before noon, and three that are not after it."""
    clock = Clock()
    index, _ = load_gallery(calibrated)
    with index:
        recorder = QueryRecorder(tmp_path / "queries", clock=clock)
        keep = recorder.keeper(index)
        like = index.get(index.ids).embeddings[0]
        for time, row in (
            *[(NOON - 60, like)] * 2,
            *[(NOON + 60, np.eye(12, dtype=np.float32)[0])] * 3,
        ):
            clock.now = time
            keep(row)
        recorder.write()
    return tmp_path / "queries"


def test_period_is_compared_with_the_gallery_and_with_earlier_queries(
    calibrated, recorded, run, run_json
):
    since = ("--since", "2026-11-30T12:00")
    code, out, _ = run("drift", calibrated, recorded, *since)
    assert code == 0
    gallery, earlier, queries = lines_of_table(out.partition("\n\n")[0])
    assert gallery[:2] == ["gallery", "9"]
    assert earlier[:5] == ["earlier", "queries", "2", "1.0000", "1.0000"]
    assert queries[:2] == ["queries", "3"]
    assert queries[4] == "1.0000"  # all are below the threshold of 0.9
    assert "Distance of the queries from the earlier queries: D = 1.0000" in out
    document = run_json("drift", calibrated, recorded, *since)
    assert document["samples"]["queries"]["number"] == 3
    assert document["samples"]["queries"]["without_match"]["share"] == 1
    assert document["samples"]["earlier queries"]["without_match"]["share"] == 0
    assert document["distances"]["earlier queries"]["statistic"] == 1


def test_all_queries_are_one_period_by_default(calibrated, recorded, run_json):
    document = run_json("drift", calibrated, recorded)
    assert document["samples"]["queries"]["number"] == 5
    assert list(document["distances"]) == ["gallery"]


def test_end_of_the_period_is_not_in_it(calibrated, recorded, run_json):
    document = run_json("drift", calibrated, recorded, "--until", "2026-11-30T12:00")
    assert document["samples"]["queries"]["number"] == 2


def test_gallery_without_calibration_has_no_share(colors, recorded, run_json):
    document = run_json("drift", colors / "index", recorded)
    assert document["threshold"] is None
    assert document["samples"]["queries"]["without_match"] is None


def test_figure_is_an_image(calibrated, recorded, tmp_path, run):
    file = tmp_path / "drift.png"
    assert run("drift", calibrated, recorded, "--figure", file)[0] == 0
    with Image.open(file) as drawn:
        assert drawn.width == 840


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "2027-01-01"], "has no query of the period"),
        (["--since", "2026-12-01", "--until", "2026-11-01"], "before --until"),
        (["--since", "yesterday"], "must be a date such as 2026-11-30"),
    ],
)
def test_period_that_is_wrong_is_refused(calibrated, recorded, run, options, message):
    try:
        code, _, err = run("drift", calibrated, recorded, *options)
    except SystemExit as ended:
        code, err = ended.code, None
    assert code != 0
    assert err is None or message in err


def test_page_records_queries_where_it_is_told_to(
    calibrated, tmp_path, run, monkeypatch
):
    given = []
    monkeypatch.setattr("serving.web.sockets.exit_on_sigterm", lambda: None)
    monkeypatch.setattr("serving.web.log.configure", lambda kind: None)
    monkeypatch.setattr(
        "serving.search.app.app.run", lambda *_, recorder, **__: given.append(recorder)
    )
    page = ("page", calibrated, "--endpoint", "http://127.0.0.1:1/v1/models/colors")
    assert run(*page)[0] == 0
    folder = tmp_path / "queries"
    assert run(*page, "--record-queries", folder)[0] == 0
    assert folder.is_dir()
    nothing, recorder = given
    assert nothing is None
    assert isinstance(recorder, QueryRecorder)
    code, _, err = run(*page, "--record-queries", folder, "--record-bytes", 5)
    assert code != 0
    assert "`most_bytes` must be at least 1000000. Received: most_bytes=5." in err
