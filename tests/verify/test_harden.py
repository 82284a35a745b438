"""A workspace full of cheats, made fit for a verifier, on every sandbox: nothing of it acts, and the work is kept."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchflow.errors import VerifierError
from benchflow.rollout.account import make_account
from benchflow.sandbox.base import BuildContext, Network, SandboxSpec
from benchflow.sandbox.registry import backends_in_use, get_backend
from benchflow.verify import harden as hardening
from benchflow.verify.evidence import trust_of
from benchflow.verify.harden import harden
from benchflow.verify.script import ScriptCheck, run_script
from benchflow.verify.setting import Setting, words_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchflow.sandbox.base import Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The first two lines are those of examples/tasks/start-a-server, so that their layer is shared.
DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
COPY pytest /usr/local/lib/python3.11/dist-packages
WORKDIR /app
COPY app /app
RUN site=/app/.venv/lib/python3.11/site-packages; mkdir -p $site/shipped /app/.venv/bin \\
 && ln -s /usr/bin/python3 /app/.venv/bin/python3 && printf 'home = /usr/bin\\n' > /app/.venv/pyvenv.cfg \\
 && echo 'GOOD = True' > $site/shipped/__init__.py && cp -r /usr/local/lib/python3.11/dist-packages/* $site \\
 && echo 'SHIPPED = True' > $site/shipped_start.py && echo 'import shipped_start' > $site/shipped.pth
ENV PATH=/app/.venv/bin:/usr/local/bin:/usr/bin:/bin
"""
APP = {
    "solve.py": "def solve():\n    raise NotImplementedError\n",
    "conftest.py": "import pytest\n\n@pytest.fixture\ndef shipped():\n    return 'fixture'\n",
    "setup.cfg": "[metadata]\nname = app\n[tool:pytest]\nmarkers = shipped\n",
    "tests/.keep": "",
}
TESTS = {
    "test.sh": """#!/bin/bash
cd /app
python3 -m pytest -q /tests/test_it.py && cp /tests/in_place.py tests/test_in_place.py && python3 -m pytest -q tests \\
  && [ "$(cat /app/answer)" = "$(cat /tests/expected)" ] && python3 -c 'import shipped; assert shipped.GOOD' \\
  && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
""",
    "expected": "the answer\n",
    "test_it.py": "import json, helper, solve\n\ndef test_it():\n    assert solve.solve() == helper.ANSWER\n",
    "in_place.py": "import re, solve\n\ndef test_it(shipped):\n    assert solve.solve() == 42\n",
    "helper.py": "ANSWER = 42\n",
}

