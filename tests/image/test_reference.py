"""Names of images, taken apart as container engines do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.image.reference import Reference, is_loopback, parse_reference

SHA = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("python", ("docker.io", "library/python", "latest", "")),
        ("python:3.12", ("docker.io", "library/python", "3.12", "")),
        ("me/trainer", ("docker.io", "me/trainer", "latest", "")),
        ("localhost/x", ("localhost", "x", "latest", "")),
        ("localhost:5000/a/b:1", ("localhost:5000", "a/b", "1", "")),
        ("ghcr.io/o/r__x--y:v1.0-rc", ("ghcr.io", "o/r__x--y", "v1.0-rc", "")),
        (f"a.io/x@{SHA}", ("a.io", "x", "", SHA)),
        (f"a.io/x:1@{SHA}", ("a.io", "x", "1", SHA)),
        ("[::1]:5000/x", ("[::1]:5000", "x", "latest", "")),
    ],
)
def test_names(text: str, meant: tuple[str, str, str, str]) -> None:
    found = parse_reference("base", text)
    assert (found.registry, found.repository, found.tag, found.digest) == meant


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "/x", "x/", "a..b.io/x", "Me/trainer", "x:", "x:.1", "x:" + "t" * 129, "x@sha256:12", "x@",
        "a.io:port/x", "x y", "x\n", "x:1\n", "a.io/../b", "a.io/b//c", "a.io/" + "b" * 256, "https://a.io/x",
        "a.io/x?y", "ghcr.io/é",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused_by_its_flag(text: str) -> None:
    with pytest.raises(InvalidJob, match=r"^push: "):
        parse_reference("push", text)


COMPONENT = st.from_regex(r"[a-z0-9]{1,8}([._-][a-z0-9]{1,4}){0,2}", fullmatch=True)


@given(
    registry=st.sampled_from(["docker.io", "a.io", "localhost:5000", "127.0.0.1:1", "[::1]"]),
    parts=st.lists(COMPONENT, min_size=2, max_size=4),
    tag=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
    digest=st.sampled_from(["", SHA]),
)
def test_a_name_that_was_taken_apart_says_the_same(
    registry: str, parts: list[str], tag: str, digest: str
) -> None:
    name = Reference(registry=registry, repository="/".join(parts), tag=tag, digest=digest)
    assert parse_reference("base", str(name)) == name


@pytest.mark.parametrize(
    ("registry", "here"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:80", True), ("127.9.8.7", True),
        ("[::1]:5000", True), ("localhost.example.org", False), ("127.0.0.1.example.org", False),
        ("10.0.0.1:5000", False), ("docker.io", False),
    ],
)  # fmt: skip
def test_which_registries_are_on_this_machine(registry: str, here: bool) -> None:
    assert is_loopback(registry) is here
