"""The older name of the YAML form of a rollout."""

from benchflow.rollout.yaml_config import rollout_config_from_yaml as trial_config_from_yaml

__all__ = ["trial_config_from_yaml"]
