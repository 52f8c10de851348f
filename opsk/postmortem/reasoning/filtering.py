"""Filters the signs that can have begun this failure: no other jobs and times, no quotations, no cascades."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from opsk.postmortem.logs.levels import find_level, is_python_warning
from opsk.postmortem.logs.losses import RECOVERED
from opsk.postmortem.logs.matching import TRIED_AGAIN
from opsk.postmortem.reasoning.candidate import PROCESS_ENDS
from opsk.postmortem.reasoning.consequences import demote_consequences
from opsk.postmortem.reasoning.gpu_faults import believe_quoted_xids
from opsk.postmortem.reasoning.runs import demote_earlier_runs
from opsk.postmortem.reasoning.steps import LastSteps
from opsk.postmortem.reasoning.survival import demote_survived, drop_earlier_jobs, was_in_vain
from opsk.postmortem.values import Evidence, FailureClass, Finding, JobFacts, Origin, Place, Role

CASCADE_WORDS = re.compile(
    r"\bNCCL (?:error|communicator)|ncclRemoteError|nccl\w*Error|DistBackendError|unhandled system error"
    r"|[Cc]onnection (?:reset|closed|refused|lost)|Broken pipe|Connection(?:Reset|Aborted)Error|BrokenPipeError"
    r"|collective operation timeout|ProcessGroupNCCL(?:\.cpp|'s)|by watchdog"
    r"|[Ww]atchdog (?:caught|thread|got|hang|time)"
    r"|aborted on rank"
    r"|SIGTERM|SignalException|ChildFailedError|RendezvousClosedError|CalledProcessError|EOFError"
    r"|failed to recv|Socket Timeout|Timed out waiting (?:\d+ ?ms|for clients)|wait timeout|DistNetworkError"
    r"|Engine core initialization failed|due to an exception in a background process|See root cause above"
    r"|ActorDiedError|ActorUnavailableError|WorkerCrashedError|RayActorError"
)
_AT_EXIT = re.compile(
    r"OSError: handle is closed|new (?:futures|threads?) (?:after|at) (?:interpreter )?shutdown"
    r"|ValueError: (?:Queue|Pool|Executor) \S{1,80} is closed|process object is closed"
)
"""What threads and pools raise when their program has closed what they wait on: multiprocessing (connection.py,
queues.py, process.py), concurrent.futures (thread.py, process.py), CPython's _threadmodule.c."""
_CONFIG_TYPES = frozenset(
    ("ArgumentError", "ConfigKeyError", "ConfigAttributeError", "MissingMandatoryValue", "ValidationError",
     "ParserError", "HydraException", "OmegaConfBaseException", "FileNotFoundError", "PermissionError",
     "ModuleNotFoundError", "ImportError", "NotADirectoryError", "IsADirectoryError", "HFValidationError",
     "RepositoryNotFoundError", "DeepSpeedConfigError", "OfflineModeIsEnabled", "LocalEntryNotFoundError",
     "GatedRepoError", "NoCredentialsError", "MisconfigurationException", "MissingConfigException",
     "ConfigCompositionException", "OverrideParseException", "InstantiationException", "InterpolationKeyError",
     "UnsupportedInterpolationType", "StrictDataclassClassValidationError", "RevisionNotFoundError",
     "EntryNotFoundError", "DatasetNotFoundError", "TOMLDecodeError", "YAMLError", "ArgumentTypeError",
     "UsageError", "CUDAMismatchException", "PackageNotFoundError", "DistributionNotFound", "VersionConflict",
     "SettingsError", "BadParameter", "ZeRORuntimeException", "InvalidConfigError", "DecodingError",
     "ArgumentParserError", "UnrecognizedFlagError", "IllegalFlagValueError", "ConfigurationError", "SchemaError",
     "NotFoundError", "AlreadyExistsError", "PermissionDeniedError", "UnauthenticatedError", "UnparsedFlagAccessError",
     "NoSuchOption", "MissingParameter", "BadOptionUsage", "BadArgumentUsage", "PartialCredentialsError",
     "ProfileNotFound", "ScannerError", "ComposerError", "ConstructorError", "NoSectionError", "NoOptionError",
     "MissingSectionHeaderError", "DuplicateOptionError", "ReadonlyConfigError", "UnsupportedValueType",
     "ConfigTypeError", "ConfigValueError", "ConfigIndexError", "SearchPathException", "NSKeyError",
     "NoSuchModuleError", "AuthenticationError", "NameNotFound", "VersionNotFound", "NamespaceNotFound",
     "DeprecatedEnv", "DependencyNotInstalled", "UnregisteredEnv", "DataFilesNotFoundError", "EmptyDataError",
     "DefaultCredentialsError", "AuthenticationException", "MissingDependencyException", "DriverError")
)  # fmt: skip
_PROGRAM_TYPES = frozenset(
    ("AttributeError", "TypeError", "NameError", "UnboundLocalError", "IndexError", "ZeroDivisionError",
     "UnicodeDecodeError", "UnicodeEncodeError", "RecursionError", "StopIteration", "IndentationError", "SyntaxError")
)  # fmt: skip
"""Whatever words they have: the program's own faults."""
_SKIPPED_IN_VAIN = frozenset(("amp.scale_exhausted",))
"""Steps that are skipped until the loss scale is next to nothing: skipping helps no more."""
_TRANSFER_TYPES = frozenset(
    ("IncompleteRead", "ProtocolError", "ChunkedEncodingError", "RemoteDisconnected", "ContentDecodingError",
     "ReadTimeout", "ReadTimeoutError", "ServerDisconnectedError", "ClientPayloadError", "SSLEOFError", "URLError",
     "ContentTooShortError")
)  # fmt: skip
"""http.client, urllib, urllib3, requests and aiohttp: a transfer that broke off is no setting, whatever it expected."""
_UNKNOWN_SETTING = re.compile(
    r"(?:(?:Arg(?:ument)?s|Config\w*|Settings|Options|Trainer)\.|(?<![\w.]))__init__\(\) got an unexpected"
)
"""A setting that this version of a framework does not know."""
_PROGRAM_WORDS = re.compile(
    r"values to unpack|[Ee]xpected all tensors|size of tensor|shapes cannot be|gradient computation|require grad"
    r"|must match the size|same (?:dimensions?|shapes?|sizes?|lengths?|number)\b|Dimension out of range|mat1 and mat2"
    r"|is not (?:iterable|callable|subscriptable)|already been reduced|computed twice"
    r"|\bExpected \dD array|inconsistent numbers? of samples|could not broadcast|\bnot aligned\b"
)
"""What Python and PyTorch say of a mistake in the program, in words that settings' errors have too."""
_OF_HARDWARE = re.compile(
    r"only supports? |is_sm\d|compiled with|not (?:been )?built|without \w+ support|enforce_eager|divisible"
    r"|devices?\b.{0,20}available"
)
"""What an operator says of the GPU or build it runs on, or of sizes that a setting gives, is the configuration's."""
_CYTHON = (".pyx", ".pxi")
"""Compiled files of libraries that read data (pyarrow, h5py, netCDF4): their frames show no statement."""
_GPU_API = re.compile(r"\b(?:CUDA|HIP|CUDNN|cuBLAS|NCCL) (?:driver )?error\b", re.IGNORECASE)
"""Errors of these that no signature knows are of a kernel or a call that the program made."""
_CONFIG_WORDS = re.compile(
    r"\b(?:can(?:not|'t|’t)|could(?: not|n't)|unable to) (?:find|locate|open)\b"
    r"|divisible|must be|should be|not supported|unsupported|expected|invalid|unrecogni[sz]ed|mismatch|not found"
    r"|at least|does not (?:exist|match)|greater than|less than|world size|world_size|configuration|config\b|argument"
    r"|\bmissing (?:an? |the )?(?:required |mandatory )?(?:input |config\w* )?(?:files?|arguments?|keys?|options?"
    r"|settings?|fields?|parameters?|directory|folder|path|environment)\b"
    r"|Can't load|JSONDecode|Scanner|YAML|TOMLDecode|offline mode|is not in struct"
    r"|not equal to|please (?:set|specify|install|provide|check)|incompatible|only supports?"
    r"|unknown (?:argument|option|key|model|optimi[sz]er|scheduler|activation|backend|dataset|type|name|format|mode"
    r"|dtype|precision|tokenizer)\b|\bYou (?:can't|cannot) \w|is not in the .{1,60} registry|\bhostfile\b|do not match"
    r"|doesn't (?:support|exist|match)|do(?:es)? not (?:recogni[sz]e|support)|can only be used|must have\b"
    r"|to match\b|not installed|\binstall\b|\brequires?\b|cannot be used|not (?:available|compatible|allowed)"
    r"|outside (?:of )?(?:the )?range|Error (?:locating|instantiating|in call to) target|\bset `|--[a-z]+[-_]"
    r"|[Nn]o operator found|parameter missing|\bhandler for\b|not registered|\bwithout \w+ support|exceeds?\b"
    r"|[Nn]ot enough|insufficient|\bnot support\b|out of range|already (?:in use|occupied|running)"
    r"|\b(?:increase|decrease|reduce|lower|raise) (?:the )?[`-]?\w|could not find open port"
    r"|got an unexpected|unauthori[sz]ed|authenticat|access to .{1,80} is (?:restricted|denied)|forbidden|\b40[134]\b",
    re.IGNORECASE,
)
_CHECKS_SETTINGS = re.compile(
    r"(?:^|_)(?:arguments?|args|arg_?parser?|config(?:uration|s|_validation)?|options|settings)\.py$"
    r"|^(?:config(?:uration)?|validate)_\w{1,60}\.py$"
)
"""Files in which frameworks look at settings: Megatron's arguments.py, transformers' training_args.py and others."""
_BY_WORDS: tuple[tuple[FailureClass, re.Pattern[str]], ...] = (
    (FailureClass.GPU_MEMORY, re.compile(
        r"(?:CUDA|HIP|GPU|cu\w+|hip\w+|device).{0,60}out of memory|out of (?:CUDA|HIP|GPU|device) memory"
        r"|RESOURCE_EXHAUSTED"
    )),
    (FailureClass.HOST_MEMORY, re.compile(
        r"[Cc]an(?:no|')t allocate memory|[Oo]ut of (?:shared |host |system |CPU )?[Mm]emory|\[Errno 12\]"
        r"|memory allocation (?:of \d{1,20} bytes )?failed"
        r"|\b_?(?:Array)?MemoryError\b|killed .{0,60}memory pressure|running low on memory"
        r"|[Nn]ot enough (?:free )?(?:host|CPU|system) memory|\bhost memory (?:allocation .{0,60}null|exhausted)"
        r"|GiB of RAM is available|less than requested memory for kv"
    )),
    (FailureClass.STORAGE, re.compile(
        r"\[Errno (?:5|28|30|107|108|116|121|122)\]"
        r"|\((?:SlowDown|RequestTimeout|InternalError|ServiceUnavailable)\) when"
    )),
    (FailureClass.NUMERIC, re.compile(
        r"(?<!float\(')\b(?:nan|infs?|infinity|non-?finite|not finite)\b(?! checks were recorded)|FloatingPointError"
        r"|\b(?:loss|training|model|optimi[sz]\w{1,6})\b.{0,40}\bdiverged\b", re.IGNORECASE
    )),
    (FailureClass.RENDEZVOUS, re.compile(r"\[Errno (?:99|100|101|110|113)\]|Cannot assign requested address")),
    (FailureClass.GPU_HARDWARE, re.compile(r"uncorrectable|GPU (?:is )?lost|fallen off", re.IGNORECASE)),
)  # fmt: skip

