"""Addresses that only this machine can reach."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether a host, by name or address, is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
