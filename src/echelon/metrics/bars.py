"""From one line of a rank's output to what it says of the training's progress: pure, in linear time.

Beside the places that lines with metrics have (`text.py`), these are the bars of tqdm (one, or several that
were painted one below another), of Keras, and of rich, with the speed and the time left that they print."""

from __future__ import annotations

import re
from typing import NamedTuple

from echelon.metrics.text import COUNT, SEEN, ParsedLine, parse

_AMOUNT = r"\d{1,15}(?:\.\d{1,3})?[kMGT]?"
_TIME = r"(?:\d{1,9}:)?\d{1,4}:\d\d"
_SPEED = r"([\d.]{1,12}|\?)([kMGT]?)([A-Za-z ]{0,24}/[A-Za-z]{1,24})"
# `41%|####      | 41/100 [00:10<00:14,  4.1it/s`; of several, the agent leaves out what grows.
_TQDM = re.compile(
    rf"(\d{{1,3}})%\|(?:[^|\[\]]{{0,400}}\|)?\s{{0,12}}({_AMOUNT})/({_AMOUNT})\s"
    rf"\[({_TIME})<({_TIME}|\?)(?:,\s{{0,8}}{_SPEED})?"
)
_TQDM_ENDLESS = re.compile(rf"(?:\A|\s)({COUNT})[A-Za-z]{{1,24}}\s\[{_TIME},\s{{0,8}}{_SPEED}")
# `120/1875 ━━━━ 5s 3ms/step - loss: 0.3`, `120/1875 [>...] - ETA: 5s - loss: 0.3`, `20/20 - 1s - 25ms/step`
_KERAS = re.compile(rf"\A\s{{0,12}}({COUNT})/({COUNT}|Unknown)\s{{1,2}}(?=[━\[]|-\s\d|\d{{1,9}}m?s\s)")
_KERAS_LEFT = re.compile(rf"(?:━|\s-\sETA:)\s({_TIME}|\d{{1,9}}s)(?=\s)")
_KERAS_SPEED = re.compile(r"\s(\d{1,9})(s|ms|us)/step\b")
# `━━━━ 422/938 0:00:05 • 0:00:06 77.50it/s` as Lightning shows it; `━━━━ 45% 0:00:06`
_RICH = re.compile(rf"[━╸╺]\s{{1,4}}({COUNT})/({COUNT})(?:\s{_TIME}\s•\s({_TIME})?)?")
_RICH_PART = re.compile(rf"[━╸╺]\s{{1,4}}(\d{{1,3}})%(?:\s({_TIME}))?")
_RICH_SPEED = re.compile(rf"\s{_SPEED}")
_LEFT = re.compile(rf"\b(?:eta|ETA)\b[:\s]\s{{0,4}}({_TIME})\b")
_EPOCHS = re.compile(
    rf"(?<![\w/.@-])epoch[\"']?\s{{0,4}}[:=#]?\s{{0,4}}\[?\s{{0,4}}({COUNT})\s?(?:/|\sof\s)\s{{0,4}}({COUNT})(?!\d)",
    re.IGNORECASE,
)
_NAMED_EPOCHS = re.compile(r"(?<![A-Za-z])epochs?(?![A-Za-z])\D{0,12}\Z", re.IGNORECASE)
_CONTROL = re.compile("\x1b\\[[0-9;:?]{0,32}[A-Za-z]|[\x00-\x08]")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PARTS_OF_SECOND = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


class ProgressLine(NamedTuple):
    """What one line says of the progress, and its metrics. `part` of the current step, or of all where there
    are no steps, is done; `left` is the time for the steps that are counted.
    """

    step: int | None = None
    steps: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    part: float | None = None
    rate: float | None = None
    left: float | None = None
    beside: bool = False  # the epoch is a figure among others: steps need not be counted anew in each
    pairs: tuple[tuple[str, float], ...] = ()


