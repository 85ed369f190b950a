"""TrainerClient: the calls of Kubeflow's second client, on echelon's own runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from echelon.engines.base import Engine
from echelon.engines.choose import LOCAL
from echelon.errors import InvalidJob
from echelon.handle import Run
from echelon.kubeflow.sdk import jobs
from echelon.kubeflow.sdk.clients import Reach, as_kubeflow_does, submit_document
from echelon.kubeflow.sdk.describe import conditions_of, why_failed
from echelon.kubeflow.sdk.job_documents import check_conditions, installing, job_document
from echelon.kubeflow.sdk.jobs import Selection
from echelon.kubeflow.sdk.trainer_types import (
    CustomTrainer,
    Event,
    KubernetesBackendConfig,
    LocalProcessBackendConfig,
    Runtime,
    Step,
    TrainJob,
    runtime_for,
)
from echelon.model.job import suggest_name
from echelon.model.status import Status

COMPLETE = "Complete"
RUNTIMES = {f"{each}-distributed": each for each in ("torch", "tensorflow", "jax", "xgboost")}
_TORCH = "torch-distributed"
_BACKENDS = (KubernetesBackendConfig.__name__, LocalProcessBackendConfig.__name__)
_STATUSES = ("Created", "Running", COMPLETE, "Failed")
_KINDS = {"torch": "PyTorchJob", "tensorflow": "TFJob", "jax": "JAXJob", "xgboost": "XGBoostJob"}


class TrainerClient(Reach):
    """Trains, shows and deletes jobs, as `kubeflow.trainer.TrainerClient` does."""

    @as_kubeflow_does
    def __init__(
        self,
        backend_config: object = None,
        *,
        on: str | None = None,
        context: str | None = None,
        namespace: str | None = None,
    ) -> None:
        # Kubeflow's own classes may have been imported: they have the same names.
        which = type(backend_config).__name__
        if backend_config is not None and which not in _BACKENDS:
            hint = f"one of {', '.join(_BACKENDS)}"
            raise InvalidJob("backend_config", which, "is not a backend of echelon's", hint=hint)
        if getattr(backend_config, "client_configuration", None) is not None:
            hint = "echelon reads a kubeconfig; give config_file or context"
            raise InvalidJob("client_configuration", "it", "is not read", hint=hint)
        here = which == LocalProcessBackendConfig.__name__
        super().__init__(
            on or (LOCAL if here else None),
            context=context or getattr(backend_config, "context", None),
            namespace=namespace or getattr(backend_config, "namespace", None),
            kubeconfig=getattr(backend_config, "config_file", None),
        )

    def list_runtimes(self) -> list[Runtime]:
        """The frameworks that echelon wires."""
        return [runtime_for(name, framework) for name, framework in RUNTIMES.items()]

    @as_kubeflow_does
    def get_runtime(self, name: str) -> Runtime:
        """One of them."""
        if name not in RUNTIMES:
            raise InvalidJob("runtime", name, "is not known", hint=f"one of {', '.join(RUNTIMES)}")
        return runtime_for(name, RUNTIMES[name])

    def get_runtime_packages(self, runtime: Runtime) -> None:
        """Refused: a runtime here has no image of its own."""
        hint = "a CustomTrainer whose function prints them does it, in the image that it names"
        raise ValueError(f"get_runtime_packages: {runtime.name} is not an image ({hint})")

    @as_kubeflow_does
    def train(
        self,
        runtime: str | Runtime | None = None,
        initializer: object = None,
        trainer: CustomTrainer | None = None,
        options: Sequence[object] | None = None,
    ) -> str:
        """Start a function on `num_nodes` nodes; returns the job's name."""
        for name, value in (("initializer", initializer), ("options", options)):
            if value:
                hint = "download what it names inside the function, or mount a volume"
                raise InvalidJob(name, value, "is not something that echelon does", hint=hint)
        if trainer is None or not callable(getattr(trainer, "func", None)):
            which = None if trainer is None else type(trainer).__name__
            hint = "CustomTrainer(func=train, num_nodes=2); an image by itself: echelon run --image"
            raise InvalidJob("trainer", which, "has no function", hint=hint)
        # A Runtime, also of Kubeflow's own class, or its name.
        chosen = self.get_runtime(str(getattr(runtime, "name", runtime) or _TORCH))
        nodes = trainer.num_nodes or 1
        document = job_document(
            _KINDS[chosen.framework],
            f"{suggest_name(trainer.func.__name__)[:30]}-{secrets.token_hex(2)}",
            {"Worker": nodes},
            image=trainer.image,
            runs_function=True,
            resources=trainer.resources_per_node,
            env=trainer.env,
        )
        run = submit_document(
            document,
            self._engine(),
            more=installing(trainer.image, trainer.packages_to_install, trainer.pip_index_urls),
            function=trainer.func,
            kwargs=trainer.func_args or {},
        )
        return run.name

    @as_kubeflow_does
    def list_jobs(self, runtime: Runtime | None = None) -> list[TrainJob]:
        """Every job, or those of one runtime; one that cannot be read is left out, with a note."""
        engine = self._engine()
        found = jobs.list_all(engine.names(), lambda name: self._described(engine, name))
        return [job for job in found if runtime is None or job.runtime.name == runtime.name]

    @as_kubeflow_does
    def get_job(self, name: str) -> TrainJob:
        """One job, with a step for each of its nodes."""
        return self._described(self._engine(), name)

    def get_job_logs(self, name: str, step: str = "node-0", follow: bool | None = False) -> Iterator[str]:
        """What a node wrote, line by line; with `follow`, as it comes."""
        index = step.rpartition("-")[2]
        if not index.isdecimal():
            raise ValueError(f"step: {step!r} is not a step of a job (node-0 is its first node)")
        run = Run(self._ref(name), self._engine())
        return as_kubeflow_does(
            lambda: (
                line.text
                for line in run.logs(worker=int(index), follow=bool(follow))
                if line.rank is not None
            )
        )()

    @as_kubeflow_does
    def get_job_events(self, name: str) -> list[Event]:
        """What happened to a job."""
        return [
            Event(
                involved_object_kind="TrainJob",
                involved_object_name=name,
                message=event.reason or event.kind,
                reason=event.kind,
                event_time=datetime.fromtimestamp(event.at, UTC),
            )
            for event in self._engine().events(self._ref(name))
        ]

    @as_kubeflow_does
    def wait_for_job_status(
        self,
        name: str,
        status: Collection[str] = frozenset({COMPLETE}),
        timeout: float = 600,
        polling_interval: float = 2,
        callbacks: Sequence[Callable[[TrainJob], object]] | None = None,
    ) -> TrainJob:
        """Wait until the job has one of these statuses: Created, Running, Complete, Failed. One that fails
        while another was expected raises RuntimeError, one that takes longer TimeoutError.
        """
        check_conditions("status", status, _STATUSES)
        engine, ref = self._engine(), self._ref(name)
        run = Run(ref, engine)

        def holding(job: TrainJob) -> dict[str, str]:
            return {job.status: f"TrainJob {name} has failed: {why_failed(run.status(progress=False))}"}

        return jobs.wait(
            run,
            lambda: self._described(engine, name),
            holding,
            status,
            kind=lambda _job: "TrainJob",
            patience=timeout,
            interval=polling_interval,
            callbacks=callbacks or (),
        )

    @as_kubeflow_does
    def delete_job(self, name: str) -> None:
        """Stop the job if it runs, and forget it."""
        jobs.delete(Run(self._ref(name), self._engine()))

    def _described(self, engine: Engine, name: str) -> TrainJob:
        ref = self._ref(name)
        status = Run(ref, engine).status(progress=False)
        framework = status.framework or "torch"
        runtime = next((each for each, its in RUNTIMES.items() if its == framework), framework)
        pods = jobs.find_pods(engine, ref, Selection())
        return TrainJob(
            name=name,
            runtime=runtime_for(runtime, framework),
            steps=[
                Step(
                    name=f"node-{replica.worker}",
                    status=(pod.status.phase if pod.status is not None else None),
                    pod_name=str(pod.metadata.name),
                )
                for replica, pod in pods
            ],
            num_nodes=len(status.workers),
            creation_timestamp=datetime.fromtimestamp(status.created, UTC),
            status=_status(status),
        )


def _status(status: Status) -> str:
    """One word, where the first client has conditions. It has none for a job that was stopped."""
    if status.state == "stopped":
        return "Failed"
    holds = [each["type"] for each in conditions_of("TrainJob", status) if each["status"] == "True"]
    words: dict[str, Any] = {"Succeeded": COMPLETE, "Restarting": "Running", "Suspended": "Created"}
    return str(words.get(holds[-1], holds[-1]))
