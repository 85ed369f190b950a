"""Which files of a project are shipped."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from echelon.bundle.survey import survey
from echelon.errors import CannotShip, InvalidJob

Git = Callable[..., bytes]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def write(root: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def shipped(root: Path, *include: str) -> list[str]:
    """The files and links of a project that are shipped."""
    found = survey(root, include=include).found
    return [each.path for each in found if not stat.S_ISDIR(each.status.st_mode)]


def test_everything_of_a_plain_folder_sorted(root: Path) -> None:
    write(root, "b.py", "a/z.py", "a.py", ".hidden", "a-1.py")
    assert shipped(root) == [".hidden", "a-1.py", "a.py", "a/z.py", "b.py"]


def test_ignore_files_count_without_a_repository(root: Path) -> None:
    write(root, "x.log", "keep.log", "sub/x.log", "sub/y.tmp", "sub/z.tmp")
    (root / ".gitignore").write_text("*.log\n!keep.log\n")
    (root / "sub/.gitignore").write_text("*.tmp\n!/z.tmp\n")
    assert shipped(root) == [".gitignore", "keep.log", "sub/.gitignore", "sub/z.tmp"]


def test_the_state_folder_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "train.py", "state/submitted/a.tar.gz", "sub/state/b")
    monkeypatch.setenv("ECHELON_HOME", f"{root}/sub/../state/")
    assert shipped(root) == ["sub/state/b", "train.py"]


@pytest.mark.parametrize(
    ("variable", "value", "state"),
    [
        ("ECHELON_HOME", "{root}/../link", "state"),
        ("XDG_STATE_HOME", "{root}/var", "var/echelon"),
        ("HOME", "{root}", ".local/state/echelon"),
    ],
)
def test_the_state_folder_stays_whatever_puts_it_there(
    variable: str, value: str, state: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project that is the home folder has it at its usual place."""
    write(root, "pyproject.toml", "echelon/b", f"{state}/submitted/a.tar.gz")
    (root.parent / "link").symlink_to(root / state)
    for other in ("ECHELON_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, value.format(root=root))
    assert not any("a.tar.gz" in path for path in shipped(root))
    assert "echelon/b" in shipped(root)


def test_below_an_ignored_folder_nothing_comes_back(root: Path) -> None:
    write(root, "data/keep.csv", "train.py")
    (root / ".gitignore").write_text("data/\n!data/keep.csv\n")
    (root / "data/.gitignore").write_text("!*\n")
    assert shipped(root) == [".gitignore", "train.py"]


def test_the_repositorys_rules_reach_a_project_inside_it(root: Path, git: Git) -> None:
    git("init", "-q", str(root))
    write(
        root,
        "packages/one/pyproject.toml",
        "packages/one/x.ckpt",
        "packages/one/x.tmp",
        "packages/one/x.priv",
    )
    (root / ".gitignore").write_text("*.ckpt\n/packages/one/*.tmp\n")
    (root / ".git/info/exclude").write_text("*.priv\n")
    assert shipped(root / "packages/one") == ["pyproject.toml"]


def test_a_project_that_its_repository_ignores_is_shipped_all_the_same(root: Path, git: Git) -> None:
    git("init", "-q", str(root))
    write(root, "scratch/one/train.py", "scratch/one/x.log")
    (root / ".gitignore").write_text("scratch/*\n*.log\n")
    assert shipped(root / "scratch/one") == ["train.py", "x.log"]


def test_what_git_tracks_is_shipped_although_ignored(root: Path, git: Git) -> None:
    git("init", "-q", str(root))
    write(root, "lib/tracked.so", "lib/new.so", "deep/lib/tracked.so", "gone.so")
    (root / ".gitignore").write_text("lib/\n*.so\n")
    git("-C", str(root), "add", "-f", "lib/tracked.so", "deep/lib/tracked.so", "gone.so")
    (root / "gone.so").unlink()
    assert shipped(root) == [".gitignore", "deep/lib/tracked.so", "lib/tracked.so"]
    assert shipped(root / "deep") == ["lib/tracked.so"]
    (root / ".echelonignore").write_text("deep/\n")
    assert shipped(root) == [".echelonignore", ".gitignore", "lib/tracked.so"]


def test_a_submodule_follows_its_own_rules(root: Path, tmp_path: Path, git: Git) -> None:
    library = tmp_path / "library"
    git("init", "-q", str(library))
    write(library, "a.bin", "b.tmp")
    (library / ".gitignore").write_text("*.bin\n")
    git("-C", str(library), "add", "-f", ".")
    git("-C", str(library), "commit", "-q", "-m", "all")
    git("init", "-q", str(root))
    git("-C", str(root), "submodule", "--quiet", "add", str(library), "vendor")
    (root / ".gitignore").write_text("*.tmp\n")
    write(root, "vendor/new.bin")
    assert shipped(root) == [".gitignore", ".gitmodules", "vendor/.gitignore", "vendor/a.bin", "vendor/b.tmp"]


def test_echelonignore_has_the_last_word(root: Path) -> None:
    write(root, "a.bin", "b.bin", "c.txt", "sub/c.txt", "sub/d.txt")
    (root / ".gitignore").write_text("*.bin\n")
    (root / ".echelonignore").write_text("!b.bin\nc.txt\n")
    (root / "sub/.gitignore").write_text("!c.txt\n")
    (root / "sub/.echelonignore").write_text("d.txt\n")
    assert [path for path in shipped(root) if "ignore" not in path] == ["b.bin"]


def test_never_shipped(root: Path) -> None:
    write(root, "venv/pyvenv.cfg", "venv/lib/x.py", "conda/conda-meta/history", "conda/bin/python")
    write(root, "__pycache__/a.pyc", "sub/__pycache__/b.pyc", "old.pyc", ".ipynb_checkpoints/n.ipynb")
    write(root, "web/node_modules/x/index.js", ".mypy_cache/x", ".ruff_cache/x", ".pytest_cache/x")
    write(root, "cache/CACHEDIR.TAG", "cache/x", text="Signature: 8a477f597d28d172789f06886806bc55\n")
    write(
        root,
        "runs/one/model.pt",
        ".git/HEAD",
        "sub/.git",
        ".echelon-bundle",
        "sub/CACHEDIR.TAG",
        "sub/runs/kept.py",
    )
    (root / "linked").symlink_to("venv")
    assert shipped(root) == ["sub/CACHEDIR.TAG", "sub/runs/kept.py"]


PRIVATE_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n"


def stays(root: Path, *include: str) -> dict[str, str]:
    return {each.path: each.why for each in survey(root, include=include).withheld}


def test_what_an_ignore_file_keeps_here_is_counted_folders_once(root: Path) -> None:
    write(root, "data/a.csv", "data/b.csv", "x.ckpt", "notes.txt", "train.py")
    (root / ".gitignore").write_text("data/\n*.ckpt\n")
    (root / ".echelonignore").write_text("notes.txt\n")
    assert stays(root) == {"data/": ".gitignore", "notes.txt": ".echelonignore", "x.ckpt": ".gitignore"}
    assert "data/" in stays(root, "x.ckpt")
    assert "x.ckpt" not in stays(root, "x.ckpt")


@pytest.mark.parametrize(
    "path",
    [".env", "deep/.env.local", ".env.production", "id_ed25519", ".netrc", "sub/.aws/credentials", "a.pfx"],
)
def test_what_looks_like_a_secret_by_its_name_stays(root: Path, path: str) -> None:
    write(root, path, "train.py")
    assert shipped(root) == ["train.py"]
    assert stays(root) == {path: "secret"}
    assert path in shipped(root, path)


def test_what_looks_like_a_secret_by_its_content_stays(root: Path) -> None:
    write(root, "tls/server.key", "tls/all.pem", text=PRIVATE_KEY)
    write(root, "tls/ca.pem", text=CERTIFICATE)
    write(root, "account.json", text='{"type": "service_account", "private_key": "x"}')
    write(root, "labels.json", ".env.example", "environment.py", "id_rsa.pub", text="{}")
    assert stays(root) == {"account.json": "secret", "tls/all.pem": "secret", "tls/server.key": "secret"}
    assert shipped(root) == [".env.example", "environment.py", "id_rsa.pub", "labels.json", "tls/ca.pem"]


def test_a_secret_comes_only_if_it_is_named_itself(root: Path, git: Git) -> None:
    git("init", "-q", str(root))
    write(root, "conf/.env", "conf/a.txt")
    git("-C", str(root), "add", "-f", "conf/.env")
    assert shipped(root, "conf", "conf/*") == ["conf/a.txt"]
    assert stays(root, "conf") == {"conf/.env": "secret"}
    assert shipped(root, "conf/.env") == ["conf/.env", "conf/a.txt"]
    (root / ".echelonignore").write_text("!.env\n")
    assert "conf/.env" in shipped(root)


def test_results_incomplete_downloads_and_images_stay_wherever_they_are(root: Path) -> None:
    write(
        root,
        "train.py",
        "sub/runs/one/model.pt",
        "sub/.echelon-partial/abc",
        "model.bin.part",
        "w.incomplete",
    )
    write(root, "src/runs/__init__.py", "src/runs/table.csv", "data.tar")
    for name, member in (
        ("image.tar", "oci-layout"),
        (".image.tar.x1y2", "oci-layout"),
        ("deep/docker.tar", "blobs/sha256/abc"),
        ("d.tar", "a.csv"),
    ):
        (root / name).parent.mkdir(exist_ok=True)
        with tarfile.open(root / name, "w") as tar:
            tar.addfile(tarfile.TarInfo(member))
    assert shipped(root) == ["d.tar", "data.tar", "src/runs/__init__.py", "src/runs/table.csv", "train.py"]
    assert stays(root) == {
        ".image.tar.x1y2": "image",
        "deep/docker.tar": "image",
        "image.tar": "image",
        "model.bin.part": "incomplete",
        "sub/.echelon-partial/": "incomplete",
        "sub/runs/": "results",
        "w.incomplete": "incomplete",
    }


def test_runs_may_be_a_link_but_a_file_of_that_name_is_a_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (root / "runs").symlink_to(tmp_path / "results")
    assert shipped(root) == []
    (root / "runs").unlink()
    write(root, "runs")
    assert shipped(root) == ["runs"]


def test_links_inside_stay_as_they_are(root: Path) -> None:
    write(root, "src/a.py")
    (root / "src/b.py").symlink_to("a.py")
    (root / "up").symlink_to("./src/../src")
    (root / "broken").symlink_to("nowhere")
    found = survey(root)
    assert {each.path: each.target for each in found.found if each.target} == {
        "src/b.py": "a.py",
        "up": "./src/../src",
        "broken": "nowhere",
    }
    assert not found.notes
    assert shipped(root) == ["broken", "src/a.py", "src/b.py", "up"]


def test_a_link_that_names_the_project_by_its_place_becomes_relative(root: Path, tmp_path: Path) -> None:
    write(root, "src/a.py")
    (tmp_path / "alias").symlink_to(root)
    (root / "src/absolute").symlink_to(root / "src/a.py")
    (root / "around").symlink_to("../project/src")
    (root / "aliased").symlink_to(tmp_path / "alias/src/a.py")
    found = survey(tmp_path / "alias")
    targets = {each.path: each.target for each in found.found if each.target}
    assert targets == {"src/absolute": "a.py", "around": "src", "aliased": "src/a.py"}
    assert not found.notes


def test_links_out_of_the_project_are_noted_and_not_followed(root: Path, tmp_path: Path) -> None:
    write(tmp_path, "data/huge.bin", "shared/x.py")
    (root / "data").symlink_to(tmp_path / "data")
    (root / "shared").symlink_to("../shared")
    (root / "ignored").symlink_to("/etc")
    (root / ".gitignore").write_text("ignored\n")
    found = survey(root)
    assert [each.path for each in found.found] == [".gitignore", "data", "shared"]
    assert [each.target for each in found.found] == ["", str(tmp_path / "data"), str(tmp_path / "shared")]
    assert len(found.notes) == 2
    assert all(
        str(tmp_path / name) in note
        for name, note in zip(("data", "shared"), sorted(found.notes), strict=True)
    )


def test_special_files_are_noted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "a.py")
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        found = survey(root)
    assert [each.path for each in found.found] == ["a.py"]
    assert sorted(found.notes) == ["pipe is a pipe: not shipped", "socket is a socket: not shipped"]


