"""A script's project, packed for shipping: its folder, its files, and the archive.

`project` finds the folder, `survey` chooses the files, `gitignore` applies git's rules, `archive` writes the
bytes. The agent's `unpack` reads them.
"""

from echelon.bundle.archive import Bundle, pack, pack_files
from echelon.bundle.project import find_project
from echelon.bundle.survey import list_files

__all__ = ["Bundle", "find_project", "list_files", "pack", "pack_files"]
