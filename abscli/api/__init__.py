"""What `abscli` offers to programs and notebooks: stores are opened and asked, plans are made and carried out, jobs
run. Commands take it from here, and load nothing of what builds a job."""

from abscli.api.directory import Directory, Start, open_directory
from abscli.api.jobs import run_job, try_job
from abscli.api.plans import RecoveryPlan, Restore, Restored, plan_graph, read_plan
from abscli.api.reporting import HtmlReport, report_on
from abscli.api.reports import Diff, Report
from abscli.api.rows import Rows
from abscli.api.store import Epoch, Store, open_store
from abscli.api.upkeep import Garbage, Rebuilt, rebuild
from abscli.planner.retention import Retention

__all__ = (
    "Diff", "Directory", "Epoch", "Garbage", "HtmlReport", "Rebuilt", "RecoveryPlan", "Report", "Restore", "Restored",
    "Retention", "Rows", "Start", "Store", "open_directory", "open_store", "plan_graph", "read_plan", "rebuild",
    "report_on", "run_job", "try_job",
)  # fmt: skip
