"""What `abscli` offers to programs and notebooks: stores are opened and asked, plans are made and carried out, jobs
are built and run."""

from abscli.api.directory import Directory, Start, open_directory
from abscli.api.jobs import run_job
from abscli.api.plans import RecoveryPlan, Restore, Restored, plan_graph, read_plan
from abscli.api.reports import Diff, Report
from abscli.api.rows import Rows
from abscli.api.store import Epoch, Store, open_store
from abscli.api.upkeep import Garbage, Rebuilt, rebuild
from abscli.jobs.job import Job
from abscli.jobs.streams import Column, Grouped, Loop, Output, Stream, col, count
from abscli.planner.retention import Retention

__all__ = (
    "Column", "Diff", "Directory", "Epoch", "Garbage", "Grouped", "Job", "Loop", "Output", "Rebuilt", "RecoveryPlan",
    "Report", "Restore", "Restored", "Retention", "Rows", "Start", "Store", "Stream", "col", "count", "open_directory",
    "open_store", "plan_graph", "read_plan", "rebuild", "run_job",
)  # fmt: skip
