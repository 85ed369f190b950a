"""Read a value that `writing.py` has written, in the client: every file's digest is checked first, and what
is wrong is an error of ours. A pickle is read only if its digest is one that the caller knows."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path
from typing import NoReturn

from echelon.codecs.parsing import UNREADABLE, Changed, LibraryMissing, Reader, checked, read_sums
from echelon.codecs.writing import PICKLE, SCHEMA, VALUE
from echelon.errors import CannotShip, EchelonError, StateTrouble, Unavailable


def read_value(folder: Path, who: str, seal: str | None = None) -> object:
    """The value in a folder; `who` is whose it is, in messages. Raises CannotShip if the writer refused it,
    and StateTrouble if a file is missing or damaged.

    `seal` is the digest of the one pickle that may be read there: it must come from where no stranger could
    have put it.
    """
    try:
        return _read(folder, who, seal)
    except OSError as error:
        _damaged(who, f"{error.filename or folder}: {error.strerror}")
    except Changed as error:
        _damaged(who, str(error))
    except LibraryMissing as missing:
        raise _unavailable(missing, who) from None
    except EchelonError:
        raise
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        if not isinstance(error, UNREADABLE) and library not in ("pyarrow", "pandas", "numpy", "torch"):
            raise
        _damaged(who, f"{type(error).__name__}: {error}")


def _read(folder: Path, who: str, seal: str | None) -> object:
    sums = read_sums(folder)
    content = json.loads(checked(folder, VALUE, sums).read_text("utf-8"))
    if content["schema"] != SCHEMA:
        raise StateTrouble(
            f"what {who} returned was written by another version of echelon",
            hint="use the version that started the run",
        )
    if (refused := content.get("refused")) is not None:
        path = folder / PICKLE
        if seal is not None and path.is_file():
            return _unpickle(path.read_bytes(), seal, who)
        kept = f"; {PICKLE} beside it is a pickle, for those who trust its writer" if PICKLE in sums else ""
        raise CannotShip(
            f"{who} returned {refused['place']}, a {refused['type']}, which is not plain data",
            hint=f"{refused['hint']}{kept}",
        )
    return Reader(folder, sums).value(content["value"])


def _unpickle(content: bytes, seal: str, who: str) -> object:
    if hashlib.sha256(content).hexdigest() != seal:
        raise Changed(f"{PICKLE} is not the one that the rank wrote")
    try:
        return pickle.loads(content)  # noqa: S301 - this user's own rank wrote exactly these bytes
    except Exception as error:  # what it is made of may raise anything
        raise StateTrouble(
            f"what {who} returned cannot be read here: {type(error).__name__}: {error}",
            hint="it is a pickle: its classes must be importable, or defined, in this process too",
        ) from error


def _damaged(who: str, problem: str) -> NoReturn:
    raise StateTrouble(
        f"what {who} returned cannot be read: {problem}",
        hint="its files are in `returned` among the run's results",
    )


def _unavailable(missing: LibraryMissing, who: str) -> Unavailable:
    if missing.version:
        return Unavailable(
            f"{missing.library} {missing.version} is too old to read {missing.what} that others may have "
            "written",
            hint=f"pip install -U {missing.library}",
        )
    return Unavailable(
        f"{who} returned {missing.what}, and this Python has no {missing.library}",
        hint=f"pip install {missing.library}; its files are in `returned` among the run's results",
    )