_ABOUT_NUMBERS = re.compile(
    r"must be (?:a |of )|should be set|please set|can only handle|--[a-z][a-z-]{0,40}nan|[\[(][^\])]{1,20}, ?inf[\])]"
)
"""What a setting may be (`must be a finite number`, `in [1, inf)`), or an option that checks for NaN: no number went
wrong."""
_WAITED = re.compile(
    r"(?:[Tt]imed? ?out|[Tt]imeout|within the timeout).{0,40}\bwait(?:ing|s)? (?:for|on).{0,60}"
    r"\b(?:ranks?|nodes?|workers?|members?|peers?|process(?:es)?|servers?|hosts?|head|join)\b"
    r"|\b(?:server|worker|process|daemon|node|rank)\b.{0,60} did not (?:start|come up|become ready|join)"
    r"|\b(?:[Ff]ailed to|[Cc]ould not|[Uu]nable to) connect to .{0,40}"
    r"\b(?:server|cluster|master|head|coordinator|scheduler)\b"
    r"|[Ss]erver failed to start within the timeout|[Ff]ailed to receive .{0,40}from node \d+ within"
    r"|[Ff]ailed to report .{0,40}addresses within"
    r"|[Tt]imed out.{0,60}\bonly \d{1,7} of \d{1,7} (?:ranks|nodes|workers|processes|peers|hosts)\b"
)
"""At the start: what a program says that waited for another of its processes, which never came."""


