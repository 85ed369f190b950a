"""Whatever others write into the objects of a namespace: no traceback, no write outside, no escape sequence.

Every field of every object that the engine reads is replaced by anything, and the commands that read them are
called, on a terminal's stand-in. A run that cannot be read is one line, and the others are as before."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.engines.kubernetes.hostile import LOG, RUN, TITLE, Shelf, garbled, replaced, whole_cluster
from tests.properties import examples

from echelon.cli.main import call
from echelon.engines.kubernetes import names
from echelon.engines.machine import Submissions

CLUSTER = whole_cluster()
READING = (
    ["ps", "-a", "-A"],
    ["status", RUN],
    ["top", "--once"],
    ["logs", RUN],
    ["volume", "ls"],
    ["run", "--dry-run", "--name", "mine", "--image", "a/b", "--gpus", "1", "--", "true"],
    ["doctor"],
)
CHANGING = (
    ["get", RUN, "--to", "there"],
    ["wait", RUN, "--timeout", "0.3s"],
    ["stop", "--now", "queued"],
    ["rm", RUN],
)
Said = tuple[int, str]


class Screen(io.StringIO):
    """What a terminal would show."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with something worth stealing, and a working folder beside it."""
    root = tmp_path_factory.mktemp("world")
    for folder in ("home/.ssh", "work", "state"):
        (root / folder).mkdir(parents=True)
    (root / "home/.ssh/authorized_keys").write_text("mine")
    (root / "config").write_text(
        json.dumps(
            {
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "current-context": "c",
            }
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root / "work")
        for name, value in {
            "HOME": str(root / "home"),
            "ECHELON_HOME": str(root / "state"),
            "KUBECONFIG": str(root / "config"),
            "ECHELON_ON": "k8s",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "LOGNAME": "ann",
        }.items():
            patch.setenv(name, value)
        patch.setattr("echelon.engines.kubernetes.follow.follow._TICK", 0.02)
        patch.setattr("echelon.engines.kubernetes.objects._GONE", 0.1)
        patch.setattr("echelon.handle.STOP_PATIENCE", 0.3)
        yield root


def say(shelf: Shelf, *words: str) -> Said:
    """What a command shows, and its exit code; anything but an error of ours is raised."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(Screen()) as out,
        contextlib.redirect_stderr(out),
    ):
        patch.setattr("echelon.engines.kubernetes.client.api.Session", shelf.session)
        return call(list(words)), out.getvalue()


def check(world: Path, code: int, shown: str) -> None:
    assert 0 <= code <= 255
    assert not set(shown) & {"\x1b", "\x9b", "\x9d", "\x07", "\x00"}, shown
    assert sorted(each.name for each in world.iterdir()) == ["config", "home", "state", "work"]
    assert sorted(str(each) for each in (world / "home").rglob("*")) == [
        str(world / "home/.ssh"),
        str(world / "home/.ssh/authorized_keys"),
    ]
    assert (world / "home/.ssh/authorized_keys").read_text() == "mine"


MANY = settings(
    max_examples=int(os.environ.get("ECHELON_FUZZ", examples(40))),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FEW = settings(MANY, max_examples=max(10, MANY.max_examples // 5))


def at_hour(hour: int) -> SimpleNamespace:
    """The module `time` on a certain day: what it shows is one character longer from ten o'clock on."""
    now = datetime(2026, 3, 1, hour, tzinfo=UTC).timestamp()
    return SimpleNamespace(time=lambda: now, strftime=time.strftime, localtime=time.localtime)


@pytest.mark.parametrize("hour", [1, 11])
@pytest.mark.parametrize("columns", ["50", "80", "200"])
def test_the_cluster_is_well_before_anything_is_garbled(
    world: Path, monkeypatch: pytest.MonkeyPatch, hour: int, columns: str
) -> None:
    monkeypatch.setattr("echelon.cli.printing.render.time", at_hour(hour))
    monkeypatch.setenv("TERM", "xterm")  # a dumb one has 80 columns, whatever it says
    monkeypatch.setenv("COLUMNS", columns)
    shelf = Shelf(CLUSTER, LOG)
    code, table = say(shelf, "ps", "-a", "-A")
    assert code == 0
    rows = re.findall(r"^.* (\S+) +(running|stopped|queued) ", table, re.MULTILINE)
    assert sorted(rows) == [
        ("ended", "stopped"),
        (RUN, "running"),
        ("queued", "queued"),
        ("stopped", "stopped"),
    ], table
    code, text = say(shelf, "status", RUN)
    assert "running" in text
    assert "rank 0 failed" in text
    assert say(shelf, "logs", RUN) == (0, "hello\n")
    code, text = say(shelf, "top", "--once")
    assert "node-a" in text
    assert "queued" not in text or code == 0
    assert "data" in say(shelf, "volume", "ls")[1]
    assert not shelf.changes
    _, text = say(shelf, "doctor")
    for what in ("node-a", "fast", "restricted", "kueue", "queue"):
        assert what in text.lower(), text


@MANY
@given(objects=garbled(CLUSTER))
def test_reading_commands(world: Path, objects: list[Any]) -> None:
    for words in READING:
        check(world, *say(Shelf(objects, LOG), *words))


@MANY
@given(
    objects=garbled([each for each in CLUSTER if each["kind"] not in ("ConfigMap", "Job", "Pod", "Event")])
)
def test_doctor(world: Path, objects: list[Any]) -> None:
    check(world, *say(Shelf(objects, LOG), "doctor"))


@pytest.mark.soak
@settings(MANY, max_examples=2000)
@given(objects=garbled(CLUSTER))
def test_reading_commands_many_times(world: Path, objects: list[Any]) -> None:
    for words in READING:
        check(world, *say(Shelf(objects, LOG), *words))


@FEW
@given(objects=garbled(CLUSTER[:6]))
def test_commands_that_fetch_wait_and_remove(world: Path, objects: list[Any]) -> None:
    for words in CHANGING:
        check(world, *say(Shelf(objects, LOG), *words))


PLAN = ("metadata", "annotations", "echelon.dev/plan", None)


def with_field(kind: str, place: tuple[Any, ...], value: Any, which: int = 0) -> list[Any]:
    """The cluster, with something else in one field of one of its objects of a kind."""
    at = [number for number, each in enumerate(CLUSTER) if each["kind"] == kind][which]
    return [*CLUSTER[:at], replaced(CLUSTER[at], place, lambda _: value), *CLUSTER[at + 1 :]]


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        *(("ConfigMap", note) for note in ("tender", "shipped", "schema", "dialect")),
        *(("Job", note) for note in ("plan", "queued", "tended", "admitted", "whole")),
    ],
)
@pytest.mark.parametrize("run", [RUN, "queued"])
def test_garbage_in_an_annotation_breaks_nothing_for_others(
    world: Path, kind: str, note: str, run: str
) -> None:
    mine = [each for each in CLUSTER if each["kind"] == kind]
    (which,) = (number for number, each in enumerate(mine) if each["metadata"]["name"] == run)
    notes = {**mine[which]["metadata"]["annotations"], f"echelon.dev/{note}": "abc"}
    objects = with_field(kind, ("metadata", "annotations"), notes, which)
    for words in (READING[0], READING[2], READING[5]):
        code, shown = say(Shelf(objects, LOG), *words)
        check(world, code, shown)
        assert code in (0, 113), shown
    rows = json.loads(say(Shelf(objects, LOG), "ps", "-a", "-A", "-o", "json")[1])
    assert [row["name"] for row in rows if row["state"] != "damaged"].count("ended") == 1
    assert len(rows) == 4


