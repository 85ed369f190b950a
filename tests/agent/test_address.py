"""The worker's own address, and the interface that has it."""

from __future__ import annotations

import pytest

from echelon.agent.address import LOOPBACK, interface_of, own_address


@pytest.mark.parametrize(
    ("given", "expected"),
    [("10.1.2.3", "10.1.2.3"), ("2001:db8::1", "2001:db8::1"), ("", ""), ("evil; rm", ""), ("10.1", "")],
)
def test_a_pods_address_is_an_address(given: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_POD_IP", given)
    assert own_address() == expected


def test_the_interface_of_an_address() -> None:
    assert interface_of(LOOPBACK) in ("lo", "lo0")
    assert interface_of("192.0.2.1") == ""  # of nobody, by RFC 5737
