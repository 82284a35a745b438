"""Artifacts: files that are kept when a rollout ends, and handed to a separate verifier."""

from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo, field_validator

from benchflow.task.problem import show
from benchflow.task.values import Service, Table, Text, Words, bad

MAIN_SERVICE = "main"


class Artifact(Table):
    """A path inside, and where it goes under the rollout's `artifacts/` folder (by default: the same path)."""

    service: Service | None = None
    source: Words
    destination: Text | None = None
    exclude: tuple[Text, ...] = ()

    @field_validator("source")
    @classmethod
    def _inside(cls, source: str, info: ValidationInfo) -> str:
        if ".." in source.replace("\\", "/").split("/"):
            raise bad(f"{show(source)} climbs out with '..'", "a path without '..'", "write the path it leads to")
        if info.data.get("service") not in (None, MAIN_SERVICE) and not source.startswith("/"):
            raise bad(f"{show(source)} is relative, but in a service", "an absolute path", "start it with '/'")
        return source

    @field_validator("destination")
    @classmethod
    def _below(cls, destination: str | None) -> str | None:
        if not destination:
            return None
        parts = destination.split("/")
        outside = destination.startswith("/") or ".." in parts or "\\" in destination or "\0" in destination
        if outside or all(part in ("", ".") for part in parts):
            raise bad(
                f"{show(destination)} is not below the artifacts folder",
                "a relative path with '/' and without '..'",
                'write a path such as "logs/app.log"',
            )
        if [part for part in parts if part not in ("", ".")] == ["manifest.json"]:
            raise bad("manifest.json is written by the run itself", "another name", "rename it")
        return destination

    @property
    def claims(self) -> str:
        """The path under `artifacts/` that this one takes; of two that overlap the first wins."""
        return (self.destination or self.source).strip("/")


def _from_text(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


Artifacts = tuple[Annotated[Artifact, BeforeValidator(_from_text)], ...]
"""A list whose entries are tables, or texts that stand for their `source`."""
