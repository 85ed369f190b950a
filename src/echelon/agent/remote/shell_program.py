"""`ssh FOLDER SECRET [OPTIONS] HOST COMMAND...`: the remote shell of launchers. It has the agent of the
worker that HOST names start the command, and is a stand-in for it: input, output, signals and the exit
code go through.

It takes the options of `ssh`, which mean nothing here. A host that is no worker is left to the real
`ssh`, if there is one, and so is every host on workers other than 0, which hold no connections."""

from __future__ import annotations

import base64
import os
import select
import shlex
import shutil
import signal
import sys

from echelon.agent.ranks import sockets
from echelon.agent.remote.call import Call

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Mapping, Sequence

FAILED = 255  # as ssh's own
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"  # options of ssh that take one
_PASSED_ON = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_PIECE = 48 * 1024
# Where an Open MPI is that was moved after it was built, as PyPI's: mpirun knows it, and does not tell its
# daemons.
_CARRIED = ("OPAL_PREFIX",)


def main(arguments: list[str]) -> int:
    """Run a command on a worker; returns its exit code, or 255 if it could not be run."""
    if len(arguments) < 2:
        return _complain("usage: ssh FOLDER SECRET [OPTIONS] HOST COMMAND...", 2)
    folder, secret_file, rest = arguments[0], arguments[1], arguments[2:]
    host, command = split(rest)
    if not host or not command:
        return _complain("echelon's ssh needs a host and a command", FAILED)
    if not os.path.exists(os.path.join(folder, sockets.LAUNCHER)):
        return _leave_to_real_ssh(folder, rest, "only worker 0 of a run reaches its other workers")
    try:
        call = Call(folder, sockets.LAUNCHER, "shell", secret_file)
        call.send({"say": "run", "host": host, "line": line_of(command, os.environ)})
        answer = call.receive() or {}
    except (OSError, ValueError) as error:
        return _complain("echelon's ssh reaches no leader: %s" % error, FAILED)
    if answer.get("say") == "unknown":
        return _leave_to_real_ssh(folder, rest, "%s is not a worker of this run" % host)
    if answer.get("say") != "running":
        return _complain("worker of %s: %s" % (host, answer.get("error")), FAILED)
    return _relay(call)


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """The host and the command in the arguments of ssh; options may stand on both sides of the host."""
    left = _without_options(words)
    host = left.pop(0).rpartition("@")[2] if left else ""
    return host, left if "--" in words[: len(words) - len(left)] else _without_options(left)


def _without_options(words: Sequence[str]) -> list[str]:
    left = list(words)
    while left and left[0].startswith("-"):
        option = left.pop(0)
        if option == "--":
            break
        if len(option) == 2 and option[1] in _WITH_VALUE and left:
            left.pop(0)
    return left


def line_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a worker's shell runs: the command, with what it must know of the launcher and does not yet."""
    known = [(name, shlex.quote(environment[name])) for name in _CARRIED if environment.get(name)]
    told = ['[ "$%s" ] || export %s=%s; ' % (name, name, value) for name, value in known]
    # Its daemons are beside mpirun: Open MPI 4 calls them by name, wherever its own is.
    mpirun = shutil.which("mpirun", path=environment.get("PATH"))
    if mpirun is not None:
        told.append('export PATH="$PATH":%s; ' % shlex.quote(os.path.dirname(mpirun)))
    return "".join(told) + " ".join(command)


def _relay(call: Call) -> int:
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    for name in _PASSED_ON:
        signal.signal(getattr(signal, name), lambda *_: None)
    sources = [call.socket.fileno(), wake, 0]
    while True:
        ready = [sources[0]] if call.pending else select.select(sources, [], [])[0]
        if wake in ready:
            for number in os.read(wake, 64):
                call.send({"say": "signal", "signal": signal.Signals(number).name})
        if 0 in ready:
            data = _read_input()
            call.send({"say": "input", "data": base64.b64encode(data).decode()})
            if not data:
                sources.remove(0)
        if sources[0] in ready:
            message = call.receive()
            if message is None:
                return _complain("echelon's ssh lost its leader", FAILED)
            if message.get("say") == "end":
                code = message.get("code")
                if isinstance(message.get("error"), str):
                    _complain(str(message["error"]), FAILED)
                return code if type(code) is int and 0 <= code <= FAILED else FAILED
            _write(call, message)


def _read_input() -> bytes:
    try:
        return os.read(0, _PIECE)
    except OSError:
        return b""


def _write(call: Call, message: dict[str, object]) -> None:
    """Write what the command has written; a reader that is gone has missed it."""
    if message.get("say") != "data":
        return
    data = base64.b64decode(str(message.get("data")))
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(2 if message.get("stream") == 2 else 1, view) :]
    except OSError:
        pass
    call.send({"say": "taken", "bytes": len(data)})


def _leave_to_real_ssh(folder: str, rest: list[str], reason: str) -> int:
    """Become the real ssh; returns only where there is none."""
    own = os.path.join(folder, "bin")
    path = [part for part in os.environ.get("PATH", "").split(os.pathsep) if part != own]
    real = shutil.which("ssh", path=os.pathsep.join(path))
    if real is not None:
        os.execv(real, [real, *rest])  # noqa: S606 - what the user's command asked for
    return _complain("%s, and there is no other ssh here" % reason, FAILED)


def _complain(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
