"""A sandbox that fights back: nothing it holds makes us write, or read, anywhere else on the host.

The victim is a folder of the host that the sandbox knows by name. Whatever links, special files and races are
prepared inside, the victim stays as it was and none of its content is ever seen.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxError
from benchflow.testing.contract.trees import escapes, tree
from benchflow.testing.contract.world import bounded, fresh_folder, shell

if TYPE_CHECKING:
    from pathlib import Path

    from benchflow.sandbox.base import Sandbox

SECRET = b"of the host"

RACE_ROUNDS = 10

DEPTH = 60
DIG = f"for (1..{DEPTH}) {{ $d = chr(97) x 200; mkdir $d or die $!; chdir $d or die $!; }} open F, chr(62), chr(120)"
"""Makes folders whose path is longer than the kernel takes at once."""


def assert_untouched(victim: Path, target: Path) -> None:
    """The host is as it was, and what came out stays where it was put."""
    assert {name: entry.content for name, entry in tree(victim).items()} == {b"secret": SECRET}
    assert sorted(path.name for path in victim.parent.iterdir()) == ["target", "victim"]
    assert escapes(target) == []
    assert all(SECRET not in entry.content for entry in tree(target).values())


def _pull_up(target: Path) -> bool:
    """Move the folders in the only long-named folder of `target` one level up, so that their paths can be used."""
    deep = target / ("a" * 200)
    if not (deep / deep.name).is_dir():
        return False
    (deep / deep.name).rename(target / "next")
    shutil.rmtree(deep)
    (target / "next").rename(deep)
    return True


@bounded
class HostileContract:
    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        """A folder of the host that must stay as it is."""
        folder = tmp_path / "victim"
        folder.mkdir()
        (folder / "secret").write_bytes(SECRET)
        return folder

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        """A folder of the host, beside the victim, that `get` may write."""
        folder = tmp_path / "target"
        folder.mkdir()
        return folder

    async def test_put_through_a_link_stays_inside(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        up = "../" * 40
        await shell(
            box,
            f"mkdir -p {victim} && cd {folder} && ln -s {victim} absolute && ln -s {up}{victim} relative"
            f" && mkdir sub && ln -s {victim} sub/under",
        )
        await box.put({"one": b"1"}, f"{folder}/absolute")
        await box.put({"two": b"2"}, f"{folder}/relative")
        await box.put({"sub/under/three": b"3"}, folder)
        assert await shell(box, f"cd {victim} && cat one two three") == "123"
        assert_untouched(victim, target)

    async def test_put_over_a_link_to_a_file_stays_inside(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"ln -s {victim}/secret {folder}/file; ln -s {victim}/new {folder}/new")
        for name in ("file", "new"):
            with suppress(SandboxError):
                await box.put({name: b"overwritten"}, folder)
        assert_untouched(victim, target)

    async def test_put_through_a_link_that_dangles_inside(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"rm -rf {victim}; ln -s {victim} {folder}/link")
        with suppress(SandboxError):
            await box.put({"x": b"1"}, f"{folder}/link")
        with suppress(SandboxError):
            await box.put({"y": b"1"}, f"{folder}/link/deeper")
        assert_untouched(victim, target)

    async def test_put_with_names_that_climb(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        for name in (f"../../../../../../../../../..{victim}/climbed", f"{victim}/absolute"):
            with suppress(SandboxError, ValueError):
                await box.put({name: b"1"}, folder)
        assert_untouched(victim, target)

    async def test_get_leaves_out_links_that_leave(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        up = "../" * 40
        await shell(
            box,
            f"""cd {folder} && mkdir -p d1/d2 kept
            echo good > kept/file; ln -s file kept/link; ln -s ../kept/file d1/link
            ln -s {victim} absolute; ln -s {victim}/secret absolute-file; ln -s / root; ln -s /etc/passwd passwd
            ln -s {up}{victim} relative; ln -s .. parent; ln -s ../target-sibling sibling; ln -s ../victim near
            ln -s ../.. d1/d2/top; ln -s d1/d2/top/../.. climb; ln -s climb/victim through; ln -s through/secret thrice
            ln -s loop-b loop-a; ln -s loop-a loop-b; ln -s self/../.. self
            ln -s {folder}/kept/file same-place""",
        )
        await box.get(folder, target)
        assert_untouched(victim, target)
        assert (target / "kept" / "file").read_bytes() == b"good\n"
        assert os.readlink(target / "kept" / "link") == "file"  # noqa: PTH115 - the text of the link is meant
        assert (target / "d1" / "link").read_bytes() == b"good\n"

    async def test_get_leaves_out_special_files(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(
            box,
            f"""cd {folder} && mkfifo fifo && mkdir sub && mkfifo sub/fifo && echo good > file
            mknod zero c 1 5; mknod disk b 8 0
            perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un("socket")) or die'
            echo x > set; chmod 6755 set; mkdir sgid; chmod 2777 sgid
            ln file hard; ln /etc/passwd hard-out || true""",
        )
        await box.get(folder, target)
        assert_untouched(victim, target)
        names = {path.name for path in target.iterdir()}
        assert names & {"fifo", "zero", "disk", "socket"} == set()
        assert {"file", "hard", "set", "sub", "sgid"} <= names
        assert (target / "hard").read_bytes() == b"good\n"
        assert all(path.stat().st_uid == os.getuid() for path in target.rglob("*") if not path.is_symlink())

    @pytest.mark.parametrize("name", ["fifo", "zero", "socket"])
    async def test_get_of_a_special_file_is_an_error(self, box: Sandbox, victim: Path, target: Path, name: str) -> None:
        folder = await fresh_folder(box)
        await shell(
            box,
            f"""cd {folder} && mkfifo fifo
            perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un("socket")) or die'""",
        )
        path = "/dev/zero" if name == "zero" else f"{folder}/{name}"
        with pytest.raises(SandboxError):
            await box.get(path, target / "out")
        assert not (target / "out").exists()
        assert_untouched(victim, target)

    async def test_get_takes_no_more_of_the_disk_than_there_is_inside(
        self, box: Sandbox, victim: Path, target: Path
    ) -> None:
        """A file with many names, and one that is longer than any disk."""
        folder = await fresh_folder(box)
        await shell(
            box,
            f"""cd {folder} && mkdir sub && head -c 4000000 /dev/urandom > file
            for name in $(seq 100); do ln file sub/$name; done
            truncate -s 4T endless; printf end >> endless""",
        )
        try:
            await box.get(folder, target)
        except SandboxError as error:
            # An engine's archive has zeros for a hole: so long a file is then refused, before it is begun.
            assert "longer than" in error.message  # noqa: PT017
            await shell(box, f"rm {folder}/endless")
            await box.get(folder, target)
        found = [path.stat() for path in target.rglob("*")]
        assert sum(size for _, size in {(info.st_ino, info.st_blocks * 512) for info in found}) < 40_000_000
        assert (target / "sub" / "100").read_bytes() == (target / "file").read_bytes()
        if (endless := target / "endless").exists():
            with endless.open("rb") as file:
                file.seek(-4, os.SEEK_END)
                assert file.read() == b"\0end"
            endless.unlink()
        assert_untouched(victim, target)

    async def test_get_over_what_an_earlier_get_left(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"cd {folder} && mkdir real && ln -s real name && echo 1 > real/file")
        await box.get(folder, target)
        await shell(box, f"cd {folder} && rm name && mkdir name && echo 2 > name/file && rm -r real && echo 3 > real")
        with suppress(SandboxError):
            await box.get(folder, target)
        assert_untouched(victim, target)

    async def test_get_does_not_write_through_a_link_of_the_target(
        self, box: Sandbox, victim: Path, target: Path
    ) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"cd {folder} && mkdir name && echo 1 > name/new && echo 2 > file")
        (target / "name").symlink_to(victim)
        (target / "file").symlink_to(victim / "secret")
        with suppress(SandboxError):
            await box.get(folder, target)
        for link in ("name", "file"):
            if (target / link).is_symlink():
                (target / link).unlink()
        assert_untouched(victim, target)

    async def test_get_while_folders_turn_into_links(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"mkdir -p {victim} && echo inside > {victim}/inside")
        swap = f"""cd {folder} && mkdir good && echo x > good/new && ln -s {victim} bad
            while :; do mv -T good name; mv -T name good; mv -T bad name; mv -T name bad; done"""
        async with await box.open(swap):
            for _ in range(RACE_ROUNDS):
                with suppress(SandboxError, FileNotFoundError):
                    await box.get(folder, target)
                with suppress(SandboxError, FileNotFoundError):
                    await box.get(f"{folder}/name", target)
                with suppress(SandboxError, FileNotFoundError):
                    await box.put({"name/planted": b"x"}, folder)
        assert_untouched(victim, target)

    async def test_read_sees_nothing_of_the_host(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        up = "../" * 40
        await shell(box, f"rm -rf {victim}; cd {folder} && ln -s {victim} absolute && ln -s {up}{victim} relative")
        for path in (f"{folder}/absolute/secret", f"{folder}/relative/secret", f"{folder}/{up}{victim}/secret"):
            with pytest.raises(FileNotFoundError):
                await box.read(path)
            with pytest.raises(FileNotFoundError):
                await box.get(path, target / "out")
        assert_untouched(victim, target)

    async def test_links_in_the_middle_of_a_path_are_followed_inside(self, box: Sandbox, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"cd {folder} && mkdir real && echo in > real/file && ln -s {folder}/real link")
        assert await box.read(f"{folder}/link/file") == b"in\n"
        await box.get(f"{folder}/link/file", target / "file")
        assert (target / "file").read_bytes() == b"in\n"

    async def test_folders_deeper_than_any_path(self, box: Sandbox, victim: Path, target: Path) -> None:
        folder = await fresh_folder(box)
        await shell(box, f"cd {folder} && echo good > file && perl -e '{DIG}'")
        with suppress(SandboxError):
            await box.get(folder, target)
        for _ in range(DEPTH):
            if not _pull_up(target):
                break
        assert_untouched(victim, target)
        await shell(box, f"rm -rf {folder}")
