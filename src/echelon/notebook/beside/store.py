"""Variables between the steps of a pipeline run.

::

    values/STEP/published.json    the names that the step hands on, and where each is; written last
    values/STEP/x/                one variable, or several that share something
        meta.json                 codec, type, versions, digests of the files, and the seal
        value.json, 1.npy, ...    the files, as the codec writes them

Every value is read back where it was written, so that the step that makes it fails, not the one that reads
it. The seal is an HMAC with the pipeline run's own secret over all of `meta.json`: nothing that another user
wrote is ever unpickled. A step's folder appears in one move, whole."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import stat
import sys
import uuid
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from echelon.codecs import parsing, writing
from echelon.notebook.beside import alike, keras, pickling

SCHEMA = 1
PUBLISHED, META, PICKLE = "published.json", "meta.json", "value.pickle"
PLAIN, PICKLED, MODULE = "plain", "pickle", "module"
_LIBRARIES = ("numpy", "pandas", "torch", "tensorflow", "keras", "tf_keras", "sklearn", "pyarrow")


class CannotKeep(Exception):
    """A variable that cannot be handed on: which, and why."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        kind = type(value)
        self.name, self.problem = name, problem
        self.kind = ("%s.%s" % (kind.__module__, kind.__qualname__)).replace("builtins.", "", 1)
        super().__init__("%s, a %s, cannot be handed on to the next step: %s" % (name, self.kind, problem))


class Damaged(Exception):
    """A stored variable that is not as its step wrote it."""


