"""The example's data: read in each of its forms, refused in one clear line, fetched with the real apt-get."""

import gzip
import importlib.util
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fashion_mnist"
NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

MakeIdxFolder = Callable[..., Path]
Fetch = Callable[..., "subprocess.CompletedProcess[str]"]


def idx(shape: tuple[int, ...], values: bytes) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values


def test_plain_and_compressed_idx_files_read_the_same(
    make_idx_folder: MakeIdxFolder, example: dict[str, ModuleType], tmp_path: Path
) -> None:
    import torch

    plain = make_idx_folder(tmp_path / "plain", train=20, test=10)
    compressed = make_idx_folder(tmp_path / "compressed", train=20, test=10, compress=True)
    splits = [*example["data"].load(plain), *example["data"].load(compressed)]
    assert [tuple(split.images.shape) for split in splits] == [(20, 28, 28), (10, 28, 28)] * 2
    assert [split.labels.dtype for split in splits] == [torch.int64] * 4
    for one, other in zip(splits[:2], splits[2:], strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.labels, other.labels)
    raw = (plain / "train-images-idx3-ubyte").read_bytes()
    assert bytes(splits[0].images.flatten().tolist()) == raw[16:]
    assert torch.equal(splits[0].labels * 25 // 25, splits[0].images[:, 0, 0].long() // 25)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("train-images-idx3-ubyte", b"", "is not an IDX file"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "is not an IDX file"),
        ("train-images-idx3-ubyte", b"\0\0\x0d\x01\0\0\0\0", "is not an IDX file"),
        (
            "train-images-idx3-ubyte",
            idx((2, 28, 28), b"\1" * 784),
            "holds 784 values, but its header promises 1568",
        ),
        ("train-images-idx3-ubyte", idx((2, 28, 28), b"\1" * 1568), "the shapes (2, 28, 28) and (20,)"),
        ("train-images-idx3-ubyte", idx((0, 28, 28), b""), "the shapes (0, 28, 28) and (20,)"),
        ("train-images-idx3-ubyte", idx((20, 14, 14), b"\1" * 20 * 196), "the shapes (20, 14, 14) and (20,)"),
        ("train-labels-idx1-ubyte", idx((20,), b"\x0a" * 20), "not one of the ten classes"),
        ("t10k-labels-idx1-ubyte", None, "lacks t10k-labels-idx1-ubyte"),
        ("train-images-idx3-ubyte.gz", b"not compressed", "cannot be read"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx((1,), b"1"), mtime=0)[:-9], "cannot be read"),
    ],
)
def test_damaged_files_are_named(
    make_idx_folder: MakeIdxFolder,
    example: dict[str, ModuleType],
    tmp_path: Path,
    name: str,
    content: bytes | None,
    complaint: str,
) -> None:
    folder = make_idx_folder(tmp_path / "idx", train=20, test=10)
    (folder / name.removesuffix(".gz")).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(example["idx"].DataError, match=re.escape(complaint)) as caught:
        example["data"].load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # loads torch in a new process
