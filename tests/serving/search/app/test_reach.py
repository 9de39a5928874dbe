"""Where the page is reached: behind proxies, below a path, from other origins."""

import contextlib
import re
import shutil
import sys

import httpx2
import pytest
import uvicorn

from serving.search.app.app import create_app
from serving.search.app.reach import Reach
from serving.search.gallery.opening import open_search
from serving.web.access import TokenAccess
from serving.web.forwarded import behind_proxies
from serving.web.sockets import url_of
from tests.support.refuses import refusals, refuses
from tests.support.running_nginx import nginx
from tests.support.running_process import running_process
from tests.support.running_server import running_uvicorn
from tests.support.search_fixtures import encoded, error_of, page_of
from tests.support.token_files import write_tokens

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"
FILES = {"image": ("x", encoded((1, 2, 250)))}
SHOP = "https://shop.test"


@pytest.fixture(scope="module")
def search(colors, colors_url, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reach") / "index"
    shutil.copytree(colors / "index", folder)
    with open_search(folder, colors_url) as search:
        yield search


@pytest.fixture
def access(tmp_path):
    return TokenAccess(write_tokens(tmp_path / "tokens", TOKEN))


@refusals(
    *(
        ("allowed_hosts", name, "must be names of hosts")
        for name in ("", "http://a.test", "a.test:80", "a.test/x", "*")
    ),
    *(
        ("cors_origins", origin, "must be `*`, or origins without a path")
        for origin in ("shop.test", "https://shop.test/", "null", "https://a b", "")
    ),
    *(
        ("path_prefix", path, "must begin with /")
        for path in ("find", "/a//b", "/a b", "//evil.test")
    ),
    ("trusted_proxies", "proxy.test", "must be IP addresses"),
)
def test_what_has_not_its_form_is_refused(argument, value, rule):
    def call(**values):
        (name,) = values
        Reach(**(values if name == "path_prefix" else {name: [values[name]]}))

    refuses(call, argument=argument, value=value, rule=rule)


# Pages of other origins


def test_pages_of_a_named_origin_do_what_the_page_does(search):
    reach = Reach(cors_origins=["https://Shop.test"])
    origin = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    with page_of(search, only_here=True, reach=reach) as page:
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        may = page.options("/api/search", headers=origin | asked)
        assert may.status_code == 200
        assert may.headers["access-control-allow-origin"] == SHOP
        for reply in (
            page.get("/api/info", headers=origin),
            page.get("/api/duplicates", headers=origin),
            page.post("/api/search", files=FILES, headers=origin),
        ):
            assert reply.status_code == 200
            assert reply.headers["access-control-allow-origin"] == SHOP
        wrong = page.get("/api/similar", params={"id": "none"}, headers=origin)
        assert error_of(wrong, 404)
        assert wrong.headers["access-control-allow-origin"] == SHOP

        evil = {"Origin": "https://evil.test", "Sec-Fetch-Site": "cross-site"}
        assert page.options("/api/search", headers=evil | asked).status_code == 400
        refused = page.post("/api/search", files=FILES, headers=evil)
        assert error_of(refused, 403)
        assert "access-control-allow-origin" not in refused.headers
        # A name that leads here is another thing than a page that may ask.
        rebound = {**origin, "Host": "evil.test"}
        assert error_of(page.get("/api/info", headers=rebound), 403)


def test_pages_of_any_origin_need_a_token(search, access):
    reach = Reach(cors_origins=["*"])
    with pytest.raises(ValueError, match="`cors_origins` must name origins"):
        create_app(search, reach=reach)
    origin = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    with page_of(search, access=access, reach=reach) as page:
        refused = page.post("/api/search", files=FILES, headers=origin)
        assert error_of(refused, 401)
        assert refused.headers["access-control-allow-origin"] == "*"
        shown = origin | {"Authorization": f"Bearer {TOKEN}"}
        assert page.post("/api/search", files=FILES, headers=shown).is_success


def test_no_page_of_another_origin_is_let_in_by_default(search):
    with page_of(search) as page:
        reply = page.get("/api/info", headers={"Origin": SHOP})
        assert not [name for name in reply.headers if name.startswith("access-")]


# Proxies


FORWARDED = {
    "Host": "127.0.0.1:8000",
    "X-Forwarded-Host": "images.test:8443",
    "Origin": "https://images.test:8443",
    "Sec-Fetch-Site": "same-origin",
}


@pytest.mark.parametrize(("proxy", "status"), [("127.0.0.1", 200), ("10.0.0.1", 403)])
def test_a_trusted_proxy_tells_the_name_of_the_page(search, proxy, status):
    with behind(search, Reach(trusted_proxies=[proxy])) as page:
        asked = {"files": FILES, "headers": FORWARDED}
        assert page.post("/api/search", **asked).status_code == status


def test_a_service_for_this_machine_believes_no_name_that_is_not_allowed(search):
    reach = Reach(trusted_proxies=["127.0.0.1"])
    with behind(search, reach, only_here=True) as page:
        assert error_of(page.get("/api/info", headers=FORWARDED), 403)
    named = Reach(allowed_hosts=["images.test"], trusted_proxies=["127.0.0.1"])
    with behind(search, named, only_here=True) as page:
        assert page.get("/api/info", headers=FORWARDED).status_code == 200
        # The page of a stranger in a browser here may send any header but `Host`.
        rebound = {**FORWARDED, "Host": "evil.test"}
        assert error_of(page.get("/api/info", headers=rebound), 403)


@contextlib.contextmanager
def behind(search, reach, **options):
    """Serve the page behind proxies; gives a client."""
    app = create_app(search, reach=reach, **options)
    app = behind_proxies(app, reach.trusted_proxies)
    config = uvicorn.Config(app, log_level="warning", proxy_headers=False)
    with (
        running_uvicorn(config) as listener,
        httpx2.Client(base_url=url_of(listener), timeout=60) as client,
    ):
        yield client


def test_with_a_token_the_page_works_under_any_name_behind_any_proxy(search, access):
    shown = {
        "Host": "127.0.0.1:8000",
        "Origin": "https://images.test",
        "Sec-Fetch-Site": "same-origin",
        "Authorization": f"Bearer {TOKEN}",
    }
    with page_of(search, access=access, only_here=True) as page:
        assert page.post("/api/search", files=FILES, headers=shown).is_success


def test_page_is_served_below_a_path_that_the_proxy_leaves(search):
    reach = Reach(path_prefix="/find/images/")
    with page_of(search, reach=reach) as page:
        for path in ("/find/images", "/find/images?a=b"):
            moved = page.get(path, follow_redirects=False)
            assert moved.status_code == 307
            there = moved.headers["location"]
            assert page.base_url.join(path).join(there).path == "/find/images/"
        for prefix in ("/find/images", ""):
            assert page.get(f"{prefix}/").text.startswith("<!doctype html>")
            assert page.get(f"{prefix}/style.css").status_code == 200
            assert page.get(f"{prefix}/api/info").status_code == 200
            assert page.get(f"{prefix}/healthz").json() == {"status": "ok"}
        for path in ("/find/images2/api/info", "/find/api/info"):
            assert error_of(page.get(path), 404)


STRIPPING = """
location /find/ {{
    proxy_pass {url}/;
    proxy_set_header Host $http_host;
}}
location = /apache/api/search {{
    proxy_pass {url}/api/search;
    proxy_set_header X-Forwarded-Host $http_host;
}}
location /keep/ {{
    proxy_pass {url};
    proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
}}
"""


def test_page_behind_nginx(colors, colors_url, tmp_path):
    command = [sys.executable, "-m", "serving", "page", colors / "index"]
    command += ["--endpoint", colors_url, "--port", 0, "--path-prefix", "/keep"]
    command += ["--allowed-host", "images.test", "--trusted-proxy", "127.0.0.1"]
    with running_process(command) as process:
        url = re.match(r"Image search: (\S+)", process.stdout.readline())[1]
        (tmp_path / "nginx").mkdir()
        with (
            nginx(tmp_path / "nginx", STRIPPING.format(url=url)) as proxy,
            httpx2.Client(base_url=proxy, timeout=60, trust_env=False) as client,
        ):
            named = {"Host": "images.test", "Origin": "http://images.test"}
            for path in ("/find", "/keep"):
                page = client.get(f"{path}/", headers=named)
                assert page.text.startswith("<!doctype html>")
                found = client.post(f"{path}/api/search", files=FILES, headers=named)
                hit = found.json()["hits"][0]
                assert hit["class"] == "blue"
                # Each address in a reply leads through the proxy again.
                image = client.get(f"{path}/{hit['url']}", headers=named)
                assert image.headers["content-type"].startswith("image/")
            path = "/apache/api/search"
            assert client.post(path, files=FILES, headers=named).status_code == 200
            evil = {"Host": "evil.test", "Origin": "http://evil.test"}
            for path in ("/find/api/search", "/apache/api/search"):
                reply = client.post(path, files=FILES, headers=evil)
                assert "--allowed-host" in error_of(reply, 403)
