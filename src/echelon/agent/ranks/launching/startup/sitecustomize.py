"""Lets a Python rank write the stacks of its threads to standard error when the agent asks
(`stuck/stacks.py`), and where it was when it crashes in native code (since Python 3.14 with the native
stack); has it write whole lines, and has one that fails under MPI or JAX end at once.

Python imports it before the script. It takes itself out of the path and the environment again, and goes on
with the environment's own `sitecustomize`, so that the script finds everything as without it."""

import atexit
import os
import sys

_SIGNAL = 54  # as in stuck/stacks.py


def _restore_path(here: str) -> None:
    sys.path[:] = [each for each in sys.path if each != here]
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


_restore_path(os.path.dirname(__file__))
if "JAX_COORDINATOR_ADDRESS" in os.environ:
    sys.excepthook = _let_jax_go
atexit.register(_end_without_peers)
_register()
_write_whole_lines()
_own = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - that of the environment
except ImportError as error:
    if getattr(error, "name", __name__) != __name__:
        raise
finally:
    sys.modules.setdefault(__name__, _own)
