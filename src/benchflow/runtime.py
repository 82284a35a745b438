"""Agent + Environment: the names of the runtime form of a rollout."""

from benchflow.rollout.api import Agent, Environment, Runtime, RuntimeConfig

__all__ = ["Agent", "Environment", "Runtime", "RuntimeConfig"]
