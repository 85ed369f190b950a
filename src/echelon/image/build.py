"""An image from a base, a project and packages: the whole of `echelon image build` in one function.

Layers are streamed, never held in memory, and nothing visible to others changes before the last step: the
manifest's upload, the archive's renaming.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from echelon.bundle.archive import human_size as human
from echelon.bundle.survey import is_secret, survey
from echelon.errors import InvalidJob, Unavailable
from echelon.image import layer, oci
from echelon.image.archive import PREFIX, Archive, write_archive
from echelon.image.layer import SITE, WORKSPACE, Composed, Layer, compose, environment_of
from echelon.image.oci import Descriptor, ImageManifest, Platform
from echelon.image.reference import Reference, parse_reference
from echelon.image.registry.repository import Repository
from echelon.image.wheels import LIBC, PackageSet, check_packages, check_python, install, tidy
from echelon.values import frozen

_WORTH_SAYING = 50_000_000  # bytes: smaller layers are sent too fast to announce
_DEEPEST = 3  # levels of indexes that point to indexes
Reader = Callable[[], Iterator[bytes]]


@frozen
class Recipe:
    """What to build, and where to put it."""

    base: str
    project: Path
    push: str = ""
    to: Path | None = None
    name: str = ""  # in the archive, where nothing is pushed
    include: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    requirements: tuple[Path, ...] = ()
    dependencies: bool = True
    python: str = ""
    libc: str = LIBC
    platform: Platform | None = None  # None: the base's own, amd64 where it has several
    plain_http: tuple[str, ...] = ()  # registries that are reached without TLS


@frozen
class BuiltLayer:
    """A layer of the new image, and its origin: base, packages or project."""

    origin: str
    digest: str
    size: int


@frozen
class Built:
    """The result of a build."""

    image: str  # the name by digest, as `--image` takes it; empty if it was not pushed
    digest: str
    platform: str
    base: str
    layers: tuple[BuiltLayer, ...]
    archive: str = ""
    notes: tuple[str, ...] = ()


class Source(Protocol):
    """Where an image is read from: a repository, or an archive."""

    def document(self, which: str) -> tuple[bytes, str]:
        """A manifest or index, and its type if that is known."""

    def blob(self, wanted: Descriptor) -> Iterator[bytes]:
        """A blob's bytes, checked."""

    def close(self) -> None:
        """Close it."""


def build(recipe: Recipe, say: Callable[[str], None]) -> Built:
    """Build an image, push it, write it to a file; `say` gets progress messages."""
    push, base = _check(recipe)
    with ExitStack() as stack:
        source: Source = stack.enter_context(closing(_open(recipe, base)))
        target = None
        if push:
            plain = push.registry in recipe.plain_http
            target = Repository(push, "push", base=base, plain_http=plain)
            stack.callback(target.close)
            target.check_right()
        manifest, config, platform = read_base(recipe, source, base)
        say(
            f"base {recipe.base}, {platform}, {len(manifest.layers)} layer{'s' * (len(manifest.layers) != 1)}"
        )
        made: dict[Layer, Reader] = {}
        notes: list[str] = []
        if recipe.packages or recipe.requirements:
            made.update(stack.enter_context(_packages(recipe, config, platform, notes)))
        made.update(stack.enter_context(_project(recipe.project, recipe.include, notes)))
        for each in made:
            say(f"{each.origin}: a layer of {human(each.blob.size)}, {each.blob.digest}")
        composed = compose(manifest, config, tuple(made), base_name=recipe.base)
        readers = _readers(composed, source, made)
        image = oci.describe(oci.MANIFEST, composed.manifest)
        if recipe.to is not None:
            name = str(push or (recipe.name and parse_reference("name", recipe.name)))
            documents = (composed.manifest, composed.config)
            blobs = {blob: read() for blob, read in readers.items()}
            write_archive(recipe.to, documents, blobs, image=image, platform=platform, name=name)
            say(f"wrote {recipe.to}")
            stack.enter_context(closing(archive := Archive(recipe.to)))
            readers = {blob: lambda blob=blob: archive.blob(blob) for blob in readers}  # type: ignore[misc]
        if target is not None and push is not None:
            _push(target, push, composed, readers, say)
    origins = ["base"] * len(manifest.layers) + [each.origin for each in made]
    return Built(
        image=str(replace(push, digest=image.digest)) if push else "",
        digest=image.digest,
        platform=str(platform),
        base=f"{recipe.base.partition('@')[0]}@{manifest.digest}",
        layers=tuple(
            BuiltLayer(origin=origin, digest=blob.digest, size=blob.size)
            for origin, blob in zip(origins, composed.layers, strict=True)
        ),
        archive=str(recipe.to) if recipe.to is not None else "",
        notes=tuple(dict.fromkeys(notes)),
    )


