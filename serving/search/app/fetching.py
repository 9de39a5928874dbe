"""Fetch images at addresses that users send, from the public internet only.

A service that fetches any address can be used to reach what only it can reach: other
programs on its machine, devices in its network, the metadata of its cloud. So the name
in an address is resolved first, all IP addresses found must be public, and the
connection goes to the address that was checked; the name is not resolved again. Each
redirect is checked in the same way.

Two things cannot be seen from here: a public address that a router leads back to this
network, and a prefix of IPv6 that an operator translates to IPv4.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Container, Sequence

import httpx2

from tfdml.messages import cut, shortened, shown

_REDIRECTS = 3
_LONGEST_URL = 2_000

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# Where the public internet of IPv6 is; outside it are local addresses and those that
# stand for one of IPv4, whatever that is.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
_NOT_PUBLIC = (
    ipaddress.ip_network("168.63.129.16/32"),  # what runs the machines of Azure
    ipaddress.ip_network("192.88.99.0/24"),  # relays of 6to4
    ipaddress.ip_network("2001::/23"),  # protocols, Teredo among them
    ipaddress.ip_network("2002::/16"),  # 6to4
    ipaddress.ip_network("3fff::/20"),  # documentation
)
# The second half of an address of ISATAP, which stands for one of IPv4.
_ISATAP = (0x00005EFE, 0x02005EFE)


class FetchError(Exception):
    """An image was not fetched.

    Attributes:
        is_refused: Whether nothing is fetched from such an address; if not, the host
            did not send the image.
    """

    def __init__(self, message: str, *, is_refused: bool) -> None:
        super().__init__(message)
        self.is_refused = is_refused


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet.

    Private, loopback, link-local, multicast and reserved addresses do not, nor do those
    of IPv6 that stand for an address of IPv4.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if any(found in network for network in _NOT_PUBLIC):
        return False
    if isinstance(found, ipaddress.IPv6Address) and (
        found not in _GLOBAL_UNICAST
        or int(found) >> 32 & 0xFFFFFFFF in _ISATAP
        or found.scope_id is not None
    ):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def is_elsewhere(address: str) -> bool:
    """Return whether an IP address is public, and not one of this machine itself."""
    return is_public(address) and not _is_own(address)


def _is_own(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing. Packets to an own address also come from it.
            probe.connect((address, 9))
            return str(probe.getsockname()[0]) == address
    except OSError:  # no route
        return False


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the IP addresses of a host.

    Raises:
        OSError: It has none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetch images over http and https.

    Args:
        max_bytes: Most bytes of an image.
        seconds: Time for the whole fetch, redirects included.
        ports: Ports that may be connected to: programs on other ports are not meant
            for the public.
        resolve: Returns the IP addresses of a host and port.
        is_allowed: Returns whether an IP address may be connected to.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 20_000_000,
        seconds: float = 10.0,
        ports: Container[int] = (80, 443),
        resolve: Resolve = resolve,
        is_allowed: Callable[[str], bool] = is_elsewhere,
    ) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._ports = ports
        self._resolve = resolve
        self._is_allowed = is_allowed

    async def fetch(self, url: str) -> bytes:
        """Return the content at an address.

        Raises:
            FetchError: It was not fetched; the text says why.
        """
        try:
            async with asyncio.timeout(self._seconds):
                for _ in range(_REDIRECTS + 1):
                    found = await self._step(url)
                    if isinstance(found, bytes):
                        return found
                    url = found
        except TimeoutError:
            raise _failed(f"it took more than {self._seconds:g} seconds") from None
        raise _failed(f"it was redirected more than {_REDIRECTS} times")

    async def _step(self, url: str) -> bytes | str:
        """Return the content at an address, or the address it redirects to."""
        target, host = _parsed(url)
        port = target.port or (443 if target.scheme == "https" else 80)
        if port not in self._ports:
            raise FetchError(
                "The port of `url` must be one that images are fetched from, such as "
                f"80 or 443. Received: port={port}.",
                is_refused=True,
            )
        address = await self._address(host, port)
        headers = {
            "host": target.netloc.decode("ascii"),
            "accept": "image/*",
            # Compressed content may decompress to any size.
            "accept-encoding": "identity",
            "user-agent": "tfdml",
        }
        try:
            async with (
                # No proxy: it would resolve the name again.
                httpx2.AsyncClient(trust_env=False, timeout=self._seconds) as client,
                client.stream(
                    "GET",
                    target.copy_with(host=address),
                    headers=headers,
                    extensions={"sni_hostname": host},
                ) as response,
            ):
                if response.has_redirect_location:
                    return str(target.join(response.headers["location"]))
                return await self._content(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise _failed(str(error) or type(error).__name__) from error

    async def _address(self, host: str, port: int) -> str:
        refused = FetchError(
            "The host of `url` must have a public address. "
            f"Received: host={host[:100]!r}.",
            is_refused=True,
        )
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise refused from error
        # All of them: a host with a private address as well is not public.
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise refused
        return addresses[0]

    async def _content(self, response: httpx2.Response) -> bytes:
        if response.status_code != 200:
            raise _failed(f"the answer has the status {response.status_code}")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _failed("the answer is compressed, although that was not accepted")
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > self._max_bytes:
                raise _failed(f"it has more than {self._max_bytes / 1e6:g} MB")
        return bytes(content)


def _parsed(url: str) -> tuple[httpx2.URL, str]:
    """Return an address, and the host in it to resolve."""
    try:
        if len(url) > _LONGEST_URL:
            raise httpx2.InvalidURL("it is too long")
        target = httpx2.URL(url)
        host = target.raw_host.decode("ascii")
        if (target.port or 0) > 65535:
            raise httpx2.InvalidURL("its port is above 65535")
    except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
        raise FetchError(
            f"`url` must be an address: {shortened(error)}.", is_refused=True
        ) from error
    if target.scheme not in ("http", "https") or not host or target.userinfo:
        raise FetchError(
            "`url` must begin with http:// or https:// and a host, without a password. "
            f"Received: {shown(url)}.",
            is_refused=True,
        )
    return target, host.strip("[]")


def _failed(reason: str) -> FetchError:
    return FetchError(
        f"The image at `url` could not be fetched: {cut(reason, 200)}.",
        is_refused=False,
    )
