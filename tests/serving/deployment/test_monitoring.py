"""Alerts and dashboard ask for metrics that the services have, in valid PromQL."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from serving.search.app.metrics import SearchMetrics
from serving.web.log import RequestRecord
from serving.web.monitoring import Monitoring
from serving.web.status import StatusCode
from tests.support.deployment_files import FOLDER

ALERTS = FOLDER / "monitoring" / "alerts.yaml"
DASHBOARD = FOLDER / "monitoring" / "dashboard.json"
_SEARCH = re.compile(r"tfdml_search_\w+")
_ENDPOINT = re.compile(r'__name__=":tensorflow:serving:([\w:]+)"')
_LABELS = re.compile(r"(\w+)=~?\"|(?:by|on) \(([\w, ]+)\)")


def alerts():
    (group,) = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return group["rules"]


def panels():
    return json.loads(DASHBOARD.read_text("utf-8"))["panels"]


def queries():
    asked = {rule["alert"]: rule["expr"] for rule in alerts()}
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5m")
            asked[f"{panel['title']}, {target['refId']}"] = query
    return asked


QUERIES = queries()


def search():
    """Stand for a search whose index has all statistics."""
    details = {"added": 0, "removed": 0, "log_bytes": 0, "recall": {"value": 1.0}}
    stats = SimpleNamespace(count=9, details=details)
    index = SimpleNamespace(stats=lambda: stats, measure_recall=np.ones_like)
    return SimpleNamespace(index=index)


@pytest.fixture(scope="module")
def exposed():
    """Return the labels of every sample of both services, by its name."""
    metrics = SearchMetrics({"index": search()})
    metrics.count(
        RequestRecord("id", "REST", "search", None, None, StatusCode.OK, 0.1, 1, None)
    )
    with metrics.stage("index"):
        pass
    metrics.answered("index", [])
    metrics.thumbnail(was_kept=True)
    metrics.recall.keep("index", np.zeros(2))
    metrics.recall.measure()
    monitoring = Monitoring()
    monitoring.request("model", "predict", "REST", StatusCode.OK, 0.1)
    monitoring.queuing(0.1)
    texts = metrics.text().decode(), monitoring.exposition()[0].decode()
    of_search = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(texts[0])
        for sample in family.samples
    }
    # TF Serving's names begin with a colon, which the parser does not read.
    of_endpoint = {
        name: set(re.findall(r'(\w+)="', labels))
        for name, labels in re.findall(
            r"^:tensorflow:serving:([\w:]+)\{(.*)\} ", texts[1], re.MULTILINE
        )
    }
    return of_search | of_endpoint


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_query_is_valid_and_asks_for_what_there_is(query, exposed):
    promql_parser.parse(query)
    names = set(_SEARCH.findall(query)) | set(_ENDPOINT.findall(query))
    assert names
    assert names <= set(exposed)
    labels = {
        label.strip()
        for one, several in _LABELS.findall(query)
        for label in [one, *several.split(",")]
        if label.strip()
    }
    assert labels - {"__name__"} <= set.union(*(exposed[name] for name in names))


def test_calls_that_are_asked_for_are_those_of_the_service():
    asked = {call for q in QUERIES.values() for call in re.findall(r'call=~"(.*?)"', q)}
    assert asked == {"search|similar"}


def test_statuses_that_are_asked_for_exist():
    found = {
        status
        for query in QUERIES.values()
        for several in re.findall(r'status=~"(.*?)"', query)
        for status in several.split("|")
    }
    assert found <= set(StatusCode.__members__)


def test_panels_do_not_overlap_and_all_use_the_chosen_source():
    places = [panel["gridPos"] for panel in panels()]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${source}"}


def test_each_alert_says_what_is_wrong_and_how_bad_it_is():
    for rule in alerts():
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.slow
def test_each_alert_fires_when_it_must_and_only_then(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("Alerts are tried by promtool: apt-get install prometheus")
    cases = Path(__file__).with_name("alerts_cases.yaml")
    names = {rule["alert"] for rule in alerts()}
    assert names == set(re.findall(r"alertname: (\w+)", cases.read_text("utf-8")))
    for file in (ALERTS, cases):
        shutil.copy(file, tmp_path)
    command = [promtool, "test", "rules", tmp_path / cases.name]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
