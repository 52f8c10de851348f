"""Lists the limits of speed and memory that the design sets and a benchmark measures.

A row is one figure of one benchmark and the limit that it was given; ``None`` where a number is
reported and no limit is set. A peer that the benchmark measures in the same run has its figure in the same row.
Benchmarks do not judge: whether a limit is kept is computed here, for the page alone.
"""

from __future__ import annotations

from dataclasses import dataclass

DESIGN = "design"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What else does the same work, and its figure in the same run."""

    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """One number that was asked for.

    Parameters
    ----------
    benchmark, key
        Which figure; the key ends with its unit.
    what
        In words.
    limit
        The number; ``None`` where none was set.
    source
        ``design``, or the issue that asks for it.
    is_least
        Whether more is better; else less is.
    """

    benchmark: str
    key: str
    what: str
    limit: float | None = None
    source: str = DESIGN
    is_least: bool = False
    peer: Peer | None = None

    def compute_use(self, measured: float) -> float | None:
        """Return the figure over its limit (a limit of zero: over one); ``None`` without a limit."""
        return None if self.limit is None else measured / (self.limit or 1.0)

    def is_met(self, measured: float) -> bool | None:
        """Say whether the limit is kept; ``None`` without one."""
        if self.limit is None:
            return None
        return measured >= self.limit if self.is_least else measured <= self.limit


CALCULON_PLAN = Peer(name="Calculon", key="calculon_one_plan_s")
BUDGETS = (
    Budget(benchmark="advice", key="quick_verdict_median_s", limit=2e-3,
           what="verdict question in one process (parse, memory and time of one plan), CPU, median"),
    Budget(benchmark="advice", key="quick_verdict_p99_s", limit=10e-3, what="the same, P99"),
    Budget(benchmark="live_advice", key="verdict_known_median_s", limit=2e-3,
           what="verdict question to a worker, both on one core, known recipe, median"),
    Budget(benchmark="live_advice", key="verdict_new_median_s", limit=3e-3, source="issue 26",
           what="the same, new recipe, median"),
    Budget(benchmark="live_advice", key="verdict_new_p99_s", limit=10e-3, what="the same, P99"),
    Budget(benchmark="live_advice", key="verdicts_per_s", limit=300, is_least=True,
           what="verdict questions a CPU second of a worker"),
    Budget(benchmark="live_advice", key="full_median_s", limit=60e-3,
           what="full advice, 70B script, 1,024 nodes, 200 running jobs: median, slowest of 8, 16 and 64 nodes"),
    Budget(benchmark="live_advice", key="full_p99_s", limit=200e-3, what="the same, P99"),
    Budget(benchmark="live_advice", key="again_median_s", limit=5e-3, what="the same question again, fabric unchanged"),
    Budget(benchmark="live_advice", key="worker_bytes", limit=200e6, source="issue 6", what="memory of that worker"),
    Budget(benchmark="advisor_flat", key="rss_bytes", limit=200e6, source="issue 6",
           what="memory of every process of an advisor over 100,000 questions"),
    Budget(benchmark="advisor_flat", key="growth_ratio", limit=1.05, source="issue 6",
           what="memory after the last question over that after a fifth of them (flat)"),
    Budget(benchmark="submissions", key="other_1_ratio", limit=0.95, is_least=True,
           what="submissions that train nothing against empty hooks, 1 client",
           peer=Peer(name="empty Lua hooks", key="other_1_empty_per_s")),
    Budget(benchmark="submissions", key="other_8_ratio", limit=0.95, is_least=True, what="the same, 8 clients",
           peer=Peer(name="empty Lua hooks", key="other_8_empty_per_s")),
    Budget(benchmark="submissions", key="again_1_ratio", limit=0.85, is_least=True,
           what="20 % training jobs, scripts submitted before, against empty hooks, 1 client",
           peer=Peer(name="empty Lua hooks", key="again_1_empty_per_s")),
    Budget(benchmark="submissions", key="again_8_ratio", limit=0.85, is_least=True, what="the same, 8 clients",
           peer=Peer(name="empty Lua hooks", key="again_8_empty_per_s")),
    Budget(benchmark="submissions", key="mix_1_ratio", limit=0.85, is_least=True,
           what="20 % training jobs, every script new in seed and length (recipes submitted before), 1 client",
           peer=Peer(name="empty Lua hooks", key="mix_1_empty_per_s")),
    Budget(benchmark="submissions", key="mix_8_ratio", limit=0.85, is_least=True, what="the same, 8 clients",
           peer=Peer(name="empty Lua hooks", key="mix_8_empty_per_s")),
    Budget(benchmark="submissions", key="named_1_ratio", limit=0.85, is_least=True,
           what="20 % training jobs, every script new in a name, too (recipes submitted before), 1 client",
           peer=Peer(name="empty Lua hooks", key="named_1_empty_per_s")),
    Budget(benchmark="submissions", key="named_8_ratio", limit=0.85, is_least=True, what="the same, 8 clients",
           peer=Peer(name="empty Lua hooks", key="named_8_empty_per_s")),
    Budget(benchmark="submissions_new", key="mix_1_ratio", limit=0.85, is_least=True,
           what="20 % training jobs, every one of a new recipe, against empty hooks, 1 client",
           peer=Peer(name="empty Lua hooks", key="mix_1_empty_per_s")),
    Budget(benchmark="submissions_new", key="mix_8_ratio", limit=0.85, is_least=True, what="the same, 8 clients",
           peer=Peer(name="empty Lua hooks", key="mix_8_empty_per_s")),
    Budget(benchmark="submissions", key="lost_count", limit=0, source="issue 6",
           what="submissions lost in 8 misfortunes of the advisor of 2,000 each"),
    Budget(benchmark="submissions", key="longest_s", limit=20e-3, source="issue 6",
           what="most that a misfortune adds inside slurmctld (the deadline)"),
    Budget(benchmark="submissions", key="breaker_open_s", limit=1e-3, source="issue 6",
           what="the same once the breaker is open"),
    Budget(benchmark="search", key="search_1t_s", limit=0.6, source="issue 25",
           what="search: 1T model, 4,096 GPUs, all plans, CPU (the design asks for 1 s)"),
    Budget(benchmark="search", key="search_v3_s", limit=4.0, source="issue 25",
           what="search: DeepSeek-V3, 2,048 GPUs, all plans, CPU"),
    Budget(benchmark="search", key="search_175b_s", limit=0.5, source="issue 5", what="search: 175B, 1,024 GPUs, CPU"),
    Budget(benchmark="search", key="search_405b_s", limit=5.0, source="issue 5",
           what="search: 405B, 65,536 GPUs, sequences of 128k tokens, CPU"),
    Budget(benchmark="search", key="unsettled_count", limit=0,
           what="plans of these spaces neither evaluated nor bounded away"),
    Budget(benchmark="search", key="peak_bytes", limit=1e9, source="issue 5", what="memory of a search"),
    Budget(benchmark="against_calculon", key="opsk_ratio", limit=1000, is_least=True, source="issue 5",
           what="search: completed evaluations a CPU second over Calculon's",
           peer=Peer(name="Calculon", key="calculon_completed_per_s")),
    Budget(benchmark="costmodel_rows", key="one_plan_s", limit=1e-3, source="issue 3", what="one plan predicted, warm"),
    Budget(benchmark="costmodel_rows", key="rows_per_s", limit=200_000, is_least=True, source="issue 3",
           what="plans of a table of 100,000 predicted a CPU second"),
    Budget(benchmark="against_calculon", key="one_plan_s", limit=1e-3, source="issue 3",
           what="one plan predicted, as a table of one row", peer=CALCULON_PLAN),
    Budget(benchmark="against_calculon", key="rows_per_s", limit=200_000, is_least=True, source="issue 3",
           what="plans of a table of 100,000", peer=Peer(name="Calculon", key="calculon_rows_per_s")),
    Budget(benchmark="fabric_read", key="read_s", limit=5.0,
           what="fabric of 10,000 nodes × 8 HCAs: read the dump and find its rails, CPU"),
    Budget(benchmark="fabric_read", key="rss_bytes", limit=2e9, source="issue 4", what="memory for that"),
    Budget(benchmark="placement", key="worst_s", limit=2.0, what="place 16,384 ranks there, worst of four cases, CPU"),
    Budget(benchmark="remap", key="worst_s", limit=0.2, what="all options after a failure there, worst of ten, CPU"),
    Budget(benchmark="remap", key="smaller_s", limit=0.2,
           what="the same for a lost node of jobs of 512 to 16,384 ranks, the slowest size"),
    Budget(benchmark="interference", key="candidate_s", limit=0.1, source="issue 4",
           what="a candidate there against 500 running jobs, CPU"),
    Budget(benchmark="exporter_scrape", key="cpu_s", limit=25e-3,
           what="a scrape of 8 GPUs, 8 HCAs, power and a job: CPU"),
    Budget(benchmark="exporter_scrape", key="rss_bytes", limit=60e6, what="memory of the exporter"),
    Budget(benchmark="exporter_scrape", key="growth_ratio", limit=1.05, source="issue 7",
           what="its memory after the last scrape over that after a fifth of them (flat)"),
    Budget(benchmark="exporter_scrape", key="start_s", limit=0.5, source="issue 7", what="its start until it serves"),
    Budget(benchmark="exporter_infiniband", key="opsk_cpu_s", source="issue 7",
           what="the InfiniBand part of a scrape alone: CPU",
           peer=Peer(name="node_exporter", key="node_exporter_cpu_s")),
    Budget(benchmark="exporter_infiniband", key="opsk_series_count", source="issue 7", what="its series",
           peer=Peer(name="node_exporter", key="node_exporter_series_count")),
    Budget(benchmark="slurm_poll", key="opsk_s", source="issue 10",
           what="all of 1,000 jobs asked of Slurm and read: CPU of who asks",
           peer=Peer(name="squeue --json", key="squeue_json_s")),
    Budget(benchmark="slurm_poll", key="opsk_slurmctld_s", source="issue 10", what="the same: CPU of slurmctld",
           peer=Peer(name="squeue --json", key="squeue_json_slurmctld_s")),
    Budget(benchmark="throughput_follow", key="steps_share", limit=0.01, source="issue 8",
           what="following a log with a step every 2 s: share of a core"),
    Budget(benchmark="throughput_follow", key="worst_share", limit=0.01, source="issue 8",
           what="the same, worst of five loads up to 20 MB/s"),
    Budget(benchmark="tui", key="first_paint_s", limit=1.0,
           what="opsk top, 2,000 nodes, 16,000 GPUs, 500 jobs: first paint after Python's start"),
    Budget(benchmark="tui", key="key_p95_s", limit=50e-3, what="key to paint, P95"),
    Budget(benchmark="tui", key="share", limit=0.03, what="share of a core while data flow"),
    Budget(benchmark="tui", key="refresh_cpu_s", limit=0.1, source="issue 8",
           what="a refresh on the slowest screen: CPU of the screen"),
    Budget(benchmark="tui", key="reload_cpu_s", limit=0.5, source="issue 8",
           what="all of the slowest screen anew: CPU of the screen"),
    Budget(benchmark="tui", key="rss_bytes", limit=250e6, source="issue 8", what="memory of the screens"),
    Budget(benchmark="tui_data", key="reload_cpu_s", limit=0.5, source="issue 8", what="data of all screens anew: CPU"),
    Budget(benchmark="tui_data", key="refresh_cpu_s", limit=0.1, source="issue 8", what="their refresh every 5 s: CPU"),
    Budget(benchmark="tui_data", key="rss_bytes", limit=250e6, source="issue 8", what="memory of the data"),
    Budget(benchmark="postmortem", key="read_s", limit=40.0, what="post-mortem of 512 ranks × 2 MB of logs"),
    Budget(benchmark="postmortem", key="rss_bytes", limit=300e6, what="memory for that"),
    Budget(benchmark="postmortem", key="most_rss_bytes", limit=300e6, what="memory for logs of up to 50 MB a rank"),
    Budget(benchmark="postmortem", key="per_byte_ratio", limit=1.1,
           what="time a byte of 512 × 50 MB over that of 512 × 2 MB (linear)"),
    Budget(benchmark="learn", key="refit_s", limit=20.0, source="issue 28",
           what="refit of a site's 2,000 jobs, each left out once, one core"),
    Budget(benchmark="lab_up", key="up_s", limit=30.0, source="issue 2", what="a lab of 16 nodes comes up"),
    Budget(benchmark="test_suite", key="all_s", limit=1500.0, what="make test"),
    Budget(benchmark="test_suite", key="quick_s", limit=480.0, what="make quick"),
)  # fmt: skip
