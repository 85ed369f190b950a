"""How registries ask who we are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.image.registry.challenge import Challenge, read_challenges

BEARER = Challenge(scheme="bearer", realm="https://auth.example.org/token", service="registry.example.org")


@pytest.mark.parametrize(
    ("headers", "meant"),
    [
        (
            ['Bearer realm="https://auth.example.org/token",service="registry.example.org",scope="repository:a:pull"'],
            BEARER,
        ),
        (['bearer service="registry.example.org" , realm="https://auth.example.org/token"'], BEARER),
        (['Basic realm="Of \\"images\\", a"'], Challenge(scheme="basic", realm='Of "images", a')),
        (["Basic"], Challenge(scheme="basic")),
        (["basic realm=plain"], Challenge(scheme="basic", realm="plain")),
        (
            ['Basic realm="x", Bearer realm="https://auth.example.org/token",service="registry.example.org"'],
            BEARER,
        ),
        (
            ['Basic realm="x"', 'Bearer realm="https://auth.example.org/token",service="registry.example.org"'],
            BEARER,
        ),
        (['Bearer error="insufficient_scope"', "Basic"], Challenge(scheme="basic")),
        (["Negotiate"], None),
        (['Digest realm="x", nonce="y"'], None),
        ([], None),
        (["", "=", ',,"', 'realm="x"'], None),
    ],
)  # fmt: skip
def test_what_is_asked(headers: list[str], meant: Challenge | None) -> None:
    assert read_challenges(headers) == meant


@given(st.lists(st.text(alphabet='Basicrelm=",\\ B', max_size=60), max_size=3))
def test_any_header_is_read_to_its_end(headers: list[str]) -> None:
    found = read_challenges(headers)
    assert found is None or found.scheme in ("basic", "bearer")
