"""Table of all experiments, and the function that runs one. The module of an experiment is imported when it runs."""

import importlib
import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from agiledart_experiments.report import ExperimentReport, Settings
from agiledart_kernel.errors import ConfigurationError

SHARE = "share"
PATHS = "paths."
SCALING = "scaling."
RECOVERY = "recovery."
PLACEMENT = "placement."
PROVISIONING = "provisioning."


@dataclass(frozen=True, slots=True)
class Experiment:
    """One published figure or table, or one claim of this project.

    Attributes:
        name: the name on the command line; the module has the same name with `_`.
        answers: the question that the experiment answers.
        source: paper and figure.
        x, y: columns that a plot shows; `series` names the columns that distinguish the lines.
        unit: unit of y, for the axis. The axis of a share fits its values; every other axis starts at zero.
        is_log: whether the x axis is logarithmic.
        has_sizes: whether the experiment can run at other values of `x` than those of its scales.
        has_apps: whether the experiment can run with some of its applications only.
        has_beside: whether another engine can run the same in turns.
        has_policies: whether the experiment can run with one scaling policy.
        faults: faults that the experiment can inject into hosts; the first is the default. Empty: the experiment injects none.
        kills_replica_nodes: whether the experiment can kill replica nodes together with a host.
        counts_from_1: whether the least value of `--sizes` is 1 instead of 2.
        has_real: whether the experiment can measure agents of this machine, too.
        package: sub-package of the module, with a trailing dot; empty: none.
    """

    name: str
    answers: str
    source: str
    x: str
    y: tuple[str, ...]
    unit: str
    series: tuple[str, ...] = ()
    is_log: bool = False
    has_sizes: bool = False
    has_apps: bool = False
    has_beside: bool = False
    has_policies: bool = False
    faults: tuple[str, ...] = ()
    kills_replica_nodes: bool = False
    has_real: bool = False
    counts_from_1: bool = False
    package: str = ""

    @property
    def run(self) -> Callable[[Settings], ExperimentReport]:
        """Import the module of the experiment and return the function that runs it."""
        module = importlib.import_module(f"agiledart_experiments.{self.package}{self.name.replace('-', '_')}")
        run: Callable[[Settings], ExperimentReport] = module.run
        return run


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "hop-count",
            "How many hops does a look-up take, by the number of nodes?",
            "Pastry (2001), fig. 4; AgileDART, routing within ⌈log₁₆ N⌉",
            x="nodes",
            y=("hops_mean", "hops_p99", "hops_max"),
            unit="hops",
            is_log=True,
            has_sizes=True,
        ),
        Experiment(
            "overlay-recovery",
            "How long does the ring take to recover, by the number of simultaneous failures?",
            "AgileDART, fig. 11a",
            x="failures",
            y=("recovery_seconds",),
            unit="virtual seconds",
            series=("which",),
            is_log=True,
        ),
        Experiment(
            "churn",
            "Do look-ups arrive while nodes join and fail, and how many messages does that cost?",
            "Pastry (2001), §3.4; MSPastry (2004)",
            x="minute",
            y=("delivered_correctly",),
            unit=SHARE,
        ),
        Experiment(
            "operators-per-node",
            "How many operators do nodes host, by the number of applications?",
            "AgileDART, fig. 10a and 10b",
            x="applications",
            y=("share_below_3", "share_below_4"),
            unit=SHARE,
            has_sizes=True,
        ),
        Experiment(
            "schedulers",
            "How many schedulers serve the applications, and how many hops away are they?",
            "AgileDART, fig. 10c",
            x="applications",
            y=("schedulers",),
            unit="schedulers",
            series=("scope", "submitted"),
            has_sizes=True,
        ),
        Experiment(
            "deployment-latency",
            "How long do applications wait when all are submitted at once?",
            "AgileDART, fig. 8a to 8c",
            x="applications",
            y=("queue_wait_mean_s", "deployment_mean_s", "queue_wait_mean_s_single_master"),
            unit="virtual seconds, or seconds with --real",
            has_sizes=True,
            has_real=True,
        ),
        Experiment(
            "query-latency",
            "How late are the results of the compared applications, by the rate of the input?",
            "AgileDART, fig. 9a to 9c",
            x="rate",
            y=("p50_ms", "p95_ms", "p99_ms"),
            unit="ms",
            series=("app", "engine"),
            has_sizes=True,
            has_apps=True,
            has_beside=True,
        ),
        Experiment(
            "overhead",
            "How much CPU, memory and traffic do agents take beside the application that they run?",
            "AgileDART, fig. 18a to 18d",
            x="engine",
            y=("daemon_cpu_share", "daemon_pss_mb"),
            unit="share of a core, MB",
            has_beside=True,
        ),
        Experiment(
            "overload",
            "Does memory stay bounded and every row accounted for while a sink is ten times slower than its source?",
            "a claim of this project; AgileDART has no backpressure at the edge",
            x="second",
            y=("memory_mb",),
            unit="MB",
            series=("policy",),
        ),
        Experiment(
            "path-regret",
            "How much regret does learning the best path cost, by the size of the network?",
            "AgileDART, fig. 17a and 17b",
            x="nodes",
            y=("regret_mean",),
            unit="slots",
            series=("policy",),
            has_sizes=True,
            package=PATHS,
        ),
        Experiment(
            "path-convergence",
            "How much longer than on the best path do packets take, by the number of packets sent before?",
            "AgileDART, fig. 23",
            x="nodes",
            y=("excess_1_50", "excess_901_1000"),
            unit="slots",
            series=("policy",),
            has_sizes=True,
            package=PATHS,
        ),
        Experiment(
            "path-delays",
            "How good is the path after few packets on the streets of a city, and when is the best one found?",
            "AgileDART, fig. 13 to 16",
            x="application",
            y=("delay_after_50_s", "optimal_delay_s"),
            unit="seconds",
            series=("policy",),
            package=PATHS,
        ),
        Experiment(
            "path-settings",
            "Is there a setting in which all three rules come near the printed values?",
            "AgileDART, fig. 13 to 16; a sweep of this project",
            x="setting",
            y=("share_within_1.32", "first_optimal_trial"),
            unit="share, packets",
            series=("policy",),
            package=PATHS,
        ),
        Experiment(
            "path-lookahead",
            "How many links must a node see ahead?",
            "AgileDART, fig. 17c",
            x="hops",
            y=("regret_mean",),
            unit="slots",
            series=("nodes",),
            package=PATHS,
        ),
        Experiment(
            "path-exchange",
            "How much regret do rare announcements of the costs to go cause?",
            "AgileDART, Algorithm 1; measured, not printed",
            x="nodes",
            y=("regret_mean",),
            unit="slots",
            series=("told",),
            package=PATHS,
        ),
        Experiment(
            "path-exploration",
            "How much exploration is best?",
            "AgileDART, fig. 17d",
            x="c",
            y=("regret_mean",),
            unit="slots",
            series=("network",),
            is_log=True,
            package=PATHS,
        ),
        Experiment(
            "path-change",
            "How much regret follows when the best path gets worse, or another path better?",
            "a claim of this project; AgileDART assumes links that stay as they are",
            x="nodes",
            y=("before", "after_worse", "after_better"),
            unit="slots",
            series=("network", "policy"),
            package=PATHS,
        ),
        Experiment(
            "secant-steps",
            "How many trials does a stage need until it has the right number of instances?",
            "AgileDART, fig. 22 (appendix D)",
            x="start",
            y=("iterations_mean", "iterations_max"),
            unit="deployed trials",
            series=("capacity",),
            package=SCALING,
        ),
        Experiment(
            "closed-loop",
            "How soon is four times the rate met, and how calm is a policy through bursts?",
            "a claim of this project; AgileDART IV-C for the policy `paper`",
            x="scenario",
            y=("changes", "intervals_to_bound"),
            unit="changes, intervals",
            series=("policy",),
            has_policies=True,
            package=SCALING,
        ),
        Experiment(
            "scaling-timeline",
            "How soon is an overloaded stage stable, and how does its score change?",
            "AgileDART, fig. 12",
            x="second",
            y=("score", "instances"),
            unit="score, instances",
            series=("job", "timeline"),
            has_apps=True,
            package=SCALING,
        ),
        Experiment(
            "fragments",
            "How long does rebuilding a state from its fragments take, by their number?",
            "AgileDART, fig. 11c",
            x="k",
            y=("seconds",),
            unit="seconds",
            series=("fixed", "m"),
            package=RECOVERY,
        ),
        Experiment(
            "dataflow-recovery",
            "How long do dataflows take to run again, by the number of simultaneous failures?",
            "AgileDART, fig. 11a",
            x="failures",
            y=("recovery_seconds", "slowest_seconds"),
            unit="seconds",
            has_sizes=True,
            has_real=True,
            counts_from_1=True,
            package=RECOVERY,
        ),
        Experiment(
            "state-recovery",
            "How long do saving and restoring a state take, compared with one remote store?",
            "AgileDART, fig. 11b",
            x="state_mb",
            y=("recover_seconds", "store_recover_seconds"),
            unit="seconds",
            series=("code",),
            has_sizes=True,
            has_real=True,
            package=RECOVERY,
        ),
        Experiment(
            "replication-cost",
            "How much do copies of an operator cost, compared with fragments of its state?",
            "AgileDART, fig. 21",
            x="n",
            y=("cpu_ratio",),
            unit="times",
            package=RECOVERY,
        ),
        Experiment(
            "pull-the-plug",
            "How soon does the next result follow when a host of a large state dies, and is every row there once?",
            "a claim of this project, on real processes",
            x="run",
            y=("next_result_s",),
            unit="seconds",
            series=("fault",),
            faults=("kill", "power", "executor"),
            kills_replica_nodes=True,
            package=RECOVERY,
        ),
        Experiment(
            "odp-qos",
            "How much response time does availability cost in an optimal placement, and how much availability does speed cost?",
            "Cardellini et al., fig. 4",
            x="draw",
            y=("response_ratio", "response_ratio_untied"),
            unit="times the least response time",
            package=PLACEMENT,
        ),
        Experiment(
            "placement-heuristics",
            "How far are springs, MOPA and T-Storm from the optimum of their own objective, over time?",
            "Cardellini et al., fig. 5 to 7",
            x="second",
            y=("value_ratio",),
            unit="times the optimum",
            series=("heuristic",),
            package=PLACEMENT,
        ),
        Experiment(
            "odp-scalability",
            "How large an integer programme can be solved, and how good is it when time is up?",
            "Cardellini et al., fig. 9 and 10, §4.2",
            x="operators",
            y=("solve_seconds",),
            unit="seconds",
            series=("kind", "nodes", "capacity", "share", "formulation"),
            package=PLACEMENT,
        ),
        Experiment(
            "stretch",
            "How much more network than the optimum do placements in a latency space use?",
            "Rizou et al., fig. 2",
            x="network",
            y=("mean",),
            unit="times the optimum",
            series=("strategy",),
            package=PLACEMENT,
        ),
        Experiment(
            "reconvergence",
            "How many messages and migrations does it take until operators are calm after all rates changed?",
            "Rizou et al., fig. 3 and 4",
            x="start",
            y=("messages_mean",),
            unit="messages",
            series=("method",),
            package=PLACEMENT,
        ),
        Experiment(
            "mopa-hosts",
            "Do hosts that see only their neighbours find placements as good as a central search, with few messages?",
            "Rizou et al., algorithm 1, fig. 3 and 4",
            x="nodes",
            y=("messages_mean",),
            unit="messages",
            series=("start",),
            package=PLACEMENT,
        ),
        Experiment(
            "placement-throughput",
            "How much throughput does a placement give for the processors that it reserves?",
            "Ecker et al., tables 2 and 3, fig. 6 to 8",
            x="reservation",
            y=("factor_cx_0.5",),
            unit="times round robin",
            series=("strategy",),
            package=PLACEMENT,
        ),
        Experiment(
            "placement-runtime",
            "How long does one placement take, by topology and strategy?",
            "Ecker et al., table 4",
            x="operators",
            y=("ms",),
            unit="milliseconds",
            series=("strategy",),
            package=PLACEMENT,
        ),
        Experiment(
            "provisioning-cost",
            "How much do service levels cost with leases by billing time unit, beside a baseline that does not know units?",
            "Hochreiner et al. (2017), tables 3 to 6",
            x="btu_minutes",
            y=("resource_cost", "total_near_real_time"),
            unit="cost",
            series=("pattern", "approach", "model"),
            package=PROVISIONING,
        ),
        Experiment(
            "provisioning-timeline",
            "How do leased hosts and instances follow the load?",
            "Hochreiner et al. (2017), figs. 8 to 11",
            x="minute",
            y=("machines", "hosts", "instances"),
            unit="number",
            series=("pattern", "approach", "btu_minutes"),
            package=PROVISIONING,
        ),
        Experiment(
            "provisioning-weights",
            "Which constants of the BTU-based policy matter, and which would we choose?",
            "Hochreiner et al. (2017), §7 (open question)",
            x="value",
            y=("total_near_real_time", "resource_cost"),
            unit="cost",
            series=("pattern", "constant"),
            package=PROVISIONING,
        ),
    )
}


