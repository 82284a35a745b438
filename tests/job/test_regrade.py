"""Scoring again what agents left: in real sandboxes, with tests that changed, without running an agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from benchflow import Job, JobConfig, collect_metrics
from benchflow.errors import ConfigError
from benchflow.job.lock import read_lock, write_lock
from benchflow.job.store import settled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.job.conftest import MakeTask

    from benchflow.job.summary import JobResult

pytestmark = pytest.mark.needs("local")

SOLVE = """#!/bin/sh
set -e
mkdir -p /app/out /opt/installed
echo work > /app/out/done
echo tool > /opt/installed/tool
rm /etc/debian_version
ln -s out/done /app/link
chmod 750 /app/out/done
"""
LEFT = """#!/bin/sh
mkdir -p /logs/verifier
ok() {
  [ "$(cat /app/link)" = work ] && [ -L /app/link ] && [ "$(cat /opt/installed/tool)" = tool ] &&
  [ ! -e /etc/debian_version ] && [ "$(stat -c %a /app/out/done)" = 750 ]
}
ok && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""
"""Looks at everything that the solution did: inside its workspace and outside of it, made, changed and removed."""
STRICTER = "#!/bin/sh\nmkdir -p /logs/verifier\necho 0.25 > /logs/verifier/reward.txt\n"
BROKEN = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


async def run(tmp_path: Path, local: str, *, regrade: bool = False, **settings: Any) -> JobResult:
    config = JobConfig(environment=local, concurrency=2, **{"keep_workspace": True, **settings})
    return await Job(tmp_path / "tasks", tmp_path / "jobs", config, job_name="x", regrade=regrade).run()


def document(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_bytes())
    return found


async def test_what_an_agent_left_is_scored_by_the_tests_as_they_are_now(
    make_task: MakeTask, tmp_path: Path, jobs: Path, local: str
) -> None:
    task = make_task("a", test=BROKEN, solve=SOLVE)
    lost = await run(tmp_path, local)
    assert (lost.scores.lost, lost.passed) == (1, 0)
    folder = lost.rollouts[0].rollout_dir
    before = document(folder)

    (task / "tests" / "test.sh").write_text(LEFT)
    (task / "solution" / "solve.sh").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match="more than its verifier"):
        await Job.resume(jobs / "x", regrade=True).run()
    (task / "solution" / "solve.sh").write_text(SOLVE)
    with pytest.raises(ConfigError, match="has changed since the job began"):
        await Job.resume(jobs / "x").run()

    graded = await Job.resume(jobs / "x", regrade=True).run()
    assert (graded.passed, graded.scores.lost, graded.state) == (1, 0, "finished"), graded.rollouts[0].error
    assert [row.rollout_dir for row in graded.rollouts] == [folder]
    after = document(folder)
    assert (after["error"], after["rewards"]) == (None, {"reward": 1.0})
    assert after["regraded"]["rewards_before"] is None
    assert after["labels"]["measurement"] != before["labels"]["measurement"]
    assert json.loads((folder / after["regraded"]["folder"] / "replaced.json").read_bytes()) == before
    assert (folder / after["regraded"]["folder"] / "verifier" / "reward.txt").read_text().strip() == "1"
    assert after["timing"]["agent_execution"] == before["timing"]["agent_execution"]
    assert collect_metrics(jobs / "x").overall.score.passed == 1
    assert len([path for path in (jobs / "x").iterdir() if path.is_dir()]) == 1

    assert (await Job.resume(jobs / "x").plan()).to_do == []
    assert (await run(tmp_path, local)).passed == 1


async def test_the_same_command_with_regrade_runs_no_agent(make_task: MakeTask, tmp_path: Path, local: str) -> None:
    make_task("a", solve=SOLVE)
    task = make_task("b")
    await run(tmp_path, local, agent="nop")
    (task / "tests" / "test.sh").write_text(STRICTER)
    graded = await run(tmp_path, local, agent="nop", regrade=True)
    assert {row.task: row.reward for row in graded.rollouts} == {"demo/a": 0.0, "demo/b": 0.25}
    assert all(row.regraded_at for row in graded.rollouts)
    first = {row.task: row.regraded_at for row in graded.rollouts}
    again = await run(tmp_path, local, agent="nop", regrade=True)
    assert all(row.regraded_at > first[row.task] for row in again.rollouts)
    folder = again.rollouts[0].rollout_dir
    assert sorted(path.name for path in (folder / "regrades").iterdir()) == ["1", "2"]


