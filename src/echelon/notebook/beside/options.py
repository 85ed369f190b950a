"""Options that libraries keep for the whole process, one line each: how to read one, and how to set it. A
library is asked only if it is imported."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional


class Probe(NamedTuple):
    """One thing that a module keeps."""

    module: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def _of(name: str) -> Any:
    return sys.modules[name]


def _read_torch_random() -> Any:
    torch = _of("torch")
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return torch.initial_seed(), torch.get_rng_state(), cuda


def _set_torch_random(state: Any) -> None:
    torch = _of("torch")
    seed, cpu, cuda = state
    torch.manual_seed(seed)  # of devices that are not in use yet
    torch.set_rng_state(cpu)
    if cuda and torch.cuda.is_available() and torch.cuda.device_count() == len(cuda):
        torch.cuda.set_rng_state_all(cuda)


def _read_torch() -> Any:
    torch = _of("torch")
    shown = dict(vars(_of("torch._tensor_str").PRINT_OPTS))
    exact = torch.are_deterministic_algorithms_enabled()
    precision = torch.get_float32_matmul_precision()
    return str(torch.get_default_dtype()), torch.is_grad_enabled(), exact, shown, precision


def _set_torch(state: Any) -> None:
    torch = _of("torch")
    dtype, gradients, exact, shown, precision = state
    torch.set_default_dtype(getattr(torch, dtype.partition(".")[2]))
    torch.set_grad_enabled(gradients)
    torch.use_deterministic_algorithms(exact)
    torch.set_float32_matmul_precision(precision)
    vars(_of("torch._tensor_str").PRINT_OPTS).update(shown)


def _read_torch_device() -> Any:
    read = getattr(_of("torch"), "get_default_device", None)  # since PyTorch 2.3
    return None if read is None else str(read())


def _read_umask() -> Optional[int]:
    """None where it could only be read by setting it, which another thread would feel."""
    try:
        with open("/proc/self/status") as file:
            return next((int(line.split()[1], 8) for line in file if line.startswith("Umask:")), None)
    except OSError:
        return None


def _set_gc(state: Any) -> None:
    enabled, thresholds = state
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*thresholds)


def _pandas_defaults() -> Dict[str, Any]:
    config = vars(_of("pandas._config.config"))
    known = config["_registered_options"]
    return {name: known[name].defval for name in known if name not in config["_deprecated_options"]}


def _read_pandas() -> Any:
    pandas = _of("pandas")
    now = {name: (pandas.get_option(name), default) for name, default in _pandas_defaults().items()}
    return {name: value for name, (value, default) in now.items() if value != default}


def _set_pandas(state: Any) -> None:
    pandas = _of("pandas")
    for name, default in _pandas_defaults().items():
        if pandas.get_option(name) != state.get(name, default):
            pandas.set_option(name, state.get(name, default))


def _read_matplotlib() -> Any:
    matplotlib = _of("matplotlib")
    default = matplotlib.rcParamsDefault
    found = {name: dict.__getitem__(matplotlib.rcParams, name) for name in matplotlib.rcParams}
    return {name: value for name, value in found.items() if "backend" not in name and value != default[name]}


def _set_matplotlib(state: Any) -> None:
    parameters = _of("matplotlib").rcParams
    for name in _read_matplotlib():
        if name not in state:
            parameters[name] = _of("matplotlib").rcParamsDefault[name]
    parameters.update(state)


def _set_warnings(filters: List[Any]) -> None:
    warnings = _of("warnings")
    warnings.filters[:] = filters
    getattr(warnings, "_filters_mutated", getattr(warnings, "_filters_mutated_lock_held", lambda: None))()


PROBES: Dict[str, Probe] = {
    "random": Probe("random", lambda: _of("random").getstate(), lambda value: _of("random").setstate(value)),
    "numpy.random": Probe(
        "numpy.random",
        lambda: _of("numpy.random").get_state(),
        lambda value: _of("numpy.random").set_state(value),
    ),
    "torch.random": Probe("torch", _read_torch_random, _set_torch_random),
    "torch": Probe("torch", _read_torch, _set_torch),
    "torch.device": Probe("torch", _read_torch_device, lambda value: _of("torch").set_default_device(value)),
    "torch.threads": Probe(
        "torch", lambda: _of("torch").get_num_threads(), lambda value: _of("torch").set_num_threads(value)
    ),
    "numpy.printoptions": Probe(
        "numpy",
        lambda: _of("numpy").get_printoptions(),
        lambda value: _of("numpy").set_printoptions(**value),
    ),
    "numpy.errors": Probe("numpy", lambda: _of("numpy").geterr(), lambda value: _of("numpy").seterr(**value)),
    "pandas.options": Probe("pandas", _read_pandas, _set_pandas),
    "matplotlib.rcParams": Probe("matplotlib", _read_matplotlib, _set_matplotlib),
    "decimal": Probe(
        "decimal",
        lambda: _of("decimal").getcontext().copy(),
        lambda value: _of("decimal").setcontext(value),
    ),
    "warnings": Probe("warnings", lambda: list(_of("warnings").filters), _set_warnings),
    "recursionlimit": Probe("sys", sys.getrecursionlimit, sys.setrecursionlimit),
    "switchinterval": Probe("sys", sys.getswitchinterval, sys.setswitchinterval),
    "intmaxstrdigits": Probe(
        "sys",
        getattr(sys, "get_int_max_str_digits", lambda: None),  # since Python 3.11
        getattr(sys, "set_int_max_str_digits", lambda _: None),
    ),
    "umask": Probe("os", _read_umask, os.umask),
    "gc": Probe("gc", lambda: (gc.isenabled(), gc.get_threshold()), _set_gc),
    "socket": Probe(
        "socket",
        lambda: _of("socket").getdefaulttimeout(),
        lambda value: _of("socket").setdefaulttimeout(value),
    ),
    "multiprocessing": Probe(
        "multiprocessing",
        lambda: _of("multiprocessing").get_start_method(allow_none=True),
        lambda value: _of("multiprocessing").set_start_method(value, force=True),
    ),
    # The zone is in the environment, which is put back before.
    "timezone": Probe("time", lambda: _of("time").tzname, lambda _: _of("time").tzset()),
    "locale": Probe(
        "locale",
        lambda: _of("locale").setlocale(_of("locale").LC_ALL),
        lambda value: _of("locale").setlocale(_of("locale").LC_ALL, value),
    ),
    "logging": Probe("logging", lambda: logging.root.manager.disable, logging.disable),
}
SEEDED = frozenset(("random", "numpy.random", "torch.random"))
PROBED = frozenset(probe.module for probe in PROBES.values())


def loggers() -> Dict[str, Any]:
    """How each logger is set that is not as it was made: level, handlers, and whether it passes lines on.
    What a library adds to its own loggers, it adds in every step."""
    found = {}
    made = {"root": logging.root, **logging.root.manager.loggerDict}
    for name, logger in made.items():
        if not isinstance(logger, logging.Logger):
            continue
        own = name in ("root", "__main__") or name.partition(".")[0] not in sys.modules
        handlers = list(logger.handlers) if own else []
        if logger.level or handlers or not logger.propagate or logger.disabled:
            found[name] = (logger.level, logger.propagate, logger.disabled, handlers)
    return found


def set_logger(name: str, state: Any) -> None:
    """Set a logger; None is one that was set back to how it was made."""
    logger = logging.root if name == "root" else logging.getLogger(name)
    level, propagate, disabled, handlers = state or (logging.NOTSET, True, False, [])
    logger.setLevel(level)
    logger.propagate, logger.disabled = propagate, disabled
    for handler in handlers:
        if handler not in logger.handlers:
            logger.addHandler(handler)
