"""Lets a Python rank write the stacks of its threads to standard error when the agent asks
(`stuck/stacks.py`), and where it was when it crashes in native code (since Python 3.14 with the native
stack); lets the agent look where it is without a trace in its output (`stuck/looking.py`); has it write whole
lines, and has one that fails under MPI or JAX end at once.

Python imports it before the script. It takes itself out of the path and the environment again, and goes on
with the environment's own `sitecustomize`, so that the script finds everything as without it."""

import atexit
import os
import sys

_SIGNAL = 54  # as in stuck/stacks.py
_LOOK_SIGNAL = 55  # as in stuck/looking.py
_LOOKS = "ECHELON_LOOKS"  # where the files begin that the agent and this process share; the script has no use
# Far above the descriptors that a script gets: where it closes all of them, none of its own takes these.
_STACKS_FD, _QUESTIONS_FD = 1000, 1001
_TORCH = "torch.distributed.distributed_c10d"
_NATIVE = "torch._C._distributed_c10d"
_KEPT = "500"  # collectives that torch's flight recorder keeps
_WAIT = 5.0  # seconds at most for what it has at the end of a rank
_last: list = []  # type: ignore[type-arg]  # where the rank was then
# Programs of Python's that start the training's own, and hand on to those what they have found. What the
# first ones start are ranks by torch's numbers.
_RANKS_STARTERS = frozenset(
    (
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "accelerate.commands.launch",
        "deepspeed",
        "deepspeed.launcher.runner",
        "deepspeed.launcher.launch",
    )
)
_STARTERS = _RANKS_STARTERS | {"conda", "mamba"}


