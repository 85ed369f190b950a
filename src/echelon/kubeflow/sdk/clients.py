"""What both of Kubeflow's clients stand on: where their jobs are, how a job is submitted as a run that needs
no client, and errors as their callers catch them (ValueError, TimeoutError and RuntimeError), each with the
message and the hint of the error that caused it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from echelon.engines.base import Engine
from echelon.engines.choose import CLUSTER, LOCAL, choose_engine, cluster_is_configured
from echelon.errors import EchelonError, InvalidJob, RunTimedOut
from echelon.handle import Run
from echelon.kubeflow.documents import read_document
from echelon.kubeflow.here import on_this_machine
from echelon.kubeflow.labels import with_labels
from echelon.model.pods.pod import KUBEFLOW_KIND
from echelon.model.run import RunRef
from echelon.model.settings import Settings
from echelon.preparation.prepare import named_after, prepare, prepare_function
from echelon.preparation.sources import find_surroundings, gather
from echelon.replacing import make_room
from echelon.submit import submit

P = ParamSpec("P")
R = TypeVar("R")
_FRAMEWORKS: Mapping[str, Literal["torch", "tensorflow", "jax", "xgboost", "mpi"]] = {
    "PyTorchJob": "torch",
    "TFJob": "tensorflow",
    "JAXJob": "jax",
    "XGBoostJob": "xgboost",
    "MPIJob": "mpi",
}


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


class Reach:
    """One cluster, or this machine: as given, else by ECHELON_ON, else the cluster if one is configured."""

    def __init__(
        self, on: str | None, *, context: str | None, namespace: str | None, kubeconfig: str | None
    ) -> None:
        named = CLUSTER if context or kubeconfig else None
        self._on = on or os.environ.get("ECHELON_ON") or named or _usual_place()
        self._context = context
        self._kubeconfig = kubeconfig
        self.namespace = namespace

    def _engine(self, namespace: str | None = None) -> Engine:
        return choose_engine(
            self._on,
            context=self._context,
            namespace=namespace or self.namespace,
            kubeconfig=self._kubeconfig,
        )

    def _ref(self, name: str) -> RunRef:
        return RunRef(engine=self._on, name=name)


def _usual_place() -> str:
    if cluster_is_configured():
        return CLUSTER
    _say_once()
    return LOCAL


@functools.cache
def _say_once() -> None:
    hint = 'on="local" says so, and KUBECONFIG or on="k8s" a cluster'
    print(f"note: no cluster is configured: jobs run on this machine ({hint})", file=sys.stderr)


def submit_document(
    document: Mapping[str, Any],
    engine: Engine,
    *,
    more: Settings | None = None,
    function: Callable[..., object] | None = None,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
) -> Run:
    """Submit a job's document; with a function, the workers run that instead of the document's command."""
    manifest = read_document(document)
    settings = manifest.settings
    if function is not None:
        settings = replace(
            settings,
            command=None,
            args=None,
            code=None,
            image=None,
            framework=_FRAMEWORKS[manifest.kind],
        )

    def tell(note: str) -> None:
        print(f"note: {note}", file=sys.stderr)

    surroundings = find_surroundings()
    given = replace(more or Settings(), detach=True)
    merged = named_after(
        gather(given, surroundings, (), settings), manifest.document["metadata"].get("generateName")
    )
    notes = [f"not honoured: {note}" for note in manifest.notes]
    if function is not None:
        prepared = prepare_function(function, args, kwargs or {}, merged, surroundings, engine.traits)
    else:
        if not engine.traits.remote:
            here = on_this_machine(
                manifest, merged, {}, surroundings.folder, lambda path: Path(path).exists()
            )
            merged, notes = here.settings, [*notes, *here.notes]
        prepared = prepare(merged, surroundings, engine.traits)
    if engine.traits.remote and KUBEFLOW_KIND in prepared.job.pod.annotations:
        prepared = replace(prepared, job=with_labels(prepared.job, manifest.document))
    for note in (*notes, *prepared.notes):
        tell(note)
    make_room(prepared.job, engine, tell)  # a job that was deleted may be created again
    return submit(prepared, engine, no_wait=False, stays=False, replace=False)
