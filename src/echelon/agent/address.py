"""The address at which other workers reach this one, and the network interface that has it."""

from __future__ import annotations

import os
import socket
import sys

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_NAME_SIZE = 16


def own_address() -> str:
    """The address that a pod's environment gives it; empty where there is none."""
    address = os.environ.get("ECHELON_POD_IP", "")
    return address if is_address(address) else ""


def is_address(given: object) -> bool:
    """Whether the value is an IP address and nothing else."""
    if not isinstance(given, str):
        return False
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, given)
        except (OSError, ValueError):
            continue
        return True
    return False


def interface_of(address: str) -> str:
    """The interface that has an IPv4 address; empty if none is found."""
    names = [name for _, name in socket.if_nameindex()]
    if address == LOOPBACK:
        return next((name for name in names if name in ("lo", "lo0")), "")
    if not sys.platform.startswith("linux"):
        return ""
    return next((name for name in names if _address_of(name) == address), "")


def _address_of(interface: str) -> str | None:
    import fcntl

    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:  # the kernel reads a name of at most 15 bytes, and writes the address behind it
            answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, name[: _NAME_SIZE - 1].ljust(256, b"\0"))
        except OSError:  # it has no IPv4 address
            return None
    return socket.inet_ntoa(answer[_NAME_SIZE + 4 : _NAME_SIZE + 8])
