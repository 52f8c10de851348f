"""Lists the benchmarks, what each measures, and how long it takes, in the order of the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One command whose figures are kept.

    Parameters
    ----------
    name
        Of the file of its results; its module has that name too where ``module`` is empty.
    title
        Heading of its section.
    usual_s
        How long it takes on two quiet cores, about [s].
    folder
        Of its module, below ``benchmarks``.
    options
        What its command is told.
    wants
        Variable whose value, a path, its command is told: something that opsk neither holds nor fetches. It runs where
        that is set.
    is_asked_for
        Whether it runs only when it is named, for it takes long.
    """

    name: str
    title: str
    usual_s: float
    folder: str = ""
    module: str = ""
    options: tuple[str, ...] = ()
    wants: str = ""
    is_asked_for: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """What follows ``python -m``, with the name of the variable in place of its value."""
        wanted = (f"${self.wants}",) if self.wants else ()
        return (self.path, *self.options, *wanted)

    @property
    def path(self) -> str:
        """The dotted name of its module."""
        return ".".join(filter(None, ("benchmarks", self.folder, self.module or self.name)))

    @property
    def most_s(self) -> float:
        """After so long it is ended [s]: other work can make it slower, not endless."""
        return 120.0 + 6.0 * self.usual_s


BENCHMARKS = (
    Benchmark(name="costmodel_rows", folder="costmodel", title="The cost model: one plan, and large tables", usual_s=5),
    Benchmark(name="search", folder="planning", title="The search for the best plan", usual_s=30),
    Benchmark(name="fabric_read", folder="planning", title="Reading a fabric of 10,000 nodes", usual_s=25),
    Benchmark(name="placement", folder="planning", title="Placing 16,384 ranks on 10,000 nodes", usual_s=20),
    Benchmark(
        name="remap", folder="planning", title="Options after a failure, for 16,384 ranks on 10,000 nodes", usual_s=20
    ),
    Benchmark(
        name="interference", folder="planning", title="A candidate beside 500 running jobs on 10,000 nodes", usual_s=30
    ),
    Benchmark(name="advice", folder="jobcheck", title="Reading, verdict and full advice in one process", usual_s=8),
    Benchmark(
        name="live_advice", folder="jobcheck", title="Advice by a worker: 1,024 nodes, 200 running jobs", usual_s=50
    ),
    Benchmark(name="advisor_flat", folder="jobcheck", title="100,000 questions to one advisor", usual_s=240),
    Benchmark(
        name="submissions",
        folder="jobcheck",
        title="2,000 submissions to a real slurmctld, and every misfortune",
        usual_s=460,
    ),
    Benchmark(
        name="submissions_new",
        folder="jobcheck",
        title="The same where every training job is of a recipe never seen before",
        usual_s=40,
        module="submissions",
        options=("--no-storms", "--recipes", "100000", "--block", "100", "--pairs", "3"),
    ),
    Benchmark(
        name="slurm_poll", folder="monitoring", title="Asking Slurm for its jobs, beside squeue --json", usual_s=25
    ),
    Benchmark(name="lab_up", folder="monitoring", title="A cluster in a box", usual_s=10),
    Benchmark(
        name="exporter_scrape", folder="monitoring", title="A scrape of a node with 8 GPUs and 8 HCAs", usual_s=130
    ),
    Benchmark(
        name="exporter_infiniband",
        folder="monitoring",
        title="The InfiniBand part of a scrape, beside node_exporter",
        usual_s=10,
    ),
    Benchmark(name="throughput_follow", folder="monitoring", title="Following a training log", usual_s=70),
    Benchmark(name="tui", folder="monitoring", title="opsk top: 2,000 nodes, 16,000 GPUs, 500 jobs", usual_s=130),
    Benchmark(
        name="tui_data",
        folder="monitoring",
        title="Data of the screens: 2,000 nodes, 16,000 GPUs, 500 jobs",
        usual_s=70,
    ),
    Benchmark(name="postmortem", folder="monitoring", title="After a failure: the logs of 512 ranks", usual_s=150),
    Benchmark(
        name="against_calculon",
        folder="costmodel",
        title="Beside Calculon: one plan, and its own search",
        usual_s=75,
        wants="CALCULON",
    ),
    Benchmark(name="learn", folder="learning", title="Learning from a site's jobs", usual_s=15),
    Benchmark(name="calibrate_speed", folder="costmodel", title="A calibration", usual_s=60, wants="RUNS"),
    Benchmark(
        name="hidden_sites",
        folder="learning",
        title="What sites of unknown efficiencies teach: 200 jobs of 12 kinds",
        usual_s=100,
    ),
    Benchmark(
        name="site_learning", folder="learning", title="What a site learns from three runs", usual_s=60, wants="RUNS"
    ),
    Benchmark(name="test_suite", title="make test and make quick", usual_s=1900, is_asked_for=True),
)


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark with this name."""
    return next(each for each in BENCHMARKS if each.name == name)