def see(text: str, found: ParsedLine | None = None) -> ProgressLine:
    """What a line says, which may hold anything; `found` is what a user's own patterns have found in it."""
    text = _CONTROL.sub("", text.rstrip("\r").rpartition("\r")[2][: 2 * SEEN])[:SEEN]
    if found is None:
        found = parse(text)
    elif found.step is None and found.epoch is None:
        found = parse(text)._replace(pairs=found.pairs)
    seen = ProgressLine(found.step, found.steps, found.epoch, beside=text.startswith("{"), pairs=found.pairs)
    if (total := _EPOCHS.search(text)) is not None:
        seen = seen._replace(epoch=float(total[1]), epochs=int(total[2]))
    if (bar := _see_tqdm(text, seen) or _see_keras(text, seen) or _see_rich(text, seen)) is not None:
        return bar
    left = _LEFT.search(text)
    return seen if left is None else seen._replace(left=_seconds(left[1]))


def is_place(seen: ProgressLine) -> bool:
    """Whether a line says where the training stands."""
    return seen.step is not None or seen.epoch is not None or seen.part is not None


def _see_tqdm(text: str, seen: ProgressLine) -> ProgressLine | None:
    if "[" not in text:
        return None
    bars = [each for each in _TQDM.finditer(text) if not _counts_bytes(each[8])]
    if not bars:
        endless = _TQDM_ENDLESS.search(text)
        if endless is None or _counts_bytes(endless[4]):
            return None
        return seen._replace(step=int(endless[1]), steps=None, rate=_speed(*endless.groups()[1:]))
    first, *inner = bars
    step, steps = _amount(first[2]), _amount(first[3])
    left = None if first[5] == "?" else _seconds(first[5])
    if seen.epochs is None and _NAMED_EPOCHS.search(text, 0, first.start()):
        # It counts epochs, of which so many are over; a bar in it counts the steps of one.
        seen = seen._replace(epoch=float(min(step + 1, steps)), epochs=steps, step=None, steps=None)
        if not inner:
            return seen._replace(part=1.0 if step >= steps else 0.0, left=left)
        counted = inner[0]
        return seen._replace(
            step=_amount(counted[2]), steps=_amount(counted[3]), rate=_speed(*counted.groups()[5:])
        )
    part = _amount(inner[0][2]) / max(1, _amount(inner[0][3])) if inner and seen.epoch is None else None
    return seen._replace(step=step, steps=steps, rate=_speed(*first.groups()[5:]), left=left, part=part)


def _see_keras(text: str, seen: ProgressLine) -> ProgressLine | None:
    bar = _KERAS.match(text)
    if bar is None:
        return None
    step, steps = int(bar[1]), None if bar[2] == "Unknown" else int(bar[2])
    each, left = _KERAS_SPEED.search(text), _KERAS_LEFT.search(text)
    going_on = steps is not None and step < steps  # else the time is the one that all of them took
    return seen._replace(
        step=step,
        steps=steps,
        rate=1.0 / (int(each[1]) * _PARTS_OF_SECOND[each[2]]) if each is not None and int(each[1]) else None,
        left=_seconds(left[1]) if going_on and left is not None else None,
    )


def _see_rich(text: str, seen: ProgressLine) -> ProgressLine | None:
    if (bar := _RICH.search(text)) is not None:
        speed = _RICH_SPEED.search(text, bar.end())
        return seen._replace(
            step=int(bar[1]),
            steps=int(bar[2]),
            left=_seconds(bar[3]) if bar[3] else None,
            rate=None if speed is None else _speed(*speed.groups()),
        )
    if (part := _RICH_PART.search(text)) is not None:
        left = _seconds(part[2]) if part[2] else None
        return seen._replace(step=None, steps=None, part=min(1.0, int(part[1]) / 100), left=left)
    return None


def _counts_bytes(unit: str | None) -> bool:
    """Whether a bar is that of a download."""
    return unit is not None and unit in ("B/s", "iB/s", "s/B", "bytes/s")


def _amount(text: str) -> int:
    scale = text[-1] if text[-1] in _SCALE else ""
    return int(float(text.rstrip("kMGT")) * _SCALE[scale])


def _speed(number: str | None, scale: str | None, unit: str | None) -> float | None:
    """Steps in a second: `4.1it/s`, or `1.5s/it` where a step takes longer."""
    try:
        value = float(number or "?") * _SCALE[scale or ""]
    except ValueError:
        return None
    if not value:
        return None
    return value if (unit or "").endswith("/s") else 1.0 / value


def _seconds(text: str) -> float:
    """1:02:03, 02:03, 5s."""
    seconds = 0.0
    for part in text.rstrip("s").split(":"):
        seconds = 60 * seconds + int(part)
    return seconds
