"""Addresses, ports and network interfaces of a node."""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket
from collections.abc import Mapping

# Below the ports that the kernel gives to outgoing connections (from 32768 on), so that none of them takes one between
# its choice and its use.
_PORTS = range(20_000, 30_000)
_TRIES = 200


def free_port() -> int:
    """A TCP port that nothing of this host listens on now."""
    for port in random.sample(_PORTS, _TRIES):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def address_of_ssh(environ: Mapping[str, str]) -> str:
    """The address by which the client of this ssh session reaches this host; empty outside of one."""
    words = environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else ""


def is_loopback(address: str) -> bool:
    """Whether an address, or that of a name, is one that only its own host reaches."""
    try:
        found = socket.getaddrinfo(address, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_loopback for one in found)


def only_here(address: str) -> bool:
    """Whether an address is a loopback one on every host. Debian gives a host's own name 127.0.1.1, on that host."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return address == "localhost"


def plain(address: str) -> str:
    """An IPv4 address in its own form, if a socket of IPv6 gives it."""
    return address.removeprefix("::ffff:") if "." in address else address


def gloo_environ(interface: str | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variable that names gloo's interface, where gloo would choose the loopback interface by itself.

    gloo takes the address of the host's own name. Debian gives that name the address 127.0.1.1.

    Args:
        interface: that of the address by which the other nodes reach this host; None if it is not known.
        environ: what the user has set counts.
    """
    if interface in (None, "lo") or "GLOO_SOCKET_IFNAME" in environ or not is_loopback(socket.gethostname()):
        return {}
    return {"GLOO_SOCKET_IFNAME": interface}