def test_empty_folders_are_found_but_are_no_files(root: Path) -> None:
    write(root, "logs/x.log", "full/a.py")
    (root / "empty/deep").mkdir(parents=True)
    (root / ".gitignore").write_text("*.log\n")
    assert [each.path for each in survey(root).found] == [".gitignore", "empty/deep", "full/a.py", "logs"]
    assert shipped(root) == [".gitignore", "full/a.py"]


def test_include_brings_back(root: Path) -> None:
    write(
        root, "data/a.csv", "data/deep/b.csv", "data/c.bin", "venv/pyvenv.cfg", "runs/one/model.pt", "x.log"
    )
    write(root, "data/__pycache__/m.pyc", "data/.git/HEAD")
    (root / ".gitignore").write_text("/data/\n*.log\n")
    assert shipped(root) == [".gitignore"]
    assert shipped(root, "x.log") == [".gitignore", "x.log"]
    assert shipped(root, str(root / "x.log"), "./data//c.bin") == [".gitignore", "data/c.bin", "x.log"]
    assert shipped(root, "data/**/*.csv") == [".gitignore", "data/a.csv", "data/deep/b.csv"]
    assert shipped(root, "data/") == [".gitignore", "data/a.csv", "data/c.bin", "data/deep/b.csv"]
    assert shipped(root, "d?ta/deep", "runs/one") == [".gitignore", "data/deep/b.csv", "runs/one/model.pt"]
    assert shipped(root, "venv") == [".gitignore", "venv/pyvenv.cfg"]
    assert shipped(root, "data/.git") == [".gitignore", "data/.git/HEAD"]


