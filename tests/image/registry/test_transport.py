"""What a registry answers, read: how it asks for a login, and its refusals as errors of ours."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import Denied, EchelonError, Refused, Unavailable
from echelon.image.reference import parse_reference
from echelon.image.registry.credentials import Credential
from echelon.image.registry.transport import Challenge, log_in, read_challenges, refusal, registry_message

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


IMAGE = parse_reference("push", "reg.example.org/team/x:1")
ANN = Credential(source="/home/ann/.docker/config.json", user="ann", password="open sesame")


def no(status: int, *, right: str = "push", who: Credential | None = ANN) -> EchelonError:
    return refusal(status, "DENIED: no", right=right, image=IMAGE, credential=who)


@pytest.mark.parametrize("right", ["pull", "push"])
@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("who", [None, ANN])
def test_a_refused_request_names_right_place_and_login(
    right: str, status: int, who: Credential | None
) -> None:
    error = no(status, right=right, who=who)
    assert isinstance(error, Denied)
    assert f"right to {right}" in error.message
    assert "team/x" in error.message
    assert "reg.example.org" in error.message
    assert "DENIED: no" in error.message
    assert "docker login reg.example.org" in error.hint
    if who:
        assert "ann from /home/ann/.docker/config.json" in error.message
    else:
        assert "not logged in" in error.message
    assert "sesame" not in str(error)


@pytest.mark.parametrize(
    ("status", "right", "kind", "words"),
    [
        (404, "pull", Unavailable, "there is no image reg.example.org/team/x:1"),
        (404, "push", Unavailable, "no repository team/x"),
        (405, "push", Refused, "does not take images"),
        (413, "push", Refused, "too large"),
        (418, "push", Refused, "status 418"),
        (200, "pull", Refused, "status 200"),
    ],
)
def test_other_answers(status: int, right: str, kind: type[EchelonError], words: str) -> None:
    error = no(status, right=right)
    assert isinstance(error, kind)
    assert words in error.message
    assert error.hint


def test_where_to_log_in() -> None:
    assert "`docker login`" in log_in("docker.io")
    assert "`podman login docker.io`" in log_in("docker.io")


def test_the_registrys_words_are_tamed() -> None:
    body = {
        "errors": [{"code": "DENIED", "message": "no\x1b[2J\nnever " + "x" * 1000}, {"message": "second"}]
    }
    words = registry_message(json.dumps(body).encode())
    assert words.startswith("DENIED: no [2J never xxx")
    assert words.isprintable()
    assert len(words) == 300


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"errors":3}',
        b'{"errors":[3]}',
        b'{"errors":null}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_words_that_are_none(body: bytes) -> None:
    assert registry_message(body) == ""