class Store:
    """The variables of one pipeline run, seen from one of its steps."""

    def __init__(
        self, folder: Path, run: str, secret: bytes, namespace: Dict[str, Any], prelude: Mapping[str, Any]
    ) -> None:
        self._folder, self._run, self._secret = folder, run, secret
        self._namespace, self._prelude = namespace, prelude
        self._read: Dict[Tuple[str, str], Dict[str, Any]] = {}
        self.lost: List[
            Tuple[List[str], str]
        ] = []  # what could not be written of variables, and was left out

    # Writing

    def publish(
        self, step: str, values: Mapping[str, Any], more: Mapping[str, Any], deleted: Iterable[str] = ()
    ) -> None:
        """Hand variables on, all at once, and which were deleted; raises CannotKeep. `more` is kept beside
        them."""
        partial = self._folder / (".%s.%s" % (step, uuid.uuid4().hex[:8]))
        partial.mkdir(parents=True)
        try:
            names: Dict[str, Any] = {name: {"entry": None, "digest": "deleted"} for name in deleted}
            for number, group in enumerate(groups(values), 1):
                alone = len(group) == 1 and group[0].isidentifier()
                entry = group[0] if alone else "group-%d" % number
                digest = self._write(step, entry, {name: values[name] for name in group}, partial / entry)
                names.update({name: {"entry": entry, "digest": digest} for name in group})
            content = dict(more, schema=SCHEMA, names=names)
            (partial / PUBLISHED).write_text(json.dumps(content), encoding="utf-8")
            target = self._folder / step
            if target.is_dir():  # of an earlier start of the same step
                shutil.rmtree(str(target))
            partial.rename(target)
        except BaseException:
            shutil.rmtree(str(partial), ignore_errors=True)
            raise

    def write_apart(self, values: Mapping[str, Any], folder: Path) -> None:
        """Do what `publish` does with models of Keras, for a worker that hands nothing on: reading some of
        their variables takes all workers."""
        for group in groups(values):
            if len(group) == 1 and keras.library_of_model(values[group[0]]) is not None:
                self._write("apart", group[0], {group[0]: values[group[0]]}, folder / group[0])

    def _write(self, step: str, entry: str, values: Dict[str, Any], folder: Path) -> str:
        folder.mkdir(parents=True)
        name, value = next(iter(values.items()))
        about = self._encode(values, folder)
        kind = type(value)
        meta = {
            "schema": SCHEMA,
            "run": self._run,
            "step": step,
            "entry": entry,
            "names": list(values),
            "type": "%s.%s" % (kind.__module__, kind.__qualname__) if len(values) == 1 else "several",
            "versions": _versions(),
            "files": {each.name: writing.digest_of(each) for each in sorted(folder.iterdir())},
        }
        meta.update(about)
        meta["seal"] = self._seal(meta)
        (folder / META).write_text(json.dumps(meta), encoding="utf-8")
        self._verify(name, values, about, folder)
        return hashlib.sha256(json.dumps([about, meta["files"]], sort_keys=True).encode()).hexdigest()

    def _encode(self, values: Dict[str, Any], folder: Path) -> Dict[str, Any]:
        """Write the files with the first codec that takes the value; returns its name and what it notes."""
        name, value = next(iter(values.items()))
        if len(values) == 1:
            if isinstance(value, type(sys)) and sys.modules.get(value.__name__) is value:
                return {"codec": MODULE, "module": value.__name__}
            library = keras.library_of_model(value)
            if library is not None:
                try:
                    keras.write_model(value, folder)
                except Exception as error:
                    raise CannotKeep(name, value, _first_line(error)) from error
                return {"codec": keras.MODEL, "library": library}
            if self._write_plain(value, folder):
                return {"codec": PLAIN}
        notes: Dict[str, Any] = {"codec": PICKLED}
        library = keras.library_of_history(value) if len(values) == 1 else None
        if library is not None:
            values, notes = {name: keras.history_parts(value)}, {"codec": keras.HISTORY, "library": library}
        parts = {id(each): each for each in alike.reach(values).values()}
        blocks = alike.Blocks(parts.values())
        try:
            with (folder / PICKLE).open("wb") as file:
                pickler = pickling.Pickler(file, self._namespace, self._prelude, blocks)
                pickler.dump(values)
            self.lost += [(list(values), each) for each in pickler.lost]
        except Exception as error:
            culprit, held = self._culprit(values)
            raise CannotKeep(culprit, held, _first_line(error)) from error
        return notes

    def _culprit(self, values: Dict[str, Any]) -> Tuple[str, Any]:
        """Of several variables that are written together, the one that cannot be."""
        for name, value in values.items():
            try:
                pickling.fingerprint(value, self._namespace, self._prelude)
            except Exception:
                return name, value
        return next(iter(values.items()))

    def _write_plain(self, value: Any, folder: Path) -> bool:
        """Write plain data, if it is such and comes back as it is."""
        if alike.repeats_itself(value):
            return False
        try:
            tree = writing.Writer(folder).write(value)
            (folder / writing.VALUE).write_text(json.dumps(tree, allow_nan=False), encoding="utf-8")
            if alike.is_alike(value, parsing.Reader(folder, None, mapped=True).value(tree)):
                return True
        except Exception:  # noqa: S110 - not plain, or a library that cannot: the next codec tries
            pass
        for each in folder.iterdir():
            each.unlink()
        return False

    def _verify(self, name: str, values: Dict[str, Any], about: Dict[str, Any], folder: Path) -> None:
        """Read back what was written; plain data was compared already."""
        if about["codec"] == PLAIN:
            return
        try:
            found = self._decode(about, list(values), folder, verifying=True)
            for each, value in values.items():
                if type(found[each]) is not type(value):
                    raise TypeError("it comes back as a %s" % type(found[each]).__name__)  # noqa: TRY301
            if about["codec"] == keras.MODEL and not keras.weights_alike(values[name], found[name]):
                raise ValueError("its weights come back changed")  # noqa: TRY301
        except Exception as error:
            raise CannotKeep(name, values[name], _first_line(error)) from error

    # Reading

    def load(self, step: str, entry: str, name: str) -> Any:
        """A variable that a step has handed on; raises Damaged."""
        if (step, entry) not in self._read:
            try:
                self._read[step, entry] = self._load(step, entry)
            except Damaged:
                raise
            except (OSError, parsing.Changed) as error:
                raise Damaged("%s of step %s: %s" % (name, step, error)) from error
        return self._read[step, entry][name]

    def codec(self, step: str, entry: str) -> str:
        """How a variable is stored."""
        return str(self._meta(step, entry)["codec"])

    def _meta(self, step: str, entry: str) -> Dict[str, Any]:
        folder = self._folder / step / entry
        try:
            meta: Dict[str, Any] = json.loads((folder / META).read_text("utf-8"))
            seal = str(meta.pop("seal", ""))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            changed = "%s of step %s: %s has changed since it was written"
            raise Damaged(changed % (entry, step, META)) from error
        sealed = hmac.compare_digest(seal.encode("utf-8", "replace"), self._seal(meta).encode())
        if not sealed or (meta["run"], meta["step"], meta["entry"]) != (self._run, step, entry):
            raise Damaged("%s of step %s was not written by this pipeline run" % (entry, step))
        return meta

    def _load(self, step: str, entry: str) -> Dict[str, Any]:
        meta, folder = self._meta(step, entry), self._folder / step / entry
        for name in meta["files"]:
            parsing.checked(folder, name, meta["files"])
        return self._decode(meta, meta["names"], folder)

    def _decode(
        self, about: Mapping[str, Any], names: List[str], folder: Path, verifying: bool = False
    ) -> Dict[str, Any]:
        codec = about["codec"]
        if codec == MODULE:
            import importlib

            return {names[0]: importlib.import_module(about["module"])}
        if codec == PLAIN:
            tree = json.loads((folder / writing.VALUE).read_text("utf-8"))
            return {names[0]: parsing.Reader(folder, None).value(tree)}
        if codec == keras.MODEL:
            return {names[0]: keras.read_model(about["library"], folder, self._namespace)}
        pickled = folder / PICKLE
        with pickled.open("rb") as file, keras.names_known(self._namespace):
            found: Dict[str, Any] = pickling.Unpickler(file, self._namespace, self._prelude, verifying).load()
        if codec == keras.HISTORY:
            return {name: keras.make_history(about["library"], parts) for name, parts in found.items()}
        return found

    def _seal(self, meta: Mapping[str, Any]) -> str:
        text = json.dumps(meta, sort_keys=True).encode()
        return hmac.new(self._secret, text, "sha256").hexdigest()


def groups(values: Mapping[str, Any]) -> List[List[str]]:
    """Variables that share a changeable object, such as a model and its optimizer, in one group."""
    found: List[Tuple[List[str], Dict[int, object]]] = []
    for name, value in values.items():
        names, objects = [name], alike.reach(value)
        apart = []
        for others, theirs in found:
            small, large = sorted((objects, theirs), key=len)
            if any(each in large for each in small):
                names, objects = others + names, {**theirs, **objects}
            else:
                apart.append((others, theirs))
        found = [*apart, (names, objects)]
    return [names for names, _ in found]


def read_secret(path: Path) -> bytes:
    """The pipeline run's secret; raises Damaged if another user may read or write it."""
    about = os.stat(str(path), follow_symlinks=False)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise Damaged("%s is not this user's alone" % path)
    return path.read_bytes()


def _versions() -> Dict[str, str]:
    found = {"python": "%d.%d.%d" % sys.version_info[:3]}
    for name in _LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