def test_an_include_that_is_named_like_a_glob_means_itself(root: Path) -> None:
    write(root, "x[1].log", "x1.log")
    (root / ".gitignore").write_text("*.log\n")
    assert shipped(root, "x[1].log") == [".gitignore", "x[1].log"]


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("*.parquet", "matches nothing"),
        ("missing/file", "matches nothing"),
        ("__pycache__/*.pyc", "matches nothing"),
        ("../other", "is not below the project"),
        ("/etc/passwd", "is not below the project"),
        ("", "is not below the project"),
        ("a/../..", "is not below the project"),
        ("a\0b", "is not below the project"),
        ("**x", "is not a glob"),
        ("link/file", "lies behind a symbolic link"),
        ("link/f*", "matches nothing"),
    ],
)
def test_an_include_without_a_match_is_named(root: Path, pattern: str, problem: str) -> None:
    write(root, "a.py", "__pycache__/a.pyc", "real/file")
    (root / "link").symlink_to("real")
    with pytest.raises(InvalidJob, match=problem) as caught:
        survey(root, include=["a.py", pattern])
    assert caught.value.field == "include"
    assert caught.value.value == pattern
    assert caught.value.hint


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A project seen by a user who may not read everything; root may, so it becomes somebody else."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    if os.geteuid():
        yield folder
    else:
        os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(0)
    shutil.rmtree(folder)


