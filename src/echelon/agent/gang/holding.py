"""What a gang asks of a worker that holds its results, and tells it; `ending/finish.py` does it."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Protocol

    class Holding(Protocol):
        """The results of one worker, and who fetches them."""

        def is_copying(self) -> bool:
            """Whether files are copied from it."""

        def is_giving(self) -> bool:
            """Whether results are on their way to the keeper."""

        def held_for(self) -> float | None:
            """The seconds that are left of holding results; None if none are held."""

        def visits(self) -> dict[str, float]:
            """The clients that fetch, each with the seconds that it may still take."""

        def hold_with(self, seconds: float) -> None:
            """Another worker holds results for so long."""

        def attend(self, client: str, seconds: float) -> None:
            """A client fetches from the gang."""
