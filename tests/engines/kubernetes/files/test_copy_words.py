"""What is said while a pod that copies does not start."""

from __future__ import annotations

from echelon.engines.kubernetes.diagnose import Trouble
from echelon.engines.kubernetes.files.copy_pod import PATIENCE
from echelon.engines.kubernetes.one_pod import told, verdict
from echelon.errors import EchelonError, Refused, Unavailable


def unbound(kind: str = "volume") -> Trouble:
    sentence = "the pod that copies cannot start before volume claim data is bound to a volume"
    return Trouble(worker=None, kind=kind, sentence=sentence, hint="`kubectl describe pvc data`")  # type: ignore[arg-type]


def test_a_copy_is_not_called_a_run() -> None:
    said = told(PATIENCE, unbound())
    assert "the copy ends" in said
    assert "run" not in said


def after(trouble: Trouble, seconds: float) -> EchelonError | None:
    return verdict(PATIENCE, [trouble], waited=seconds, lasted=seconds)


def test_a_claim_that_does_not_bind_is_not_waited_for_for_long() -> None:
    assert after(unbound(), 40) is None
    end = after(unbound(), 50)
    assert isinstance(end, Unavailable)
    assert "volume claim data" in end.message
    assert after(unbound("pulling"), 50) is None


def test_what_is_given_up_is_given_up() -> None:
    never = Trouble(worker=None, kind="start", sentence="image a/b has no python3", healable=False, since=1.0)
    end = after(never, 3)
    assert isinstance(end, Refused)
    assert "has no python3" in end.message
