"""From project to folder and back; several at once; killed on the way."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import PATIENCE, need_python
from tests.properties import examples

import echelon.agent
from echelon.agent.setup import untar
from echelon.agent.setup.unpack import BadBundle, unpack
from echelon.bundle import Bundle, pack, pack_files, survey, withheld

AGENT = Path(echelon.agent.__file__).parent
CODE = pack_files({f"folder{number % 7}/file{number}.py": b"x" * number for number in range(300)})


def tree(root: Path) -> dict[str, object]:
    """All that matters of a folder: content and the executable bit, where links point, folders."""
    seen: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            seen[name] = str(path.readlink())
        elif path.is_dir():
            seen[name] = None
        else:
            seen[name] = (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return seen


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def is_complete(target: Path, bundle: Bundle = CODE) -> bool:
    files = [path for path in target.rglob("*") if path.is_file() and path.name != untar.MARKER]
    return len(files) == bundle.files and sum(path.stat().st_size for path in files) == bundle.size


def test_the_digest_is_checked_first(tmp_path: Path) -> None:
    with pytest.raises(BadBundle, match="does not have the digest"):
        unpack(CODE.data, "0" * 64, str(tmp_path / "deep/target"))
    with pytest.raises(BadBundle, match="does not have the digest"):
        unpack(CODE.data + b"x", CODE.digest, str(tmp_path / "deep/target"))
    assert not list(tmp_path.iterdir())


def test_unpacked_once_then_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = unpack(CODE.data, CODE.digest, "deep/target")
    assert target == str(tmp_path / "deep/target")
    assert is_complete(Path(target))
    (Path(target) / "written-by-the-run").touch()
    identity = Path(target).stat().st_ino
    assert unpack(CODE.data, CODE.digest, target) == target
    assert Path(target).stat().st_ino == identity
    assert (Path(target) / "written-by-the-run").exists()
    assert names(tmp_path / "deep") == ["target"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    assert is_complete(Path(unpack(CODE.data, CODE.digest, str(tmp_path / "target"))))


def test_something_else_is_not_overwritten(tmp_path: Path) -> None:
    other = pack_files({"other.py": b""})
    full, file, link, code = (tmp_path / name for name in ("full", "file", "link", "code"))
    full.mkdir()
    (full / "precious").touch()
    file.write_text("precious")
    link.symlink_to(full)
    unpack(other.data, other.digest, str(code))
    for target in (full, file, link, code):
        with pytest.raises(FileExistsError, match="something else"):
            unpack(CODE.data, CODE.digest, str(target))
    assert names(tmp_path) == ["code", "file", "full", "link"]
    assert (full / "precious").exists()
    assert names(code) == [untar.MARKER, "other.py"]


def test_for_this_user_alone(tmp_path: Path) -> None:
    target = Path(unpack(CODE.data, CODE.digest, str(tmp_path / "target")))
    assert stat.S_IMODE(target.stat().st_mode) == 0o700


def test_both_ends_mean_the_same_marker() -> None:
    assert untar.MARKER == survey.MARKER


# Hypothesis tries the strings it finds in the code: names that mean something to the client are left out.
MEANING = {
    *survey._NEVER,
    *survey._ENVIRONMENT,
    *withheld._SECRET_NAMES,
    "CACHEDIR.TAG",
    "runs",
    ".gitignore",
    ".echelonignore",
    ".",
    "..",
}
ENDINGS = (".pyc", *withheld._INCOMPLETE_SUFFIXES, *withheld._SECRET_SUFFIXES)
NAME = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda name: name not in MEANING and not name.endswith(ENDINGS) and not name.startswith(".env."))
PATHS = st.lists(NAME, min_size=1, max_size=4).map("/".join)
LONG = st.just("/".join(["quite-a-long-name"] * 12))
KINDS = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=2000)),
    st.tuples(st.just("program"), st.binary(max_size=2000)),
    st.tuples(
        st.just("link"), st.one_of(NAME, st.sampled_from(["/mnt/data", "/" + "deep/" * 30, "./x", "a/../b"]))
    ),
    st.tuples(st.just("folder"), st.just(b"")),
)


@settings(max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(entries=st.dictionaries(st.one_of(PATHS, LONG), KINDS, max_size=12))
def test_there_and_back(entries: dict[str, tuple[str, bytes | str]]) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve() / "project"
        root.mkdir()
        for path, (kind, content) in entries.items():
            make(root / path, kind, content)
        bundle = pack(root)
        target = Path(unpack(bundle.data, bundle.digest, str(root.parent / "target")))
        assert tree(target) == {**tree(root), untar.MARKER: (bundle.digest.encode(), False)}
        (target / untar.MARKER).unlink()
        assert pack(target) == bundle


def make(path: Path, kind: str, content: bytes | str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir()
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.touch(exist_ok=False)
            path.write_bytes(content)
            path.chmod(0o700 if kind == "program" else 0o600)
    except (FileExistsError, NotADirectoryError, FileNotFoundError):
        pass  # names of one draw may exclude each other, or run through a link


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from echelon.agent.setup.unpack import unpack
with open(sys.argv[2], "rb") as file:
    data = file.read()
print("ready", flush=True)
sys.stdin.readline()
{before}
print(unpack(data, sys.argv[3], sys.argv[4]))
"""


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """The two files by themselves, as the agent ships them: they need nothing else of echelon."""
    package = tmp_path / "alone" / "echelon" / "agent" / "setup"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()
    for name in ("unpack.py", "untar.py"):
        shutil.copy(AGENT / "setup" / name, package / name)
    return tmp_path / "alone"