_ENDS_WELL = ("0", "None", "False")
"""What a program exits with that ended as it was to (CPython Python/pythonrun.c)."""


def classify_exception(finding: Finding, *, has_progress: bool) -> Finding:
    """Return an exception's finding with the class and role that its text implies.

    Parameters
    ----------
    has_progress
        Whether training had begun: earlier exceptions are more often of the configuration.
    """
    kind, text = finding.fields.get("type", ""), f"{finding.fields.get('message', '')} {finding.text}"
    message = f"{kind}: {text}"
    if finding.role is Role.ADVICE or (kind == "SystemExit" and finding.fields.get("message", "0") in _ENDS_WELL):
        return replace(finding, role=Role.ADVICE, failure=None)
    if kind and finding.fields.get("handled"):
        return replace(finding, role=Role.CONFIRMATION)
    if finding.role is Role.ROOT and not kind:
        return replace(finding, role=Role.CONFIRMATION)  # cut off: the exception itself is missing
    if kind == "KeyboardInterrupt":
        return replace(finding, role=Role.ROOT, failure=FailureClass.CANCELLED)
    if finding.role is Role.ROOT and _AT_EXIT.search(message):
        return replace(finding, role=Role.CONFIRMATION)
    if finding.role is not Role.ROOT or CASCADE_WORDS.search(message):
        return replace(finding, role=Role.CASCADE)
    by_words = next((failure for failure, words in _BY_WORDS if words.search(message)), None)
    if by_words is FailureClass.NUMERIC and _ABOUT_NUMBERS.search(message):
        by_words = None
    if by_words is None and not has_progress and _WAITED.search(message):
        by_words = FailureClass.RENDEZVOUS
    if by_words is not None and kind not in _PROGRAM_TYPES:
        return replace(finding, failure=by_words)
    is_of_program = (
        kind in _TRANSFER_TYPES
        or (kind in _PROGRAM_TYPES and not _UNKNOWN_SETTING.search(message))
        or any(words.search(message) for words in (_GPU_API, _PROGRAM_WORDS))
        or _is_of_operator(finding)
    )
    is_config = kind in _CONFIG_TYPES or (
        not has_progress
        and not is_of_program
        and bool(_CONFIG_WORDS.search(message) or _CHECKS_SETTINGS.search(finding.fields.get("file", "")))
    )
    return replace(finding, failure=FailureClass.CONFIG if is_config else FailureClass.SOFTWARE)


