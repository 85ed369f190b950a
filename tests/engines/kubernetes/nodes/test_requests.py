"""Amounts, and what a pod asks for, held against exact arithmetic and the pod's own life."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.kubernetes.cluster_objects import GIB, Object, container, pod
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import names, shapes
from echelon.engines.kubernetes.nodes.requests import pod_requests
from echelon.engines.kubernetes.quantities import to_thousandths, to_whole

# Quantities


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1500m", 1500),
        ("2Gi", 2 * GIB * 1000),
        ("1e3", 10**6),
        ("1E3", 10**6),
        ("1E", 10**21),
        ("128974848", 128974848000),
        ("129e6", 129 * 10**9),
        ("123Mi", 123 * 2**20 * 1000),
        ("0.5", 500),
        (".5Gi", GIB * 500),
        ("5.", 5000),
        ("1n", 1),
        ("100u", 1),
        ("1e-3", 1),
        ("0", 0),
        (3, 3000),
        (0.25, 250),
    ],
)
def test_quantities_are_read_exactly(text: str | float, thousandths: int) -> None:
    assert to_thousandths(text) == thousandths


@pytest.mark.parametrize(
    "text", ["", "1.5.2", "Gi", "1gi", "1 Gi", "0x10", "1e999999999", "inf", "1Zi", "--1"]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        to_thousandths(text)


SCALES: dict[str, Any] = {
    "n": "1e-9", "u": "1e-6", "m": "1e-3", "": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12",
    "P": "1e15", "E": "1e18", "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
    "e2": "1e2", "E-2": "1e-2", "e+1": "1e1",
}  # fmt: skip


@given(st.decimals(0, 10**9, places=3), st.sampled_from(sorted(SCALES)))
def test_any_quantity_is_what_its_decimal_is(number: Decimal, suffix: str) -> None:
    with localcontext(prec=60):
        exact = number * Decimal(SCALES[suffix])
        assert to_thousandths(f"{number:f}{suffix}") == (exact * 1000).to_integral_value(ROUND_CEILING)
        assert to_whole(f"{number:f}{suffix}") == exact.to_integral_value(ROUND_CEILING)


# What a pod asks for

ASKED = st.integers(0, 5)


@st.composite
def pod_specs(draw: st.DrawFn) -> Object:
    def containers(most: int) -> list[Object]:
        return [
            container(cpu=f"{draw(ASKED)}00m", gpu=str(draw(ASKED)))
            for _ in range(draw(st.integers(0, most)))
        ]

    spec: Object = {"containers": containers(3), "initContainers": containers(3)}
    for each in spec["initContainers"]:
        if draw(st.booleans()):
            each["restartPolicy"] = "Always"
    if draw(st.booleans()):
        spec["overhead"] = {"cpu": f"{draw(ASKED)}m"}
    return spec


@given(pod_specs())
def test_a_pod_asks_for_the_most_that_it_has_at_any_moment(spec: Object) -> None:
    """The oracle lives through the pod: who runs beside whom, step by step."""
    for resource in ("cpu", names.GPU):

        def asked(each: Object, resource: str = resource) -> int:
            return to_thousandths(each["resources"]["requests"][resource])

        beside: list[Object] = []
        moments = [0]
        for each in spec["initContainers"]:
            moments.append(sum(asked(other) for other in beside) + asked(each))
            if each.get("restartPolicy") == "Always":
                beside.append(each)
        moments.append(sum(map(asked, [*beside, *spec["containers"]])))
        overhead = to_thousandths(spec.get("overhead", {}).get(resource, "0"))
        (shape,) = typed(shapes.Occupant, [pod("p", "a", spec=spec)])
        assert pod_requests(shape.spec).get(resource, 0) == max(moments) + overhead


def test_a_limit_alone_is_a_request_and_the_pods_own_word_counts_most() -> None:
    both = {"resources": {"limits": {"cpu": "2", names.GPU: "1"}, "requests": {"cpu": "500m"}}}
    (shape,) = typed(shapes.Occupant, [pod("p", "a", both)])
    assert pod_requests(shape.spec) == {"cpu": 500, names.GPU: 1000}
    whole = {"resources": {"requests": {"cpu": "3"}}, "containers": [both]}
    (shape,) = typed(shapes.Occupant, [pod("p", "a", spec=whole)])
    assert pod_requests(shape.spec) == {"cpu": 3000, names.GPU: 1000}
