"""What is not shipped although no ignore file names it, and why: results, incomplete downloads, archives of
images, and files that look like secrets.

Secrets are known by their names and, where a name says too little, by their first bytes: a certificate may be
shipped, a private key may not. A template of a secret (`.env.example`) is none.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal

from echelon.values import frozen

Why = Literal[
    ".gitignore",
    ".echelonignore",
    "results",  # a folder `runs`, as echelon, TensorBoard and others make it
    "incomplete",  # a download that was cut off
    "image",  # an image in a file, as `echelon image build --to` writes it
    "secret",
]

RESULTS = "runs"
_INCOMPLETE_PREFIX = ".echelon-partial"  # as in the agent's `files/tree.py`
_INCOMPLETE_SUFFIXES = (".part", ".partial", ".crdownload", ".incomplete", ".aria2")
_SECRET_NAMES = frozenset(
    {
        ".env", ".envrc", ".netrc", "_netrc", ".pypirc", ".pgpass", ".my.cnf", ".git-credentials",
        ".htpasswd", ".dockercfg", ".boto", ".s3cfg", ".vault-token", "kaggle.json", "kubeconfig",
        "application_default_credentials.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
    }
)  # fmt: skip
_SECRET_PATHS = (".aws/credentials", ".kube/config", ".docker/config.json", ".huggingface/token")
_SECRET_SUFFIXES = (".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".kubeconfig")
_TEMPLATE = re.compile(r"example|sample|template|dist|defaults?", re.IGNORECASE)
_READ_SUFFIXES = (".pem", ".key", ".json", ".asc", ".yaml", ".yml", ".conf", ".config")
_SECRET_CONTENT = re.compile(
    rb'-----BEGIN [A-Z ]*PRIVATE KEY|"type":\s*"service_account"'
    rb'|^kind:\s*"?Config"?\s*$|client-key-data:\s*\S',  # of a kubeconfig
    re.MULTILINE,
)
_LARGEST_SECRET = 16 * 1024  # bytes, all of which are looked at
_TAR_NAME = 100  # bytes of the first member's name in a tar
_IMAGE_MEMBERS = re.compile(rb"(\./)?(oci-layout|blobs/|index\.json|[0-9a-f]{64}/)")


@frozen
class Withheld:
    """A file or folder of the project that does not travel; of a folder's content nothing else is said."""

    path: str  # from the project's root; a folder ends in a slash
    why: Why


def why_folder(path: str, names: set[str]) -> Why | None:
    """Why a folder stays, by its path and the names in it. A Python package may well be named `runs`."""
    own = path.rpartition("/")[2]
    if own == RESULTS and (path == RESULTS or not any(name.endswith(".py") for name in names)):
        return "results"
    return "incomplete" if own.startswith(_INCOMPLETE_PREFIX) else None


def why_file(path: str, full: Path) -> Why | None:
    """Why a file stays; what cannot be read is left to the packing."""
    name = path.rpartition("/")[2]
    if name.startswith(_INCOMPLETE_PREFIX) or name.endswith(_INCOMPLETE_SUFFIXES):
        return "incomplete"
    if name.endswith(".tar") or ".tar." in name:  # while it is written it has another end
        return "image" if _IMAGE_MEMBERS.match(_beginning(full, _TAR_NAME)) else None
    return "secret" if looks_secret(path, full) else None


def looks_secret(path: str, full: Path) -> bool:
    """Whether a file looks as if it held a password or a private key."""
    name = path.rpartition("/")[2]
    if name.startswith(".env."):
        return not _TEMPLATE.fullmatch(name.rpartition(".")[2])
    if name in _SECRET_NAMES or name.endswith(_SECRET_SUFFIXES):
        return True
    if any(path == each or path.endswith(f"/{each}") for each in _SECRET_PATHS):
        return True
    if "." in name and not name.endswith(_READ_SUFFIXES):
        return False
    try:
        about = full.stat()
    except OSError:
        return False
    small = stat.S_ISREG(about.st_mode) and about.st_size <= _LARGEST_SECRET  # to open a pipe would wait
    return small and _SECRET_CONTENT.search(_beginning(full, _LARGEST_SECRET)) is not None


def _beginning(full: Path, size: int) -> bytes:
    try:
        with full.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
