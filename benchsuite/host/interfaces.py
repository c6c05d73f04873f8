"""The network interfaces of this host."""

from __future__ import annotations

import psutil


def interface_of(address: str) -> str | None:
    """The network interface with an address; None if there is no such interface."""
    for name, known in psutil.net_if_addrs().items():
        if any(one.address.partition("%")[0] == address for one in known):
            return name
    return None
