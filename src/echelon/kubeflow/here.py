"""A job that was written for pods, on this machine: paths in them become folders here.

No image is used. `--map /in/the/pod=./here` says what a path of the pod is on this machine; a ConfigMap that
is in the same file is written out. A path that only the image or a volume has is refused by its name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from echelon.errors import InvalidJob
from echelon.home_folder import expanded
from echelon.kubeflow.manifest import Manifest
from echelon.kubeflow.volumes import Volume
from echelon.model.forms import split_command
from echelon.model.pods.template import CONTAINER
from echelon.model.settings import RoleSettings, Settings
from echelon.values import frozen

_MPI_FILES = {  # in the launcher's pod of an MPIJob: what every launcher finds here
    f"/etc/mpi/{name}": f"{{file:{name}}}" for name in ("hostfile", "discover_hosts.sh")
}
FOLDER = ".volumes"  # in the shipped code: what ConfigMaps hold
_SCRIPTS = (".py", ".sh")
_PATH = re.compile(r"(?<![\w./:$}~*-])/[\w.@+-]+(?:/[\w.@+-]+)*")
_AFTER = r"(?=$|[/\s\"':;,)=])"
_SCRIPT = re.compile(r"[^\s\"';|&<>()]+\.(?:py|sh)(?=$|[\s\"';|&<>()])")
_MODULE = re.compile(r"(?<!\S)-m\s+([A-Za-z_][\w.]*)")


@frozen
class Here:
    """The settings for this machine, what the user should know, and files to write out below `{code}`."""

    settings: Settings
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def parse_maps(texts: Sequence[str], folder: Path) -> dict[str, str]:
    """Read `--map /path/in/pod=FOLDER`; folders are seen from `folder`."""
    found = {}
    for text in texts:
        inside, separator, outside = text.partition("=")
        if not separator or not inside.startswith("/") or not outside:
            hint = "--map /path/in/the/pod=FOLDER, for example --map /data=./data"
            raise InvalidJob("map", text, "is not /PATH=FOLDER", hint=hint)
        target = folder / expanded(outside)
        if not target.exists():
            raise InvalidJob(
                "map", text, "names nothing on this machine", hint=f"mkdir -p {quote(str(expanded(outside)))}"
            )
        found[inside.rstrip("/") or "/"] = str(target.resolve())
    return found


def on_this_machine(
    manifest: Manifest,
    settings: Settings,
    maps: Mapping[str, str],
    folder: Path,
    exists: Callable[[str], bool],
    read: Callable[[str], str] = lambda _path: "",
) -> Here:
    """The same job with paths of this machine. `exists` tells whether it has a path, `read` what is in a
    file; "" where there is none.
    """
    files: dict[str, bytes] = {}
    places = dict(maps)
    for volume in manifest.volumes:
        if _mapped(volume.path, maps) or exists(volume.path):
            continue
        written = _written_out(volume, manifest.objects)
        if written is None:
            what = f"{volume.kind} {volume.name}".strip()
            hint = f"--map {volume.path}=FOLDER says which folder of this machine it is"
            raise InvalidJob("volumeMounts", volume.path, f"({what}) is not on this machine", hint=hint)
        place, content = written
        files |= content
        places[volume.path] = f"{{code}}/{place}"
    in_commands = {**(_MPI_FILES if manifest.kind == "MPIJob" else {}), **places}
    workdir = None if manifest.workdir is None else _replaced(manifest.workdir, places)
    if workdir is not None and workdir.startswith("/") and not exists(workdir):
        raise _only_in_image(workdir, "workingDir")
    start = folder if workdir is None else folder / workdir

    def moved(command: Any, args: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        words, more = split_command(command), tuple(str(word) for word in args or ())
        words, more = (tuple(_replaced(word, in_commands) for word in each) for each in (words, more))
        _check_paths((*words, *more), start, exists, tuple(maps.values()))
        return _started_in(workdir, words, more)

    command, args = moved(settings.command, settings.args)
    roles: dict[str, int | RoleSettings] = dict(settings.roles or {})
    for name, role in roles.items():
        if isinstance(role, RoleSettings):
            changed = replace(role, env=_environment(role.env, places))
            if role.command is not None:
                own, more = moved(role.command, role.args)
                changed = replace(changed, command=own, args=more or None)
            roles[name] = changed
    made = replace(
        settings,
        command=command,
        args=args or None,
        env=_environment(settings.env, places),
        roles=roles or None,
    )
    scripts = dict(_scripts(made, files, start, read))
    notes = [*_notes(manifest, settings), *_in_scripts(scripts, places)]
    said = (*_texts(settings), manifest.workdir or "", *(each.path for each in manifest.volumes))
    notes += [
        f"--map {place}: no path of the job is there, and nothing is mapped"
        for place in maps
        if not any(_names(text, place) for text in (*said, *scripts.values()))
    ]
    return Here(settings=made, notes=tuple(notes), files=files)


def _notes(manifest: Manifest, settings: Settings) -> Iterator[str]:
    if settings.image is not None:
        yield f"image {settings.image} is not used: programs and packages are this machine's"
    given = {*(settings.env or {}), *(name.partition("=")[0] for name in settings.secret or ())}
    missing = [name for name in manifest.unknown_env if name not in given]
    if missing:
        yield f"variables of the cluster are not set: {', '.join(missing)}; --env or --secret sets one"
    spec = (settings.template or {}).get("spec", {})
    others = [each["name"] for each in spec.get("initContainers", ())]
    others += [each["name"] for each in spec.get("containers", ()) if each["name"] != CONTAINER]
    if others:
        yield f"other containers of the pods are not started: {', '.join(others)}"
    unused = [f"{each['kind']} {each['metadata']['name']}" for each in manifest.objects]
    if unused:
        yield f"nothing is made in a cluster: {', '.join(unused)}"


def _texts(settings: Settings) -> Iterator[str]:
    """All that a job's settings say of its command, arguments and variables."""
    parts: list[Settings | RoleSettings] = [settings]
    parts += [each for each in (settings.roles or {}).values() if isinstance(each, RoleSettings)]
    for each in parts:
        yield from split_command(each.command)
        yield from (str(word) for word in each.args or ())
        yield from (str(value) for value in (each.env or {}).values())