def test_a_record_that_cannot_be_read_is_one_line(world: Path) -> None:
    objects = with_field("ConfigMap", ("data", "record.json"), "{")
    code, shown = say(Shelf(objects, LOG), "ps", "-a", "-A", "-o", "json")
    rows = {row["name"]: row for row in json.loads(shown)}
    assert set(rows) == {RUN, "ended", "stopped", "queued"}
    assert rows[RUN]["state"] == "damaged"
    assert rows[RUN]["owner"] == "Ann <ann@example.com>"
    assert f"`echelon rm {RUN}` removes it" in rows[RUN]["reason"]
    code, shown = say(Shelf(objects, LOG), "status", RUN)
    assert (code, shown.count("\n")) == (0, 1)
    assert "cannot be read" in shown
    code, shown = say(Shelf(objects, LOG), "top", "--once")
    assert (code, [row.split()[:2] for row in shown.splitlines() if RUN in row][-1]) == (0, [RUN, "damaged"])
    code, shown = say(Shelf([each for each in objects if each["kind"] == "ConfigMap"], LOG), "top", "--once")
    assert [row.split()[:2] for row in shown.splitlines() if RUN in row] == [[RUN, "damaged"]], shown


def test_who_submitted_a_run_sees_it_whatever_others_made_of_its_record(world: Path) -> None:
    objects = with_field("ConfigMap", ("data", "record.json"), "{")
    shelf = Shelf(objects, LOG)

    def row(*words: str) -> dict[str, Any] | None:
        found = json.loads(say(shelf, "ps", "-a", *words, "-o", "json")[1])
        return next((each for each in found if each["name"] == RUN), None)

    everybodys = row("-A")
    assert everybodys is not None
    assert not everybodys["own"]
    assert row() is None
    ours, uid = Submissions(), CLUSTER[0]["metadata"]["uid"]
    ours.remember(uid, world / "work" / "runs" / RUN)
    try:
        assert row() == row("-A") == {**everybodys, "own": True}
    finally:
        ours.forget(uid)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("data", "record.json"), "{"),
        (("metadata", "annotations", "echelon.dev/schema"), "99"),
        (("metadata", "annotations", "echelon.dev/dialect"), "another"),
    ],
)
def test_a_record_that_cannot_be_read_is_not_removed_while_anything_of_its_run_lives(
    world: Path, place: tuple[Any, ...], value: str
) -> None:
    objects = with_field("ConfigMap", place, value)
    shelf = Shelf(objects, LOG)
    code, shown = say(shelf, "rm", RUN)
    assert (code, shelf.changes) == (115, []), shown
    assert re.search(rf"not over: (Job|Pod) {RUN}", " ".join(shown.split())), shown
    assert f"`echelon rm --force {RUN}`" in " ".join(shown.split())
    nothing_lives = Shelf([each for each in objects if each["kind"] not in ("Pod", "Job")], LOG)
    tries = [(nothing_lives, ["rm", RUN])]
    if value != "another":  # of which it is not known what its pods are made of
        tries.append((shelf, ["rm", "--force", RUN]))
    for there, words in tries:
        code, shown = say(there, *words)
        assert code == 0, shown
        assert any(each.verb == "delete" for each in there.changes)


