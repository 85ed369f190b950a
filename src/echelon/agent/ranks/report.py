"""Why a rank failed, as text: from its exit code or signal, its last lines, and torch's error file where a
script writes one.

Also decides whether that may be a consequence: when one rank dies, its peers see their connections break and
die of that. Which of many was the cause is chosen in `verdict.py`. Pure, but for reading the error file and
looking for a package."""

from __future__ import annotations

import json
import re
import signal
import sys

from echelon.agent.ranks import advice
from echelon.agent.ranks.interpreter import has_installed

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any

TAIL_LINES = 20
_MOST_NAMED = 8  # ranks in one sentence

# What a rank writes when a peer has gone. One that writes only this is not the first to fail.
_CONSEQUENCES = re.compile(
    "|".join(
        (
            r"connection (was )?(reset|closed|aborted|refused)",
            r"broken pipe",
            r"socket (closed|timeout|is closed)",
            r"peer (closed|exited|failed|has left)",
            r"remote process (exited|has exited)",
            r"nccl communicator was aborted",
            r"ncclremoteerror|ncclsystemerror|nccl watchdog",
            r"(recv|send|write|read)\w* .*(timed out|errno 104|errno 32)",
            r"timed out waiting for (a )?(peer|clients|rank)",
            r"distnetworkerror|diststoreerror",
            r"collective .*abort|aborted by (a )?peer",
            r"(worker|coordination service|task).*(unavailable|heartbeat timeout|became unhealthy)",
            r"unavailableerror|abortederror|cancellederror",
            r"horovodinternalerror|has been shut down",
            r"distributed service detected fatal errors",
        )
    ),
    re.IGNORECASE,
)
# The same of MPI's own, anywhere in a rank's last lines.
_MPI_CONSEQUENCES = re.compile(
    rb"other mpi error|mpi_errors_are_fatal|communication error with rank"
    rb"|unexpectedly disconnected|socket closed",
    re.IGNORECASE,
)
# With these codes Open MPI's library ends a rank (MPI_ERR_UNKNOWN, _OTHER, _INTERN, _PROC_FAILED).
_OPEN_MPI_CODES = (14, 16, 17, 75)
# What stands before a line of a traceback: torch's rank, the frame around an exception group.
_RANK_PREFIX = re.compile(r"^\[rank ?:? ?\d+\]:? ?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# The box that rich draws around the frames, in Unicode or in ASCII; the exception stands below it.
_BOX = tuple("╭│╰|+")
# Modules of the standard library that Python 3.8 had, and a later one has not: no package brings them.
_NO_LONGER_IN_PYTHON = re.compile(
    "_bootlocale|aifc|asynchat|asyncore|audioop|binhex|cgi|cgitb|chunk|crypt|distutils|dummy_threading|"
    "formatter|imghdr|imp|lib2to3|macpath|mailcap|msilib|nis|nntplib|ossaudiodev|parser|pipes|smtpd|sndhdr|"
    "spwd|sunau|symbol|telnetlib|uu|xdrlib"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
# How PyTorch refuses to use GPUs where it finds none.
_NO_GPU = re.compile(
    r"nccl\w* requires at least one CUDA device|only supported with GPUs, no GPUs found"
    r"|Found no NVIDIA driver|No CUDA GPUs are available|not compiled with CUDA enabled|have NCCL built in"
)
# How what reads from the keyboard ends where there is no keyboard.
_READS_KEYS = (("bdb.BdbQuit", "breakpoint()"), ("EOFError: EOF when reading a line", "input()"))
_GROUP_FRAME = re.compile(r"^ *[|+](?: |-+$|$)")
# What Python's faulthandler writes when a signal kills the process, and the place in it.
_CRASH = re.compile(
    r"^Fatal Python error: (Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating[- ]point (?:exception|error))$",
    re.MULTILINE,
)
_CRASH_PLACE = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)
# An exception that only points to the one that it was raised from.
_INWARD = re.compile(r"See inner exception|DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")
# What torchrun says below its own traceback when a rank that it has started fails.
_TORCHRUN = re.compile(
    r"^[\w.]+\.ChildFailedError: *\n.*^Root Cause \(first observed failure\):\n"
    r".*?^ +rank +: (?P<rank>\d+) .*?^ +exitcode +: (?P<code>-?\d+) ",
    re.MULTILINE | re.DOTALL,
)
_TORCHRUNS_LINES = re.compile(r"^[IWE]\d{4} .* torch/distributed/elastic/.*\n", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
# How a library of collectives gives up on one: a rank did not come to it, or with other sizes.
_GAVE_UP = re.compile(
    r"Timed out waiting \d+ms for \w+ operation|Watchdog caught collective operation timeout"
    r"|collective operation timeout: WorkNCCL|op\.preamble\.length <= op\.nbytes"
    r"|received \d+ bytes, where \d+ were expected|waiting for clients"
)
# How C++ says which exception nothing caught. Of some programs each line has a prefix.
_TERMINATED = re.compile(
    r"^.*terminate called after throwing an instance of '(?P<kind>[\w:]+)'\n(?:.*?what\(\): +(?P<what>.*))?",
    re.MULTILINE,
)
# How Abseil, on which JAX stands, says why it aborts; the stack follows.
_FATAL = re.compile(r"^F\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\] (.+)$", re.MULTILINE)
_SIGNAL_HINTS = {
    "SIGKILL": "out of memory?",
    "SIGSEGV": "a crash in native code",
    "SIGBUS": "shared memory full?",
    "SIGABRT": "an assertion in native code",
    "SIGILL": "built for another processor?",
}


def signal_name(number: int) -> str:
    """SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def describe_end(code: int, error: str | None, place: str | None = None) -> str:
    """How a rank ended, as text: `code` as the operating system gives it, negative for a signal; `place` is
    where its Python was then.
    """
    if code < 0:
        name = signal_name(-code)
        # A Python that has failed may still abort in its native threads on the way out; its first error is
        # the cause.
        reports_error = name == "SIGABRT" or name not in _SIGNAL_HINTS
        hint = None if error and reports_error else _SIGNAL_HINTS.get(name)
        text = "was killed by %s%s" % (name, ": " + hint if hint else "")
        if place:
            text = "%s, in %s" % (text, place)
        return "%s (%s)" % (text, error) if error and reports_error else text
    return "exited with code %d%s" % (code, ": " + error if error else "")


def describe_killed(killed: dict[str, float]) -> str:
    """What is said of ranks that had not ended when the time of their stop was over, after so many seconds
    each.
    """
    ranks = [str(rank) for rank in sorted(map(int, killed))]
    more = " and %d more" % (len(ranks) - _MOST_NAMED) if len(ranks) > _MOST_NAMED else ""
    which = ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(ranks[:_MOST_NAMED]) + more
    verb = "was" if len(ranks) == 1 else "were"
    return "%s still ran after %g s and %s killed" % (which, round(max(killed.values()), 1), verb)


def find_crash(stderr_tail: bytes) -> str | None:
    """Where Python was when a signal killed it: function, file and line; None where it does not say."""
    text = stderr_tail.decode("utf-8", "backslashreplace")
    crashes = list(_CRASH.finditer(text))
    place = _CRASH_PLACE.search(text, crashes[-1].end()) if crashes else None
    return "%s (%s:%s)" % (place[3], "/".join(place[1].split("/")[-2:]), place[2]) if place else None


def find_error(stderr_tail: bytes) -> str | None:
    """The exception in the end of a rank's stderr, or else its last line. Of one that only points to an inner
    one, the inner one.
    """
    text = _COLOUR.sub("", stderr_tail.decode("utf-8", "backslashreplace"))
    torchrun = _TORCHRUN.search(text)
    if torchrun:
        return _of_torchrun(torchrun, text[: torchrun.start()])
    crash = _CRASH.search(text)
    if crash:
        text = text[: crash.start()]  # what follows is where it was, not what was wrong
    lines = [_RANK_PREFIX.sub("", line) for line in text.splitlines()]
    if any("Exception Group Traceback" in line for line in lines):
        lines = [_GROUP_FRAME.sub("", line) for line in lines]
        lines = lines[
            next(number for number, line in enumerate(lines) if "Exception Group Traceback" in line) :
        ]
        named = [line.strip() for line in lines if re.match(r"\w*ExceptionGroup: ", line)]
        return named[0] if named else lines[-1].strip()
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    found = None
    for start in reversed(starts):
        inner = _exception_below(lines, start)
        if inner is not None:
            found = inner
            if not _INWARD.search(lines[inner]):
                break
    if found is not None:
        return advice.shorten(lines[found].strip(), lines[found + 1 :])
    thrown = list(_TERMINATED.finditer(text))
    if thrown:
        what = (thrown[-1]["what"] or "").strip()
        return advice.shorten(thrown[-1]["kind"] + (": " + what if what else ""), [])
    fatal = _FATAL.search(text) if crash else None
    if fatal:
        return fatal[1].partition(". ")[0]
    written = [line.strip() for line in lines if line.strip() and not line.startswith("frame #")]
    return advice.shorten(written[-1], []) if written else None


def _of_torchrun(found: re.Match[str], before: str) -> str:
    """What the first rank that failed has written, of all that torchrun has started."""
    which, code = "rank %s of torchrun's" % found["rank"], int(found["code"])
    if code < 0:
        return "%s %s" % (which, describe_end(code, None, find_crash(before.encode())))
    # Without a process group its lines have no number.
    own = [line for line in before.splitlines() if line.startswith("[rank%s]:" % found["rank"])]
    text = "\n".join(own) or _TORCHRUNS_LINES.sub("", before).rpartition(_TRACEBACK)[0]
    error = find_error(text.encode())
    return "%s %s" % (which, describe_end(code, None)) if error is None else "%s (%s)" % (error, which)


def _exception_below(lines: list[str], start: int) -> int | None:
    """The line with the exception of the traceback that begins at a line."""
    boxed = lines[start].startswith(_BOX)
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line and not line[0].isspace() and not (boxed and line.startswith(_BOX)):
            return number
    return None


def find_hint(error: str | None, python: str, in_pod: bool) -> str | None:
    """What helps against an error that a user meets with the first script; `python` ran the rank."""
    missing = _NO_MODULE.match(error or "")
    if missing:
        if _NO_LONGER_IN_PYTHON.fullmatch(missing[1]):
            which = "--image chooses one" if in_pod else "--python chooses one"
            more = "; setuptools has a copy%s" % (": --pip setuptools" if in_pod else "")
            return "%s is gone from newer Pythons, as %s is: %s that has it%s" % (
                missing[1],
                python,
                which,
                more if missing[1] == "distutils" else "",
            )
        where = "%s is not in the environment of %s" % (missing[1], python)
        if in_pod:
            return "%s; --image chooses another image, --pip %s installs it" % (where, missing[1])
        if python != sys.executable and has_installed(missing[1]):
            from shlex import quote

            return "%s; that of echelon has it: --python %s" % (where, quote(sys.executable))
        return "%s; --python runs the ranks with another Python" % where
    if _NO_GPU.search(error or ""):
        asked = ": --gpus N asks for some" if in_pod else ""
        return (
            'PyTorch finds no GPU here%s; init_process_group("gloo") and the device "cpu" need none' % asked
        )
    for start, call in _READS_KEYS:
        if error and error.startswith(start):
            alone = "of one rank (-n 1), on this machine and in the foreground of a terminal"
            return "%s needs somebody who types: use it in a run %s" % (call, alone)
    return advice.find_advice(error or "", in_pod)


def read_error_file(path: str) -> str | None:
    """The exception in the error file that torch's `record` writes; None if there is none."""
    try:
        with open(path, "rb") as file:
            message = json.load(file)["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    text = message.get("message") if isinstance(message, dict) else message
    if not text or not str(text).strip():
        return None
    first = str(text).strip().splitlines()[0]
    more = message.get("extraInfo") if isinstance(message, dict) else None
    if _INWARD.search(first) and isinstance(more, dict):
        first = find_error(str(more.get("py_callstack") or "").encode()) or first
    return advice.shorten(first, str(text).strip().splitlines()[1:])


def last_lines(tail: bytes) -> list[str]:
    """The last lines of a rank's output, as text short enough for a message."""
    text = tail.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2].rstrip() for line in text.rstrip().split("\n")]
    return [line[:400] for line in lines[-TAIL_LINES:]] if text.strip() else []


def is_consequence(code: int, error: str | None) -> bool:
    """Whether a rank that ended like this may only have followed another one."""
    if code == -signal.SIGABRT or code > 0:
        return bool(error and _CONSEQUENCES.search(error))
    return code == -signal.SIGPIPE


def make_end(
    rank: int,
    worker: int,
    code: int,
    error: str | None,
    tail: list[str],
    at: float,
    hint: str | None = None,
    place: str | None = None,
) -> dict[str, Any]:
    """One rank's end, as it is sent to the leader."""
    return {
        "rank": rank,
        "worker": worker,
        "exit_code": code if code >= 0 else 128 - code,
        "signal": signal_name(-code) if code < 0 else None,
        "error": error,
        "hint": hint,
        "tail": tail,
        "at": at,
        "summary": "rank %d %s" % (rank, describe_end(code, error, place)),
        "consequence": is_consequence(code, error),
        "gave_up": bool(error and _GAVE_UP.search(error)),
    }


def make_launchers(end: dict[str, Any], code: int, apart: bool) -> None:
    """Turn an end into that of a launcher, which is no rank. One that is `apart` from its ranks fails because
    one of them has, whose own end is on its way.
    """
    end["rank"] = None
    end["summary"] = "the launcher %s" % describe_end(code, end["error"])
    end["consequence"] = end["consequence"] or apart


def make_hosted(end: dict[str, Any], tail: bytes, cut_off: bool) -> None:
    """Turn an end into that of a rank that a launcher started. The launcher ends the others with SIGTERM, or
    with their starters (`cut_off`), when one has failed; and MPI ends a rank whose peer has gone, Open MPI
    without a word of the rank's.
    """
    silent = end["exit_code"] in _OPEN_MPI_CODES and not end["error"]
    follows = cut_off or silent or end["signal"] == "SIGTERM" or _MPI_CONSEQUENCES.search(tail)
    end["consequence"] = end["consequence"] or bool(follows)
    end["cut_off"] = cut_off
    if cut_off:
        error = ": " + end["error"] if end["error"] else ""
        end["summary"] = "rank %d was ended by its launcher%s" % (end["rank"], error)