def test_folder_without_data_is_one_line(clean_environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "train.py"), "--data_path", str(tmp_path)]
    done = subprocess.run(command, env=clean_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(rf"train\.py: {re.escape(str(tmp_path))} holds no Fashion-MNIST: .*\n", done.stderr)


def test_hugging_face_folder_without_its_package(
    example: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    monkeypatch.setitem(sys.modules, "datasets", None)  # as if it were not installed
    with pytest.raises(example["idx"].DataError, match="pip install datasets"):
        example["data"].load(tmp_path)


ROUND_TRIP = """
import sys
from pathlib import Path
import datasets, PIL.Image, torch
sys.path.insert(0, sys.argv[1])
import data
folder = Path(sys.argv[2])
expected = data.load(folder / "idx")
features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})

def column_wise(split):
    pictures = [PIL.Image.fromarray(picture.numpy()) for picture in split.images]
    return datasets.Dataset.from_dict({"image": pictures, "label": split.labels.tolist()}, features=features)

splits = {"train": column_wise(expected[0]), "test": column_wise(expected[1])}
datasets.DatasetDict(splits).save_to_disk(str(folder / "hf"))
for one, other in zip(data.load(folder / "hf"), expected, strict=True):
    assert torch.equal(one.images, other.images)
    assert torch.equal(one.labels, other.labels)
"""


@pytest.mark.slow
def test_hugging_face_folder(
    make_idx_folder: MakeIdxFolder, clean_environment: dict[str, str], tmp_path: Path
) -> None:
    """In a process of its own: the library loads every framework it finds, and not all of them get along."""
    for package in ("datasets", "PIL"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    make_idx_folder(tmp_path / "idx", train=20, test=10)
    command = [sys.executable, "-c", ROUND_TRIP, str(EXAMPLE), str(tmp_path)]
    environment = clean_environment | {"USE_TF": "0", "USE_JAX": "0", "PYTHONWARNINGS": "default"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fetch(clean_environment: dict[str, str]) -> Fetch:
    def run(target: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(EXAMPLE / "fetch_data.py"), str(target)]
        return subprocess.run(
            command, env=clean_environment | environment, capture_output=True, text=True, check=False
        )

    return run


def test_fetch_does_nothing_where_the_data_is(fetch: Fetch, real_data: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in real_data.iterdir()}
    done = fetch(real_data, PATH="/nonexistent")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"Fashion-MNIST is already in {real_data}\n",
        "",
    )
    assert {path.name: path.stat().st_mtime_ns for path in real_data.iterdir()} == before


def test_fetch_without_apt_says_what_else_to_do(fetch: Fetch, tmp_path: Path) -> None:
    done = fetch(tmp_path / "target", PATH="/nonexistent")
    assert done.returncode == 1
    assert re.fullmatch(r"fetch_data\.py: there is no apt-get.*--data_path.*\n", done.stderr)
    assert not (tmp_path / "target").exists()


def make_repository(folder: Path, content: Path) -> Path:
    """A Debian repository with the package, on this machine, and the apt configuration that knows only it."""
    tree, pool = folder / "tree", folder / "pool"
    (tree / "DEBIAN").mkdir(parents=True)
    pool.mkdir()
    control = (
        "Package: dataset-fashion-mnist\nVersion: 1\nArchitecture: all\nMaintainer: a@b.c\nDescription: d\n"
    )
    (tree / "DEBIAN" / "control").write_text(control)
    shutil.copytree(content, tree / "usr/share/datasets/fashion-mnist", ignore=shutil.ignore_patterns(".*"))
    package = pool / "dataset-fashion-mnist_1_all.deb"
    build = ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(package)]
    subprocess.run(build, check=True, capture_output=True)
    digest = subprocess.run(["sha256sum", str(package)], check=True, capture_output=True, text=True).stdout
    index = (
        f"{control}Filename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {digest.split()[0]}\n"
    )
    (pool / "Packages").write_text(index)
    (folder / "sources.list").write_text(f"deb [trusted=yes] file:{pool} ./\n")
    (folder / "lists").mkdir()
    configuration = folder / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::SourceList "{folder}/sources.list"; Dir::Etc::SourceParts "/nonexistent";\n'
        f'Dir::State::Lists "{folder}/lists";\n'
    )
    return configuration


@pytest.mark.skipif(not (shutil.which("apt-get") and shutil.which("dpkg-deb")), reason="this is not Debian")
@pytest.mark.slow
def test_fetch_with_apt_and_without_package_lists(fetch: Fetch, real_data: Path, tmp_path: Path) -> None:
    configuration = make_repository(tmp_path, real_data)
    target = tmp_path / "new" / "target"
    done = fetch(target, APT_CONFIG=str(configuration))
    assert (done.returncode, done.stderr) == (0, "")
    assert "reading them afresh" in done.stdout
    assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.gz" for name in NAMES)
    for name in NAMES:
        assert (target / f"{name}.gz").read_bytes() == (real_data / f"{name}.gz").read_bytes()

    (target / f"{NAMES[0]}.gz").write_bytes(b"half a fi")
    assert fetch(target, APT_CONFIG=str(configuration)).returncode == 0
    assert (target / f"{NAMES[0]}.gz").stat().st_size > 1_000_000

    package = tmp_path / "pool" / "dataset-fashion-mnist_1_all.deb"
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(content)
    refused = fetch(tmp_path / "other", APT_CONFIG=str(configuration))
    assert refused.returncode == 1
    assert re.fullmatch(r"fetch_data\.py: apt-get cannot download.*\n", refused.stderr)
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("compression", ["xz", "gz"])
def test_unpacking_without_dpkg_takes_only_the_data(
    make_idx_folder: MakeIdxFolder,
    example: dict[str, ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
) -> None:
    source = make_idx_folder(tmp_path / "source", train=20, test=10, compress=True)
    archive = tmp_path / f"data.tar.{compression}"
    with tarfile.open(archive, "w:xz") if compression == "xz" else tarfile.open(archive, "w:gz") as tar:
        tar.add(source, "./usr/share/datasets/fashion-mnist")
        tar.add(source / f"{NAMES[0]}.gz", "../../escaped")
        tar.add(source / f"{NAMES[0]}.gz", "./usr/share/doc/README.gz")
        link = tarfile.TarInfo(NAMES[0])
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)

    def member(name: str, content: bytes) -> bytes:
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
        return header.encode() + content + b"\n" * (len(content) % 2)

    package = tmp_path / "package.deb"
    members = (
        member("debian-binary", b"2.0\n")
        + member("control.tar.xz", b"odd")
        + member(archive.name, archive.read_bytes())
    )
    package.write_bytes(b"!<arch>\n" + members)
    folder = tmp_path / "unpacked"
    folder.mkdir()
    monkeypatch.setenv("PATH", "/nonexistent")
    example["fetch_data"].unpack(package, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.gz" for name in NAMES)
    for name in NAMES:
        assert (folder / f"{name}.gz").read_bytes() == (source / f"{name}.gz").read_bytes()

    for damaged in (b"", b"!<arch>\n", b"!<arch>\n" + b"x" * 60, package.read_bytes()[:-200]):
        package.write_bytes(damaged)
        with pytest.raises(example["idx"].DataError, match=r"package\.deb cannot be unpacked"):
            example["fetch_data"].unpack(package, folder)
