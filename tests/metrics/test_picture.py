"""Curves as a picture: whatever a rank has printed, it is one that can be read, of a bounded size."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

from echelon.metrics.curves import Curves
from echelon.metrics.picture import MOST, as_image, as_svg
from echelon.model.output.metric import Metric


def drawn(*metrics: Metric) -> tuple[ET.Element, str]:
    curves = Curves()
    for metric in metrics:
        curves.add(metric)
    return ET.fromstring(as_svg(curves.charts())), as_image(curves.charts())


def metric(name: str, value: float, step: int, source: str | None = None) -> Metric:
    return Metric(name, value, float(step), 0, step, source=source)


def points_of(picture: ET.Element) -> list[str]:
    return [each.attrib["points"] for each in picture.findall(".//{*}polyline")]


def test_a_peak_is_seen_among_many_values_and_the_picture_stays_small() -> None:
    values = [metric("loss", 9.0 if step == 30_001 else 1.0, step) for step in range(100_000)]
    values += [metric("loss", 9.0, 100_000)]
    picture, image = drawn(*values)
    [points] = points_of(picture)
    tops = [float(point.partition(",")[2]) for point in points.split()]
    assert min(tops) < max(tops)
    assert len(tops) < 500
    assert len(image) < 20_000


def test_small_multiples_of_a_bounded_number() -> None:
    picture, image = drawn(*(metric(f"m{number}", 1.0, 0) for number in range(MOST + 3)))
    assert len(points_of(picture)) == MOST
    assert "and 3 more" in image
    assert as_image([]) == ""


def test_curves_differ_without_colour() -> None:
    values = [metric("loss", 1.0, step, source) for source in ("train", "val") for step in range(2)]
    picture, _ = drawn(*values)
    lines = picture.findall(".//{*}polyline")
    assert [each.attrib.get("stroke-dasharray") for each in lines] == [None, "6 3"]


def test_hostile_names_and_numbers() -> None:
    names = ['<script>alert("x")</script>', "a\x1b[31m\x00\ud800", "long" * 100, "&amp;"]
    numbers = [math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0]
    values = [metric(name, value, step) for name in names for step, value in enumerate(numbers)]
    picture, image = drawn(*values, metric("empty", math.nan, 0))
    assert image.isprintable()
    assert "<script" not in image
    assert 'alert("' not in image
    assert not picture.findall(".//{*}script")
    assert "no value is a finite number" in [each.text for each in picture.iter()]
    assert "nan" not in "".join(points_of(picture))