SOLVE = """
cd /app
printf 'def solve():\\n    return 42\\n' > solve.py
echo 'the answer' > answer
printf '[project]\\nname = "app"\\nversion = "1"\\n[tool.pytest.ini_options]\\naddopts = "--strict-markers"\\n' \\
  > pyproject.toml
mkdir -p /app/mine; touch /app/mine/data; ln -s mine/data link
"""
CHEAT = """
cd /app
forge='import os; open("/logs/verifier/reward.txt", "w").write("1"); os._exit(0)'
site=/app/.venv/lib/python3.11/site-packages
ln -s /tests/expected answer
printf 'import pytest\\n@pytest.hookimpl(hookwrapper=True)\\n' > conftest.py
printf 'def pytest_runtest_makereport(item, call):\\n    r = yield\\n' >> conftest.py
printf '    r.get_result().outcome = "passed"\\n' >> conftest.py
cp conftest.py tests/conftest.py
cp conftest.py evilplugin.py
printf '[tool:pytest]\\naddopts = -p evilplugin\\n' >> setup.cfg
printf '[pytest]\\naddopts = --co\\n' > tests/pytest.ini
printf '[tool.pytest.ini_options]\\naddopts = "--co -q"\\n' > tests/pyproject.toml
mkdir evil-1.0.dist-info
printf 'Name: evil\\nVersion: 1.0\\n' > evil-1.0.dist-info/METADATA
printf '[pytest11]\\nevil = evilplugin\\n' > evil-1.0.dist-info/entry_points.txt
for name in json re pytest _pytest pluggy runpy helper sitecustomize usercustomize; do echo "$forge" > $name.py; done
echo "$forge" > $site/sitecustomize.py
echo "import os; $forge" > $site/zz.pth
echo "import os; $forge" > $site/shipped.pth
echo "$forge" > $site/pytest/__init__.py
echo 'GOOD = 1; import os; os._exit(0)' > $site/shipped/__init__.py
rm .venv/bin/python3; printf '#!/bin/sh\\necho 1 > /logs/verifier/reward.txt\\n' > .venv/bin/python3
cp .venv/bin/python3 .venv/bin/bash; cp .venv/bin/python3 .venv/bin/cat; cp .venv/bin/python3 .venv/bin/mkdir
chmod +x .venv/bin/*
mkdir -p __pycache__; echo poison > __pycache__/solve.cpython-311.pyc
echo 'exec true' > ~/.bashrc; echo 'exec true' > ~/.profile
"""


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        pytest.param("local", marks=pytest.mark.needs("local")),
        pytest.param("docker", marks=pytest.mark.needs("docker")),
    ],
)
async def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sandbox]:
    """A sandbox as an agent finds it: its user is there, and the workspace is its own."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "Dockerfile").write_text(DOCKERFILE)
    for name, text in APP.items():
        (folder / "app" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "app" / name).write_text(text)
    installed = Path(pytest.__file__).parents[1]
    for module in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        source = installed / module
        shutil.copytree(source, folder / "pytest" / module, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(installed / "py.py", folder / "pytest")
    async with backends_in_use():
        backend = get_backend(request.param)
        await backend.check()
        spec = SandboxSpec(BuildContext(folder), name="harden", network=Network("no-network"))
        async with backend.create(spec) as sandbox:
            await make_account(sandbox, "agent")
            yield sandbox


async def verify(image: Sandbox, script: str, output: Path, setting: Setting | None = None) -> tuple[float, list[str]]:
    """Have the agent run a script, and score what it left; the reward, and a line for each finding."""
    work = await image.fork()
    try:
        done = await work.exec(["/bin/bash", "-ec", script], user="agent", timeout=120)
        assert done.ok, done.stderr
        await work.kill_processes()
        fork = await work.fork()
        try:
            given = setting or Setting(image.workdir, image.env, words=words_of(TESTS.values()))
            fit = await harden(fork, given)
            assert trust_of(fit.findings) == "trusted"
            files = {name: text.encode() for name, text in TESTS.items()}
            rewards = await run_script(fork, ScriptCheck([files], timeout=120, modules=fit.modules), output)
            kept = (await fork.exec("cat pyproject.toml setup.cfg 2>/dev/null; ls -A")).text
        finally:
            await fork.stop()
    finally:
        await work.stop()
    (output / "kept").write_text(kept)
    return rewards["reward"], [f"{one.family} {one.action} {one.path}" for one in fit.findings]


async def test_honest_work_is_kept_and_earns_everything(image: Sandbox, tmp_path: Path) -> None:
    reward, found = await verify(image, SOLVE, tmp_path)
    assert reward == 1.0, (tmp_path / "test-stdout.txt").read_text()
    assert found == ["pytest edited /app/pyproject.toml"]
    kept = (tmp_path / "kept").read_text()
    assert 'name = "app"' in kept
    assert "strict-markers" not in kept
    assert "markers = shipped" in kept
    assert {"conftest.py", "link", "mine"} <= set(kept.split())


async def test_no_cheat_of_a_plain_user_acts(image: Sandbox, tmp_path: Path) -> None:
    reward, found = await verify(image, CHEAT, tmp_path)
    assert reward == 0.0, (tmp_path / "test-stdout.txt").read_text()
    site = "/app/.venv/lib/python3.11/site-packages"
    assert {
        "link restored /app/answer",
        "pytest restored /app/conftest.py",
        "pytest restored /app/tests/conftest.py",
        "pytest restored /app/tests/pytest.ini",
        "pytest edited /app/tests/pyproject.toml",
        "pytest edited /app/setup.cfg",
        "pytest edited /app/evil-1.0.dist-info/entry_points.txt",
        "python-startup restored /app/sitecustomize.py",
        f"python-startup restored {site}/sitecustomize.py",
        f"python-startup edited {site}/zz.pth",
        f"python-startup edited {site}/shipped.pth",
        f"packages restored {site}/pytest/__init__.py",
        f"packages restored {site}/shipped/__init__.py",
        "module-shadowing ignored /app/json.py",
        "system-file restored /app/.venv/bin/python3",
        "path-shadowing restored /app/.venv/bin/bash",
        "bytecode restored /app/__pycache__",
        "shell-startup ignored /home/agent/.bashrc",
    } <= set(found)


async def test_cheats_beside_the_solution_take_nothing_away_from_it(image: Sandbox, tmp_path: Path) -> None:
    both = CHEAT + "rm answer\n" + SOLVE
    reward, _ = await verify(image, both, tmp_path)
    assert reward == 1.0, (tmp_path / "test-stdout.txt").read_text()


async def test_without_its_safeguards_the_same_verifier_falls(image: Sandbox, tmp_path: Path) -> None:
    given = Setting(image.workdir, image.env, clean_conftests=False, remove_hooks=False, restore_files=False)
    unguarded = replace(given, words=words_of(TESTS.values()))
    work = await image.fork()
    try:
        await work.exec(["/bin/bash", "-ec", CHEAT], user="agent", timeout=120)
        assert not [one for one in (await harden(work, unguarded)).findings if one.action in ("restored", "edited")]
        files = {name: text.encode() for name, text in TESTS.items()}
        rewards = await run_script(work, ScriptCheck([files], timeout=120, clean_env=False), tmp_path)
    finally:
        await work.stop()
    assert rewards == {"reward": 1.0}


async def test_what_cannot_be_judged_gets_no_reward(
    image: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardening, "INSPECTED", 1)
    with pytest.raises(VerifierError, match="configuration files to judge"):
        await verify(image, CHEAT, tmp_path)
