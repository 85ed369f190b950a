"""Which paths git's ignore files name, byte for byte as git decides it.

The available library differs from git in ways that lose or leak files (`[[:alpha:]]`, `[z-a]`, `a**/b`, a
backslash at the end of a line, bytes that are not UTF-8) and takes 60 ms to import. So the rules are here,
and a property test compares them with git itself.

An ignore file becomes one regular expression. In git the last matching line decides, so the lines are
alternatives in reverse order, and the first alternative that matches is the deciding line. A name cannot
contain a NUL, so the subject is a letter for the kind, the last part of the path, a NUL, and the path
relative to the ignore file: a line without a slash matches the first half, one with a slash the second.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Sequence
from pathlib import Path

from echelon.values import frozen

_WILD = frozenset(b"*?[\\")
_NOTHING = b"(?!)"

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, [*range(32), 127])),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": " \t\n\r",
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


@frozen
class Rules:
    """One ignore file: the base of its paths, its expression, and the meaning of each alternative."""

    base: (
        bytes  # the folder of the file, relative to where paths are counted from: empty, or ending in a slash
    )
    expression: re.Pattern[bytes]
    ignores: tuple[bool, ...]  # by the number of the alternative; False: the line began with "!"


class _MalformedError(Exception):
    """A line that matches nothing, which git accepts."""


def parse(text: bytes, base: bytes = b"") -> Rules | None:
    """The rules in an ignore file, or None when it has none."""
    alternatives: list[bytes] = []
    ignores: list[bool] = []
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.startswith(b"#"):
            continue
        pattern = _without_trailing_spaces(line.removesuffix(b"\r").split(b"\0")[0])
        negated = pattern.startswith(b"!")
        try:
            alternatives.append(_alternative(pattern[negated:]))
        except _MalformedError:
            continue
        ignores.append(not negated)
    if not ignores:
        return None
    expression = b"|".join(b"(%s)" % alternative for alternative in reversed(alternatives))
    return Rules(base=base, expression=re.compile(expression, re.DOTALL), ignores=(False, *reversed(ignores)))


def read(file: Path, base: bytes = b"") -> Rules | None:
    """The rules in a file, which need not exist. A symbolic link is not followed: neither does git."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            return parse(stream.read(), base)
    except OSError:
        return None


def is_ignored(chain: Sequence[Rules], path: bytes, is_folder: bool) -> bool | None:
    """The decision of the last rule that matches a path: ignored, kept, or None when no rule matches.

    It concerns the path itself. Below an ignored folder everything is ignored, whatever the rules say.
    """
    kind = b"d" if is_folder else b"f"
    name = path[path.rfind(b"/") + 1 :]
    for rules in reversed(chain):
        match = rules.expression.fullmatch(b"%s%s\0%s" % (kind, name, path[len(rules.base) :]))
        if match:
            return rules.ignores[match.lastindex or 0]
    return None


def read_private(git: Path, base: bytes = b"") -> Rules | None:
    """The rules in a repository's `info/exclude`, given its `.git`, which is a folder or a file."""
    try:
        if git.is_file():
            git = git.parent / os.fsdecode(git.read_bytes().removeprefix(b"gitdir:").strip())
            shared = git / "commondir"
            if shared.is_file():
                git = git / os.fsdecode(shared.read_bytes().strip())
    except OSError:
        return None
    return read(git / "info" / "exclude", base)


def read_above(top: Path, below: Sequence[str], name: str, chain: tuple[Rules, ...]) -> tuple[Rules, ...]:
    """The rules in the folders above a project, from `top` on; `below` are the parts of its path from there.

    Where they ignore the project itself, they do not apply to its files: then there are none.
    """
    for depth in range(len(below)):
        base = os.fsencode("".join(part + "/" for part in below[:depth]))
        if rules := read(top.joinpath(*below[:depth], name), base):
            chain = (*chain, rules)
        if is_ignored(chain, base + os.fsencode(below[depth]), True):
            return ()
    return chain


