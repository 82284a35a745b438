"""Image archives as one plain tar: what `docker save`, `skopeo` and `buildah` write, turned into a root file system.

An image is a stack of tars in which `.wh.name` removes what a lower tar has, and `.wh..wh..opq` removes all that lower
tars have in its folder. `flatten` writes the members that survive, lowest first, to one tar. An archive without a
manifest is taken for a root file system as it is.
"""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, cast

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.local.instructions import ARCHITECTURE
from benchflow.sandbox.local.plan import ImageConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"

type _Json = Mapping[str, object]


def flatten(archive: Path, target: Path) -> ImageConfig | None:
    """Write the root file system of an image archive to the tar `target` and return the image's configuration.

    Returns None, and writes nothing, for a tar that is a root file system itself. Blocking: call it from a thread.
    Raises SandboxBuildError for what is neither.
    """
    try:
        with tarfile.open(archive) as outer:
            names = set(outer.getnames())
            if "manifest.json" in names:
                manifest = cast("list[_Json]", _load(outer, "manifest.json"))[0]
                config, layers = (
                    str(manifest["Config"]),
                    [str(layer) for layer in cast("list[str]", manifest["Layers"])],
                )
            elif "index.json" in names:
                config, layers = _oci(outer, cast("_Json", _load(outer, "index.json")))
            else:
                return None
            _merge(outer, layers, target)
            return image_config(cast("_Json", cast("_Json", _load(outer, config)).get("config") or {}))
    except (tarfile.TarError, KeyError, IndexError, TypeError, ValueError, EOFError) as error:
        raise SandboxBuildError(
            f"{archive} is no image archive that can be read: {error}",
            backend="local",
            hint="write it with `docker save` or `skopeo copy`, or give a tar of a root file system",
        ) from None


def image_config(config: _Json) -> ImageConfig:
    """The part of an image's own configuration that matters to a sandbox; its keys are Docker's."""
    pairs = (str(item).partition("=") for item in cast("list[str]", config.get("Env") or []))
    shell = cast("list[str] | None", config.get("Shell"))
    return ImageConfig(
        env={name: value for name, _, value in pairs if name},
        workdir=str(config.get("WorkingDir") or "/"),
        user=str(config.get("User") or ""),
        shell=tuple(shell) if shell else ImageConfig().shell,
        triggers=tuple(str(item) for item in cast("list[str]", config.get("OnBuild") or [])),
    )


def _load(outer: tarfile.TarFile, name: str) -> object:
    member = outer.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is not a file")
    with member:
        return cast("object", json.load(member))


def _oci(outer: tarfile.TarFile, index: _Json) -> tuple[str, list[str]]:
    """The configuration and the layers that an OCI index leads to, as names in the archive."""
    manifests = cast("list[_Json]", index["manifests"])
    fitting = [m for m in manifests if cast("_Json", m.get("platform") or {}).get("architecture") == ARCHITECTURE]
    manifest = cast("_Json", _load(outer, _blob((fitting or manifests)[0])))
    if "manifests" in manifest:
        return _oci(outer, manifest)
    layers = cast("list[_Json]", manifest["layers"])
    return _blob(cast("_Json", manifest["config"])), [_blob(layer) for layer in layers]


def _blob(descriptor: _Json) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


# -- merging -------------------------------------------------------------------------------------------------


def _merge(outer: tarfile.TarFile, layers: list[str], target: Path) -> None:
    """Write what survives, lowest layer first."""
    survivors = _survivors(outer, layers)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        for number, layer in enumerate(layers):
            with _open_layer(outer, layer) as tar:
                kept: set[str] = set()
                for member in tar:
                    name = _clean(member.name)
                    if member.isdev() or survivors.get(name) != number:
                        continue
                    _write(out, tar, member, name, link_kept=_clean(member.linkname) in kept)
                    kept.add(name)


def _survivors(outer: tarfile.TarFile, layers: list[str]) -> dict[str, int]:
    """Which layer each path comes from in the end, found from the top down."""
    winner: dict[str, int] = {}
    covered: set[str] = set()  # paths that hide whatever lower layers have at or below them
    emptied: set[str] = set()  # folders that hide what lower layers have below them
    for number in reversed(range(len(layers))):
        removed, cleared, files = set(), set(), set()
        with _open_layer(outer, layers[number]) as tar:
            for member in tar:
                name = _clean(member.name)
                folder, base = posixpath.split(name)
                if base == OPAQUE:
                    cleared.add(folder)
                elif base.startswith(WHITEOUT):
                    removed.add(posixpath.join(folder, base.removeprefix(WHITEOUT)))
                elif name:
                    if name not in winner and not _is_hidden(name, covered, emptied):
                        winner[name] = number
                    if not member.isdir():
                        files.add(name)
        covered |= removed | files
        emptied |= cleared
    return winner


def _is_hidden(name: str, covered: set[str], emptied: set[str]) -> bool:
    if name in covered:
        return True
    parent = posixpath.dirname(name)
    while parent:
        if parent in covered or parent in emptied:
            return True
        parent = posixpath.dirname(parent)
    return "" in emptied


def _write(out: tarfile.TarFile, tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, *, link_kept: bool) -> None:
    member.name = name
    if member.islnk() and link_kept:
        member.linkname = _clean(member.linkname)
        out.addfile(member)
    elif member.isreg() or member.islnk():
        # What a hard link leads to may have been replaced by a higher layer: the content is written in its place.
        content = tar.extractfile(member)
        assert content is not None, "regular files and hard links have a content"
        if member.islnk():
            member.type, member.linkname = tarfile.REGTYPE, ""
            member.size = content.seek(0, io.SEEK_END)
            content.seek(0)
        with content:
            out.addfile(member, content)
    else:
        out.addfile(member)


@contextmanager
def _open_layer(outer: tarfile.TarFile, name: str) -> Iterator[tarfile.TarFile]:
    with ExitStack() as stack:
        content = outer.extractfile(name)
        if content is None:
            raise ValueError(f"the layer {name} is not a file")
        yield stack.enter_context(tarfile.open(fileobj=stack.enter_context(content)))


def _clean(name: str) -> str:
    return posixpath.normpath(f"/{name}").strip("/")
