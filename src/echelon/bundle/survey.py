"""Which files and links of a project are shipped. The rules, and why:

- Left out is what git ignores: by every `.gitignore` from the top of the repository on, and by
  `.git/info/exclude`. What git tracks although a pattern names it is shipped, since it is part of every
  clone. A repository inside the project (a submodule) follows its own rules. The user's global ignore file
  is not read: the same project gives the same bundle for every user.
- `.echelonignore` has the same syntax, at any level, and takes precedence: it leaves out what git tracks, and
  keeps (with `!`) what git ignores.
- Never shipped: `.git`, environments, caches, bytecode, echelon's state folder.
- Left out (`withheld.py`): results in a folder `runs`, incomplete downloads, archives of images, and what
  looks like a secret. `!` in `.echelonignore` keeps them.
- `include` brings back whatever it names. An existing path means itself, anything else is a glob; a folder
  means all below it, except `.git` and bytecode. A secret comes only if it is named itself.
- Symbolic links are shipped as links, never as their targets: a link to a data set must neither ship the data
  nor stop the run. One that leads out of the project becomes absolute, with a note.
- Folders that end up empty are shipped: a script that writes into `logs/` finds the folder.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from echelon.bundle import gitignore
from echelon.bundle.gitignore import Rules
from echelon.bundle.project import check_root, holds, nearest
from echelon.bundle.withheld import RESULTS, Why, Withheld, looks_secret, why_file, why_folder
from echelon.errors import CannotShip, InvalidJob, StateTrouble
from echelon.state_home import named_state_home
from echelon.values import frozen

# The agent leaves this file in unpacked code. A run started in there must not ship it.
MARKER = ".echelon-bundle"
_WASTE = frozenset({".git", "__pycache__", MARKER})
_NEVER = _WASTE | {".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_CACHE_TAG, _CACHE_SIGNATURE = "CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55"
_SPECIAL = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def aim(root: str, path: str, text: str) -> tuple[str, bool]:
    """The target that leads to the same place elsewhere, and whether it is inside the project."""
    folder = posixpath.dirname(path)
    if _stays_inside(folder, text):
        return text, True
    full = posixpath.normpath(posixpath.join(root, folder, text))
    for place in (full, os.path.realpath(full)):
        if place == root or place.startswith(root + "/"):
            return posixpath.relpath(place, posixpath.join(root, folder)), True
    return full, False


def _stays_inside(folder: str, text: str) -> bool:
    """Whether a relative link never climbs above the project's root; the agent accepts no other."""
    if text.startswith("/"):
        return False
    depth = len(folder.split("/")) if folder else 0
    for part in text.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return False
    return True


@frozen
class TreeEntry:
    """A file, a link or an empty folder of the project."""

    path: str  # from the project's root, with slashes
    status: os.stat_result  # of itself, not of a link's target, at the moment it was found
    target: str = ""  # the target that a link gets in the bundle


@frozen
class Survey:
    """What is to be shipped, sorted by path, what stays, and notes for the user."""

    root: Path
    found: tuple[TreeEntry, ...]
    notes: tuple[str, ...]
    withheld: tuple[Withheld, ...] = ()


@frozen
class _Folder:
    path: str  # from the project's root: empty, or ending in a slash
    git: tuple[Rules, ...] = ()
    own: tuple[Rules, ...] = ()
    # What git tracks although a pattern ignores it, with the folders above.
    tracked: frozenset[str] = frozenset()
    only_tracked: bool = False
    kept: bool = False  # by a `!` in `.echelonignore`


def survey(root: Path, *, include: Sequence[str] = ()) -> Survey:
    """All files, links and empty folders of a project that are shipped.

    Raises CannotShip for what cannot be read, and InvalidJob for an include that matches nothing.
    """
    root = root.resolve()
    check_root(root)
    notes: list[str] = []
    withheld: list[Withheld] = []
    found = {each.path: each for each in _walk(root, notes, withheld)}
    for pattern in include:
        found.update((each.path, each) for each in _included(root, pattern, notes, withheld))
    stays = sorted({each for each in withheld if each.path not in found}, key=lambda each: each.path)
    holders = {path[:at] for path in found for at, letter in enumerate(path) if letter == "/"}
    kept = (found[path] for path in sorted(found, key=os.fsencode) if path not in holders)
    return Survey(root=root, found=tuple(kept), notes=tuple(dict.fromkeys(notes)), withheld=tuple(stays))


