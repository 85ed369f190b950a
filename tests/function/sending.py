"""What the programs under test call: the script of a function, or why there is none, goes to a folder."""

import json
import os
from pathlib import Path

from echelon.errors import CannotShip
from echelon.function import script_of


def send(function, args=(), kwargs=None):
    folder = Path(os.environ["SEND_TO"])
    try:
        made = script_of(function, args, kwargs or {})
    except CannotShip as error:
        (folder / "refused.json").write_text(json.dumps({"message": error.message, "hint": error.hint}))
        return
    (folder / "made.json").write_text(
        json.dumps(
            {
                "name": made.name,
                "project": made.project and str(made.project),
                "elsewhere": [str(path) for path in made.elsewhere],
                "python": made.python,
                "files": sorted(made.files),
            }
        )
    )
    (folder / "script.py").write_text(made.text, encoding="utf-8")
    for name, data in made.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
