"""Experiment `provisioning-timeline`: machines that send, leased hosts and instances in each minute."""

from agiledart_experiments.provisioning.replays import BTU, BTU_MINUTES, THRESHOLD, replayed
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.replay.replay_workload import PATTERNS

PATTERNS_OF = {"small": ("stepwise",), "paper": tuple(PATTERNS)}


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each minute of each pattern and approach."""
    rows: list[Row] = []
    for pattern in PATTERNS_OF[settings.scale]:
        for approach in (BTU, THRESHOLD):
            for minutes in BTU_MINUTES if approach == BTU else BTU_MINUTES[:1]:
                settings.progress(f"{pattern}, {approach}, units of {minutes} min")
                result = replayed(pattern, approach, minutes, settings.seed, ProvisioningSettings())
                rows += [
                    {
                        "pattern": pattern, "approach": approach, "btu_minutes": minutes, "minute": entry.minute,
                        "machines": entry.machines, "hosts": entry.hosts, "instances": entry.instances,
                    }
                    for entry in result.minutes
                ]  # fmt: skip
    notes = ("figures 8 to 11 print no numbers, so no published values stand here",)
    return ExperimentReport({"minutes": 120, "btu_minutes": BTU_MINUTES}, tuple(rows), _goals(rows), notes)


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    most = max(row["hosts"] for row in rows)
    return (
        Goal(
            "every minute has a host and at least nine instances once they started",
            all(row["hosts"] >= 1 for row in rows),
        ),
        Goal(f"hosts follow the machines: at most {most} at once, and more than one", 1 < most <= 16),
    )