def is_secret(root: Path, found: TreeEntry) -> bool:
    """Whether what was found is a file that looks like a secret."""
    return stat.S_ISREG(found.status.st_mode) and looks_secret(found.path, root / found.path)


def unreadable(path: str, error: OSError) -> CannotShip:
    """The error for a path in the project that cannot be read."""
    hint = "make it readable, or name it in .gitignore or .echelonignore"
    return CannotShip(f"{path} cannot be read: {error.strerror or error}", hint=hint)


def _walk(root: Path, notes: list[str], withheld: list[Withheld]) -> Iterator[TreeEntry]:
    """Everything that no rule ignores, including folders; ignored folders are not entered."""
    start, above = _start(root, notes)
    state = _state_folder()
    pending = [start]
    while pending:
        folder = pending.pop()
        entries = _entries(root, folder.path)
        names = {entry.name for entry in entries}
        if folder.path:
            if _is_environment_or_cache(root / folder.path, names):
                continue
            if not folder.kept and (why := why_folder(folder.path[:-1], names)):
                withheld.append(Withheld(path=folder.path, why=why))
                continue
            yield _folder(root, folder.path[:-1])
        folder = _with_own_rules(root, folder, names, above, notes)
        for entry in entries:
            path = folder.path + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_never_shipped(entry, path, state):
                continue
            from_top = above + os.fsencode(path)
            said = gitignore.is_ignored(folder.own, from_top, is_folder)
            ignored = folder.only_tracked or (
                said is None and bool(gitignore.is_ignored(folder.git, from_top, is_folder))
            )
            stays: Why | None = None
            if said or (ignored and path not in folder.tracked):
                stays = ".echelonignore" if said else ".gitignore"
            elif is_folder:
                pending.append(replace(folder, path=path + "/", only_tracked=ignored, kept=said is False))
                continue
            elif said is None and not entry.is_symlink():
                stays = why_file(path, root / path)
            if stays is None:
                yield from _single(root, path, notes)
            else:
                withheld.append(Withheld(path=path + "/" * is_folder, why=stays))


def _start(root: Path, notes: list[str]) -> tuple[_Folder, bytes]:
    """The root folder with the rules of the repository around it, and the project's path in it."""
    top = nearest(root, (".git",))
    if top is None or top == root:
        return _Folder(path=""), b""
    below = root.relative_to(top).parts
    private = gitignore.read_private(top / ".git")
    folder = _Folder(
        path="",
        git=gitignore.read_above(top, below, ".gitignore", (private,) if private else ()),
        own=gitignore.read_above(top, below, ".echelonignore", ()),
        tracked=_tracked(root, "", notes),
    )
    return folder, os.fsencode("/".join(below) + "/")


def _with_own_rules(root: Path, folder: _Folder, names: set[str], above: bytes, notes: list[str]) -> _Folder:
    """A folder with the rules of its own ignore files; a repository's top starts a new chain."""
    here, base = root / folder.path, above + os.fsencode(folder.path)
    if ".git" in names:
        private = gitignore.read_private(here / ".git", base)
        tracked = _tracked(here, folder.path, notes)
        folder = replace(folder, git=(private,) if private else (), tracked=tracked)
    if ".gitignore" in names and (rules := gitignore.read(here / ".gitignore", base)):
        folder = replace(folder, git=(*folder.git, rules))
    if ".echelonignore" in names and (rules := gitignore.read(here / ".echelonignore", base)):
        folder = replace(folder, own=(*folder.own, rules))
    return folder


def _tracked(folder: Path, prefix: str, notes: list[str]) -> frozenset[str]:
    paths, problem = gitignore.tracked_although_ignored(folder)
    if problem:
        notes.append(
            f"git did not answer ({problem}): what it tracks although .gitignore names it is not shipped"
        )
    return frozenset(prefix + path for path in paths)


def _entries(root: Path, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder) as entries:
            return list(entries)
    except OSError as error:
        raise unreadable(folder.rstrip("/") or str(root), error) from error


