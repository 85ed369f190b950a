"""`rank FOLDER SECRET COMMAND...`: what a launcher starts in place of a rank's command. It starts the
command as its child, hands the command's output to the agent of this machine, and ends as the command
does.

So each rank's lines, its end and its exception are known as those of any other rank, whichever launcher
there is. A launcher ends all ranks when it learns that one has failed: so the end is reported to the
agent first, and shown to the launcher once the gang knows of it. Without an agent the command runs all
the same, and the launcher has its output."""

from __future__ import annotations

import array
import json
import os
import resource
import select
import signal
import socket
import sys

from echelon.agent.ranks import sockets
from echelon.agent.ranks.launching.launch import with_ahead
from echelon.agent.ranks.processes import die_with_parent, send
from echelon.agent.remote.call import Call

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import NoReturn

# Open MPI and PMIx; MPICH and its relatives.
_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LONGEST_WAIT = 10.0  # seconds for the gang to know of a failure


def main(arguments: list[str]) -> int:
    """Run a rank, and end as it does."""
    if len(arguments) < 3:
        print("usage: rank FOLDER SECRET COMMAND...", file=sys.stderr)
        return 2
    folder, secret_file, command = arguments[0], arguments[1], arguments[2:]
    rank = rank_of(os.environ)
    call = None
    if rank is not None:
        try:
            name = sockets.socket_for(rank, os.listdir(folder))
            call = None if name is None else Call(folder, name, "rank", secret_file)
        except (OSError, ValueError):
            call = None
    if rank is None or call is None:
        _become(command, dict(os.environ))
    return _run(call, rank, command)


def rank_of(env: os._Environ[str] | dict[str, str]) -> int | None:
    """The number that the launcher has given this process."""
    for variable in _VARIABLES:
        if env.get(variable, "").isdigit():
            return int(env[variable])
    return None


def _run(call: Call, rank: int, command: list[str]) -> int:
    pipes = [os.pipe() for _ in range(2)]
    _send_with(call.socket, {"say": "rank", "rank": rank}, [ours for ours, _ in pipes])
    answer = call.receive() or {}
    env = answer.get("env")
    if answer.get("say") != "start" or not isinstance(env, dict):
        return 128 + signal.SIGTERM  # the generation is being stopped
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        os.setpgid(0, 0)  # a signal to the launcher's group reaches it once: through its parent
        for number, (_, theirs) in enumerate(pipes, 1):
            os.dup2(theirs, number)
        changed = _changed(dict(os.environ), env)
        with_ahead(changed, {"PYTHONPATH": str(answer.get("python_path"))})
        _become(command, changed)
    for pipe in pipes:
        for end in pipe:
            os.close(end)
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _frame: send(pid, got))
    call.send({"say": "started", "pid": pid})
    status = os.waitpid(pid, 0)[1]
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    try:
        call.send({"say": "ended", "code": code})
        if code:
            select.select([call.socket], [], [], LONGEST_WAIT)  # an answer, or the agent's end
    except OSError:
        pass
    return _end_with(code)


def _end_with(code: int) -> int:
    """End as the command did: by its signal, without a second core dump, or with its code."""
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _changed(env: dict[str, str], changes: dict[str, object]) -> dict[str, str]:
    for name, value in changes.items():
        if isinstance(value, str):
            env[name] = value
        else:
            env.pop(name, None)
    return env


def _become(command: list[str], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, env)  # noqa: S606 - what this command is for
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        os.write(2, b"cannot start %s: %s\n" % (os.fsencode(command[0]), (error.strerror or "").encode()))
        os._exit(127 if missing else 126)


def _send_with(sock: socket.socket, message: dict[str, object], descriptors: list[int]) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())
    sock.sendmsg([json.dumps(message).encode() + b"\n"], [rights])
