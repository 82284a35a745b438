"""The other names of a job: an Evaluation is a Job."""

from benchflow.job.config import JobConfig as EvaluationConfig
from benchflow.job.config import RetryConfig
from benchflow.job.job import Job as Evaluation
from benchflow.job.summary import JobResult as EvaluationResult

__all__ = ["Evaluation", "EvaluationConfig", "EvaluationResult", "RetryConfig"]
