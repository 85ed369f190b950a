"""A script's project as something to ship: where it begins, what belongs to it, and its archive.

`project` finds the folder, `survey` chooses the files, `gitignore` knows git's rules, `archive` makes the
bytes. The agent's `unpack` is the other end.
"""

from echelon.bundle.archive import Bundle, pack, pack_files
from echelon.bundle.project import find_project
from echelon.bundle.survey import list_files

__all__ = ["Bundle", "find_project", "list_files", "pack", "pack_files"]
