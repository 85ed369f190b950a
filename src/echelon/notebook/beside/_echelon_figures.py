"""A backend of matplotlib that draws as Agg does, and whose `show` keeps figures for the executed notebook.

matplotlib imports it by its name, from a folder that holds nothing else."""

import builtins

from matplotlib.backend_bases import FigureManagerBase as FigureManager  # noqa: F401 - a backend has it
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas  # noqa: F401 - as above


def show(*_args: object, **_more: object) -> None:
    """Keep all open figures."""
    getattr(builtins, "_echelon_show_figures")()  # noqa: B009 - mypy does not know it
