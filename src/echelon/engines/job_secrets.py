"""The values of the secrets that a job names, read where its user is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from echelon.errors import InvalidJob
from echelon.model.job import Job


def read_secrets(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """The values of a job's secrets, from the environment or from files."""
    values = {}
    for secret in job.secrets:
        if secret.file is not None:
            try:
                values[secret.name] = Path(secret.file).read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise InvalidJob(
                    "secret",
                    f"{secret.name}=@{secret.file}",
                    f"cannot be read: {reason}",
                    hint="name a file that holds it",
                ) from None
        elif secret.name in environment:
            values[secret.name] = environment[secret.name]
        else:
            raise InvalidJob(
                "secret",
                secret.name,
                "is not in your environment",
                hint=f"export {secret.name}=..., or use {secret.name}=@FILE",
            )
    return values
