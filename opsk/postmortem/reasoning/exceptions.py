"""What does an exception tell whose text has no signature of its own? Its type and words, read with care.

A program's last words are many, so this goes by general forms: names of system errors, of memory, of numbers that are
none, of settings. What connections and collectives raise when another rank is gone is a cascade; what a program says it
will try again was survived.
"""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.postmortem.values import FailureClass, Role, Sign

CASCADE_WORDS = re.compile(
    r"NCCL (?:error|communicator)|ncclRemoteError|nccl\w*Error|DistBackendError|unhandled system error"
    r"|[Cc]onnection (?:reset|closed|refused|lost)|Broken pipe|Connection(?:Reset|Aborted)Error|BrokenPipeError"
    r"|collective operation timeout|ProcessGroupNCCL|watchdog|Process group watchdog|aborted on rank"
    r"|SIGTERM|SignalException|ChildFailedError|RendezvousClosedError|CalledProcessError|EOFError"
    r"|failed to recv|Socket Timeout|Timed out waiting|wait timeout|DistNetworkError"
)
TRIED_AGAIN = re.compile(
    r"\b(?:re-?try(?:ing)?\b(?! (?:count )?exceeded)|retry loop|(?<!and )(?<!then )try(?:ing)? again"
    r"|attempt \d+ (?:of|/)|\(\d+ of \d+\)"
    r"|falling back|continuing (?:on|with)|will be ignored|ignoring|Exception ignored)",
    re.IGNORECASE,
)
_CONFIG_TYPES = frozenset(
    ("ArgumentError", "ConfigKeyError", "ConfigAttributeError", "MissingMandatoryValue", "ValidationError",
     "ParserError", "HydraException", "OmegaConfBaseException", "FileNotFoundError", "PermissionError",
     "ModuleNotFoundError", "ImportError", "NotADirectoryError", "IsADirectoryError", "HFValidationError",
     "RepositoryNotFoundError", "DeepSpeedConfigError", "OfflineModeIsEnabled", "LocalEntryNotFoundError",
     "GatedRepoError", "NoCredentialsError")
)  # fmt: skip
_CONFIG_WORDS = re.compile(
    r"divisible|must be|should be|not supported|unsupported|expected|invalid|unrecogni[sz]ed|mismatch|not found"
    r"|at least|does not (?:exist|match)|greater than|less than|world size|world_size|configuration|config\b|argument"
    r"|Can't load|JSONDecode|Scanner|YAML|TOMLDecode|offline mode|is not in struct"
    r"|got an unexpected|unauthori[sz]ed|authenticat|access to .{1,80} is (?:restricted|denied)|forbidden|\b40[134]\b",
    re.IGNORECASE,
)
_BY_WORDS: tuple[tuple[FailureClass, re.Pattern[str]], ...] = (
    (FailureClass.GPU_MEMORY, re.compile(
        r"(?:CUDA|HIP|GPU|cu\w+|device).{0,60}out of memory|out of (?:CUDA|HIP|GPU|device) memory|RESOURCE_EXHAUSTED"
    )),
    (FailureClass.HOST_MEMORY, re.compile(
        r"[Cc]an(?:no|')t allocate memory|out of (?:shared |host |system |CPU )?memory|\[Errno 12\]"
        r"|\b_?(?:Array)?MemoryError\b|memory pressure|running low on memory"
    )),
    (FailureClass.STORAGE, re.compile(
        r"\[Errno (?:5|28|30|107|108|116|121|122)\]"
        r"|\((?:SlowDown|RequestTimeout|InternalError|ServiceUnavailable)\) when"
    )),
    (FailureClass.NUMERIC, re.compile(
        r"\b(?:nan|infs?|non-?finite|not finite)\b|FloatingPointError|\bdiverged\b", re.IGNORECASE
    )),
    (FailureClass.GPU_HARDWARE, re.compile(r"uncorrectable|GPU (?:is )?lost|fallen off", re.IGNORECASE)),
)  # fmt: skip


def classed(sign: Sign, *, has_progress: bool) -> Sign:
    """Return an exception's sign with the class and part that its words tell.

    Parameters
    ----------
    has_progress
        Whether training had begun: exceptions before that are more often of the configuration.
    """
    kind, text = sign.fields.get("type", ""), f"{sign.fields.get('message', '')} {sign.text}"
    message = f"{kind}: {text}"
    if sign.role is Role.ROOT and not kind:
        return replace(sign, role=Role.CONFIRMATION)  # cut off: what was raised is not there
    if kind == "KeyboardInterrupt":
        return replace(sign, role=Role.ROOT, failure=FailureClass.CANCELLED)
    if sign.role is not Role.ROOT or CASCADE_WORDS.search(message):
        return replace(sign, role=Role.CASCADE)
    if sign.fields.get("handled"):
        return replace(sign, role=Role.CONFIRMATION)
    for failure, words in _BY_WORDS:
        if words.search(message):
            return replace(sign, failure=failure)
    is_config = kind in _CONFIG_TYPES or (not has_progress and bool(_CONFIG_WORDS.search(message)))
    return replace(sign, failure=FailureClass.CONFIG if is_config else FailureClass.SOFTWARE)
