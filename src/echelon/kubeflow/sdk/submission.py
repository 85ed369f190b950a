"""A job that Kubeflow's client was asked to create, submitted as a run that goes on by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from echelon.engines.base import Engine
from echelon.handle import Run
from echelon.kubeflow.documents import read_document
from echelon.kubeflow.here import on_this_machine
from echelon.kubeflow.labels import with_labels
from echelon.model.pods.pod import KUBEFLOW_KIND
from echelon.model.settings import Settings
from echelon.preparation.prepare import named_after, prepare, prepare_function
from echelon.preparation.sources import find_surroundings, gather
from echelon.replacing import make_room
from echelon.submit import submit

_FRAMEWORKS: Mapping[str, Literal["torch", "tensorflow", "jax", "xgboost", "mpi"]] = {
    "PyTorchJob": "torch",
    "TFJob": "tensorflow",
    "JAXJob": "jax",
    "XGBoostJob": "xgboost",
    "MPIJob": "mpi",
}


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
