"""Models and histories of Keras, of either kind (`keras`, `tf_keras`): a model as a `.keras` file; a history
without its model, which could not be kept with it."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

MODEL, HISTORY = "keras-model", "keras-history"
_LIBRARIES = ("tf_keras", "keras")
_FILE = "model.keras"


def library_of_model(value: object) -> Optional[str]:
    """The library whose model a value is; None if it is none."""
    return _library(value, "Model", "")


def library_of_history(value: object) -> Optional[str]:
    """The library whose history a value is; None if it is none."""
    return _library(value, "History", "callbacks")


def _library(value: object, name: str, inside: str) -> Optional[str]:
    for library in _LIBRARIES:
        module = sys.modules.get(library)
        holder = getattr(module, inside, None) if inside else module
        kind = getattr(holder, name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return library
    return None


def write_model(model: Any, folder: Path) -> None:
    """Write a model. Of a distributed step every worker must come here: reading some variables takes all."""
    model.save(str(folder / _FILE))


def read_model(library: str, folder: Path, namespace: Dict[str, Any]) -> Any:
    """Read a model; what the notebook defines itself is found in it by name. Its code is the notebook's own:
    the file was authenticated before."""
    models = importlib.import_module(library).models
    with names_known(namespace):
        return models.load_model(str(folder / _FILE), safe_mode=False)


@contextlib.contextmanager
def names_known(namespace: Dict[str, Any]) -> Iterator[None]:
    """Let models that are read, also inside of a pickle, find the notebook's own layers and functions."""
    own = {name: value for name, value in namespace.items() if callable(value)}
    with contextlib.ExitStack() as stack:
        for library in _LIBRARIES:
            utils = getattr(sys.modules.get(library), "utils", None)
            if utils is not None:
                stack.enter_context(utils.custom_object_scope(own))
        yield


def weights_alike(one: Any, other: Any) -> bool:
    """Whether two models have the same weights."""
    numpy = sys.modules["numpy"]
    mine, others = one.get_weights(), other.get_weights()
    return len(mine) == len(others) and all(
        bool(numpy.array_equal(left, right, equal_nan=True)) for left, right in zip(mine, others)
    )


def history_parts(history: Any) -> Dict[str, Any]:
    """What a history holds beside its model."""
    return {name: getattr(history, name, None) for name in ("history", "epoch", "params")}


def make_history(library: str, parts: Dict[str, Any]) -> Any:
    """A history with those parts."""
    history = importlib.import_module(library).callbacks.History()
    for name, value in parts.items():
        setattr(history, name, value)
    return history
