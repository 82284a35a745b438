"""changes and restore: what differs from the image, told and undone from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchflow.errors import SandboxUnsupported
from benchflow.testing.contract.world import bounded, shell

if TYPE_CHECKING:
    from benchflow.sandbox.base import Capabilities, Sandbox
    from benchflow.testing.contract.world import World

CHANGE = """
echo longer than it was > /etc/issue
rm /etc/issue.net
rm -rf /etc/skel; mkdir /etc/skel; echo mine > /etc/skel/.bashrc
before=$(stat -c %Y /etc/debian_version); tr 0-9 1-90 < /etc/debian_version > /tmp/other
cat /tmp/other > /etc/debian_version; touch -d @$before /etc/debian_version
touch /etc/shells
chmod 4755 /etc/profile
mkdir -p /contract/folder; ln -s /etc/shells /contract/link; cp /etc/shells /contract/folder/new
mv /etc/security /contract/moved; ln -s /contract/moved /etc/security
"""
EXPECTED = {
    ("/contract", "added", "folder"),
    ("/contract/link", "added", "link"),
    ("/contract/moved", "added", "folder"),
    ("/contract/folder", "added", "folder"),
    ("/contract/folder/new", "added", "file"),
    ("/etc/debian_version", "modified", "file"),
    ("/etc/issue", "modified", "file"),
    ("/etc/issue.net", "deleted", "file"),
    ("/etc/profile", "touched", "file"),
    ("/etc/security", "modified", "link"),
    ("/etc/skel/.bash_logout", "deleted", "file"),
    ("/etc/skel/.bashrc", "modified", "file"),
    ("/etc/skel/.profile", "deleted", "file"),
}
LOOK = """
cd /; cksum etc/issue etc/issue.net etc/debian_version etc/skel/.bashrc etc/skel/.profile
find etc/security etc/skel etc/profile -printf '%p %y %m %U %G %l\\n' | sort
"""


@bounded
class ChangeContract:
    @pytest.fixture(autouse=True)
    def _only_with_changes(self, request: pytest.FixtureRequest, capabilities: Capabilities) -> None:
        if request.node.name.startswith("test_changes") and not capabilities.changes:
            pytest.skip("this backend cannot tell what differs from the image")

    async def test_changes_are_those_that_were_made_and_can_be_undone(self, world: World) -> None:
        async with world.create() as original:
            before = await shell(original, LOOK)
            assert not [change for change in await original.changes() if change.path.startswith("/etc/s")]
            await shell(original, CHANGE)
            await _expect(original)
            if not original.capabilities.fork:
                return
            async with world.adopt(await original.fork()) as fork:
                await _expect(fork)
                found = await fork.changes()
                await fork.restore([change.path for change in found])
                assert await shell(fork, LOOK) == before
                assert not (await fork.exec(["test", "-e", "/contract"])).ok
                left = {change.path for change in await fork.changes()} & {path for path, _, _ in EXPECTED}
                assert not left
            await _expect(original)

    async def test_changes_below_a_folder_that_is_not_read(self, world: World) -> None:
        async with world.create() as sandbox:
            await shell(sandbox, "chown 7 /etc/skel/.profile; echo same > /tmp/x; echo more >> /etc/skel/.bashrc")
            await shell(
                sandbox, "tr a-z b-za < /etc/issue > /tmp/y; cat /tmp/y > /etc/issue; touch /etc/debian_version"
            )
            kinds = {change.path: (change.kind, change.uid) for change in await sandbox.changes(unread="/etc")}
            assert kinds["/etc/skel/.profile"] == ("touched", 7)
            assert kinds["/etc/skel/.bashrc"] == ("modified", 0)
            assert kinds["/etc/issue"] == ("touched", 0)
            assert "/etc/debian_version" in kinds
            named = ("issue", "debian_version", "skel")
            kinds = {c.path: (c.kind, c.uid) for c in await sandbox.changes(unread="/etc", read=named)}
            assert kinds["/etc/issue"] == ("modified", 0)
            assert "/etc/debian_version" not in kinds

    async def test_changes_are_not_hidden_by_marks_of_the_kernel(self, world: World) -> None:
        async with world.create() as sandbox:
            await shell(sandbox, "tr a-z b-za < /etc/issue > /tmp/y; cat /tmp/y > /etc/issue; echo x > /etc/skel/new")
            for path in ("/etc/issue", "/etc/skel"):
                for name in ("metacopy", "opaque", "redirect"):
                    # SYS_setxattr; refused, it hides nothing either.
                    script = "syscall(188, $ARGV[0], $ARGV[1], my $y = 'y', 1, 0)"
                    await sandbox.exec(["perl", "-e", script, path, f"user.overlay.{name}"], user=0)
            kinds = {change.path: change.kind for change in await sandbox.changes()}
            assert (kinds["/etc/issue"], kinds["/etc/skel/new"]) == ("modified", "added")
            assert not [path for path, kind in kinds.items() if path.startswith("/etc/") and kind == "deleted"]

    async def test_changes_do_not_alter_what_was_shipped(self, world: World) -> None:
        async with world.create() as sandbox:
            await shell(sandbox, "rm /etc/issue; echo x > /etc/new; mv /etc/skel /etc/other")
            asked = ["/etc/issue", "/etc/new", "/etc/skel/.profile", "/etc/other/.profile", "/etc/issue/x", "/nowhere"]
            assert await sandbox.shipped(asked) == {"/etc/issue", "/etc/skel/.profile"}

    async def test_restoring_follows_no_link_and_needs_no_program(self, world: World) -> None:
        async with world.create() as sandbox:
            if not sandbox.capabilities.changes:
                with pytest.raises(SandboxUnsupported):
                    await sandbox.changes()
                return
            await shell(sandbox, "mkdir /safe; echo kept > /safe/issue; rm /etc/issue; ln -s /safe/issue /etc/issue")
            await shell(sandbox, "mkdir -p /deep/a/b/c; ln -s /safe /deep/a/b/c/out; mkfifo /deep/fifo")
            programs = await shell(sandbox, "readlink -f /bin/sh; readlink -f /bin/rm")
            for program in programs.split():
                await sandbox.put({program.rpartition("/")[2]: b"#!/nonsense"}, program.rpartition("/")[0])
            await sandbox.restore(["/etc/issue", "/deep", "/absent/path", *programs.split()])
            assert await shell(sandbox, "cat /safe/issue; test ! -L /etc/issue; test ! -e /deep; ls /safe") == (
                "kept\nissue\n"
            )


async def _expect(sandbox: Sandbox) -> None:
    found = {
        (change.path, change.kind, change.type)
        for change in await sandbox.changes()
        if change.path.startswith(("/etc/", "/contract")) and not change.path.startswith("/contract/moved/")
    }
    engines_own = {entry for entry in found if entry[0] in {"/etc/mtab", "/etc/hosts"}}
    # All that was in a folder which a link has taken the place of.
    replaced = {entry for entry in found if entry[0].startswith("/etc/security/")}
    assert found - engines_own - replaced == EXPECTED
    assert ("/etc/security/limits.conf", "deleted", "file") in replaced
    assert {kind for _, kind, _ in replaced} == {"deleted"}
