"""What the proxies before a server tell it, and whom it believes."""

import anyio
import pytest

from serving.web.access import check_proxy
from serving.web.forwarded import behind_proxies, forwarded_hosts
from tests.support.refuses import refusals, refuses

FORWARDED = [
    (b"host", b"127.0.0.1:8000"),
    (b"x-forwarded-for", b"203.0.113.9, 10.1.2.3"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"images.test, inner.test"),
    (b"x-forwarded-host", b"last.test:8443"),
]


def seen(proxies, client, headers=FORWARDED):
    """Return the scope that an application sees behind these proxies."""
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)

    scope = {"type": "http", "scheme": "http", "client": client, "headers": headers}
    anyio.run(behind_proxies(app, proxies), scope, None, None)
    return scopes[0]


@pytest.mark.parametrize("proxies", [["10.0.0.0/8"], ["10.1.2.3", "10.9.9.9"]])
def test_a_trusted_proxy_names_client_scheme_and_hosts(proxies):
    scope = seen(proxies, ("10.9.9.9", 1234))
    assert scope["client"][0] == "203.0.113.9"
    assert scope["scheme"] == "https"
    assert forwarded_hosts(scope) == ("images.test", "inner.test", "last.test:8443")


@pytest.mark.parametrize("client", [("127.0.0.1", 1234), ("", 0), None])
def test_nobody_else_is_believed(client):
    scope = seen(["10.0.0.0/8", "::1"], client)
    assert (scope["client"], scope["scheme"]) == (client, "http")
    assert forwarded_hosts(scope) == ()


def test_a_proxy_that_says_nothing_changes_nothing():
    scope = seen(["127.0.0.1"], ("127.0.0.1", 5), headers=[(b"x-forwarded-host", b"")])
    assert (scope["client"], scope["scheme"]) == (("127.0.0.1", 5), "http")
    assert forwarded_hosts(scope) == ()


@refusals(
    ("trusted_proxies", "proxy.test", "must be IP addresses, or networks"),
    ("trusted_proxies", "10.0.0.1/8", "must be IP addresses, or networks"),
    ("trusted_proxies", "*", "must be IP addresses, or networks"),
)
def test_what_is_no_address_is_refused(argument, value, rule):
    def call(trusted_proxies):
        check_proxy(trusted_proxies)

    refuses(call, argument=argument, value=value, rule=rule)