@pytest.mark.parametrize("name", ["x" * 200, "a,b", "a)", "dotted.name", "../x"])
def test_a_record_with_a_name_that_is_no_runs_hides_no_other(world: Path, name: str) -> None:
    """A ConfigMap may have a longer name than a label's value, and a selector with it would be refused."""
    about = {**CLUSTER[3]["metadata"], "name": name, "uid": "odd"}
    code, shown = say(Shelf([*CLUSTER, {**CLUSTER[3], "metadata": about}], LOG), "ps", "-aA", "-o", "json")
    assert code == 0, shown
    assert {row["name"] for row in json.loads(shown)} == {RUN, "ended", "stopped", "queued"}
    check(world, *say(Shelf([*CLUSTER, {**CLUSTER[3], "metadata": about}], LOG), "status", "another"))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((*PLAN, "world", "groups", 0, "procs"), 10**9),
        ((*PLAN, "world", "groups", 0, "workers"), 10**9),
        ((*PLAN, "placement", "seats"), []),
        (("data", "record.json", None, "job", "name"), "../x"),
        (("data", "record.json", None, "job", "workers"), 10**12),
        (("data", "record.json", None, "job", "pod", "collect"), ["/data/.."]),
        (("data", "record.json", None, "created"), 1e300),
        (("metadata", "annotations", "echelon.dev/dialect"), "another"),
    ],
)
def test_a_record_that_makes_no_sense_is_unreadable(world: Path, place: tuple[Any, ...], value: Any) -> None:
    objects = with_field("Job" if place[: len(PLAN)] == PLAN else "ConfigMap", place, value)
    code, shown = say(Shelf(objects, LOG), "status", RUN)
    check(world, code, shown)
    assert (code == 115) or shown.startswith(f"{RUN}  damaged  "), shown
    for words in CHANGING[:2]:
        check(world, *say(Shelf(objects, LOG), *words))