def _name_of_program() -> str:
    """What this Python runs: the script's name, or the module's."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = iter(os.fsdecode(file.read()).split("\0")[1:])
    except OSError:
        return ""
    for word in words:
        if word in ("-X", "-W"):
            next(words, "")
        elif word == "-m":
            return next(words, "")
        elif not word.startswith("-"):
            return os.path.basename(word)
        elif word.startswith("-c"):
            break
    return ""


def _restore_path(here: str, hands_on: bool) -> None:
    sys.path[:] = [each for each in sys.path if each != here]
    if hands_on:
        return
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here in folders:
        folders.remove(here)
    if folders:
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
    else:
        os.environ.pop("PYTHONPATH", None)


def _register() -> None:
    try:
        import faulthandler

        faulthandler.register(_SIGNAL, file=2, all_threads=True)
        if not faulthandler.is_enabled():  # of one thread: with those of all, the cause would be far above
            faulthandler.enable(file=2, all_threads=False)
    except Exception:  # noqa: S110 - a Python without it, or another system: there are no stacks then
        pass


def _answer_looks(hands_on: bool) -> None:
    """Stacks go to a file of the agent's, on a signal of their own. What torch's flight recorder has, a
    thread tells that sleeps in `read`; it is there from when torch is imported by one of several ranks. The
    names of the files have the process, since below a shell there may be several.
    """
    start = os.environ.get(_LOOKS, "")
    if not start:
        return
    start = "%s.%d" % (start, os.getpid())
    if not hands_on:
        del os.environ[_LOOKS]
    elif _program in _RANKS_STARTERS:
        os.environ[_LOOKS] = start
    try:
        import faulthandler

        opened = os.open(start + ".stacks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(opened, _STACKS_FD, False)
        os.close(opened)
        faulthandler.register(_LOOK_SIGNAL, file=_STACKS_FD, all_threads=True)
    except Exception:  # noqa: S110 - as above; or few descriptors are allowed, or the disk is full
        pass
    several = any(os.environ.get(name, "1") != "1" for name in ("ECHELON_RANKS", "WORLD_SIZE"))
    if several and not hands_on:
        sys.meta_path.insert(0, _WhenTorchComes(start))


class _WhenTorchComes:
    """Finds no module. It sees that torch's is looked for, and begins to answer then. It stays where it is:
    the search that it is part of would leave out another finder if it went.
    """

    def __init__(self, start: str) -> None:
        self._start = start

    def find_spec(self, name: str, *_where: object) -> None:
        if name == _TORCH and self._start:
            start, self._start = self._start, ""
            try:
                _begin_to_answer(start)
            except Exception:  # noqa: S110 - torch is imported all the same
                pass


def _begin_to_answer(start: str) -> None:
    import _thread

    if "TORCH_NCCL_TRACE_BUFFER_SIZE" not in os.environ:  # its name before
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", _KEPT)
    _let_torch_dump(start)
    atexit.register(_write_last, start, os.getpid())
    os.mkfifo(start + ".ask", 0o600)
    opened = os.open(start + ".ask", os.O_RDWR)  # to write as well: so it never ends
    os.dup2(opened, _QUESTIONS_FD, False)
    os.close(opened)
    _thread.start_new_thread(_answer, (start,))


def _let_torch_dump(start: str) -> None:
    """NCCL's watchdog ends the process when a collective takes too long. Before, it writes what the recorder
    has (`stuck/dumps.py`).
    """
    names = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if any(name in os.environ for name in names):
        return  # the user wants it elsewhere
    version = str(getattr(sys.modules.get("torch"), "__version__", "")).split(".")[:2]
    # Newer ones warn of the older name.
    older = all(each.isdigit() for each in version) and tuple(map(int, version)) < (2, 9)
    os.environ[names[1] if older else names[0]] = start + ".dump."
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


def _write_last(start: str, pid: int) -> None:
    """Have the thread write what the recorder has when an exception ends this rank, such as Gloo's after a
    collective that took too long, and where it was. The thread does it, since CUDA may not answer any more.
    """
    failed = getattr(sys, "last_type", None)
    if failed is None or not issubclass(failed, Exception) or os.getpid() != pid:
        return
    frames: list = []  # type: ignore[type-arg]
    trace = getattr(sys, "last_traceback", None)
    while trace is not None and len(frames) < 1000:
        code = trace.tb_frame.f_code
        frames.append((code.co_name, code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    _last.extend(frames[::-1][:100])
    try:
        import time

        pipe = os.open(start + ".ask", os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b"!")
        os.close(pipe)
        ended = time.monotonic() + _WAIT
        while time.monotonic() < ended and not os.path.exists(start + ".last"):
            time.sleep(0.005)
    except Exception:  # noqa: S110 - no such folder or no thread any more: it is not known then
        pass


def _answer(start: str) -> None:
    """Write what the recorder has, whenever a byte comes."""
    while True:
        try:
            asked = os.read(_QUESTIONS_FD, 64)
            if not asked:
                return
            _write(start, ".last" if b"!" in asked else ".answer", _read_recorder(_last))
        except Exception:
            return


def _write(start: str, ending: str, answer: bytes) -> None:
    """At once, as the agent sees it."""
    opened = os.open(start + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while answer:
            answer = answer[os.write(opened, answer) :]
    finally:
        os.close(opened)
    os.rename(start + ".new", start + ending)


def _read_recorder(frames: list) -> bytes:  # type: ignore[type-arg]
    """A line on the process groups, and one for each recorder. Nothing is imported: the script may hang in an
    import. Before there is a group no recorder is asked, since that would make it.
    """
    world = getattr(sys.modules.get(_TORCH), "_world", None)
    native, json = sys.modules.get(_NATIVE), sys.modules.get("json")
    if world is None or native is None or json is None or not world.pg_map:
        return b"{}\n"
    groups = {}
    for group, name in list(world.pg_names.items()):
        groups[str(name)] = sorted(int(rank) for rank in world.pg_group_ranks.get(group, ()))
    head = {"rank": world.default_pg.rank(), "groups": groups} if world.default_pg is not None else {}
    if frames:
        head["frames"] = frames
    lines = [json.dumps(head).encode()]
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(native, name, None)
        if dump is not None:
            lines.append(dump())
    return b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n"


def _write_whole_lines() -> None:
    """As on a terminal. The agent has Python not buffer at all, in its children too, so that no output is
    late or lost; but then `print` writes each of its arguments by itself, and forked children, which write to
    the same pipe, cut each other's lines.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
        except Exception:  # noqa: S110 - closed, or no stream of Python's own: it stays as it is
            pass


def _end_without_peers() -> None:
    """After an exception that nothing caught, mpi4py would wait in MPI_Finalize for ranks that wait for this
    one, for ever, and JAX's client of its coordinator for minutes. Registered first, it is called last, after
    all that the script has registered.
    """
    failed = getattr(sys, "last_type", None)
    joined = "mpi4py.MPI" in sys.modules or _jax_client() is not None
    if not joined or failed is None or not issubclass(failed, Exception):
        return
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: S110 - its reader is gone
            pass
    os._exit(1)


def _jax_client() -> object:
    """What JAX has once `jax.distributed.initialize()` was called."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return getattr(state, "client", None)


def _let_jax_go(failed: type, error: object, traceback: object) -> None:
    """JAX itself has registered a function that waits for the peers: it is taken back, so that those of the
    script are called and that one is not.
    """
    sys.__excepthook__(failed, error, traceback)  # type: ignore[arg-type]
    if issubclass(failed, Exception):
        atexit.unregister(getattr(sys.modules.get("jax._src.api"), "clean_up", None))  # type: ignore[arg-type]


_program = _name_of_program()
_hands_on = _program in _STARTERS
_restore_path(os.path.dirname(__file__), _hands_on)
if "JAX_COORDINATOR_ADDRESS" in os.environ:
    sys.excepthook = _let_jax_go
atexit.register(_end_without_peers)
_register()
_answer_looks(_hands_on)
_write_whole_lines()
_own = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - that of the environment
except ImportError as error:
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, _own)
