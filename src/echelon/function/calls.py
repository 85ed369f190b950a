"""What a script is made for, a call or a cell, and the parts that it consists of: values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.function.names import Names
from echelon.values import frozen

RETURN = "_echelon_return"  # the script's function that keeps what the function returned


@frozen
class Call:
    """The call that the script makes; `name` is the function's name in messages."""

    name: str
    function: object
    args: Sequence[tuple[str, object]]  # pairs of the name for messages and the value
    kwargs: Mapping[str, object]
    is_async: bool
    from_environment: str = ""  # a variable whose JSON object has further arguments, other in every run


@frozen
class CellCode:
    """Statements that the script executes instead of a call; `name` stands for them in messages."""

    name: str
    start: str  # the statements of the script that execute them
    names: Names  # what they use


@frozen
class Gathered:
    """The parts of the script, and what must be shipped with it."""

    imports: tuple[str, ...]
    pieces: tuple[str, ...]  # in an order in which they can be executed
    start: str  # the statements that call the function, or execute the cell
    values: bytes  # the stream that the pieces and then the call read, in order
    by_value: tuple[str, ...]  # what is shipped as bytecode, and so needs the same Python minor
    roots: tuple[Path, ...]  # folders of imported modules that are not installed on workers
    annotations_as_text: bool
