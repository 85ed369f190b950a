"""Errors as callers of Kubeflow's clients catch them: ValueError, TimeoutError and RuntimeError, each with
the message and the hint of the error that caused it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from echelon.errors import EchelonError, InvalidJob, RunTimedOut

P = ParamSpec("P")
R = TypeVar("R")


def as_kubeflow_does(call: Callable[P, R]) -> Callable[P, R]:
    """Raise what a caller of Kubeflow's client expects."""

    @functools.wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except InvalidJob as error:
            raise ValueError(str(error)) from error
        except RunTimedOut as error:
            raise TimeoutError(str(error)) from error
        except EchelonError as error:
            raise RuntimeError(str(error)) from error

    return called