def find(name: str) -> Experiment:
    """Return the experiment of this name. Raises ConfigurationError, which suggests a similar name."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        close = get_close_matches(name, EXPERIMENTS, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f'There is no experiment "{name}".{meant} See: agiledart experiment list') from None


def run_experiment(experiment: Experiment, settings: Settings) -> tuple[ExperimentReport, dict[str, Any]]:
    """Run an experiment; return its report, and the same as a JSON document with the resources that the run used.

    `load` is the machine's load average before and after, on which figures of processes depend. `cpu_seconds` is the CPU time of
    this run; `memory_mb` is the largest resident size of the process so far.

    Raises:
        ConfigurationError: a setting is invalid, or the experiment does not support it.
    """
    if settings.apps and not experiment.has_apps:
        raise ConfigurationError(f"--app: {experiment.name} has no applications to choose from; leave it out.")
    if settings.sizes and not experiment.has_sizes:
        raise ConfigurationError(f"--sizes: {experiment.name} runs at the sizes of its scale only; leave it out.")
    if settings.policy and not experiment.has_policies:
        raise ConfigurationError(f"--policy: {experiment.name} compares no scaling policies; leave it out.")
    if settings.beside and not experiment.has_beside:
        raise ConfigurationError(f"--beside: {experiment.name} runs beside no other engine; leave it out.")
    has_pairs = bool(settings.beside) and not settings.fault
    if (settings.fault or settings.runs) and not (experiment.faults or has_pairs):
        raise ConfigurationError(f"--fault, --runs: {experiment.name} injects no faults; leave them out.")
    if settings.fault and settings.fault not in experiment.faults:
        raise ConfigurationError(f"--fault {settings.fault}: {experiment.name} has {', '.join(experiment.faults)}.")
    if settings.replica_nodes and not experiment.kills_replica_nodes:
        raise ConfigurationError(f"--replica-nodes: {experiment.name} kills no replica nodes; leave it out.")
    if (settings.again or settings.code) and not settings.replica_nodes:
        raise ConfigurationError(
            "--again and --code need --replica-nodes: give the number of replica nodes to kill, too."
        )
    if settings.real and not experiment.has_real:
        able = ", ".join(entry.name for entry in EXPERIMENTS.values() if entry.has_real)
        raise ConfigurationError(f"--real: {experiment.name} has no form on agents; these have: {able}.")
    least = 1 if experiment.counts_from_1 else 2
    if any(size < least for size in settings.sizes):
        raise ConfigurationError(f"--sizes {min(settings.sizes)}: the least size is {least}.")
    started, load = time.process_time(), os.getloadavg()[0]
    report = experiment.run(settings)
    spent = time.process_time() - started
    return report, {
        "experiment": experiment.name,
        "answers": experiment.answers,
        "source": experiment.source,
        "command": settings.command(experiment.name),
        "seed": settings.seed,
        "scale": settings.scale,
        "real": settings.real,
        "parameters": dict(report.parameters),
        "results": list(report.rows),
        "goals": [asdict(goal) for goal in report.goals],
        "passed": report.passed,
        "notes": list(report.notes),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "cpu_seconds": round(spent, 2),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
