"""Scenes, played: turn after turn, round after round, until one is over. Between scenes every process ends."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from benchflow.rollout.rounds import check_round
from benchflow.rollout.stop import parse_stop
from benchflow.trajectory.events import event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchflow.rollout.plan import Act
    from benchflow.rollout.play import Play, Setting
    from benchflow.rollout.scene import Scene, Step
    from benchflow.rollout.stop import Stop


async def play_scenes(play: Play, setting: Setting, act: Act) -> None:
    """All scenes of an act. What came of each round that was scored is in the record.

    Raises AgentError or ModelError when an agent or its model fails, UserError when a function of `stop_when` does.
    """
    scenes = {scene.name: scene for scene in setting.config.played_scenes}
    backstage = setting.location.backstage
    await backstage.open_act(act)
    parts = [(scenes[name], list(steps)) for name, steps in groupby(act.turns, key=lambda step: step.scene)]
    for number, (scene, steps) in enumerate(parts, start=1):
        stop = parse_stop(scene.stop_when)
        backstage.open_scene(scene, steps, stop)
        try:
            await _play_scene(play, setting, act, scene, steps, stop)
        finally:
            backstage.close_scene()
        if number < len(parts):
            await play.end_scene()


async def _play_scene(play: Play, setting: Setting, act: Act, scene: Scene, steps: Sequence[Step], stop: Stop) -> None:
    verify = scene.verify_rounds or bool(stop.scored)
    checked = verify or bool(stop.functions)
    seen = len(setting.record.events()) if checked else 0
    opened = 0
    for step in steps:
        if scene.rounds > 1 and step.round > opened:
            opened = step.round
            setting.record.event(event("note", about="round", data={"round": opened - 1, "scene": scene.name}))
        await play.turn(act, step, step.prompt, step.source)
        if stop.said(setting.location.backstage.said_done):
            setting.record.event(event("note", about="scene over", data=_over(scene, step, "a role said it is done")))
            return
        if checked and step.closes_round:
            found = await check_round(setting, step.round - 1, seen, verify=verify)
            seen += len(found.trajectory)
            if verify:
                setting.record.round_ended(act, found, scene=scene.name)
            if await stop.over(found):
                setting.record.event(event("note", about="scene over", data=_over(scene, step, "stop_when is true")))
                return


def _over(scene: Scene, step: Step, reason: str) -> dict[str, object]:
    return {"scene": scene.name, "round": step.round, "of": scene.rounds, "reason": reason}
