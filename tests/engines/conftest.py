"""The conformance suite is a plain module, so pytest must be told to explain its assertions too."""

import pytest

pytest.register_assert_rewrite("tests.engines.conformance")
