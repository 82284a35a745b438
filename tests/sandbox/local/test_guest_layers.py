"""Stacking layers in both ways that kernels offer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchflow.sandbox.local import guest

pytestmark = [
    pytest.mark.needs("local"),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which only root may do without more ado"),
]

PROGRAM = """
import os, sys
sys.path.append(sys.argv[1])
from guest import kernel, layers
os.unshare(kernel.CLONE_NEWNS)
kernel.set_propagation(kernel.MS_PRIVATE)
top, way, count = sys.argv[2], getattr(layers, sys.argv[3]), int(sys.argv[4])
handles = [os.open(f"{top}/{name}", os.O_PATH) for name in ("upper", "work", *map(str, range(count)))]
names = [f"/proc/self/fd/{handle}" for handle in handles]
mount = way(names[2:], {"upperdir": names[0], "workdir": names[1], "volatile": None}, f"{top}/work")
mount = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=mount)
for name in sorted(os.listdir(mount)):
    with open(os.open(name, os.O_RDONLY, dir_fd=mount)) as file:
        print(name, file.read())
os.mkdir("made", dir_fd=mount)
"""


@pytest.mark.parametrize("way", ["by_descriptor", "by_text"])
def test_layers_are_stacked_top_first(tmp_path: Path, way: str) -> None:
    count = 60
    for name in ("upper", "work", *map(str, range(count))):
        (tmp_path / name).mkdir()
    for number in range(count):
        (tmp_path / str(number) / "shared").write_text(str(number), encoding="ascii")
        (tmp_path / str(number) / f"own{number:02}").write_text(str(number), encoding="ascii")
    here = Path(guest.__file__).parents[1]
    words = [sys.executable, "-I", "-S", "-c", PROGRAM, str(here), str(tmp_path), way, str(count)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"own{n:02} {n}" for n in range(count)] + ["shared 0"]
    assert (tmp_path / "upper" / "made").is_dir()