def _check(recipe: Recipe) -> tuple[Reference | None, Reference | None]:
    """Refuse an invalid recipe before anything is read or sent."""
    if not recipe.push and recipe.to is None:
        raise InvalidJob("push", recipe.push, "is missing", hint="say --push REF, --to FILE, or both")
    push = parse_reference("push", recipe.push) if recipe.push else None
    if push is not None and push.digest:
        raise InvalidJob("push", recipe.push, "has a digest, which only the result has", hint="name a tag")
    if recipe.name:
        parse_reference("name", recipe.name)
    check_packages(recipe.packages)
    for file in recipe.requirements:
        if not file.is_file():
            raise InvalidJob("requirements", str(file), "is not a file", hint="check the path")
    if recipe.python:
        check_python(recipe.python)
    if recipe.to is not None and not recipe.to.absolute().parent.is_dir():
        raise InvalidJob("to", str(recipe.to), "lies in a folder that does not exist", hint="create it first")
    base = None if recipe.base.startswith(PREFIX) else parse_reference("base", recipe.base)
    used = [each.registry for each in (base, push) if each is not None]
    for registry in recipe.plain_http:
        if registry not in used:
            hint = f"the registries are: {', '.join(used) or 'none'}"
            raise InvalidJob("plain-http", registry, "is the registry of neither image", hint=hint)
    return push, base


def _open(recipe: Recipe, base: Reference | None) -> Source:
    if base is None:
        return Archive(Path(recipe.base.removeprefix(PREFIX)))
    return Repository(base, "pull", plain_http=base.registry in recipe.plain_http)


def read_base(
    recipe: Recipe, source: Source, base: Reference | None
) -> tuple[ImageManifest, dict[str, Any], Platform]:
    """Follow the base's name to the one image for the platform: its manifest and its configuration."""
    which = (base.digest or base.tag) if base else ""
    expected, wanted = base.digest if base else "", recipe.platform
    for _ in range(_DEEPEST):
        data, content_type = source.document(which)
        if expected:
            oci.check_digest(data, expected, f"the manifest of {recipe.base}")
        document = oci.read_document(data, f"the manifest of {recipe.base}")
        if oci.kind_of(document, content_type, recipe.base) == oci.MANIFEST:
            break
        choice = oci.choose(oci.read_index(document, recipe.base), recipe.platform, recipe.base)
        which = expected = choice.image.digest
        wanted = recipe.platform or choice.platform
    else:
        raise Unavailable(f"{recipe.base} leads from index to index", hint="name one of its images by digest")
    manifest = oci.read_manifest(document, oci.describe("", data).digest, recipe.base)
    if manifest.config.size > oci.LARGEST_DOCUMENT:
        raise Unavailable(f"{recipe.base} has a configuration that is too large", hint="use another base")
    config = oci.read_document(b"".join(source.blob(manifest.config)), f"the configuration of {recipe.base}")
    platform = oci.platform_of(config, recipe.base)
    if wanted is not None and not oci.matches(wanted, platform):
        raise Unavailable(
            f"{recipe.base} is an image for {platform}, and {wanted} is wanted",
            hint="choose another base, or --platform",
        )
    return manifest, config, platform


@contextmanager
def _packages(
    recipe: Recipe, config: dict[str, Any], platform: Platform, notes: list[str]
) -> Iterator[dict[Layer, Reader]]:
    python = recipe.python or environment_of(config).get("PYTHON_VERSION", "")
    if not python:
        raise Unavailable(
            f"{recipe.base} does not say which Python it has",
            hint="packages are installed for one version: say --python 3.12, or whichever it is",
        )
    wanted = PackageSet(
        packages=recipe.packages,
        requirements=recipe.requirements,
        platform=platform,
        python=check_python(python),
        libc=recipe.libc,
        dependencies=recipe.dependencies,
    )
    with ExitStack() as stack:
        with tempfile.TemporaryDirectory(prefix="echelon-packages-") as folder:
            site = Path(folder)
            notes += install(wanted, site)
            tidy(site)
            found = layer.list_tree(site)
            made, file = stack.enter_context(layer.packed("packages", site, found, SITE))
            made = replace(made, has_programs=(site / "bin").is_dir())
        yield {made: lambda: layer.read(file)}


@contextmanager
def _project(folder: Path, include: tuple[str, ...], notes: list[str]) -> Iterator[dict[Layer, Reader]]:
    surveyed = survey(folder, include=include)
    notes += surveyed.notes
    found = [each for each in surveyed.found if not is_secret(surveyed.root, each)]
    secrets = [each.path for each in surveyed.withheld if each.why == "secret"]
    secrets += [each.path for each in surveyed.found if each not in found]
    notes += [f"{path} looks like a secret: it is not in the image" for path in sorted(secrets)]
    with layer.packed("project", surveyed.root, found, WORKSPACE) as (made, file):
        yield {made: lambda: layer.read(file)}


def _readers(composed: Composed, source: Source, made: Mapping[Layer, Reader]) -> dict[Descriptor, Reader]:
    """A reader for each layer, each once, though an image may list one twice."""
    own = {each.blob: read for each, read in made.items()}
    readers: dict[Descriptor, Reader] = {}
    for blob in composed.layers:
        readers[blob] = own.get(blob) or (lambda blob=blob: source.blob(blob))  # type: ignore[misc]
    return readers


def _push(
    target: Repository,
    push: Reference,
    composed: Composed,
    readers: Mapping[Descriptor, Reader],
    say: Callable[[str], None],
) -> None:
    for number, (blob, read) in enumerate(readers.items(), start=1):
        which = f"layer {number} of {len(readers)}, {human(blob.size)}"
        if target.has(blob):
            say(f"{which}: there already")
            continue
        if blob.size > _WORTH_SAYING:
            say(f"{which}: on its way")
        say(f"{which}: {target.send(blob, read)}")
    config = composed.config
    target.send(oci.describe(oci.CONFIG, config), lambda: iter((config,)))
    target.put_manifest(push.tag, composed.manifest)
    say(f"pushed {push}")
