"""The environment of a verifier's script: the image's, less what an agent could reach."""

from __future__ import annotations

import site
import subprocess
import sys
from typing import TYPE_CHECKING

from benchflow.task.verifier import Hardening
from benchflow.verify.environment import PYTHON_GUARD, SCRATCH, Modules, guard_files, search_path, verifier_environment

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


def test_what_a_tool_obeys_or_trusts_is_not_where_the_agent_writes_and_what_the_task_goes_by_stays() -> None:
    taken = {
        "PYTHONPYCACHEPREFIX": "/var/cache/python",
        "XDG_CONFIG_HOME": "/app/.config",
        "npm_config_userconfig": "/app/.npmrc",
        "PIP_INDEX_URL": "file:///app/index",
        "GIT_CONFIG_SYSTEM": "/home/agent/gitconfig",
        "COVERAGE_PROCESS_START": "/app/.coveragerc",
        "R_PROFILE_USER": "./Rprofile",
        "OPENSSL_CONF": "/opt/../app/openssl.cnf",
        "PERL5OPT": "-I/app/lib -MEvil",
        "JAVA_TOOL_OPTIONS": "-Xmx1g '-javaagent:/tmp/agent.jar'",
    }
    kept = {
        "APP_HOME": "/app",
        "DATA_DIR": "/app/data",
        "DJANGO_SETTINGS_MODULE": "app.settings",
        "GIT_DIR": "/app/.git",
        "UV_PROJECT_ENVIRONMENT": "/app/.venv",
        "PIP_EXTRA_INDEX_URL": "https://app/simple",
        "PYTHONUNBUFFERED": "1",
        "XDG_DATA_DIRS": "/usr/share:/application",
        "_JAVA_OPTIONS": "-Xmx1g -Dapp.home=/app",
    }
    env = verifier_environment({**taken, **kept}, writable=WRITABLE)
    assert {name: env.get(name) for name in taken} == dict.fromkeys(taken, "")
    assert not kept.keys() & env.keys()
    own = verifier_environment({"UV_CACHE_DIR": "/tmp/uv", "UV_CONFIG_FILE": "/app/uv.toml"}, writable=WRITABLE)
    assert (own["UV_CACHE_DIR"], own["UV_CONFIG_FILE"]) == (f"{SCRATCH}/home/.cache/uv", "/dev/null")


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
    packages: Sequence[str] = (),
    own: Sequence[str] = (),
    beside_agent: bool = False,
) -> str:
    guard = tmp_path / "guard"
    guard.mkdir(exist_ok=True)
    modules = Modules(frozenset(new), frozenset(own), frozenset(packages), frozenset(paths))
    for name, content in guard_files(modules, beside_agent=beside_agent).items():
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
    for name in ("nt", "msvcrt", "_winapi", "_wmi", "_scproxy", "apport_python_hook"):
        (app / f"{name}.py").write_text("print('cheat')\n")
    assert run(tmp_path, "-c", "import pathlib, platform, subprocess") == ""
    tries = "try: import apport_python_hook\nexcept ImportError: print('none')"
    assert run(tmp_path, "-c", tries) == "none\n"
    assert "cheat" not in run(tmp_path, "-m", "pytest", "--version")


