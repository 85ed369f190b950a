"""TrainingClient: the calls of Kubeflow's client, and those from before release 1.8, one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from echelon.errors import InvalidJob
from echelon.kubeflow.sdk.asked import DEFAULT_INDEX
from echelon.kubeflow.sdk.border import as_kubeflow_does
from echelon.kubeflow.sdk.condition_calls import PATIENCE
from echelon.kubeflow.sdk.constants import PYTORCHJOB_KIND, TFJOB_KIND
from echelon.kubeflow.sdk.job_client import JobClient
from echelon.kubeflow.sdk.shape import Shape


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