async def test_what_was_not_kept_is_named(make_task: MakeTask, tmp_path: Path, jobs: Path, local: str) -> None:
    task = make_task("a")
    first = await run(tmp_path, local, keep_workspace=False)
    with pytest.raises(ConfigError, match=r"a__.*was not kept \(run with --keep-workspace\)"):
        await Job.resume(jobs / "x", regrade=True).plan()
    make_task("b")
    await run(tmp_path, local)
    (task / "tests" / "test.sh").write_text(STRICTER)
    plan = await Job.resume(jobs / "x", regrade=True).plan()
    assert plan.regrades is not None
    assert [line.partition(":")[0] for line in plan.regrades.left_out] == [first.rollouts[0].rollout_dir.name]
    assert [row.task for row in plan.regrades.rows.values()] == ["demo/b"]
    with pytest.raises(ConfigError, match="has run"):
        Job(tmp_path / "tasks", jobs, regrade=True)


async def test_without_a_score_nothing_is_replaced(make_task: MakeTask, tmp_path: Path, jobs: Path, local: str) -> None:
    task = make_task("a")
    folder = (await run(tmp_path, local)).rollouts[0].rollout_dir
    before = (folder / "result.json").read_bytes()
    (task / "tests" / "test.sh").write_text(BROKEN)
    graded = await Job.resume(jobs / "x", regrade=True).run()
    assert (graded.scores.scored, graded.scores.lost) == (0, 1)
    assert graded.rollouts[0].error is not None
    assert graded.rollouts[0].error.boundary == "verifier"
    assert (folder / "result.json").read_bytes() == before


async def test_an_interrupted_go_is_taken_up_where_it_was(
    make_task: MakeTask, tmp_path: Path, jobs: Path, local: str
) -> None:
    make_task("a")
    make_task("b")
    await run(tmp_path, local)
    began = (await run(tmp_path, local, regrade=True, include=["a"])).rollouts[0].regraded_at
    lock = read_lock(jobs / "x")
    assert lock is not None
    assert lock.regrading is None
    config = JobConfig(environment=local, keep_workspace=True)
    whole = (await Job(tmp_path / "tasks", jobs, config, job_name="x").plan()).lock
    from dataclasses import replace

    write_lock(jobs / "x", replace(whole, name="x", regrading=began))
    for unfinished in (Job.resume(jobs / "x"), Job(tmp_path / "tasks", jobs, config, job_name="x")):
        with pytest.raises(ConfigError, match="interrupted"):
            await unfinished.plan()
    plan = await Job.resume(jobs / "x", regrade=True).plan()
    assert [plan.measurements[key[0]].task for key in plan.to_do] == ["demo/b"]
    assert (await Job.resume(jobs / "x", regrade=True).run()).state == "finished"
    assert [bool(row.regraded_at) for row in settled(jobs / "x")] == [True, True]


async def test_each_step_is_scored_on_what_it_left(make_task: MakeTask, tmp_path: Path, jobs: Path, local: str) -> None:
    task = make_task("a")
    with (task / "task.toml").open("a") as file:
        file.write('[[steps]]\nname = "one"\nmin_reward = 1.0\n[[steps]]\nname = "two"\n')
    count = "#!/bin/sh\nmkdir -p /logs/verifier\necho $(wc -l < /app/log) > /logs/verifier/reward.txt\n"
    for name in ("one", "two"):
        for path, text in (("instruction.md", "Go on.\n"), ("solution/solve.sh", "#!/bin/sh\necho x >> /app/log\n")):
            (task / "steps" / name / path).parent.mkdir(parents=True, exist_ok=True)
            (task / "steps" / name / path).write_text(text)
        (task / "steps" / name / "tests").mkdir()
        (task / "steps" / name / "tests" / "test.sh").write_text(count)
    (task / "instruction.md").unlink()
    first = await run(tmp_path, local)
    assert first.rollouts[0].rewards == {"reward": 1.5}
    folder = first.rollouts[0].rollout_dir
    (task / "steps" / "two" / "tests" / "test.sh").write_text(STRICTER)
    graded = await Job.resume(jobs / "x", regrade=True).run()
    assert graded.rollouts[0].rewards == {"reward": (1 + 0.25) / 2}
    assert [step["rewards"]["reward"] for step in document(folder)["steps"]] == [1.0, 0.25]
    (task / "steps" / "one" / "tests" / "test.sh").write_text(STRICTER)
    graded = await Job.resume(jobs / "x", regrade=True).run()
    assert graded.rollouts[0].rewards == {"reward": 0.25}, "the second step is not reached any more"
