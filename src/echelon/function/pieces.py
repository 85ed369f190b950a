"""The statements of a generated script, and an order in which they can be executed.

While `gather` follows names it cannot know their order; it is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from echelon.values import frozen


@frozen
class Piece:
    """One statement, or a few, that bind a name of the script."""

    text: str
    stored: tuple[tuple[str, object], ...] = ()  # the values that it reads, in the order of its reading
    now: frozenset[str] = frozenset()  # names that it uses when it is executed
    later: frozenset[str] = frozenset()  # names that what it defines uses when called
    fields: frozenset[str] = frozenset()  # names in annotations of a class body
    hints: frozenset[str] = frozenset()  # names in its other annotations
    is_import: bool = False


def in_order(pieces: Mapping[str, Piece], typed: Mapping[str, int]) -> list[str]:
    """As typed, except that what a piece uses at once comes before it, together with all that this uses.

    A decorator or a base class may call anything that it refers to while the next definition is executed.
    Only what itself needs that definition comes after it.
    """
    ordered: dict[str, None] = {}
    begun: set[str] = set()

    def known(names: Iterable[str]) -> list[str]:
        found = (name for name in names if name in pieces)
        return sorted(found, key=lambda name: (typed.get(name, len(typed)), name))

    def emit(name: str) -> None:
        if name in begun:
            return
        begun.add(name)
        at_once = _at_once(pieces[name])
        for used in known(at_once):
            emit(used)
        for used in known(_reached(at_once, pieces, lambda piece: _at_once(piece) | piece.later)):
            if not _reached({used}, pieces, _at_once) & (begun - ordered.keys()):
                emit(used)
        ordered[name] = None

    for name in known(pieces):
        emit(name)
    return list(ordered)


def _at_once(piece: Piece) -> frozenset[str]:
    return piece.now | piece.fields | piece.hints


def _reached(
    start: Iterable[str], pieces: Mapping[str, Piece], steps: Callable[[Piece], frozenset[str]]
) -> set[str]:
    found = {name for name in start if name in pieces}
    waiting = list(found)
    while waiting:
        new = (steps(pieces[waiting.pop()]) & pieces.keys()) - found
        found |= new
        waiting += new
    return found