def start(
    alone: Path, bundle: Bundle, target: Path, *, before: str = "", python: str = sys.executable
) -> subprocess.Popen[str]:
    """A process that has the bundle in hand and waits for the word."""
    (alone / bundle.digest).write_bytes(bundle.data)
    script = CHILD.format(before=before)
    command = [
        python,
        "-I",
        "-W",
        "error",
        "-c",
        script,
        str(alone),
        str(alone / bundle.digest),
        bundle.digest,
        str(target),
    ]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    first = child.stdout.readline()
    if first != "ready\n":
        pytest.fail(first + child.communicate()[1])
    return child


def test_several_at_once_end_up_with_one_folder(tmp_path: Path, alone: Path) -> None:
    for number in range(3):
        target = tmp_path / f"place{number}" / "code"
        children = [start(alone, CODE, target) for _ in range(6)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        answers = [child.communicate(timeout=PATIENCE) for child in children]
        assert [answer for answer in answers if answer != (f"{target}\n", "")] == []
        assert is_complete(target)
        assert names(target.parent) == ["code"]


BIG = pack_files({**{f"a{number}": b"x" for number in range(50)}, "big": bytes(1_000_000), "z": b"last"})
LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.{how})
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
"""


def test_killed_in_the_middle_then_again(tmp_path: Path, alone: Path) -> None:
    """The kernel itself kills it, while it writes a file larger than it may."""
    target = tmp_path / "place" / "code"
    child = start(alone, BIG, target, before=LIMITED.format(how="SIG_DFL"))
    child.communicate("\n", timeout=PATIENCE)
    assert child.returncode == -signal.SIGXFSZ
    (left,) = target.parent.iterdir()
    assert left.name.endswith(".unpacking")
    assert (left / "a0").exists()
    assert is_complete(Path(unpack(BIG.data, BIG.digest, str(target))), BIG)
    assert names(target.parent) == ["code"]


def test_a_full_disk_leaves_nothing(tmp_path: Path, alone: Path) -> None:
    target = tmp_path / "place" / "code"
    child = start(alone, BIG, target, before=LIMITED.format(how="SIG_IGN"))
    _, errors = child.communicate("\n", timeout=PATIENCE)
    assert "OSError: [Errno 27]" in errors
    assert not list(target.parent.iterdir())


def test_killed_at_any_moment_then_again(tmp_path: Path, alone: Path) -> None:
    rng = random.Random(3)
    target = tmp_path / "place" / "code"
    for _ in range(8):
        child = start(alone, CODE, target)
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        time.sleep(rng.uniform(0, 0.05))
        child.kill()
        child.communicate()
        assert is_complete(Path(unpack(CODE.data, CODE.digest, str(target))))
        assert names(target.parent) == ["code"]
        shutil.rmtree(target)


STOPPED = """
import os, signal, echelon.agent.setup.unpack as made
go_on = made._put_in_place
def stop_first(*arguments):
    os.kill(os.getpid(), signal.SIGSTOP)
    go_on(*arguments)
made._put_in_place = stop_first
"""


def test_a_folder_in_the_making_is_left_alone(tmp_path: Path, alone: Path) -> None:
    """One that unpacks meanwhile does not take the folder of another, living one for abandoned."""
    target = tmp_path / "place" / "code"
    child = start(alone, CODE, target, before=STOPPED)
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    os.waitpid(child.pid, os.WUNTRACED)
    assert is_complete(Path(unpack(CODE.data, CODE.digest, str(target))))
    assert len(names(target.parent)) == 2
    os.kill(child.pid, signal.SIGCONT)
    assert child.communicate(timeout=PATIENCE) == (f"{target}\n", "")
    assert names(target.parent) == ["code"]


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_on_other_pythons(tmp_path: Path, alone: Path, version: str) -> None:
    python = need_python(version)
    (tmp_path / "project/empty").mkdir(parents=True)
    (tmp_path / "project/ünï").write_text("x")
    (tmp_path / "project/link").symlink_to("ünï")
    (tmp_path / "project" / os.fsdecode(b"caf\xe9")).touch()
    (tmp_path / "project" / ("long" * 40)).touch()
    bundle = pack(tmp_path / "project")
    child = start(alone, bundle, tmp_path / "target", python=python)
    assert child.communicate("\n", timeout=PATIENCE) == (f"{tmp_path / 'target'}\n", "")
    (tmp_path / "target" / untar.MARKER).unlink()
    assert tree(tmp_path / "target") == tree(tmp_path / "project")
    assert hashlib.sha256(bundle.data).hexdigest() == bundle.digest
