"""What the cells of a step print and show, kept as nbformat has it, while it goes to the log as it comes.

Objects show themselves as in a notebook (`_repr_html_` and its kind); figures of matplotlib are shown when a
cell ends or calls `show`. No IPython is needed."""

from __future__ import annotations

import base64
import builtins
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

_MOST = 1 << 20  # characters of one stream of a cell that are kept; the log has all
_BACKEND = "module://_echelon_figures"
_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
}


class Recorder:
    """Keeps the outputs of one cell after the other; `file` is where they go, None for a worker that keeps
    none.
    """

    def __init__(self, file: Optional[Path]) -> None:
        self._file = file
        self._outputs: List[Dict[str, Any]] = []
        self._length = 0
        os.environ.setdefault("MPLBACKEND", _BACKEND)
        sys.stdout = _Tee(sys.stdout, self, "stdout")
        sys.stderr = _Tee(sys.stderr, self, "stderr")
        builtins.display = self.display  # type: ignore[attr-defined]  # as in a notebook
        setattr(builtins, "_echelon_show_figures", self.show_figures)  # noqa: B010 - mypy does not know it

    def begin(self) -> None:
        """A cell starts."""
        self._outputs, self._length = [], 0

    def end(self, cell: int, seconds: float, error: Optional[Dict[str, Any]] = None) -> None:
        """A cell is over: keep its outputs."""
        if error is None:
            self.show_figures()
        else:
            self._outputs.append(dict(error, output_type="error"))
        if self._file is not None:
            line = json.dumps({"cell": cell, "seconds": seconds, "outputs": self._outputs}, default=str)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        self._outputs = []

    def stream(self, name: str, text: str) -> None:
        """Text was printed."""
        if self._length > _MOST:
            return
        self._length += len(text)
        last = self._outputs[-1] if self._outputs else {}
        if last.get("output_type") == "stream" and last.get("name") == name:
            last["text"] += text
        else:
            self._outputs.append({"output_type": "stream", "name": name, "text": text})

    def result(self, value: object) -> None:
        """The value of a cell's last line."""
        if value is not None:
            self._show(value, "execute_result")

    def display(self, *values: object, **_more: Any) -> None:
        """What a notebook's `display` does."""
        for value in values:
            self._show(value, "display_data")

    def _show(self, value: object, kind: str) -> None:
        data = bundle(value)
        output: Dict[str, Any] = {"output_type": kind, "metadata": {}, "data": data}
        if kind == "execute_result":
            output["execution_count"] = None
        text = data.get("text/plain", "")
        stdout = sys.stdout
        if text and isinstance(stdout, _Tee):
            stdout.real.write(text + "\n")
        self._outputs.append(output)

    def show_figures(self) -> None:
        """Keep every open figure of matplotlib, and close it."""
        pyplot: Any = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or os.environ.get("MPLBACKEND") != _BACKEND:
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            data = {"text/plain": repr(figure), "image/png": _png(figure)}
            self._outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
        pyplot.close("all")


class _Tee:
    """A stream that passes on what is written, and keeps it for the notebook."""

    def __init__(self, real: Any, recorder: Recorder, name: str) -> None:
        self.real = real
        self._recorder, self._name = recorder, name

    def write(self, text: str) -> int:
        written = self.real.write(text)
        self._recorder.stream(self._name, text)
        return int(written or 0)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def bundle(value: object) -> Dict[str, Any]:
    """A value in all forms in which it can show itself."""
    data: Dict[str, Any] = {}
    for kind, method in _METHODS.items():
        try:
            made = (
                getattr(value, method)() if not isinstance(value, type) and hasattr(value, method) else None
            )
        except Exception:  # noqa: S112 - a form that it cannot make
            continue
        if isinstance(made, bytes):
            made = base64.b64encode(made).decode()
        if isinstance(made, str):
            data[kind] = made
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if isinstance(figure, type) and isinstance(value, figure):
        data["image/png"] = _png(value)
        sys.modules["matplotlib.pyplot"].close(value)
    try:
        data["text/plain"] = repr(value)
    except Exception as error:
        data["text/plain"] = "<%s that cannot be shown: %s>" % (type(value).__name__, error)
    return data


def _png(figure: Any) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return base64.b64encode(file.getvalue()).decode()
