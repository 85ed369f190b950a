"""Which servers are behind a proxy."""

from __future__ import annotations

import pytest

from echelon.engines.kubernetes.client.http.proxies import is_excepted, proxy_for, without_password
from echelon.errors import Unavailable


@pytest.mark.parametrize(
    ("server", "excepted", "expected"),
    [
        ("https://api.example.com:6443", "", False),
        ("https://api.example.com:6443", "example.com", True),
        ("https://api.example.com:6443", ".example.com", True),
        ("https://api.example.com:6443", "*.example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://example.com", "example.com", True),
        ("https://notexample.com", "example.com", False),
        ("https://API.example.com", "api.EXAMPLE.com", True),
        ("https://api.example.com:6443", "api.example.com:6443", True),
        ("https://api.example.com:6443", "api.example.com:443", False),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", True),
        ("https://10.1.2.3:6443", "a, 10.1.2.3 ,b", True),
        ("https://10.1.2.3:6443", "10.1.2.3:1", False),
        ("https://11.1.2.3:6443", "10.0.0.0/8", False),
        ("https://[fd00::5]:6443", "fd00::/16", True),
        ("https://[fd00::5]:6443", "[fd00::5]:6443", True),
        ("https://[fd00::5]:6443", "fd00::5", True),
        ("https://api.example.com", "10.0.0.0/8, nonsense/99, ::/x", False),
        ("https://api.example.com", "*", True),
        ("https://localhost:6443", "", True),
        ("https://127.3.2.1:6443", "", True),
        ("https://[::1]:6443", "", True),
    ],
)
def test_exceptions(server: str, excepted: str, expected: bool) -> None:
    assert is_excepted(server, excepted) is expected


@pytest.mark.parametrize(
    ("server", "configured", "variables", "expected"),
    [
        ("https://a.example", "", {}, ""),
        ("https://a.example", "", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://a.example", "", {"https_proxy": "http://p:3128"}, "http://p:3128"),
        ("https://a.example", "", {"HTTP_PROXY": "http://p:3128", "ALL_PROXY": "http://p:3128"}, ""),
        ("http://a.example", "", {"HTTP_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://a.example", "", {"HTTPS_PROXY": "http://p:3128", "no_proxy": "a.example"}, ""),
        ("https://a.example", "socks5://q", {"HTTPS_PROXY": "http://p", "NO_PROXY": "*"}, "socks5://q"),
        ("https://localhost", "http://q", {}, "http://q"),
    ],
)
def test_the_strongest_word(server: str, configured: str, variables: dict[str, str], expected: str) -> None:
    assert proxy_for(server, configured, variables) == expected


def test_what_is_no_proxy_is_named_without_its_password() -> None:
    with pytest.raises(Unavailable) as caught:
        proxy_for("https://a.example", "ftp://ann:hush@p", {})
    assert "ftp://p is not an address of a proxy" in str(caught.value)
    assert without_password("http://ann:hush@p:3128/") == "http://p:3128"