def _scripts(
    settings: Settings, files: Mapping[str, bytes], start: Path, read: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """The scripts that a job runs on this machine, by their names, with their texts."""
    line = " ".join(_texts(settings))
    modules = [f"{name.replace('.', '/')}.py" for name in _MODULE.findall(line)]
    for name in dict.fromkeys((*_SCRIPT.findall(line), *modules)):
        shipped = files.get(name.removeprefix("{code}/")) if name.startswith("{code}/") else None
        content = read(str(start / name)) if shipped is None else shipped.decode(errors="replace")
        if content:
            yield posixpath.basename(name), content


def _in_scripts(scripts: Mapping[str, str], places: Mapping[str, str]) -> Iterator[str]:
    """A script that names a path of the pods itself looks there on this machine, too, and finds out late."""
    for name, content in scripts.items():
        for place in places:
            lines = enumerate(content.splitlines(), 1)
            number = next((at for at, line in lines if _names(line.partition("#")[0], place)), None)
            if number is not None:
                yield (
                    f"{name} has {place} in its own text (line {number}), where --map does not reach: it is "
                    f"this machine's {place} there; give it as an argument or a variable"
                )


def _names(text: str, place: str) -> bool:
    return _replaced(text, {place: ""}) != text


def _mapped(path: str, places: Mapping[str, str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _replaced(text: str, places: Mapping[str, str]) -> str:
    """The text with paths of the pod made paths of this machine, the longest first."""
    if not places:
        return text
    choices = "|".join(re.escape(place) for place in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({choices}){_AFTER}", lambda match: places[match[1]], text)


def _environment(env: Mapping[str, Any] | None, places: Mapping[str, str]) -> dict[str, Any] | None:
    made = {name: _replaced(str(value), places) for name, value in (env or {}).items()}
    for name, value in made.items():
        if "{code}/" in value:
            hint = "--map the path to a folder of this machine"
            raise InvalidJob("env", f"{name}={(env or {})[name]}", "is in a ConfigMap of the file", hint=hint)
    return made or None


def _written_out(volume: Volume, objects: Sequence[Mapping[str, Any]]) -> tuple[str, dict[str, bytes]] | None:
    """Where the content of a ConfigMap of the file goes, and that content; None for any other volume."""
    if volume.kind != "configMap":
        return None
    found = next(
        (each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == volume.name),
        None,
    )
    if found is None:
        return None
    data = {key: str(text).encode() for key, text in (found.get("data") or {}).items()}
    items = volume.source["configMap"].get("items")
    if items is not None:
        data = {each["path"]: data[each["key"]] for each in items if each["key"] in data}
    place = f"{FOLDER}/{volume.name}"
    files = {f"{place}/{path}": content for path, content in data.items()}
    inner = volume.raw.get("subPath")
    return (f"{place}/{inner}" if inner else place), files


def _check_paths(
    words: Sequence[str], start: Path, exists: Callable[[str], bool], mapped: Sequence[str]
) -> None:
    """Refuse a path that is not here, and whose folder is not here either: it is in the image alone, or
    missing in a folder that the user has named.
    """
    if words and words[0].startswith("/") and not exists(words[0]):
        raise _only_in_image(words[0], "command")
    for word in words:
        for path in _PATH.findall(word):
            folder = posixpath.dirname(path)
            is_new = not path.endswith(_SCRIPTS) and folder != "/" and exists(folder)
            if exists(path) or is_new:
                continue
            if any(path.startswith(f"{each}/") for each in mapped):
                hint = "put it there; what is in a ConfigMap of the file needs no --map"
                raise InvalidJob("command", path, "is not in the folder that --map names", hint=hint)
            raise _only_in_image(path, "command")
    plain = (word for word in words[1:] if word.endswith(_SCRIPTS) and not re.search(r"[\s={}]", word))
    script = next(plain, None)
    if script is not None and not script.startswith("/") and not exists(str(start / script)):
        hint = "start echelon in the folder that has it"
        raise InvalidJob("command", script, "is not in this folder, but in the image", hint=hint)


def _only_in_image(path: str, where: str) -> InvalidJob:
    folder = posixpath.dirname(path) if path.endswith(_SCRIPTS) else path
    hint = f"--map {folder}=FOLDER says which folder of this machine it is"
    return InvalidJob(where, path, "is not on this machine, but in the image or on a volume", hint=hint)


def _started_in(
    workdir: str | None, command: tuple[str, ...], args: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if workdir is None:
        return command, args
    return ("sh", "-c", 'cd "$0" && exec "$@"', workdir, *command), args
