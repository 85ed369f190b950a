"""What every engine must do, whatever it runs on: the engine protocol's words, made exact.

An engine is tested by a subclass of `EngineConformance` with a fixture `harness` (see `test_conformance.py`)
that knows how to make jobs which do one of a few things; `programs.py` has them as scripts. Everything goes
the way a user's run goes: through `submit` and `Run`.
"""

from tests.engines.conformance.line import LineConformance
from tests.engines.conformance.lives import LifeConformance
from tests.engines.conformance.records import RecordConformance
from tests.engines.conformance.results import ResultConformance
from tests.engines.conformance.sampling import SamplingConformance


class EngineConformance(
    RecordConformance, LifeConformance, ResultConformance, LineConformance, SamplingConformance
):
    """The whole suite. A subclass gives `harness`."""
