"""From one line of a rank's output to the metrics in it: pure, in time that is linear in the line's length.

`name=value` is a metric. `name: value` is one where the line says so: by a name that only metrics have
(`loss`), by quotes around the name, as Python and JSON print it, or by an epoch or a step in the line. A line
that is a JSON object gives the numbers in it. Names say where a training stands, are metrics for sure, or are
none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

STEP = frozenset({"step", "global_step", "globalstep", "iteration", "iter", "trainer/global_step"})
EPOCH = frozenset({"epoch"})
# Numbers about the line or the process, which are in many a logger's lines.
NO_METRIC = frozenset((
    "asctime", "created", "device", "devices", "group_rank", "line", "lineno", "local_rank", "node_rank",
    "pid", "port", "ppid", "process", "process_id", "rank", "seed", "thread", "thread_id", "tid",
    "time_stamp", "timestamp", "ts", "version", "world_size",
))  # fmt: skip
_METRIC_WORDS = frozenset((
    "acc", "accuracy", "auc", "auroc", "bleu", "bpb", "bpc", "cer", "dice", "elbo", "f1", "fid", "grad",
    "iou", "kl", "learning", "loss", "losses", "lr", "mae", "map", "mape", "miou", "mse", "nll", "perplexity",
    "ppl", "precision", "psnr", "r2", "recall", "reward", "rmse", "rouge", "score", "ssim", "throughput",
    "top1", "top5", "wer",
))  # fmt: skip
_METRIC_ENDS = ("loss", "accuracy", "acc", "rate", "norm")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*")
SEEN = 4096  # characters of a line; a longer one is text
SEEN_JSON = 64 * 1024
_DEPTH = 3  # of objects in a JSON line
_MOST_STEPS = 1e15
DIGITS = r"[+-]?+(?:\d{1,40}+(?:\.\d{0,40}+)?+|\.\d{1,40}+)(?:[eE][+-]?+\d{1,4}+)?+"
COUNT = r"\d{1,15}+"
PLACE = rf"{COUNT}(?:\.\d{{1,20}}+)?+"
_NUMBER = rf"(?:{DIGITS}|[+-]?+(?i:nan|inf(?:inity)?+))"
_END = r"""(?!%\|)(?=%?+(?:[\s)\]}>|;'"\x08\x1b]|,(?!\d)|\.(?!\S)|\Z))"""
_PAIR = re.compile(
    r"""(?<![\w./@?&=%+~$\#\\-])([A-Za-z][\w./@-]{0,63}+)(["']?)\s{0,8}+(=|:)(\s{0,8}+)(?:tensor\()?+"""
    rf"({_NUMBER})(?:/({COUNT})\s\(\d{{1,3}}(?:\.\d{{1,9}})?%\))?+{_END}"
)
_POSITION = re.compile(
    r"""(?<![\w/.@-])(epoch|global[_ ]step|step|iteration|iter)["']?\s{0,4}+[:=#]?\s{0,4}+\[?\s{0,4}+"""
    rf"({PLACE})(?:(?:\s?/|\sof)\s{{0,8}}+({COUNT}))?+(?!%|[\w.]\w)"
    rf"(?:\]?\s{{0,4}}\[\s{{0,8}}({COUNT})\s?/\s{{0,4}}({COUNT})(?!\d))?",
    re.IGNORECASE,
)
# The bars of tqdm (`| 41/100 [`) and of Keras (`938/938 [====`, `938/938 ━━━━`, `938/938 - 5s`).
_BAR = re.compile(
    rf"(?:\|\s{{0,8}}|\A\s{{0,8}})({COUNT})/({COUNT})\s(?=\[(?:[\d=>.?]|<)|━|-\s\d{{1,9}}m?s\s)"
)
_JSON = r"-?+(?:0|[1-9]\d{0,39}+)(?:\.\d{1,40}+)?+(?:[eE][+-]?+\d{1,4}+)?+"
_MEMBER = re.compile(rf'"([^"\\]{{1,200}}+)"\s{{0,8}}+:\s{{0,8}}+({_JSON})(?=\s{{0,8}}+[,}}])')
# A bar of tqdm that was cut to the terminal's width: the number at its end may lack digits.
_CUT_BAR = re.compile(r"\[[\d:]{4,12}<[^\]]{0,4096}\Z")
_COLOUR = re.compile("\x1b\\[[0-9;:]{0,32}[mK]")
# A quick look at what may be before a value, and at what may say where the training stands.
_MAYBE_PAIR = re.compile(r"""(?:=\s{0,8}|["']\s{0,8}:\s{0,8}|:\s{1,8})(?:tensor\()?[-+.\dnNiI]""")
_MAYBE_PLACE = re.compile(r"poch|POCH|tep|TEP|[iI]ter|ITER")
_MAYBE_ANY = ("=", ":", "/", "poch", "tep", "iter", "Iter", "POCH", "TEP", "ITER")
Use = Literal["value", "whole", "step", "epoch", "steps", "other"]