def test_what_cannot_be_read_is_named_unless_ignored(as_nobody: Path) -> None:
    def as_owner(change: Callable[[], object]) -> None:
        me = os.geteuid()
        if os.getuid() == 0:
            os.seteuid(0)
        change()
        os.seteuid(me)

    as_owner(lambda: write(as_nobody, "a.py", "secret.key", "closed/x", "fine/y"))
    as_owner(lambda: (as_nobody / "secret.key").chmod(0))
    with pytest.raises(CannotShip, match=r"secret\.key cannot be read: Permission denied"):
        survey(as_nobody)
    as_owner(lambda: (as_nobody / ".gitignore").write_text("*.key\n"))
    assert shipped(as_nobody) == [".gitignore", "a.py", "closed/x", "fine/y"]
    as_owner(lambda: (as_nobody / "closed").chmod(0))
    with pytest.raises(CannotShip, match="closed cannot be read"):
        survey(as_nobody)
    as_owner(lambda: (as_nobody / ".echelonignore").write_text("closed/\n"))
    assert shipped(as_nobody) == [".echelonignore", ".gitignore", "a.py", "fine/y"]
    as_owner(lambda: (as_nobody / "closed").chmod(0o755))


NAME = st.sampled_from(["a", "b", "c.log", "d.txt", "e f", "é", "src", "out", "*x", "[y]"])
FILES = st.sets(st.lists(NAME, min_size=1, max_size=4).map("/".join), min_size=1, max_size=14)
LINES = [
    "*.log",
    "!c.log",
    "src/",
    "/src",
    "src/*",
    "!src/a",
    "**/out",
    "out/**",
    "a",
    "!a",
    "*",
    "!*/",
    "e\\ f",
]
LINES += [
    "[[]y]",
    "/*/*",
    "!/a/**/b",
    "d.???",
    "é",
    "\\*x",
    "a/b",
    "**/a/*",
    "b/",
    "!b/",
    "# a",
    " ",
    "c.*  ",
]
RULES = st.lists(st.sampled_from(LINES), min_size=1, max_size=5).map("\n".join)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), files=FILES)
def test_the_same_files_as_git(git: Git, data: st.DataObject, files: set[str]) -> None:
    """Nested ignore files, private rules, tracked files, a project that is a folder of its repository."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve() / "repository"
        git("init", "-q", str(root))
        tops = {path.split("/")[0] for path in files}
        for path in sorted(files, key=len, reverse=True):
            full = root / path
            if not full.exists() and not any(above.is_file() for above in full.parents):
                full.parent.mkdir(parents=True, exist_ok=True)
                full.touch()
        folders = [
            root,
            *(path for path in sorted(root.rglob("*")) if path.is_dir() and ".git" not in path.parts),
        ]
        tracked = data.draw(st.sets(st.sampled_from(sorted(files)), max_size=3), label="tracked")
        existing = [path for path in sorted(tracked) if (root / path).is_file()]
        if existing:
            git("--literal-pathspecs", "-C", str(root), "add", "-f", "--", *existing)
        for folder in data.draw(st.sets(st.sampled_from(folders), max_size=3), label="ignore files in"):
            (folder / ".gitignore").write_text(data.draw(RULES, label=str(folder)))
        (root / ".git/info/exclude").write_text(data.draw(st.one_of(st.just(""), RULES), label="exclude"))

        def is_ignored(path: str) -> bool:
            try:
                return not git("-C", str(root), "check-ignore", "--no-index", "-q", "--", path)
            except subprocess.CalledProcessError:
                return False

        answer = git("-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        expected = sorted(path for path in answer.decode().split("\0") if path)
        assert sorted(shipped(root)) == expected
        for top in sorted(tops):
            below = [path.removeprefix(f"{top}/") for path in expected if path.startswith(f"{top}/")]
            if below and not is_ignored(top):
                assert sorted(shipped(root / top)) == below
