"""Fetch Fashion-MNIST from Debian's package `dataset-fashion-mnist`, without root: fetch_data.py TARGET_DIR.

apt-get checks the package against the distribution's signatures; of what is in it only the four data files
are taken. Standard library only.
"""

import argparse
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from pathlib import Path

from idx import DataError, find_idx, read_idx

PACKAGE = "dataset-fashion-mnist"
SHAPES = {
    "train-images-idx3-ubyte": (60000, 28, 28),
    "train-labels-idx1-ubyte": (60000,),
    "t10k-images-idx3-ubyte": (10000, 28, 28),
    "t10k-labels-idx1-ubyte": (10000,),
}
OTHER_WAYS = (
    "--data_path of train.py takes any folder with the four IDX files of Fashion-MNIST, "
    "or its Hugging Face dataset after save_to_disk"
)


def check(folder: Path) -> None:
    """Raise DataError unless the folder holds all of Fashion-MNIST, each file whole."""
    for name, expected in SHAPES.items():
        path = find_idx(folder, name)
        if path is None:
            raise DataError(f"{folder} lacks {name}[.gz]")
        shape, _ = read_idx(path)
        if shape != expected:
            raise DataError(f"{path} has the shape {shape}, not {expected}")


def download(folder: Path) -> Path:
    """Let apt-get put the package into the folder."""
    lists, cache = folder / "lists", folder / "cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives/partial").mkdir(parents=True)
    # All that apt-get writes lies in our folder, which the sandbox user it has for root could not enter.
    own_cache = ("-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=root")
    failures = [_apt_get(folder, *own_cache, "download", PACKAGE)]
    if failures[0]:
        print("the package lists of this system do not serve: reading them afresh", flush=True)
        own_lists = (*own_cache, "-o", f"Dir::State::Lists={lists}")
        # A source that has nothing to do with us may fail here; what counts is whether the download works.
        failures.append(_apt_get(folder, *own_lists, "update"))
        failures.append(_apt_get(folder, *own_lists, "download", PACKAGE))
        if failures[-1]:
            reasons = "; ".join(dict.fromkeys(filter(None, failures)))
            raise DataError(
                f"apt-get cannot download {PACKAGE} ({reasons}): is the network there, and does "
                f"`sudo apt-get update` work? Otherwise: {OTHER_WAYS}"
            )
    return next(folder.glob(f"{PACKAGE}_*.deb"))


def _apt_get(folder: Path, *arguments: str) -> str:
    """The first error that apt-get names, or nothing if it succeeded."""
    done = subprocess.run(["apt-get", "-q", *arguments], cwd=folder, capture_output=True, check=False)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode(errors="replace").splitlines()
    errors = (line.removeprefix("E: ").strip() for line in lines if line.startswith("E: "))
    return next(errors, f"exit code {done.returncode}")


def unpack(package: Path, folder: Path) -> None:
    """Copy the data files out of the package, by their names alone: no path inside it is followed."""
    wanted = set(SHAPES) | {f"{name}.gz" for name in SHAPES}
    try:
        with tarfile.open(fileobj=io.BytesIO(_data_archive(package))) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in wanted else None
                if content:
                    (folder / name).write_bytes(content.read())
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError) as error:
        raise DataError(f"{package.name} cannot be unpacked: {error}") from error


def _data_archive(package: Path) -> bytes:
    """The tar archive with a Debian package's files; the package is an `ar` archive, and that one member."""
    if shutil.which("dpkg-deb"):  # knows every compression that a package may use
        command = ["dpkg-deb", "--fsys-tarfile", str(package)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode != 0:
            raise ValueError(done.stderr.decode(errors="replace").strip())
        return done.stdout
    content = package.read_bytes()
    position = len(b"!<arch>\n")
    while content.startswith(b"!<arch>\n") and position + 60 <= len(content):
        header = content[position : position + 60]
        size = int(header[48:58])
        position += 60
        if header.startswith(b"data.tar"):
            return content[position : position + size]
        position += size + size % 2  # members begin at even positions
    raise ValueError("not a Debian package")


def fetch(target: Path) -> None:
    """Fill the folder, file by file, each at once: interrupted, it is simply called again."""
    if shutil.which("apt-get") is None:
        raise DataError(f"there is no apt-get, so this is neither Debian nor Ubuntu: {OTHER_WAYS}")
    print(f"fetching Debian's package {PACKAGE} (30 MB)", flush=True)
    target.mkdir(parents=True, exist_ok=True)
    # Inside the target, so that moving a file is a rename within one file system, which is atomic.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.resolve()) as temporary:
        files = Path(temporary) / "files"
        files.mkdir()
        unpack(download(Path(temporary)), files)
        check(files)
        for path in files.iterdir():
            path.replace(target / path.name)
    check(target)  # a damaged file that lies uncompressed beside the fetched ones would be read first


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch Fashion-MNIST (30 MB) from Debian, without root.")
    parser.add_argument("target", type=Path, metavar="TARGET_DIR")
    target: Path = parser.parse_args().target
    try:
        check(target)
    except (DataError, OSError):
        pass
    else:
        print(f"Fashion-MNIST is already in {target}")
        return
    try:
        fetch(target)
    except (DataError, OSError) as error:
        sys.exit(f"fetch_data.py: {error}")
    print(f"Fashion-MNIST is in {target}: 60,000 training and 10,000 test images")


if __name__ == "__main__":
    main()