def _state_folder() -> frozenset[str]:
    """echelon's own folder, which has what earlier runs shipped; if it is a link, its target, too."""
    try:
        home = named_state_home()
        return frozenset({str(home.parent.resolve() / home.name), str(home.resolve())})
    except (StateTrouble, OSError, RuntimeError):  # there is none, or its links lead nowhere
        return frozenset()


def _is_never_shipped(entry: os.DirEntry[str], path: str, state: frozenset[str]) -> bool:
    """Whether no rule can ship it."""
    if entry.name in _NEVER or entry.name.endswith(".pyc"):
        return True
    if entry.path in state:
        return True
    if entry.is_symlink():
        return path == RESULTS or holds(Path(entry.path), _ENVIRONMENT)
    return False


def _is_environment_or_cache(folder: Path, names: set[str]) -> bool:
    if not names.isdisjoint(_ENVIRONMENT):
        return True
    try:
        return _CACHE_TAG in names and (folder / _CACHE_TAG).read_bytes().startswith(_CACHE_SIGNATURE)
    except OSError:
        return False


def _folder(root: Path, path: str) -> TreeEntry:
    try:
        return TreeEntry(path=path, status=(root / path).lstat())
    except OSError as error:
        raise unreadable(path, error) from error


def _single(root: Path, path: str, notes: list[str]) -> Iterator[TreeEntry]:
    """A file or link, or a note on why it is left out."""
    full = f"{root}/{path}"
    try:
        status = os.lstat(full)
        if stat.S_ISLNK(status.st_mode):
            target, inside = aim(str(root), path, os.readlink(full))  # noqa: PTH115 - Path changes what it reads
            if not inside:
                notes.append(
                    f"{path} links out of the project, to {target}: it works only where that path exists"
                )
            yield TreeEntry(path=path, status=status, target=target)
        elif stat.S_ISREG(status.st_mode):
            if not os.access(full, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            yield TreeEntry(path=path, status=status)
        else:
            notes.append(f"{path} is {_SPECIAL.get(stat.S_IFMT(status.st_mode), 'no file')}: not shipped")
    except OSError as error:
        raise unreadable(path, error) from error


def _included(root: Path, pattern: str, notes: list[str], withheld: list[Withheld]) -> Iterator[TreeEntry]:
    """What an include names: an existing path, or else a glob."""
    plain = posixpath.normpath(pattern.removeprefix(f"{root}/"))
    if plain in {".", ".."} or plain.startswith(("/", "../")) or "\0" in plain:
        raise InvalidJob(
            "include", pattern, "is not below the project", hint=f"name files or folders in {root}"
        )
    if os.path.lexists(root / plain):
        if link := _link_above(root, plain):
            hint = (
                f"{link} travels as a link: name the file where it really lies, or copy it into the project"
            )
            raise InvalidJob("include", pattern, "lies behind a symbolic link", hint=hint)
        matches = [plain]
    else:
        try:
            matches = [str(match.relative_to(root)) for match in root.glob(plain)]
        except ValueError as error:
            raise InvalidJob("include", pattern, "is not a glob", hint=str(error)) from error
        matches = [
            match for match in matches if not _is_waste(match.split("/")) and not _link_above(root, match)
        ]
    if not matches:
        raise InvalidJob("include", pattern, "matches nothing", hint=f"it is looked for from {root} on")
    for match in matches:
        for each in _all_of(root, match, notes):
            if each.path != plain and is_secret(root, each):
                withheld.append(Withheld(path=each.path, why="secret"))
            else:
                yield each


def _link_above(root: Path, path: str) -> str:
    """The first symbolic link among the folders of a path, or ""."""
    ends = (at for at, letter in enumerate(path) if letter == "/")
    return next((path[:end] for end in ends if (root / path[:end]).is_symlink()), "")


def _is_waste(names: Sequence[str]) -> bool:
    return not _WASTE.isdisjoint(names) or names[-1].endswith(".pyc")


def _all_of(root: Path, path: str, notes: list[str]) -> Iterator[TreeEntry]:
    """A file or link, or a folder with everything below it except repositories and bytecode."""
    pending = [path]
    while pending:
        path = pending.pop()
        full = root / path
        if full.is_symlink() or not full.is_dir():
            yield from _single(root, path, notes)
            continue
        yield _folder(root, path)
        pending.extend(
            f"{path}/{entry.name}" for entry in _entries(root, path) if not _is_waste([entry.name])
        )
