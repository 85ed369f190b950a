"""Which proxy stands between here and the API server, by the rules that kubectl follows.

The kubeconfig's `proxy-url` takes precedence, then HTTPS_PROXY (HTTP_PROXY for an http:// server), unless
NO_PROXY names the server: a name, a domain with all below it, an address, a network, each with a port or
without. A server on this machine is never behind a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from echelon.errors import Unavailable

if TYPE_CHECKING:
    import ipaddress

SCHEMES = ("http", "https", "socks5", "socks5h")


def proxy_for(server: str, configured: str, variables: Mapping[str, str]) -> str:
    """The address of the proxy to use, or ""."""
    if configured:
        return _checked(configured, "proxy-url in the kubeconfig")
    name = "HTTPS_PROXY" if server.startswith("https:") else "HTTP_PROXY"
    address = variables.get(name) or variables.get(name.lower()) or ""
    excepted = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    if not address or is_excepted(server, excepted):
        return ""
    return _checked(address if "://" in address else f"http://{address}", name)


def is_excepted(server: str, excepted: str) -> bool:
    """Whether NO_PROXY names the server, or the server is on this machine."""
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_fits(host, port, address, entry.strip().lower()) for entry in excepted.split(","))


def without_password(address: str) -> str:
    """A proxy's address as a message may show it."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}".rstrip("/")


def _fits(
    host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, entry: str
) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry:
        import ipaddress

        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only = _without_port(entry)
    if only is not None and only != port:
        return False
    if (other := _address(name)) is not None:
        return address == other
    name = name.removeprefix("*")
    if name.startswith("."):
        return host.endswith(name)
    return host == name or host.endswith(f".{name}")


def _without_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        port = port.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name, int(port) if port.isdigit() else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    import ipaddress

    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _checked(address: str, where: str) -> str:
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        is_address = False
    if not is_address:
        raise Unavailable(
            f"{where}: {without_password(address)} is not an address of a proxy",
            hint=f"it begins with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}",
        )
    return address