def tracked_although_ignored(folder: Path) -> tuple[frozenset[str], str]:
    """What git tracks although a pattern names it, with the folders above; or why git failed.

    Only git can read its index. The options keep git from starting programs that the repository configures.
    """
    import subprocess  # imported only for projects in a repository

    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "ls-files",
        "-z",
        "--cached",
        "--ignored",
        "--exclude-standard",
    ]
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            env={**environment, "LC_ALL": "C"},
            capture_output=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return frozenset(), str(error)
    if answer.returncode:
        problem = answer.stderr.decode(errors="replace").partition("\n")[0]
        return frozenset(), "" if "not a git repository" in problem else problem
    files = [os.fsdecode(name) for name in answer.stdout.split(b"\0") if name]
    return frozenset(path[:end] for path in files for end in _ends_of_parts(path)), ""


def _ends_of_parts(path: str) -> list[int]:
    return [*(at for at, letter in enumerate(path) if letter == "/"), len(path)]


def _without_trailing_spaces(line: bytes) -> bytes:
    bare = line.rstrip(b" ")
    escapes = len(bare) - len(bare.rstrip(b"\\"))
    return line[: len(bare) + 1] if escapes % 2 else bare


def _alternative(pattern: bytes) -> bytes:
    """The expression for one line, for the subject that `is_ignored` builds."""
    kind = b"[df]"
    if pattern.endswith(b"/"):
        pattern, kind = pattern[:-1], b"d"
    if b"/" not in pattern:
        if not pattern:
            raise _MalformedError
        return kind + _translate(pattern, crosses=b"[^/\\x00]") + b"\\x00.*"
    pattern = pattern.removeprefix(b"/")
    plain = next((at for at, byte in enumerate(pattern) if byte in _WILD), len(pattern))
    # Git compares the text before the first wildcard separately and treats the rest as a pattern of its own;
    # so in `a**/b` the stars are at a beginning, and cross folders.
    return kind + b"[^\\x00]*\\x00" + re.escape(pattern[:plain]) + _translate(pattern[plain:], crosses=b".")


def _translate(pattern: bytes, crosses: bytes) -> bytes:
    """A wildcard pattern as an expression; `crosses` is what two stars between slashes match."""
    parts: list[bytes] = []
    at = 0
    while at < len(pattern):
        here = pattern[at : at + 1]
        if here == b"*":
            stars = re.match(rb"\*+", pattern[at:])
            assert stars
            after = at + stars.end()
            alone = (at == 0 or pattern[at - 1 : at] == b"/") and (
                after == len(pattern) or pattern.startswith((b"/", b"\\/"), after)
            )
            if stars.end() == 1 or not alone:
                parts.append(b"[^/\\x00]*")
            elif pattern.startswith(b"/", after):
                parts.append(b"(?:%s*/)?" % crosses)
                after += 1
            else:
                parts.append(crosses + b"*")
            at = after
        elif here == b"?":
            parts.append(b"[^/\\x00]")
            at += 1
        elif here == b"[":
            members, at = _bracket(pattern, at + 1)
            parts.append(
                b"[%s]" % b"".join(b"\\x%02x" % byte for byte in sorted(members)) if members else _NOTHING
            )
        else:
            at += here == b"\\"
            if at == len(pattern):
                raise _MalformedError
            parts.append(re.escape(pattern[at : at + 1]))
            at += 1
    return b"".join(parts)


def _bracket(pattern: bytes, at: int) -> tuple[set[int], int]:
    """The bytes that a bracket expression matches, and where it ends; `at` is after the bracket."""
    negated = pattern[at : at + 1] in {b"!", b"^"}
    at += negated
    members: set[int] = set()
    previous: int | None = None  # what a range may begin with
    first = True
    while first or pattern[at : at + 1] != b"]":
        first = False
        if pattern.startswith(b"[:", at) and (named := re.match(rb"\[:([^\]]*):\]", pattern[at:])):
            if named[1] not in _CLASSES:
                raise _MalformedError
            members.update(_CLASSES[named[1]].encode())
            previous, at = None, at + named.end()
        elif (
            pattern[at : at + 1] == b"-"
            and previous is not None
            and pattern[at + 1 : at + 2] not in {b"", b"]"}
        ):
            last, at = _member(pattern, at + 1)
            members.update(range(previous, last + 1))
            previous = None
        else:
            previous, at = _member(pattern, at)
            members.add(previous)
    return (set(range(1, 256)) - members if negated else members) - set(b"/\0"), at + 1


def _member(pattern: bytes, at: int) -> tuple[int, int]:
    """A byte inside brackets, perhaps after a backslash, and the position after it."""
    at += pattern[at : at + 1] == b"\\"
    if at >= len(pattern):
        raise _MalformedError
    return pattern[at], at + 1
