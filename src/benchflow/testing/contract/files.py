"""put, get and read: what goes in comes out the same, whatever it is called."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchflow.errors import SandboxError
from benchflow.sandbox.base import FileData
from benchflow.testing.contract.execs import MEMORY_SLACK, PeakMemory
from benchflow.testing.contract.trees import make_many, make_odd_tree, tree
from benchflow.testing.contract.world import bounded, fresh_folder, shell

if TYPE_CHECKING:
    from benchflow.sandbox.base import Capabilities, Sandbox

MANY_FILES = 10_000
SPARSE_SIZE = 1024**3

NAMES = st.binary(min_size=1, max_size=20).filter(
    lambda name: not set(name) & {0, ord("/")} and name not in {b".", b".."}
)


@bounded
class FileContract:
    async def test_put_and_get_one_file(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.write_bytes(b"\0\xffsome bytes")
        source.chmod(0o751)
        folder = await fresh_folder(box)
        await box.put(source, f"{folder}/new/parents/file")
        assert await shell(box, f"stat -c '%a %u %g %s' {folder}/new/parents/file") == "751 0 0 12\n"
        await box.get(f"{folder}/new/parents/file", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"\0\xffsome bytes"
        assert (tmp_path / "back").stat().st_mode & 0o7777 == 0o751

    async def test_put_contents(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        await box.put(
            {"plain": b"1", "sub/dir/tool": FileData(b"#!/bin/sh\necho ran\n", mode=0o755), "empty": b""}, folder
        )
        listing = f"cd {folder} && cat plain && sub/dir/tool && stat -c '%a %s' plain sub/dir/tool empty"
        assert await shell(box, listing) == "1ran\n644 1\n755 19\n644 0\n"

    async def test_put_replaces(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        await box.put({"file": FileData(b"a longer first content", mode=0o755)}, folder)
        await box.put({"file": b"second"}, folder)
        assert await box.read(f"{folder}/file") == b"second"
        assert await shell(box, f"stat -c %a {folder}/file") == "644\n"

    async def test_put_adds_to_a_folder(self, box: Sandbox, tmp_path: Path) -> None:
        folder = await fresh_folder(box)
        await box.put({"old": b"1", "sub/old": b"2"}, folder)
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "new").write_bytes(b"3")
        await box.put(tmp_path, folder)
        assert await shell(box, f"cd {folder} && cat old sub/old sub/new") == "123"

    async def test_put_an_empty_folder(self, box: Sandbox, tmp_path: Path) -> None:
        folder = await fresh_folder(box)
        await box.put(tmp_path, f"{folder}/made")
        assert (await box.exec(["test", "-d", f"{folder}/made"])).ok

    async def test_put_what_is_not_there(self, box: Sandbox, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            await box.put(tmp_path / "missing", "/contract/missing")

    async def test_names_modes_and_links_survive_both_ways(self, box: Sandbox, tmp_path: Path) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        source.mkdir()
        make_odd_tree(source)
        folder = await fresh_folder(box)
        await box.put(source, folder)
        back.mkdir()
        await box.get(folder, back)
        assert tree(back) == tree(source)

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(files=st.dictionaries(NAMES, st.binary(max_size=200), max_size=8))
    async def test_any_names_survive_both_ways(self, box: Sandbox, files: dict[bytes, bytes]) -> None:
        folder = await fresh_folder(box)
        contents: dict[str, FileData | bytes] = {os.fsdecode(name): data for name, data in files.items()}
        await box.put(contents, folder)
        with tempfile.TemporaryDirectory() as back:
            await box.get(folder, Path(back))
            assert {name: entry.content for name, entry in tree(Path(back)).items()} == files

    async def test_absolute_links_are_put_as_they_are(self, box: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("/etc/passwd")
        folder = await fresh_folder(box)
        await box.put(tmp_path, folder)
        assert await shell(box, f"readlink {folder}/link") == "/etc/passwd\n"

    async def test_owners(self, box: Sandbox, capabilities: Capabilities, tmp_path: Path) -> None:
        if not capabilities.users:
            pytest.skip("one uid only")
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "file").write_bytes(b"")
        (tmp_path / "link").symlink_to("sub")
        if os.getuid() == 0:
            os.chown(tmp_path / "sub" / "file", 12345, 12345)
        folder = await fresh_folder(box)
        for owner, uid in ((None, "0"), ("nobody", "65534"), (4321, "4321")):
            target = f"{folder}/{owner}"
            await box.put(tmp_path, target, owner=owner)
            owners = await shell(box, f"cd {target} && stat -c %u sub sub/file link")
            assert owners.split() == [uid] * 3

    async def test_an_unknown_owner_is_an_error(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        with pytest.raises(SandboxError):
            await box.put({"x": b""}, folder, owner="nobody-by-that-name")

    async def test_ten_thousand_files(self, box: Sandbox, tmp_path: Path) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        source.mkdir()
        back.mkdir()
        make_many(source, MANY_FILES)
        folder = await fresh_folder(box)
        await box.put(source, folder)
        assert await shell(box, f"find {folder} -type f | wc -l") == f"{MANY_FILES}\n"
        await box.get(folder, back)
        assert tree(back) == tree(source)
        await shell(box, f"rm -rf {folder}")

    async def test_a_sparse_gigabyte(self, box: Sandbox, tmp_path: Path) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        _make_sparse(source)
        folder = await fresh_folder(box)
        with PeakMemory() as memory:
            await box.put(source, f"{folder}/big")
            size = await shell(box, f"stat -c %s {folder}/big; head -c 5 {folder}/big; tail -c 3 {folder}/big")
            await box.get(f"{folder}/big", back)
        assert size == f"{SPARSE_SIZE}\nstartend"
        assert back.stat().st_size == SPARSE_SIZE
        with back.open("rb") as file:
            assert file.read(6) == b"start\0"
            file.seek(-4, os.SEEK_END)
            assert file.read() == b"\0end"
        back.unlink()
        assert memory.growth < MEMORY_SLACK
        await shell(box, f"rm -rf {folder}")

    async def test_get_what_is_not_there(self, box: Sandbox, tmp_path: Path) -> None:
        for path in ("/no/such/thing", "/contract/missing"):
            with pytest.raises(FileNotFoundError):
                await box.get(path, tmp_path / "back")
        assert not (tmp_path / "back").exists()

    async def test_get_adds_to_a_folder_and_replaces_files(self, box: Sandbox, tmp_path: Path) -> None:
        folder = await fresh_folder(box)
        await box.put({"sub/file": b"new", "other": b"new"}, folder)
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "file").write_bytes(b"an older and longer one")
        (tmp_path / "kept").write_bytes(b"kept")
        await box.get(folder, tmp_path)
        assert {name: entry.content for name, entry in tree(tmp_path).items() if entry.kind == "file"} == {
            b"sub/file": b"new",
            b"other": b"new",
            b"kept": b"kept",
        }
        await box.get(f"{folder}/other", tmp_path / "kept")
        assert (tmp_path / "kept").read_bytes() == b"new"

    async def test_put_where_a_file_is_in_the_way(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        await box.put({"file": b"1"}, folder)
        with pytest.raises(SandboxError):
            await box.put({"below": b"2"}, f"{folder}/file")
        assert await box.read(f"{folder}/file") == b"1"

    async def test_get_what_only_root_may_read(self, box: Sandbox, tmp_path: Path) -> None:
        folder = await fresh_folder(box)
        await shell(
            box, f"cd {folder} && mkdir -p locked/in && echo 1 > locked/in/file && chmod 0 locked locked/in/file"
        )
        await box.get(folder, tmp_path)
        for path in (tmp_path / "locked", tmp_path / "locked" / "in" / "file"):
            path.chmod(0o700)
        assert (tmp_path / "locked" / "in" / "file").read_bytes() == b"1\n"

    async def test_read(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        await box.put({"file": b"12345", "empty": b""}, folder)
        assert await box.read(f"{folder}/file") == b"12345"
        assert await box.read(f"{folder}/file", limit=5) == b"12345"
        assert await box.read(f"{folder}/empty", limit=0) == b""

    async def test_read_what_is_not_there(self, box: Sandbox) -> None:
        for path in ("/no/such/thing", "/contract/missing"):
            with pytest.raises(FileNotFoundError):
                await box.read(path)

    async def test_read_refuses_what_is_longer(self, box: Sandbox) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"printf 123456 > {folder}/six; truncate -s 8G {folder}/vast")
        with pytest.raises(SandboxError):
            await box.read(f"{folder}/six", limit=5)
        with PeakMemory() as memory, pytest.raises(SandboxError):
            await box.read(f"{folder}/vast")
        assert memory.growth < MEMORY_SLACK
        await shell(box, f"rm {folder}/vast")

    @pytest.mark.parametrize("what", ["fifo", "link", "dangling", "folder", "device", "socket"])
    async def test_read_refuses_what_is_not_a_file(self, box: Sandbox, what: str) -> None:
        folder = await fresh_folder(box)
        make = {
            "fifo": "mkfifo fifo",
            "link": "echo 1 > file; ln -s file link",
            "dangling": "ln -s nothing dangling",
            "folder": "mkdir folder",
            "device": "ln -s /dev device-folder",
            "socket": "perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"socket\")) or die'",
        }[what]
        await shell(box, f"cd {folder} && {make}")
        with pytest.raises(SandboxError):
            await box.read("/dev/zero" if what == "device" else f"{folder}/{what}")

    async def test_the_sandbox_may_be_busy(self, box: Sandbox, tmp_path: Path) -> None:
        folder = await fresh_folder(box)
        churn = f"cd {folder} && while :; do mkdir -p a/b; echo x > a/b/c; rm -rf a; done"
        async with await box.open(churn):
            for number in range(5):
                await box.put({f"n{number}": b"kept"}, folder)
                try:
                    await box.get(folder, tmp_path / str(number))
                except SandboxError:
                    continue
                assert (tmp_path / str(number) / f"n{number}").read_bytes() == b"kept"


def _make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"start")
        file.truncate(SPARSE_SIZE)
        file.seek(-3, os.SEEK_END)
        file.write(b"end")
