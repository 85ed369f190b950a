"""TrainingClient: the calls of Kubeflow's client since its release 1.8, which are the same for every kind of
job, and those from before, one for each kind.

Jobs are echelon's runs, on the cluster that the kubeconfig names or, with `on="local"`, on this machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from echelon.errors import InvalidJob
from echelon.handle import Run
from echelon.kubeflow.sdk import constants, jobs
from echelon.kubeflow.sdk.clients import Reach, as_kubeflow_does, submit_document
from echelon.kubeflow.sdk.constants import (
    JAXJOB_KIND,
    JOB_CONDITION_SUCCEEDED,
    JOB_CONDITIONS,
    PYTORCHJOB_KIND,
    TFJOB_KIND,
)
from echelon.kubeflow.sdk.job_documents import (
    DEFAULT_INDEX,
    check_conditions,
    check_kind,
    installing,
    job_document,
    with_metadata,
)
from echelon.kubeflow.sdk.jobs import Selection, find_change
from echelon.kubeflow.sdk.shape import Shape, as_document

PATIENCE = 120.0  # seconds; Kubeflow's client has the same
POD_PATIENCE = 20.0  # seconds that the pods of a new job may take to be made


class ConditionCalls(ABC):
    """What can be asked of any client that gets a job by its name."""

    @abstractmethod
    def get_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = PATIENCE,
    ) -> Shape:
        """The job with its status."""

    def get_job_conditions(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> list[Any]:
        """The job's conditions: Created, Running, Restarting, Succeeded, Failed, Suspended."""
        if job is None and name is None:
            raise ValueError("name: it is missing (give a job's name, or the job)")
        found = job if job is not None else self.get_job(str(name), namespace, job_kind, timeout)
        conditions = getattr(found.status, "conditions", None)
        return list(conditions or [])

    def is_job_created(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> bool:
        """Whether the job was created."""
        return self._has(constants.JOB_CONDITION_CREATED, name, namespace, job_kind, job, timeout)

    def is_job_running(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> bool:
        """Whether the job runs."""
        return self._has(constants.JOB_CONDITION_RUNNING, name, namespace, job_kind, job, timeout)

    def is_job_restarting(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> bool:
        """Whether the job is being restarted."""
        return self._has(constants.JOB_CONDITION_RESTARTING, name, namespace, job_kind, job, timeout)

    def is_job_succeeded(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> bool:
        """Whether the job has succeeded."""
        return self._has(constants.JOB_CONDITION_SUCCEEDED, name, namespace, job_kind, job, timeout)

    def is_job_failed(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = PATIENCE,
    ) -> bool:
        """Whether the job has failed."""
        return self._has(constants.JOB_CONDITION_FAILED, name, namespace, job_kind, job, timeout)

    def _has(self, condition: str, *asked: Any) -> bool:
        conditions = self.get_job_conditions(*asked)
        return any(each.type == condition and each.status == "True" for each in conditions)


class JobClient(ConditionCalls, Reach):
    """Creates, shows and deletes jobs."""

    @as_kubeflow_does
    def __init__(
        self,
        config_file: str | None = None,
        context: str | None = None,
        client_configuration: object = None,
        namespace: str | None = None,
        job_kind: str = PYTORCHJOB_KIND,
        *,
        on: str | None = None,
    ) -> None:
        if client_configuration is not None:
            raise ValueError("client_configuration: echelon reads a kubeconfig; give config_file or context")
        check_kind(job_kind)
        super().__init__(on, context=context, namespace=namespace, kubeconfig=config_file)
        self.job_kind = job_kind

    @as_kubeflow_does
    def create_job(
        self,
        job: Any = None,
        name: str | None = None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        job_kind: str | None = None,
        base_image: str | None = None,
        train_func: Callable[..., object] | None = None,
        parameters: Mapping[str, Any] | None = None,
        num_workers: int | None = 1,
        num_procs_per_worker: int | str | None = None,
        resources_per_worker: Any = None,
        num_chief_replicas: int | None = None,
        num_ps_replicas: int | None = None,
        packages_to_install: Sequence[str] | None = None,
        pip_index_url: str = DEFAULT_INDEX,
        env_vars: Any = None,
        queue_name: str | None = None,
        volumes: Any = None,
        volume_mounts: Any = None,
    ) -> None:
        """Start a job, from a function, an image, or a job's own document (`num_workers` pods in all)."""
        kind = job_kind or self.job_kind
        if job is not None:
            document = as_document(job)
            kind = str(document.get("kind") or kind)
            return self._submit(document, kind, namespace, labels, annotations)
        if name is None:
            raise InvalidJob("name", None, "is missing", hint="a job from a function or an image needs one")
        if train_func is None and base_image is None:
            raise InvalidJob("train_func", None, "is missing", hint="give train_func, base_image or job")
        if num_workers is None or num_workers < 1:
            raise InvalidJob("num_workers", num_workers, "is not at least 1")
        counts = {"Master": 1, "Worker": num_workers - 1}
        if kind == JAXJOB_KIND:
            counts = {"Worker": num_workers}
        if kind == TFJOB_KIND:
            counts = {"Chief": num_chief_replicas or 0, "PS": num_ps_replicas or 0, "Worker": num_workers}
        elif num_chief_replicas is not None or num_ps_replicas is not None:
            raise InvalidJob("num_ps_replicas", num_ps_replicas, f"is not for a {kind}")
        return self._create(
            kind,
            name,
            counts,
            namespace=namespace,
            labels=labels,
            annotations=annotations,
            image=base_image,
            function=train_func,
            parameters=parameters,
            procs=num_procs_per_worker,
            resources=resources_per_worker,
            packages=packages_to_install,
            index=pip_index_url,
            env=env_vars,
            queue=queue_name,
            volumes=volumes,
            mounts=volume_mounts,
        )

    @as_kubeflow_does
    def get_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = PATIENCE,
    ) -> Shape:
        """The job with its spec and status, as Kubeflow's model has them."""
        check_kind(job_kind or self.job_kind)
        return jobs.describe(self._engine(namespace), self._ref(name))

    @as_kubeflow_does
    def list_jobs(
        self, namespace: str | None = None, job_kind: str | None = None, timeout: float = PATIENCE
    ) -> list[Shape]:
        """Every job of that kind, the newest first; one that cannot be read is left out, with a note."""
        kind = job_kind or self.job_kind
        check_kind(kind)
        engine = self._engine(namespace)
        found = jobs.list_all(engine.names(), lambda name: jobs.describe(engine, self._ref(name)))
        return [each for each in found if each.kind == kind]

    @as_kubeflow_does
    def wait_for_job_conditions(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        expected_conditions: Collection[str] = frozenset({JOB_CONDITION_SUCCEEDED}),
        wait_timeout: float = 600,
        polling_interval: float = 15,
        callback: Callable[[Any], object] | None = None,
        timeout: float = PATIENCE,
    ) -> Shape:
        """Wait until one of the conditions holds. A job that fails while another was expected raises
        RuntimeError, one that takes longer TimeoutError.
        """
        check_kind(job_kind or self.job_kind)
        check_conditions("expected_conditions", expected_conditions, JOB_CONDITIONS)
        engine, ref = self._engine(namespace), self._ref(name)
        return jobs.wait(
            Run(ref, engine),
            lambda: jobs.describe(engine, ref),
            _holding,
            expected_conditions,
            kind=lambda job: str(job.kind),
            patience=wait_timeout,
            interval=polling_interval,
            callbacks=[] if callback is None else [callback],
        )

    @as_kubeflow_does
    def get_job_pods(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = PATIENCE,
    ) -> list[Shape]:
        """The pods of a job, or of some of its replicas; on this machine, its workers."""
        chosen = Selection(is_master=is_master, type=replica_type, index=replica_index)
        return jobs.await_pods(self._engine(namespace), self._ref(name), chosen, min(timeout, POD_PATIENCE))

    def get_job_pod_names(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = PATIENCE,
    ) -> list[str]:
        """The names of the pods."""
        pods = self.get_job_pods(name, namespace, is_master, replica_type, replica_index, timeout)
        return [str(pod.metadata.name) for pod in pods]

    @as_kubeflow_does
    def get_job_logs(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        is_master: bool = True,
        replica_type: str | None = None,
        replica_index: int | None = None,
        follow: bool = False,
        timeout: float = PATIENCE,
        verbose: bool = False,
        container: str | None = None,
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """What pods wrote, by their names: the Master's, unless others are asked for. With `follow` it is
        printed as it comes, until the end. With `verbose` the run's events come too.
        """
        engine, ref = self._engine(namespace), self._ref(name)
        master = is_master and replica_type is None and replica_index is None
        chosen = Selection(is_master=master, type=replica_type, index=replica_index)
        logs = jobs.read_logs(engine, ref, chosen, follow=follow)
        return logs, jobs.read_events(engine, ref) if verbose else {}

    @as_kubeflow_does
    def update_job(
        self, job: Any, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> None:
        """Suspend a job, or let a suspended one continue (`runPolicy.suspend`), which is all that can be
        changed of a run. `job` is what `get_job` gave, or a document with the fields to change.
        """
        engine, ref = self._engine(namespace), self._ref(name)
        change = find_change(as_document(jobs.describe(engine, ref)), as_document(job))
        jobs.carry_out(change, Run(ref, engine), engine.read(ref).job)

    @as_kubeflow_does
    def delete_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        delete_options: object = None,
    ) -> None:
        """Stop the job if it runs, and forget it. What its workers keep is fetched to runs/NAME before."""
        jobs.delete(Run(self._ref(name), self._engine(namespace)))

    def _create(
        self,
        kind: str,
        name: str,
        counts: Mapping[str, int],
        *,
        image: str | None,
        function: Callable[..., object] | None,
        parameters: Mapping[str, Any] | None = None,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        procs: int | str | None = None,
        resources: Any = None,
        packages: Sequence[str] | None = None,
        index: str = DEFAULT_INDEX,
        env: Any = None,
        queue: str | None = None,
        volumes: Any = None,
        mounts: Any = None,
    ) -> None:
        if function is not None and not callable(function):
            raise InvalidJob("train_func", function, "is not a function")
        check_kind(kind)
        document = job_document(
            kind,
            name,
            counts,
            image=image,
            runs_function=function is not None,
            procs=procs,
            resources=resources,
            env=env,
            volumes=volumes,
            mounts=mounts,
        )
        more = replace(installing(image, packages, [index]), local_queue=queue or None)
        args = [] if parameters is None else [dict(parameters)]
        return self._submit(
            document, kind, namespace, labels, annotations, more=more, function=function, args=args
        )

    def _submit(
        self,
        document: Mapping[str, Any],
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None,
        annotations: Mapping[str, str] | None,
        **what: Any,
    ) -> None:
        check_kind(kind)
        own = (document.get("metadata") or {}).get("namespace")
        engine = self._engine(namespace or own)
        submit_document(with_metadata(document, kind, labels, annotations), engine, **what)


def _holding(job: Shape) -> dict[str, str]:
    """The conditions that hold, and what is said of each."""
    return {each.type: each.message for each in job.status.conditions if each.status == "True"}


class TrainingClient(JobClient):
    """Creates, shows and deletes jobs, as `kubeflow.training.TrainingClient` does.

    An older call means what it meant then: `num_worker_replicas` does not count the Master."""

    def train(self, name: str, *args: object, **given: object) -> None:
        """Refused: Kubeflow's own containers download a model and a data set, and fine-tune it."""
        hint = "create_job(train_func=...) with the download inside the function, or `volumes`"
        raise ValueError(f"train: fine-tuning in Kubeflow's own containers is not done by echelon ({hint})")

    @as_kubeflow_does
    def create_pytorchjob_from_func(
        self,
        name: str,
        func: Callable[..., object],
        parameters: Mapping[str, Any] | None = None,
        base_image: str | None = None,
        namespace: str | None = None,
        num_worker_replicas: int | None = None,
        packages_to_install: Sequence[str] | None = None,
        pip_index_url: str = DEFAULT_INDEX,
    ) -> None:
        """Start one Master and `num_worker_replicas` Workers; with 1, the Master alone, as in Kubeflow."""
        if num_worker_replicas is None or num_worker_replicas < 1:
            raise InvalidJob("num_worker_replicas", num_worker_replicas, "is not at least 1")
        workers = num_worker_replicas if num_worker_replicas > 1 else 0
        return self._create(
            PYTORCHJOB_KIND,
            name,
            {"Master": 1, "Worker": workers},
            namespace=namespace,
            image=base_image,
            function=func,
            parameters=parameters,
            packages=packages_to_install,
            index=pip_index_url,
        )

    @as_kubeflow_does
    def create_tfjob_from_func(
        self,
        name: str,
        func: Callable[..., object],
        parameters: Mapping[str, Any] | None = None,
        base_image: str | None = None,
        namespace: str | None = None,
        num_chief_replicas: int | None = None,
        num_ps_replicas: int | None = None,
        num_worker_replicas: int | None = None,
        packages_to_install: Sequence[str] | None = None,
        pip_index_url: str = DEFAULT_INDEX,
    ) -> None:
        """Start a TFJob with these replicas."""
        counts = {
            "Chief": num_chief_replicas or 0,
            "PS": num_ps_replicas or 0,
            "Worker": num_worker_replicas or 0,
        }
        return self._create(
            TFJOB_KIND,
            name,
            counts,
            namespace=namespace,
            image=base_image,
            function=func,
            parameters=parameters,
            packages=packages_to_install,
            index=pip_index_url,
        )

    def create_pytorchjob(self, pytorchjob: Any, namespace: str | None = None) -> None:
        """Start a PyTorchJob from its document."""
        self.create_job(job=pytorchjob, namespace=namespace)

    def create_tfjob(self, tfjob: Any, namespace: str | None = None) -> None:
        """Start a TFJob from its document."""
        self.create_job(job=tfjob, namespace=namespace)

    def get_pytorchjob(self, name: str, namespace: str | None = None, timeout: float = PATIENCE) -> Shape:
        """As `get_job`."""
        return self.get_job(name, namespace, PYTORCHJOB_KIND, timeout)

    def get_tfjob(self, name: str, namespace: str | None = None, timeout: float = PATIENCE) -> Shape:
        """As `get_job`."""
        return self.get_job(name, namespace, TFJOB_KIND, timeout)

    def list_pytorchjobs(self, namespace: str | None = None, timeout: float = PATIENCE) -> list[Shape]:
        """As `list_jobs`."""
        return self.list_jobs(namespace, PYTORCHJOB_KIND, timeout)

    def list_tfjobs(self, namespace: str | None = None, timeout: float = PATIENCE) -> list[Shape]:
        """As `list_jobs`."""
        return self.list_jobs(namespace, TFJOB_KIND, timeout)

    def delete_pytorchjob(
        self, name: str, namespace: str | None = None, delete_options: object = None
    ) -> None:
        """As `delete_job`."""
        self.delete_job(name, namespace, PYTORCHJOB_KIND, delete_options)

    def delete_tfjob(self, name: str, namespace: str | None = None, delete_options: object = None) -> None:
        """As `delete_job`."""
        self.delete_job(name, namespace, TFJOB_KIND, delete_options)