@lru_cache(maxsize=1024)
def is_metric(name: str) -> bool:
    """Whether a value of this name can be a metric: variables of an environment are not."""
    return name.lower() not in NO_METRIC and not _VARIABLE.fullmatch(name)


@lru_cache(maxsize=1024)
def is_known_metric(name: str) -> bool:
    """Whether it is a metric by its name alone: `loss`, `val_loss`, `Accuracy`, `top1`."""
    lowered = name.lower()
    return lowered.endswith(_METRIC_ENDS) or not _METRIC_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", lowered))


@lru_cache(maxsize=1024)
def is_loss(name: str) -> bool:
    """Whether it is a loss by its name: `loss`, `train/loss`, `Loss`."""
    return name.lower().endswith("loss")


class ParsedLine(NamedTuple):
    """What one line gives: metrics, and where the training stands."""

    pairs: tuple[tuple[str, float], ...] = ()
    step: int | None = None
    epoch: float | None = None
    steps: int | None = None


NOTHING = ParsedLine()


class Slot(NamedTuple):
    """A number of a line that became part of a metric: its place, its meaning, and a pattern of its form."""

    start: int
    end: int
    use: Use
    form: str
    name: str = ""
    name_at: int = 0


def parse(text: str) -> ParsedLine:
    """What a line gives, which may hold anything."""
    return parse_with_slots(text)[0]


def parse_with_slots(text: str) -> tuple[ParsedLine, list[Slot] | None]:
    """The same, and the numbers that were used, in the order of `ParsedLine.pairs`; None where another
    line of the same shape has to be parsed by itself.
    """
    if "\x1b" in text:
        return parse_with_slots(_COLOUR.sub("", text[: 2 * SEEN]).replace("\x1b", " "))[0], None
    if text.startswith("{") and (object_ := _parse_json(text)) is not None:
        return object_, _json_slots(text, object_)
    text = text[:SEEN]
    place = _places(text)
    pairs: list[tuple[str, float, list[Slot]]] = []
    unsure: list[tuple[str, float, list[Slot]]] = []
    sure = bool(place)
    for match in _PAIR.finditer(text) if _MAYBE_PAIR.search(text) else ():
        name, quote, sign, space, number, whole = match.groups()
        lowered, value = name.lower(), float(number)
        slot = Slot(*match.span(5), "value", DIGITS, name, match.start(1))
        if lowered in STEP:
            if "step" not in place and whole_number(value) is not None:
                place["step"] = slot._replace(use="step")
        elif lowered in EPOCH:
            if "epoch" not in place and is_finite(value):
                place["epoch"] = slot._replace(use="epoch")
        elif name[-1] not in "./-" and is_metric(name):
            slots = [slot]
            if whole:
                slots.append(Slot(*match.span(6), "whole", COUNT))
                value = ratio(value, float(whole))
            if sign == "=" or (quote and text[match.start(1) - 1 : match.start(1)] == quote):
                pairs.append((name, value, slots))
            elif space:
                sure = sure or is_known_metric(name)
                unsure.append((name, value, slots))
    if sure or place:
        pairs += unsure
    cut = bool(pairs) and "<" in text and _CUT_BAR.search(text) is not None
    pairs = [each for each in pairs if not cut or each[2][-1].end < len(text.rstrip())]
    if not pairs and not place:
        return NOTHING, None
    numbers = {use: float(text[slot.start : slot.end]) for use, slot in place.items()}
    found = ParsedLine(
        pairs=tuple((name, value) for name, value, _ in pairs),
        step=whole_number(numbers["step"]) if "step" in numbers else None,
        epoch=numbers.get("epoch"),
        steps=int(numbers["steps"]) if "steps" in numbers else None,
    )
    if cut or any(slot.name for slot in place.values()) or (text.startswith("{") and '"' in text):
        # As in `step=-5`: with another number, more of the line may say where it stands, or it may be JSON.
        return found, None
    return found, [*(slot for *_, slots in pairs for slot in slots), *place.values()]


