"""What a kubelet is told of the manager."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from tests.conftest import PATIENCE

from echelon.cli.queueing import probes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pulse(clock: Clock) -> probes.Pulse:
    return probes.Pulse(clock)


@pytest.fixture
def address(pulse: probes.Pulse) -> Iterator[str]:
    server = probes.serve(pulse, 0)
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_rounds_that_go_on_and_rounds_that_go_well(pulse: probes.Pulse, address: str, clock: Clock) -> None:
    assert (answer(f"{address}/livez"), answer(f"{address}/readyz")) == (200, 200)
    clock.now += 1000
    assert (answer(f"{address}/livez"), answer(f"{address}/readyz")) == (503, 503)
    pulse.beat(False)
    assert (answer(f"{address}/livez"), answer(f"{address}/readyz")) == (200, 503)
    pulse.beat(True)
    assert (answer(f"{address}/livez"), answer(f"{address}/readyz")) == (200, 200)
    assert answer(f"{address}/anything") == 404
