"""A rank's environment, kept for a shell in its place, and the command that starts one.

`shell TASK RANK [COMMAND...]` becomes the command, or a shell, with the environment and in the working folder
of a rank. `echelon exec` runs it next to the agent: on this machine as a child of its own, in a pod through
`pods/exec`. The environment is in a file, because no system but Linux shows that of another process, and
there a program may overwrite its own. The file is readable by its user alone. Variables that the task calls
hidden (secrets) are not in it: they come from the environment of the command, which a pod gives to every
process, and which the local engine fills in."""

from __future__ import annotations

import json
import os
import sys

from echelon.agent.task import Task, read_task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

_OF_THE_TERMINAL = ("TERM", "COLORTERM", "COLUMNS", "LINES")  # of the user's, not of the rank's


def path_of(folder: str, rank: int) -> str:
    """Where the environment of a rank is kept."""
    return os.path.join(folder, "rank-%d.environment.json" % rank)


def keep(task: Task, rank: int, env: dict[str, str]) -> None:
    """Write down a rank's environment; without room for it the rank runs all the same."""
    shown = {name: value for name, value in env.items() if name not in task.hidden}
    content = json.dumps({"env": shown, "hidden": task.hidden}).encode()
    path = path_of(task.reports, rank)
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError:
        pass


def forget(task: Task, rank: int) -> None:
    """Remove what was kept of a rank that has ended; in a pod, which may hold results for long, it stays."""
    if task.control is None:
        try:
            os.unlink(path_of(task.reports, rank))
        except OSError:
            pass


def main(arguments: list[str]) -> int:
    """Become the command; returns only if that cannot be."""
    if len(arguments) < 2 or not arguments[1].isdigit():
        return _complain("usage: shell TASK RANK [COMMAND...]", 2)
    try:
        task = read_task(arguments[0])
    except (OSError, ValueError, LookupError) as error:
        return _complain("the task %s cannot be used: %r" % (arguments[0], error), 2)
    try:
        with open(path_of(task.reports, int(arguments[1])), "rb") as file:
            env = _at_this_terminal(json.load(file))
    except (OSError, ValueError):
        print(
            "rank %s has not started here: this is the agent's own environment" % arguments[1],
            file=sys.stderr,
        )
        env = dict(os.environ)
    try:
        os.chdir(task.cwd)
    except OSError as error:
        print("%s: %s" % (task.cwd, error.strerror), file=sys.stderr)
    return _become(arguments[2:], env)


def _at_this_terminal(kept: dict[str, Any]) -> dict[str, str]:
    env: dict[str, str] = dict(kept["env"])
    for name in (*kept["hidden"], *_OF_THE_TERMINAL):
        if name in os.environ:
            env[name] = os.environ[name]
    return env


def _become(command: list[str], env: dict[str, str]) -> int:
    shells = [env.get("SHELL", "bash"), "bash", "sh", sys.executable]
    last: OSError | None = None
    for argv in [command] if command else [[shell] for shell in shells]:
        try:
            os.execvpe(argv[0], argv, env)  # noqa: S606 - what this command is for
        except OSError as error:
            last = error
    assert last is not None
    code = 126 if isinstance(last, PermissionError) else 127
    return _complain("%s: %s" % (command[0] if command else "no shell", last.strerror), code)


def _complain(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
