"""The environment of a verifier's script: the image's, less what an agent could reach."""

from __future__ import annotations

import site
import subprocess
import sys
from typing import TYPE_CHECKING

from benchflow.task.verifier import Hardening
from benchflow.verify.environment import PYTHON_GUARD, guard_files, search_path, verifier_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRITABLE = ("/app", "/tmp", "/home")


def test_nothing_that_starts_by_itself_comes_from_where_the_agent_writes() -> None:
    image = {
        "PATH": "/app/.venv/bin:bin::/opt/tool:/usr/bin",
        "BASH_ENV": "/app/env.sh",
        "ENV": "/etc/shrc",
        "LD_PRELOAD": "/app/x.so:/usr/lib/y.so",
        "LD_LIBRARY_PATH": "/app/lib:/usr/lib/cuda",
        "NODE_OPTIONS": "--require=/tmp/x.js",
        "PYTEST_ADDOPTS": "-x",
        "PYTHONPATH": "/app/src:relative",
        "LANG": "C.UTF-8",
    }
    env = verifier_environment(image, writable=WRITABLE)
    assert env["PATH"].startswith("/app/.venv/bin:/opt/tool:/usr/bin:/usr/local/sbin")
    assert (env["BASH_ENV"], env["LD_PRELOAD"], env["NODE_OPTIONS"], env["PYTEST_ADDOPTS"]) == ("", "", "", "")
    assert env["LD_LIBRARY_PATH"] == "/usr/lib/cuda"
    assert env["PYTHONPATH"] == f"{PYTHON_GUARD}:/app/src"
    assert "ENV" not in env
    assert "LANG" not in env


def test_beside_living_processes_of_the_agent_its_programs_come_last() -> None:
    found = search_path("/app/bin:/usr/bin", WRITABLE, last=True)
    assert found[-1] == "/app/bin"
    assert found[0] == "/usr/bin"


def test_git_hooks_run_only_where_the_task_says_so() -> None:
    assert "core.hooksPath" in verifier_environment({}, writable=()).values()
    assert "core.hooksPath" not in verifier_environment({}, writable=(), git_hooks=True).values()


def test_opt_outs_are_named_as_the_task_file_has_them() -> None:
    assert Hardening().opt_outs == ()
    assert Hardening(cleanup_conftests=False, live=True).opt_outs == ("cleanup_conftests = false", "live = true")


def run(
    tmp_path: Path,
    *words: str,
    path: str = "",
    new: Sequence[str] = (),
    paths: Sequence[str] = (),
    beside_agent: bool = False,
) -> str:
    guard = tmp_path / "guard"
    guard.mkdir(exist_ok=True)
    for name, content in guard_files(new, paths, beside_agent=beside_agent).items():
        (guard / name).write_bytes(content)
    env = {"PYTHONPATH": f"{guard}:{path}" if path else str(guard)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=tmp_path / "app", env=env, capture_output=True, text=True, check=True).stdout