def is_of_settings(finding: Finding) -> bool:
    """Return whether an exception is by its type one of settings, files or modules; else its words only hint at it."""
    return finding.fields.get("type", "") in _CONFIG_TYPES


def _is_of_operator(finding: Finding) -> bool:
    """Return whether an operator in C++ refused what the program gave it: no statement of Python raised it."""
    fields = finding.fields
    is_native = fields.get("type") == "RuntimeError" and bool(fields.get("at")) and not fields.get("raised")
    is_compiled = fields.get("file", "").endswith(_CYTHON) and fields.get("type") != "OSError"
    return (is_native or is_compiled) and not _OF_HARDWARE.search(fields.get("message", ""))


BEFORE_S, AFTER_S = 120.0, 600.0
"""Kernel messages count from this long before a job's start until this long after its end [s]."""
_JOB_CGROUP = re.compile(r"job_(\d+)")
_FLUSHED = "nccl.ib_flushed"
"""Of a connection that failed before: it counts where nothing else that could have begun the failure is told."""
_AS_BEFORE = 3
"""A loss that was a number again this often after it was none will be so the next time."""
_LOGGED_FOR_DEBUGGING = "workflow.interrupted"
"""Nextflow writes at this level why a session was aborted."""
_FAILED = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL")
"""Slurm's states of jobs that ended badly by themselves."""


