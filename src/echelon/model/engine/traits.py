"""How an engine differs from the others, as far as the code above has to know."""

from __future__ import annotations

from typing import NamedTuple

from echelon.values import frozen


@frozen
class Traits:
    """The differences, as an engine declares them."""

    place: str  # where it is, for messages: "this machine"
    remote: bool = False  # its workers see none of this machine's files: code travels, Python is the image's
    code_limit: int | None = None  # bytes of code, compressed, that can travel with a run's record
    sent_limit: int | None = None  # the same for code that a command sends which stays with the run
    keeps_queue: bool = True  # it retries queued runs by itself; else the command that follows a run does
    shared: bool = False  # `runs` lists other users' runs too
    foreign: bool = False  # its runs are objects that were not made by echelon
    elastic: bool = False  # the number of a run's workers may change
    previews_objects: bool = False  # `objects` gives some, which are the same on whatever nodes


class Where(NamedTuple):
    """Which of several places of a kind, by the user's own names for it; "" where there is only one."""

    context: str = ""
    namespace: str = ""