def test_modules_of_the_image_come_before_installed_ones_and_new_ones_after(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    for name in ("yaml", "aiohttp"):
        (app / f"{name}.py").write_text("HERE = True\n")
    script = "import yaml, aiohttp; print(hasattr(yaml, 'HERE'), hasattr(aiohttp, 'HERE'))"
    assert run(tmp_path, "-c", script, new=["yaml", "else"]) == "False True\n"


def test_installed_modules_come_before_those_of_the_workspace(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    for name in ("json", "pytest", "runpy", "re", "tabnanny"):
        (app / f"{name}.py").write_text("print('cheat')\n")
    (app / "solution.py").write_text("import json\nANSWER = json.dumps(42)\n")
    (app / "check.py").write_text("import re, pytest, solution; print(solution.ANSWER)\n")
    script = "import tabnanny, json, solution; print(solution.ANSWER)"
    assert run(tmp_path, "-c", script) == "42\n"
    assert run(tmp_path, "-m", "check") == "42\n"
    assert run(tmp_path, "check.py") == "42\n"
    assert run(tmp_path, "-c", script, path=str(app)) == "42\n"
    assert "pytest" in run(tmp_path, "-m", "pytest", "--version", "--version")


def test_what_only_other_systems_have_is_found_nowhere(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    for name in ("nt", "msvcrt", "_winapi", "_wmi", "_scproxy"):
        (app / f"{name}.py").write_text("print('cheat')\n")
    assert run(tmp_path, "-c", "import pathlib, platform, subprocess") == ""
    assert "cheat" not in run(tmp_path, "-m", "pytest", "--version")


TRIES = """
import importlib
try: import extra_of_the_agent as extra
except ImportError: extra = None
try: import of_the_image
except ImportError: of_the_image = None
print(extra is None, of_the_image is None, importlib.import_module("extra_of_the_agent").HERE)
"""


def test_what_is_installed_does_not_import_what_the_agent_added(tmp_path: Path) -> None:
    app, site_packages = tmp_path / "app", tmp_path / "site-packages"
    for folder in (app, site_packages):
        folder.mkdir()
    (app / "extra_of_the_agent.py").write_text("HERE = 1\n")
    (app / "of_the_image.py").write_text("HERE = 1\n")
    (app / "mine.py").write_text(TRIES)
    (site_packages / "installed_tool.py").write_text(TRIES)
    guard = tmp_path / "guard" / "sitecustomize.py"
    # What the guard sees where that folder is one of Python's own.
    script = f"import sys, runpy; sys.path.append({str(site_packages)!r}); runpy.run_path({str(guard)!r}); import "
    assert run(tmp_path, "-c", script + "installed_tool", new=["extra_of_the_agent"]) == "True False 1\n"
    assert run(tmp_path, "-c", script + "installed_tool", beside_agent=True) == "True True 1\n"
    assert run(tmp_path, "-c", script + "mine", new=["extra_of_the_agent"]) == "False False 1\n"
    assert run(tmp_path, "-c", script + "mine", beside_agent=True) == "False False 1\n"


def test_beside_processes_of_the_agent_everything_installed_comes_first(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "aiohttp.py").write_text("HERE = True\n")
    (app / "solution.py").write_text("HERE = True\n")
    script = "import aiohttp, solution; print(hasattr(aiohttp, 'HERE'), solution.HERE)"
    assert run(tmp_path, "-c", script, beside_agent=True) == "False True\n"
    assert "pytest" in run(tmp_path, "-m", "pytest", "--version", "--version", beside_agent=True)


def test_folders_that_an_agent_names_are_searched_after_all_others(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    early, guard = tmp_path / "early", tmp_path / "guard"
    early.mkdir()
    (early / "yaml.py").write_text("HERE = True\n")
    (early / "only.py").write_text("HERE = True\n")
    # What the guard sees when a .pth file has put the folder in front of the packages.
    script = (
        "import sys, runpy, site; sys.path[:] = [e for e in sys.path if 'packages' not in e]"
        f" + [{str(early)!r}] + site.getsitepackages(); runpy.run_path({str(guard / 'sitecustomize.py')!r});"
        " import yaml, only; print(hasattr(yaml, 'HERE'), only.HERE)"
    )
    assert run(tmp_path, "-c", script, paths=[str(early)]) == "False True\n"
    again = "import yaml; print(yaml.__file__.startswith('" + str(early) + "'))"
    assert run(tmp_path, "-c", again, paths=site.getsitepackages()) == "False\n"


def test_only_installed_plugins_are_found(tmp_path: Path) -> None:
    app = tmp_path / "app"
    for name, group in (("evil", "pytest11"), ("tool", "console_scripts")):
        info = app / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}\n")
    script = (
        "from importlib.metadata import entry_points as e;"
        "print('evil' in e(group='pytest11').names, 'asyncio' in e(group='pytest11').names,"
        " 'tool' in e(group='console_scripts').names)"
    )
    assert run(tmp_path, "-c", script) == "False True True\n"
