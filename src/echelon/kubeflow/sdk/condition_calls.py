"""The calls of Kubeflow's client that tell which conditions of a job hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from echelon.kubeflow.sdk import constants
from echelon.kubeflow.sdk.shape import Shape

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
