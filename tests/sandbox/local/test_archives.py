from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchflow.errors import SandboxBuildError
from benchflow.sandbox.local.archives import flatten
from benchflow.sandbox.local.instructions import ARCHITECTURE

if TYPE_CHECKING:
    from pathlib import Path

Members = list[tuple[str, str | None]]
"""Names with contents; None is a folder, a text that begins with `->` a link, with `=` a hard link."""


def layer(members: Members) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            elif content.startswith("->"):
                entry.type, entry.linkname = tarfile.SYMTYPE, content[2:]
                tar.addfile(entry)
            elif content.startswith("="):
                entry.type, entry.linkname = tarfile.LNKTYPE, content[1:]
                tar.addfile(entry)
            else:
                entry.size, entry.mode, entry.uid = len(content), 0o640, 7
                tar.addfile(entry, io.BytesIO(content.encode()))
    return data.getvalue()


def write(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


CONFIG = {
    "config": {"Env": ["A=b=c", "PATH=/x"], "WorkingDir": "/w", "User": "me", "Shell": ["s"], "OnBuild": ["RUN x"]}
}


def docker_archive(path: Path, *layers: bytes) -> Path:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": names}]
    files = {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(CONFIG).encode()}
    return write(path, files | dict(zip(names, layers, strict=True)))


def contents(path: Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isdir():
                found[member.name] = None
            elif member.issym():
                found[member.name] = f"->{member.linkname}"
            else:
                content = tar.extractfile(member)
                assert content is not None
                found[member.name] = content.read().decode()
    return found


def flat(tmp_path: Path, *layers: Members) -> dict[str, str | None]:
    archive = docker_archive(tmp_path / "image.tar", *(layer(members) for members in layers))
    assert flatten(archive, tmp_path / "flat.tar") is not None
    return contents(tmp_path / "flat.tar")


def test_later_layers_win(tmp_path: Path) -> None:
    assert flat(tmp_path, [("d", None), ("d/a", "1"), ("d/b", "1")], [("d", None), ("d/a", "2"), ("c", "2")]) == {
        "d": None,
        "d/a": "2",
        "d/b": "1",
        "c": "2",
    }


def test_whiteouts_remove_what_is_below(tmp_path: Path) -> None:
    lower: Members = [("a", "1"), ("d", None), ("d/x", "1"), ("e", None), ("e/x", "1"), ("e/s", None), ("e/s/y", "1")]
    upper: Members = [(".wh.a", ""), (".wh.d", ""), ("e", None), ("e/.wh..wh..opq", ""), ("e/z", "2")]
    assert flat(tmp_path, lower, upper) == {"e": None, "e/z": "2"}


def test_a_whiteout_spares_what_its_own_and_later_layers_have(tmp_path: Path) -> None:
    layers: list[Members] = [
        [("d", None), ("d/old", "1")],
        [("d", None), ("d/.wh..wh..opq", ""), ("d/new", "2")],
        [("d/old", "3")],
    ]
    assert flat(tmp_path, *layers) == {"d": None, "d/new": "2", "d/old": "3"}


def test_a_file_in_place_of_a_folder_and_the_reverse(tmp_path: Path) -> None:
    lower: Members = [("a", None), ("a/x", "1"), ("b", "1")]
    upper: Members = [("a", "2"), ("b", None), ("b/y", "2")]
    assert flat(tmp_path, lower, upper) == {"a": "2", "b": None, "b/y": "2"}


def test_links_and_hard_links(tmp_path: Path) -> None:
    lower: Members = [("a", "one"), ("hard", "=a"), ("soft", "->a")]
    assert flat(tmp_path, lower) == {"a": "one", "hard": "one", "soft": "->a"}
    assert flat(tmp_path, lower, [("a", "two")]) == {"a": "two", "hard": "one", "soft": "->a"}
    with tarfile.open(tmp_path / "flat.tar") as tar:
        assert tar.getmember("a").mode == 0o640
        assert tar.getmember("a").uid == 7


def test_the_configuration(tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "image.tar", gzip.compress(layer([("a", "1")])))
    config = flatten(archive, tmp_path / "flat.tar")
    assert config is not None
    assert config.env == {"A": "b=c", "PATH": "/x"}
    assert (config.workdir, config.user, config.shell, config.triggers) == ("/w", "me", ("s",), ("RUN x",))


def test_an_oci_archive_with_several_platforms(tmp_path: Path) -> None:
    def blob(name: str) -> dict[str, str]:
        return {"digest": f"sha256:{name}"}

    foreign = blob("none") | {"platform": {"architecture": "other"}}
    own = blob("manifest") | {"platform": {"architecture": ARCHITECTURE}}
    documents: dict[str, object] = {
        "index.json": {"manifests": [blob("index")]},
        "blobs/sha256/index": {"manifests": [foreign, own]},
        "blobs/sha256/manifest": {"config": blob("config"), "layers": [blob("layer")]},
        "blobs/sha256/config": {"config": {}},
    }
    files = {name: json.dumps(value).encode() for name, value in documents.items()}
    write(tmp_path / "image.tar", files | {"blobs/sha256/layer": gzip.compress(layer([("a", "1")]))})
    assert flatten(tmp_path / "image.tar", tmp_path / "flat.tar") is not None
    assert contents(tmp_path / "flat.tar") == {"a": "1"}


def test_a_root_file_system_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "root.tar").write_bytes(layer([("bin", None), ("bin/sh", "x")]))
    assert flatten(tmp_path / "root.tar", tmp_path / "flat.tar") is None
    assert not (tmp_path / "flat.tar").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": b"[]"},
        {"manifest.json": b"no json"},
        {"manifest.json": b'[{"Config": "c", "Layers": ["l"]}]'},
        {"manifest.json": b'[{"Config": "c", "Layers": ["l"]}]', "l": b"no tar", "c": b"{}"},
        {"index.json": b'{"manifests": []}'},
        {"index.json": b"3"},
    ],
)
def test_a_broken_archive_is_refused(tmp_path: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(SandboxBuildError, match="is no image archive"):
        flatten(write(tmp_path / "image.tar", files), tmp_path / "flat.tar")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    with pytest.raises(SandboxBuildError, match="is no image archive"):
        flatten(tmp_path / "x", tmp_path / "flat.tar")


class Model:
    """A tree as it is after some layers, and those layers: each is the difference that operations made."""

    def __init__(self) -> None:
        self.tree: dict[str, str | None] = {}
        self.layers: list[Members] = []

    def change(self, operations: list[tuple[str, str]]) -> None:
        self.layers.append([])
        touched: set[str] = set()
        for kind, name in operations:
            # Within one layer, what was touched once is left alone: a difference says each thing once.
            if not any(f"{name}/".startswith(f"{t}/") or f"{t}/".startswith(f"{name}/") for t in touched):
                touched.add(name)
                self._one(kind, name)

    def _one(self, kind: str, name: str) -> None:
        folder, _, last = name.rpartition("/")
        above = [name[:n] for n, char in enumerate(name) if char == "/"]
        if any(self.tree.get(parent) is not None for parent in above):
            return
        if kind == "file":
            self._forget_below(name)
            self._add([*((parent, None) for parent in above), (name, str(len(self.layers)))])
        elif kind == "folder":
            self._add([(path, None) for path in [*above, name]])
        elif name in self.tree and kind == "clear" and self.tree[name] is None:
            self._forget_below(name)
            self.layers[-1] += [(name, None), (f"{name}/.wh..wh..opq", "")]
        elif name in self.tree:
            self._forget_below(name)
            del self.tree[name]
            self.layers[-1].append((f"{folder}/.wh.{last}", ""))

    def _add(self, members: Members) -> None:
        self.tree |= dict(members)
        self.layers[-1] += members

    def _forget_below(self, name: str) -> None:
        self.tree = {path: value for path, value in self.tree.items() if not path.startswith(f"{name}/")}


NAMES = st.sampled_from(["a", "b", "a/x", "a/y", "b/x", "a/x/z"])
OPERATIONS = st.lists(st.tuples(st.sampled_from(["file", "folder", "remove", "clear"]), NAMES), max_size=6)


@settings(deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=4))
def test_flattening_equals_applying_layer_after_layer(
    tmp_path_factory: pytest.TempPathFactory, layers: list[list[tuple[str, str]]]
) -> None:
    model = Model()
    for operations in layers:
        model.change(operations)
    assert flat(tmp_path_factory.mktemp("flat"), *model.layers) == model.tree
