"""Where echelon keeps what it must remember on this machine. What packs a project needs to know it, too: the
folder never travels."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from echelon.errors import StateTrouble
from echelon.home_folder import home_folder


def state_home() -> Path:
    """The state folder: ECHELON_HOME, or below XDG_STATE_HOME, or below the user's home folder. Raises
    StateTrouble if there can be none, or if it is not this user's alone to write: what others put there would
    be run and believed.
    """
    folder = named_state_home()
    _check_owned(folder)
    return folder


def check_state_home() -> None:
    """Raise StateTrouble if the state folder is not this user's alone; that there is none is no trouble."""
    try:
        folder = named_state_home()
    except StateTrouble:
        return
    _check_owned(folder)


def _check_owned(folder: Path) -> None:
    try:
        found = folder.stat()
    except OSError:
        return  # it is not there yet, or who uses it is told why it cannot be
    name = shlex.quote(str(folder))
    if found.st_uid != os.geteuid():
        raise StateTrouble(
            f"the state folder {folder} belongs to another user (id {found.st_uid}): their runs would be "
            "taken for yours",
            hint=f"set ECHELON_HOME to a folder of your own, or unset it; `ls -ld {name}` shows whose it is",
        )
    by_group = found.st_mode & stat.S_IWGRP and not _is_on_volume(found)
    if found.st_mode & stat.S_IWOTH or by_group:
        raise StateTrouble(
            f"others may write to the state folder {folder} (mode {stat.S_IMODE(found.st_mode):o}), and "
            "echelon runs what is in it",
            hint=f"`chmod go-w {name}` lets only you write; or set ECHELON_HOME to another folder",
        )


def _is_on_volume(found: os.stat_result) -> bool:
    """Whether a group may write because a kubelet has given it the whole volume (`fsGroup`): with the bit
    that hands the group on, and no other user in it.
    """
    import grp
    import pwd

    try:
        members = grp.getgrgid(found.st_gid).gr_mem
    except KeyError:
        members = []
    others = (user for user in pwd.getpwall() if user.pw_uid != found.st_uid)
    shared = any(user.pw_gid == found.st_gid or user.pw_name in members for user in others)
    return bool(found.st_mode & stat.S_ISGID) and not shared


def named_state_home() -> Path:
    """The state folder as it is named, without a check of who may write to it."""
    if home := os.environ.get("ECHELON_HOME"):
        try:
            return Path(home).expanduser().absolute()
        except RuntimeError:
            raise StateTrouble(
                f"ECHELON_HOME: {home} names no folder", hint="set it to an absolute path"
            ) from None
    base = os.environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "echelon"
    home = os.environ.get("HOME", "/")
    if not home.startswith("/"):  # every folder would have a state of its own
        raise StateTrouble(f"HOME: {home!r} is not an absolute path", hint="set it, or ECHELON_HOME, to one")
    found = home_folder()
    if found is None:
        raise StateTrouble("there is no home folder to keep the state in", hint="set ECHELON_HOME")
    return found / ".local" / "state" / "echelon"
