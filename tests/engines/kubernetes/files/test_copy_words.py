"""What is said while a pod that copies does not start."""

from __future__ import annotations

import pytest

from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.files import copy_pod
from echelon.errors import Refused, Unavailable

JOB = {"spec": {"template": {"spec": {"securityContext": {"runAsNonRoot": True}}}}}


def unbound(kind: str = "volume") -> Trouble:
    sentence = "the pod that copies cannot start before volume claim data is bound to a volume"
    return Trouble(worker=None, kind=kind, sentence=sentence, hint="`kubectl describe pvc data`")  # type: ignore[arg-type]


def test_a_copy_is_not_called_a_run() -> None:
    said = copy_pod._told(unbound())
    assert "the copy ends" in said
    assert "run" not in said


def test_a_claim_that_does_not_bind_is_not_waited_for_for_long() -> None:
    copy_pod._check([unbound()], JOB, waited=40)
    with pytest.raises(Unavailable, match="volume claim data"):
        copy_pod._check([unbound()], JOB, waited=50)
    copy_pod._check([unbound("pulling")], JOB, waited=50)


def test_what_is_given_up_is_given_up() -> None:
    never = Trouble(worker=None, kind="start", sentence="image a/b has no python3", healable=False, since=1.0)
    with pytest.raises(Refused, match="has no python3"):
        copy_pod._check([never], JOB, waited=3)