def filter_findings(
    evidence: Evidence, *, has_progress: bool, node_of_rank: Mapping[int, str] = MappingProxyType({})
) -> tuple[Finding, ...]:
    """Return the findings that count, with their roles in this failure.

    Parameters
    ----------
    has_progress
        Whether training had begun: earlier exceptions are more often of the configuration.
    node_of_rank
        The node of each rank, where it is known.
    """
    start, end = find_window(evidence)
    job_findings = drop_earlier_jobs(
        [finding for finding in evidence.findings if _is_of_job(finding, evidence.job, start, end)], evidence.ranks
    )
    specific = {
        (finding.source, finding.line)
        for finding in job_findings
        if finding.signature != "python.exception" and finding.role is not Role.ADVICE
    }
    handled = {(each.source, each.line): each.count for each in job_findings if each.fields.get("handled")}
    again = {_name_report(each): each.count for each in job_findings if each.fields.get("event") == RECOVERED}

    def went_on(finding: Finding) -> bool:
        """Return whether the program itself says, or shows by what it reports later, that it went on."""
        if finding.count * _AS_BEFORE <= again.get(_name_report(finding), 0):
            return True
        is_handled = finding.count <= handled.get((finding.source, finding.line), 0)
        is_tried_again = finding.signature not in _SKIPPED_IN_VAIN and TRIED_AGAIN.search(finding.text) is not None
        goes_on = is_handled or is_tried_again
        return finding.origin is Origin.JOB_LOG and goes_on and not was_in_vain(finding, evidence.ranks)

    filtered, dropped = [], []
    for finding in job_findings:
        if finding.signature == "python.exception":
            if (finding.source, finding.line) in specific and finding.fields.get("type"):
                dropped.append(finding)  # the exception has a signature of its own
                continue
            finding = classify_exception(finding, has_progress=has_progress)
        elif finding.signature in PROCESS_ENDS and CASCADE_WORDS.search(finding.text):
            finding = replace(finding, role=Role.CASCADE)
        elif finding.signature == "slurm.node_failure":
            finding = replace(finding, place=Place())  # the node named is the one that printed it, which lives
        elif finding.role is Role.ROOT and went_on(finding):
            finding = replace(finding, role=Role.CONFIRMATION)
        if finding.role is Role.ROOT and find_level(finding) == "DEBUG" and finding.signature != _LOGGED_FOR_DEBUGGING:
            finding = replace(finding, role=Role.ADVICE, failure=None)
        elif finding.role is Role.ROOT and finding.origin is Origin.JOB_LOG and is_python_warning(finding):
            finding = replace(finding, role=Role.CONFIRMATION)
        filtered.append(_check_claim(finding, evidence.job))
    filtered = demote_earlier_runs(_demote_flushes(filtered), evidence.ranks)
    steps = LastSteps.of(evidence)
    changed = demote_consequences(believe_quoted_xids(filtered, steps), dropped, steps, node_of_rank)
    has_failed = evidence.job is not None and evidence.job.state.startswith(_FAILED)
    return demote_survived(changed, evidence.ranks, has_failed=has_failed)


def _demote_flushes(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings in which operations that were given up follow from whatever else can have been the root."""
    if not any(each.role is Role.ROOT and each.signature != _FLUSHED for each in findings):
        return list(findings)
    return [replace(each, role=Role.CASCADE) if each.signature == _FLUSHED else each for each in findings]


def _name_report(finding: Finding) -> tuple[str, str, int | None]:
    """Return by what the reports of one loss are known: their signature, log and rank."""
    return finding.signature, finding.source, finding.place.rank


def find_window(evidence: Evidence) -> tuple[float, float]:
    """Return the time in which kernel messages can be about this job: by Slurm's record, else by the logs."""
    job, infinite = evidence.job, float("inf")
    start = job.start_s if job is not None else None
    end = job.end_s if job is not None else None
    if start is None:
        start = min((each.first_line_s for each in evidence.ranks if each.first_line_s is not None), default=None)
    if end is None:
        times = [
            time_s
            for each in evidence.ranks
            for time_s in (each.last_line_s, each.last_progress_s)
            if time_s is not None
        ]
        times += [
            finding.time_s
            for finding in evidence.findings
            if finding.time_s is not None and finding.origin in _JOB_TEXT
        ]
        end = max(times, default=None)
    return (
        start - BEFORE_S if start is not None else -infinite,
        end + AFTER_S if end is not None else infinite,
    )


_JOB_TEXT = (Origin.JOB_LOG, Origin.LAUNCHER)


def _is_of_job(finding: Finding, job: JobFacts | None, start: float, end: float) -> bool:
    """Return whether a finding is about this job: its nodes, its time, its processes."""
    cgroup = _JOB_CGROUP.search(finding.fields.get("cgroup", ""))
    if cgroup is not None and job is not None and job.job_id.isdecimal() and cgroup[1] != job.job_id:
        return False
    if finding.origin in _JOB_TEXT or finding.time_s is None:
        return True
    if job is not None and finding.place.node and job.nodes and finding.place.node not in job.nodes:
        return False
    last = finding.last_time_s if finding.last_time_s is not None else finding.time_s
    return finding.time_s <= end and last >= start


def _check_claim(finding: Finding, job: JobFacts | None) -> Finding:
    """Demote a line that claims to be from Slurm where Slurm's record contradicts it."""
    if finding.origin is not Origin.LAUNCHER or job is None or not job.state:
        return finding
    claims = {
        FailureClass.TIME_LIMIT: ("TIMEOUT", "DEADLINE"),
        FailureClass.PREEMPTED: ("PREEMPTED", "REQUEUED"),
        FailureClass.CANCELLED: ("CANCELLED",),
    }.get(finding.failure or FailureClass.SOFTWARE)
    if claims is None or finding.role is not Role.ROOT or job.state.split()[0] in claims:
        return finding
    return replace(finding, role=Role.CONFIRMATION)