TRIES = """
import importlib
try: import extra_of_the_agent as extra
except ImportError: extra = None
try: import of_the_image
except ImportError: of_the_image = None
try: named = importlib.import_module("extra_of_the_agent")
except ImportError: named = None
def load(name): return importlib.import_module(name).HERE
print(extra is None, of_the_image is None, named is None)
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
    assert run(tmp_path, "-c", script + "installed_tool", new=["extra_of_the_agent"]) == "True False True\n"
    assert run(tmp_path, "-c", script + "installed_tool", beside_agent=True) == "True True True\n"
    assert run(tmp_path, "-c", script + "mine", new=["extra_of_the_agent"]) == "False False False\n"
    assert run(tmp_path, "-c", script + "mine", beside_agent=True) == "False False False\n"
    told = script + "installed_tool; print(installed_tool.load('extra_of_the_agent'))"
    assert run(tmp_path, "-c", told, new=["extra_of_the_agent"]) == "True False True\n1\n"


def test_an_installed_module_loads_what_the_task_tells_it_while_it_is_imported(tmp_path: Path) -> None:
    app, site_packages = tmp_path / "app", tmp_path / "site-packages"
    for folder in (app, site_packages):
        folder.mkdir()
    (app / "settings.py").write_text("HERE = 1\n")
    (site_packages / "framework.py").write_text(
        "import importlib, sys\nprint(importlib.import_module(sys.argv[1]).HERE)\n"
    )
    script = installs(tmp_path, site_packages) + "import framework"
    assert run(tmp_path, "-c", script, "settings", new=["settings"]) == "1\n"


def installs(tmp_path: Path, *folders: Path) -> str:
    """What the guard sees where these folders are among Python's own."""
    guard = tmp_path / "guard" / "sitecustomize.py"
    return f"import sys, runpy; sys.path += {[str(one) for one in folders]}; runpy.run_path({str(guard)!r}); "


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_packages_that_the_agent_added_come_after_others_and_nobody_tries_for_them(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    trying = "try:\n    import socks_like as socks\nexcept ImportError:\n    socks = None\n"
    system = lay(tmp_path / "dist-packages", {"tool.py": "WHOSE = 'image'\n", "web/__init__.py": trying})
    shipped = {"also.py": trying, "way.py": "from ways import socks\n", "ways.py": trying}
    added = {"tool/__init__.py": "WHOSE = 'agent'\n", "socks_like.py": "print('cheat')\n"}
    venv = lay(tmp_path / "venv" / "site-packages", {**shipped, **added})
    (tmp_path / "venv64").symlink_to(tmp_path / "venv")
    script = "import tool, web, also, way; print(tool.WHOSE, web.socks, also.socks, way.socks)"
    packages = [str(venv / "tool"), str(venv / "socks_like")]
    for place in (venv, tmp_path / "venv64" / "site-packages"):
        seen = installs(tmp_path, place, system) + script
        assert run(tmp_path, "-c", seen, packages=packages) == "image None None None\n"
        assert (
            run(tmp_path, "-c", f"import sys; sys.path.insert(0, {str(place)!r}); import tool", packages=packages) == ""
        )


def test_packages_that_the_agent_added_are_found_by_all_who_need_them(tmp_path: Path) -> None:
    shipped = {
        "frame/__init__.py": "import needed\ndef later():\n    import driver\n    return driver.HERE\n",
        "frame/load.py": "import importlib\ndef load(name):\n    return importlib.import_module(name).HERE\n",
        "pytest_like_plugin.py": "import needed\n\ndef pytest_configure(config):\n    import driver\n",
    }
    added = {
        "needed.py": "try:\n    import driver\nexcept ImportError:\n    driver = None\n",
        "driver.py": "try:\n    import mine\n    HERE = mine.HERE\nexcept ImportError:\n    HERE = 'alone'\n",
        "tool/__init__.py": "WHOSE = 'agent'\n",
        "new_tool.py": "import tool\n",
    }
    venv = lay(tmp_path / "venv" / "site-packages", {**shipped, **added})
    system = lay(tmp_path / "dist-packages", {"tool.py": "WHOSE = 'image'\n"})
    app = lay(tmp_path / "app", {"mine.py": "HERE = 'work'\n", "test_it.py": "import driver\ndef test_it(): pass\n"})
    packages = [str(venv / name) for name in ("needed", "driver", "tool", "new_tool")]
    seen = installs(tmp_path, venv, system)
    script = (
        "import new_tool, needed, frame, frame.load, pickle;"
        " print(new_tool.tool.WHOSE, needed.driver.HERE, frame.later(), frame.load.load('driver'))"
    )
    assert run(tmp_path, "-c", seen + script, packages=packages, new=["mine"]) == "agent work work work\n"
    tests = f"import pytest; pytest.main(['-q', '-p', 'pytest_like_plugin', '-p', 'driver', {str(app)!r}])"
    assert "1 passed" in run(tmp_path, "-c", seen + tests, packages=packages, new=["mine", "test_it"])
    other = [str(tmp_path / "other" / "site-packages" / name) for name in ("needed", "tool")]
    assert "work" in run(tmp_path, "-c", seen + "import frame; print(frame.later())", packages=other)


def test_beside_processes_of_the_agent_everything_installed_comes_first(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "aiohttp.py").write_text("HERE = True\n")
    (app / "solution.py").write_text("HERE = True\n")
    script = "import aiohttp, solution; print(hasattr(aiohttp, 'HERE'), solution.HERE)"
    assert run(tmp_path, "-c", script, beside_agent=True) == "False True\n"
    assert run(tmp_path, "-c", script, beside_agent=True, own=["aiohttp"]) == "True True\n"
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
