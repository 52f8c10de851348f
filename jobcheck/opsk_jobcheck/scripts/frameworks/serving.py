"""Reads what a job that only generates serves: vLLM's and SGLang's commands, and ``vllm.LLM(...)`` in a Python file.

Names: ``vllm/engine/arg_utils.py`` (``EngineArgs``) and ``sglang/srt/server_args.py``. What is read is used only where
the site turns advice on such jobs on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from opsk.workload import serving
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.python.settings import collect_settings
from opsk_jobcheck.scripts.launchers.programs import (
    Program,
    find_command,
    find_program,
    parse_program_arguments,
    parse_program_flags,
)
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.reader import Reading

_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        serving.MODEL: ("model", "model_path"),
        serving.TP: ("tensor_parallel_size", "tp", "tp_size"),
        serving.PP: ("pipeline_parallel_size", "pp", "pp_size"),
        serving.SHARE: ("gpu_memory_utilization", "mem_fraction_static"),
        serving.LENGTH: ("max_model_len", "context_length"),
        serving.QUANTISED: ("quantization",),
        serving.CACHE_FORMAT: ("kv_cache_dtype",),
    }
)
_VLLM = re.compile(r"vllm\.entrypoints\.(openai\.)?api_server|vllm\.entrypoints\.openai\.run_batch")
_SGLANG = re.compile(r"sglang\.launch_server|(.*/)?sglang/launch_server\.py")
_UNCOUNTED = re.compile(
    r"cpu_offload_gb|enable_lora|speculative.*|draft_model.*|data_parallel_size|dp_size|enable_dp_.*"
)
"""Settings with which an engine keeps more, or other things, than are counted."""
_SHORT = MappingProxyType({"-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-q": "quantization"})
MAX_COMMANDS = 64


def read_serving(invocations: Sequence[Invocation], reading: Reading) -> None:
    """State as options what the one engine of a script serves; nothing where there are several, or none."""
    asked = len(reading.missing_files)
    engines = [row for entry in invocations[:MAX_COMMANDS] if (row := _find_engine(entry, reading)) is not None]
    del reading.missing_files[asked:]  # no file is asked for on behalf of a job that is left alone
    if len(engines) != 1:
        return
    engine, given = engines[0]
    options = reading.findings.options
    options[serving.ENGINE] = engine
    for option, names in _NAMES.items():
        entry = next((given[name] for name in names if name in given), None)
        if entry is None:
            continue
        if entry.why:
            options[serving.UNKNOWN] = f"{names[0].replace('_', ' ')}: {entry.why}"[:160]
        elif entry.value is not None:
            options[option] = str(entry.value)[:200]
    uncounted = next((name for name in given if _UNCOUNTED.fullmatch(name)), "")
    if uncounted:
        options[serving.UNKNOWN] = f"what {uncounted} adds or moves is not counted"


def _find_engine(invocation: Invocation, reading: Reading) -> tuple[str, Mapping[str, Entry]] | None:
    """Return the engine that a command starts and its settings."""
    command = find_command(invocation, "vllm")
    if command is not None and command.words and command.words[0].known == "serve":
        given = _collect(Program(name="vllm", is_module=False, words=command.words[1:], invocation=invocation))
        first = command.words[1] if len(command.words) > 1 else None
        if first is not None and not first.shown.startswith("-"):
            given["model"] = Entry(value=first.known, line=first.line, why="" if first.known is not None else first.why)
        return "vllm", given
    program = find_program(invocation)
    if program is None or len(program.name) > 512:
        return None
    if _VLLM.fullmatch(program.name) or _SGLANG.fullmatch(program.name):
        return ("vllm" if _VLLM.fullmatch(program.name) else "sglang"), _collect(program)
    return _find_object(program, invocation, reading)


def _collect(program: Program) -> dict[str, Entry]:
    """Return the flags of a command, short ones by their long names; unknown words make the model unknown."""
    given = dict(parse_program_flags(program))
    for short, name in _SHORT.items():
        key = short[1:]
        if key in given and name not in given:
            given[name] = given[key]
    arguments = parse_program_arguments(program)
    values = {id(argument.value) for argument in arguments.flags.values()}
    opaque = [word for word in arguments.opaque[1:] if id(word) not in values]
    if opaque:
        given.setdefault("model", Entry(why=opaque[0].why))
    return given


def _find_object(program: Program, invocation: Invocation, reading: Reading) -> tuple[str, Mapping[str, Entry]] | None:
    """Return what a Python file passes to ``vllm.LLM``, where its text is at hand."""
    settings = collect_settings(program, invocation, reading)
    source = settings.source
    if source is None or not any(name.partition(".")[0] == "vllm" for name in source.imports):
        return None
    call = next((call for call in source.calls if call.function == "LLM"), None)
    if call is None:
        return None
    given: dict[str, Entry] = {}
    for names in _NAMES.values():
        for name in names:
            value = call.keywords.get(name)
            if value is not None:
                given[name] = settings.resolve(value)
    if "model" not in given and (call.first.is_known or call.first.name):
        given["model"] = settings.resolve(call.first)
    return "vllm", given