def may_measure(text: str) -> bool:
    """A quick look, true for every line that `parse` finds something in."""
    for mark in _MAYBE_ANY:  # noqa: SIM110 - `any` takes three times as long, and most lines are only looked at
        if mark in text:
            return True
    return False


def ratio(value: float, whole: float) -> float:
    """A value that is written as a part of a whole."""
    return value / whole if whole else value


def parse_number(text: str) -> float | None:
    """The number that a text is, if it is one."""
    return float(text) if len(text) <= 100 and re.fullmatch(_NUMBER, text) else None


def is_finite(value: float) -> bool:
    """Whether a number is neither infinite nor none."""
    return value - value == 0.0


def whole_number(value: float) -> int | None:
    """A number as a count, if it can be one."""
    return int(value) if 0 <= value < _MOST_STEPS and value == int(value) else None


def _places(text: str) -> dict[str, Slot]:
    """Where the training stands, as far as it is said in other ways than `step=3`."""
    found: dict[str, Slot] = {}
    for match in _POSITION.finditer(text) if _MAYBE_PLACE.search(text) else ():
        if match[1].lower() == "epoch":
            if "epoch" not in found:
                found["epoch"] = Slot(*match.span(2), "epoch", PLACE)
                if match[4] and "step" not in found:
                    found["step"] = Slot(*match.span(4), "step", COUNT)
                    found["steps"] = Slot(*match.span(5), "steps", COUNT)
        elif "step" not in found and "." not in match[2]:
            found["step"] = Slot(*match.span(2), "step", COUNT)
            if match[3]:
                found["steps"] = Slot(*match.span(3), "steps", COUNT)
    if "step" not in found and "/" in text and (bar := _BAR.search(text)) is not None:
        found["step"] = Slot(*bar.span(1), "step", COUNT)
        found["steps"] = Slot(*bar.span(2), "steps", COUNT)
    return found


def _parse_json(text: str) -> ParsedLine | None:
    """A line that is a JSON object; None for one that is none."""
    if len(text) > SEEN_JSON:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    pairs: list[tuple[str, float]] = []
    step: int | None = None
    epoch: float | None = None
    for name, number in _numbers(value, "", _DEPTH):
        lowered = name.lower()
        if lowered in STEP:
            step = whole_number(number) if is_finite(number) else None
        elif lowered in EPOCH:
            epoch = number if is_finite(number) else None
        elif is_metric(name):
            pairs.append((name, number))
    return ParsedLine(pairs=tuple(pairs), step=step, epoch=epoch)


def _json_slots(text: str, found: ParsedLine) -> list[Slot] | None:
    """The numbers of an object, if they are plainly written and all that it has."""
    slots = []
    for match in _MEMBER.finditer(text):
        name = match[1]
        lowered = name.lower()
        use: Use = "step" if lowered in STEP else "epoch" if lowered in EPOCH else "value"
        slots.append(
            Slot(
                *match.span(2),
                use if use != "value" or is_metric(name) else "other",
                _JSON,
                name,
                match.start(1),
            )
        )
    places = [slot.use for slot in slots if slot.use in ("step", "epoch")]
    given = (["step"] if found.step is not None else []) + (["epoch"] if found.epoch is not None else [])
    pairs = tuple((slot.name, float(text[slot.start : slot.end])) for slot in slots if slot.use == "value")
    return slots if sorted(places) == sorted(given) and pairs == found.pairs else None


def _numbers(value: dict[str, object], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    """The numbers in an object, also those that are written as text, and those of objects in it."""
    for key, each in value.items():
        name = f"{prefix}{key}"
        if not name or len(name) > 200 or isinstance(each, bool):
            continue
        if isinstance(each, dict) and depth > 1:
            yield from _numbers(each, f"{name}.", depth - 1)
            continue
        try:
            number = float(each) if isinstance(each, int | float) else None
        except OverflowError:
            continue
        if isinstance(each, str):
            number = parse_number(each)
        if number is not None:
            yield name, number
