"""What magics and `!` commands of cells became (`magics.py`): functions that every step finds as built in."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Sequence

_DOLLAR = r"%s(?![\w.])(?=(?:[^']*'[^']*')*[^']*$)"
_PIP = re.compile(r"\s*(?:python3? -m )?(pip3?|conda)\s")


def install(lock: Path) -> None:
    """Make the functions known; `lock` lets one step at a time install packages."""

    def shell(command: str, names: Optional[Mapping[str, Any]] = None) -> None:
        command = _filled(command, names)
        with _alone(lock if _PIP.match(command) else None):
            _run(["/bin/sh", "-c", _own_pip(command)])

    def lines(command: str, names: Optional[Mapping[str, Any]] = None) -> List[str]:
        import subprocess

        done = subprocess.run(  # noqa: S602 - the notebook's own command
            _own_pip(_filled(command, names)), shell=True, stdout=subprocess.PIPE, check=False
        )
        return done.stdout.decode("utf-8", "replace").splitlines()

    def write_file(path: str, text: str, append: bool) -> None:
        target = os.path.expanduser(path.strip("\"' "))
        with open(target, "a" if append else "w", encoding="utf-8") as file:
            file.write(text)
        print("%s %s" % ("Appending to" if append else "Writing", target))

    def env(name: str = "", value: Optional[str] = None, names: Optional[Mapping[str, Any]] = None) -> Any:
        if value is not None:
            os.environ[name] = _filled(value, names)
            return None
        return os.environ[name] if name else dict(os.environ)

    def words(line: str, names: Optional[Mapping[str, Any]] = None) -> List[str]:
        import shlex

        return shlex.split(_filled(line, names))

    def cd(path: str, names: Optional[Mapping[str, Any]] = None) -> None:
        os.chdir(os.path.expanduser(_filled(path, names).strip("\"' ") or "~"))

    functions = {
        "shell": shell,
        "lines": lines,
        "script": _script,
        "words": words,
        "filled": _filled,
        "write_file": write_file,
        "cd": cd,
        "env": env,
        "pwd": os.getcwd,
    }
    for name, function in functions.items():
        setattr(builtins, "_echelon_" + name, function)


def _filled(command: str, names: Optional[Mapping[str, Any]] = None) -> str:
    """The command with the values of `{x}`, and of `$x` where that is outside of single quotes."""
    if not names:
        return command
    parts = [_DOLLAR % re.escape(key) if key[0] == "$" else re.escape("{%s}" % key) for key in names]
    values = {(key if key[0] == "$" else "{%s}" % key): str(value) for key, value in names.items()}
    return re.sub("|".join(parts), lambda found: values[found.group()], command)


def _own_pip(command: str) -> str:
    """pip of the Python that runs the step, not of another one on the PATH."""
    return re.sub(r"^\s*(?:python3? -m )?pip3?(?=\s)", lambda _: '"%s" -m pip' % sys.executable, command)


def _script(program: List[str], text: str, kept: Sequence[str] = (), raises: bool = True) -> Any:
    """Run a program with a text as its input; returns what it printed to the streams that are kept, and
    raises CalledProcessError if it fails, as IPython does.
    """
    import subprocess

    found = {}
    if not kept:
        code = _run(program, text)
    else:
        done = subprocess.run(program, input=text.encode(), capture_output=True, check=False)
        code = done.returncode
        found = {"out": done.stdout.decode("utf-8", "replace"), "err": done.stderr.decode("utf-8", "replace")}
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            if name not in kept:
                stream.write(found[name])
    if code and raises:
        raise subprocess.CalledProcessError(code, program)
    return found[kept[0]] if len(kept) == 1 else tuple(found[each] for each in kept) or None


def _run(program: List[str], text: Optional[str] = None) -> int:
    import subprocess

    process = subprocess.Popen(
        program,
        stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if text is not None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(text.encode())
        process.stdin.close()
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            sys.stdout.write(line.decode("utf-8", "replace"))
    if process.wait():
        sys.stderr.write("the command ended with code %d\n" % process.returncode)
    return process.returncode


@contextlib.contextmanager
def _alone(lock: Optional[Path]) -> Iterator[None]:
    import fcntl

    if lock is None:
        yield
        return
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