def test_a_path_in_a_record_leads_no_write_anywhere(world: Path) -> None:
    """As a record of schema 1 had it: where results belong on the machine of who reads it."""
    theirs = str(world / "home/.ssh")
    objects = with_field("ConfigMap", ("data", "record.json", None, "results"), theirs)
    objects[0] = replaced(objects[0], ("metadata", "annotations", "echelon.dev/schema"), lambda _: "1")
    _, shown = say(Shelf(objects, LOG), "status", RUN)
    assert theirs not in shown
    assert f"runs/{RUN}" in shown
    check(world, *say(Shelf(objects, LOG), "get", RUN, "--to", "there"))


@pytest.mark.parametrize("place", [("data", "record.json", None, "job", "command", 0), ("metadata", "name")])
def test_an_escape_sequence_reaches_no_terminal(world: Path, place: tuple[Any, ...]) -> None:
    run = json.loads(CLUSTER[0]["data"]["record.json"])
    run["job"] |= {"script": None, "command": [f"a{TITLE}b"]}
    objects = [replaced(CLUSTER[0], ("data", "record.json"), lambda _: json.dumps(run)), *CLUSTER[1:]]
    if place[0] == "metadata":
        objects = with_field("Node", place, f"a{TITLE}b")
    seen = ""
    for words in READING[:3]:
        code, shown = say(Shelf(objects, LOG), *words)
        check(world, code, shown)
        seen += "".join(shown.split("\n"))
    assert "a\\x1b]0;" in seen


def test_an_escape_sequence_in_a_log_reaches_a_terminal_only_raw(world: Path) -> None:
    log = f"1767225600.004 0 [0] \x1b[32mgreen\x1b[0m{TITLE}\n[0 o 1 {'9' * 30}.004] odd{TITLE}\n".encode()
    shown = "\x1b[32mgreen\x1b[0m{title}\n" + f"[0 o 1 {'9' * 30}.004] odd" + "{title}\n"
    assert say(Shelf(CLUSTER, log), "logs", RUN) == (0, shown.format(title=""))
    assert say(Shelf(CLUSTER, log), "logs", "--raw", RUN) == (0, shown.format(title=TITLE))


def test_a_pod_or_a_job_that_only_carries_the_labels_is_no_worker(world: Path) -> None:
    job, pod = CLUSTER[4], CLUSTER[5]
    forged = replaced(pod, ("metadata", "name"), lambda _: "forged")
    forged["metadata"] |= {"uid": "forged", "creationTimestamp": "2026-02-01T00:00:00Z"}
    strangers = [
        {**forged["metadata"], "ownerReferences": []},
        {
            **forged["metadata"],
            "ownerReferences": [{"kind": "Job", "name": RUN, "uid": "x", "controller": True}],
        },
    ]
    theirs = replaced(job, ("metadata", "name"), lambda _: "theirs")
    theirs["metadata"] |= {"uid": "theirs"}
    theirs["spec"] = {**theirs["spec"], "completions": 2**31 - 1}
    gone = {"phase": "Failed", "reason": "Evicted", "message": "forged"}
    for about in strangers:
        shelf = Shelf([*CLUSTER, {**forged, "metadata": about, "status": gone}, theirs], LOG)
        for words in READING[:4]:
            code, shown = say(shelf, *words)
            assert code == 0
            assert "forged" not in shown
        assert "running" in say(shelf, "status", RUN)[1]


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        ("Job", ("spec", "completions"), 2**31 - 1),
        ("Job", ("metadata", "annotations", "echelon.dev/first-worker"), "x"),
        ("Pod", ("metadata", "annotations", names.COMPLETION_INDEX), "x"),
        ("Pod", ("spec", "containers", 0, "resources"), {"requests": {names.GPU: "1000000000000000"}}),
        ("Node", ("status", "allocatable", names.GPU), "1000000000000000"),
    ],
)
def test_huge_and_odd_numbers_take_no_longer(
    world: Path, kind: str, place: tuple[Any, ...], value: Any
) -> None:
    for words in READING:
        check(world, *say(Shelf(with_field(kind, place, value), LOG), *words))
