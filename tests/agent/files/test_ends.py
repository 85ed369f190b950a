"""Copies made to do harm: whichever end lies, nothing outside the target is touched, and it is said."""

from __future__ import annotations

import os
import socket
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.agent.trees import HELLO, LISTED, copy, entry, scripted, sent, tree
from tests.properties import examples

from echelon.agent.files.landing import Landing
from echelon.agent.files.receiver import Receiver
from echelon.agent.files.sender import Sender
from echelon.agent.files.tree import PARTIAL, BadTree, check_path, why_not_link
from echelon.agent.files.wire import CHUNK, Garbled, Trouble


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder beside which lies what an attacker would like to change; afterwards all of it is as it was."""
    inner = tmp_path / "place"
    inner.mkdir()
    (tmp_path / "precious").write_text("untouched")
    (tmp_path / "precious-folder").mkdir()
    yield inner
    assert sorted(path.name for path in tmp_path.iterdir()) == ["place", "precious", "precious-folder"]
    assert (tmp_path / "precious").read_text() == "untouched"
    assert list((tmp_path / "precious-folder").iterdir()) == []


# What a tree may hold


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc/passwd", "absolute"),
        ("../precious", "climbs"),
        ("a/../../precious", "climbs"),
        ("..", "climbs"),
        ("", "not a proper name"),
        (".", "not a proper name"),
        ("a//b", "not a proper name"),
        ("a/", "not a proper name"),
        ("a/./b", "not a proper name"),
        ("a\0b", "not a proper name"),
        ("x" * 256, "not a proper name"),
        ("\ud800", "not a proper name"),
        ("/".join("a" * 101), "not a proper name"),
        (PARTIAL, "our own"),
        (f"a/{PARTIAL}/b", "our own"),
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(place: Path, path: str, problem: str) -> None:
    with pytest.raises(BadTree, match=problem):
        Receiver(scripted(HELLO, entry(path), LISTED), str(place / "target")).run()
    assert list(place.iterdir()) == []


@given(st.text(alphabet="./a\0b-", max_size=12))
def test_what_passes_stays_below_its_folder(path: str) -> None:
    try:
        parts = check_path(path)
    except BadTree:
        return
    assert os.path.normpath(f"/top/{path}") == f"/top/{'/'.join(parts)}"


@pytest.mark.parametrize(
    ("path", "target", "fine"),
    [
        ("a", "b", True),
        ("a/b", "../c", True),
        ("a/b/c", "../../d/e", True),
        ("a", "./b", True),
        ("a", "..", False),
        ("a/b", "../..", False),
        ("a", "/etc", False),
        ("a", "", False),
        ("a", "b/../..", False),
        ("l2", "d/e/l1/../x", False),  # where l1 leads decides what .. means
    ],
)
def test_links_stay_inside(path: str, target: str, fine: bool) -> None:
    assert bool(why_not_link(path, target)) is not fine


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "a/c", "a/b", "a/c/d"]),
            st.lists(st.sampled_from(["..", "a", "b", "c", "d", "."]), min_size=1, max_size=4),
        ),
        max_size=6,
        unique_by=lambda pair: pair[0],
    )
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(100),
)
def test_no_set_of_links_leads_out(tmp_path: Path, links: list[tuple[str, list[str]]]) -> None:
    """Whatever links pass, following them on a real disk ends inside."""
    top = tmp_path / os.urandom(8).hex()
    landing = Landing(str(top))
    made = []
    for path, words in links:
        target = "/".join(words)
        if not why_not_link(path, target):
            try:
                landing.make_link(path.split("/"), target)
            except BadTree:
                continue  # below another link, or where a folder is
            made.append(path)
    landing.close()
    for path in made:
        end = os.path.realpath(top / path)
        assert end == str(top.resolve()) or end.startswith(f"{top.resolve()}/")


def test_what_is_no_file_is_named_and_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "good").write_text("content")
    os.mkfifo(source / "pipe")
    (source / "out").symlink_to("/etc/passwd")
    (source / "up").symlink_to("../other")
    (source / "fine").symlink_to("good")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        outcome = copy(source, tmp_path / "target")
    assert dict(outcome["left_out"]) == {
        "pipe": "a pipe",
        "socket": "a socket",
        "out": "a link to an absolute path, '/etc/passwd'",
        "up": "a link out of the folder, to '../other'",
    }
    assert set(tree(tmp_path / "target")) == {"good", "fine"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "closed").touch(0o000)
    outcome = copy(tmp_path / "source", tmp_path / "target")
    assert dict(outcome["left_out"]) == {"closed": "cannot be read: Permission denied"}


# A sender that lies


@pytest.mark.parametrize(
    "script",
    [
        [entry("a"), entry("a")],
        [entry("a"), entry("a/b")],
        [entry("a", "link", link="b"), entry("a/b")],
        [entry("a/b")],
        [entry("a", "door")],
        [entry("a", size=-1)],
        [entry("a", size="many")],
        [entry("a", mode=1.5)],
        [{"kind": "file"}],
        [{"path": 7, "kind": "file"}],
    ],
)
def test_a_listing_that_makes_no_sense_is_refused(place: Path, script: list[dict[str, Any]]) -> None:
    with pytest.raises(BadTree):
        Receiver(scripted(HELLO, *script, LISTED), str(place / "target")).run()
    assert list(place.iterdir()) == []


def test_a_link_in_the_target_is_not_written_through(place: Path) -> None:
    """Neither one that an earlier copy brought nor one that was there before."""
    target = place / "target"
    target.mkdir()
    (target / "a").symlink_to(place.parent / "precious-folder")
    script = scripted(HELLO, entry("a", "folder"), entry("a/b", size=1), LISTED, sent("a/b", b"x"))
    with pytest.raises(BadTree, match="not a folder"):
        Receiver(script, str(target)).run()


def test_a_file_takes_the_place_of_a_link_and_leaves_what_it_leads_to(place: Path) -> None:
    target = place / "target"
    target.mkdir()
    (target / "a").symlink_to(place.parent / "precious")
    Receiver(scripted(HELLO, entry("a", size=1), LISTED, sent("a", b"x")), str(target)).run()
    assert tree(target) == {"a": (b"x", 0o644, 5)}


def test_the_folder_of_what_is_not_whole_is_not_trusted_when_it_is_a_link(place: Path) -> None:
    target = place / "target"
    target.mkdir()
    (target / PARTIAL).symlink_to(place.parent / "precious-folder")
    Receiver(scripted(HELLO, entry("a", size=1), LISTED, sent("a", b"x")), str(target)).run()
    assert (target / "a").read_bytes() == b"x"


def test_no_special_rights_travel(place: Path) -> None:
    script = scripted(HELLO, entry("a", size=1, mode=0o6755), LISTED, sent("a", b"x", mode=0o6777))
    Receiver(script, str(place)).run()
    assert stat.S_IMODE((place / "a").stat().st_mode) == 0o777


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (sent("b", b"x"), "was asked for"),
        (sent("a", b"x", offset=7), "from 0 on"),
        (sent("a", b"xyz", size=2), "longer than announced"),
        (b"not ours\n", "not a line of ours"),
        (b"[1]\n", "not a line of ours"),
        (b"x" * 200_000, "a line without an end"),
        (sent("a", b"x").replace(b"1\nx", b"99999999999\nx"), "no known length"),
        (sent("a", b"x").replace(b"1\nx", b"q7\nx"), "no known length"),
        (sent("a", b"x").replace(b"1\nx", b"z2\nxx"), "damaged chunk"),
    ],
)
def test_an_answer_that_is_none_of_ours_is_refused(place: Path, answer: bytes, problem: str) -> None:
    with pytest.raises(Garbled, match=problem):
        Receiver(scripted(HELLO, entry("a", size=1), LISTED, answer), str(place / "target")).run()
    assert [path.name for path in (place / "target").iterdir() if path.name != PARTIAL] == []


def test_a_chunk_that_would_grow_without_end_is_refused(place: Path) -> None:
    bomb = zlib.compress(bytes(100 * CHUNK), 9)
    answer = sent("a", b"x", size=1 << 40).replace(b"1\nx", b"z%d\n" % len(bomb) + bomb)
    with pytest.raises(Garbled, match="grows too large"):
        Receiver(scripted(HELLO, entry("a", size=1 << 40), LISTED, answer), str(place)).run()


def test_a_damaged_file_is_asked_for_again_and_then_named(place: Path) -> None:
    good = sent("a", b"content")
    bad = good.replace(b"content", b"c0ntent")
    listing = (HELLO, entry("a", size=7), entry("b", size=1), LISTED)
    again = Receiver(scripted(*listing, bad, sent("b", b"x"), good), str(place / "1")).run()
    assert (again["left_out"], (place / "1" / "a").read_bytes()) == ([], b"content")
    never = Receiver(scripted(*listing, bad, sent("b", b"x"), bad, bad), str(place / "2")).run()
    assert never["left_out"] == [("a", "arrives damaged")]
    assert set(tree(place / "2")) == {"b"}


def test_an_end_of_another_version_is_named(place: Path) -> None:
    with pytest.raises(Garbled, match="another version"):
        Receiver(scripted({"files": 99}), str(place / "target")).run()


def test_the_other_ends_trouble_is_raised_with_its_words(place: Path) -> None:
    script = scripted(HELLO, {"trouble": "No space left", "code": "ENOSPC", "path": "/x"})
    with pytest.raises(Trouble, match="No space left") as caught:
        Receiver(script, str(place / "target")).run()
    assert (caught.value.code, caught.value.path) == ("ENOSPC", "/x")


# A receiver that lies


@pytest.mark.parametrize("path", ["/etc/passwd", "../precious", "a/../../precious"])
def test_a_request_for_what_is_elsewhere_is_refused(place: Path, path: str) -> None:
    (place / "a").write_text("x")
    with pytest.raises(Garbled, match="a request for"):
        Sender(scripted({"path": path, "offset": 0}), str(place)).run()


def test_a_request_through_a_link_is_refused(place: Path) -> None:
    (place / "a").symlink_to(place.parent)
    with pytest.raises(Garbled, match="not a folder"):
        Sender(scripted({"path": "a/precious"}), str(place)).run()
    outcome = Sender(scripted({"path": "a"}, {"end": 1}), str(place)).run()
    assert outcome["end"] == 1  # the link itself is named as what cannot be read, and nothing more


def test_what_is_sent_lies_below_the_root(place: Path) -> None:
    (place / "out").symlink_to(place.parent)
    with pytest.raises(BadTree, match="outside"):
        Sender(scripted({"end": 1}), str(place), "out").run()
    with pytest.raises(BadTree, match="outside"):
        Sender(scripted({"end": 1}), str(place), "../precious").run()
