"""States how many parameters the models have that a user's own program makes, where nothing names its model."""

from __future__ import annotations

from opsk.workload.counted_parameters import COUNTED, COUNTED_TRAINED, ParameterRange
from opsk_jobcheck.scripts.bash.values import Invocation, literal
from opsk_jobcheck.scripts.frameworks.own_models.arguments import list_arguments
from opsk_jobcheck.scripts.frameworks.own_models.count import count_models
from opsk_jobcheck.scripts.frameworks.own_models.values import CannotCountError
from opsk_jobcheck.scripts.frameworks.own_program.model_files import read_model_files
from opsk_jobcheck.scripts.frameworks.own_program.started_with import StartedWith
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.launchers.programs import Program
from opsk_jobcheck.scripts.settings.config_file import ConfigFile
from opsk_jobcheck.scripts.settings.reader import Reading

_TORCH = frozenset({"torch", "pytorch_lightning", "lightning"})


def state_parameters(settings: ProgramSettings, program: Program, invocation: Invocation, reading: Reading) -> None:
    """State the parameters of the models that the program makes; see `opsk.workload.counted_parameters`."""
    source = settings.source
    if source is None or not any(name.partition(".")[0] in _TORCH for name in source.imports):
        return
    files = read_model_files(program, invocation, reading)
    if not files:
        return

    def read_config(path: str) -> ConfigFile | None:
        return reading.config(literal(path, invocation.line), invocation)

    try:
        count = count_models(files, StartedWith(settings, list_arguments(files), read_config))
    except CannotCountError:
        return
    for name, span in ((COUNTED, count.parameters), (COUNTED_TRAINED, count.trained)):
        reading.findings.options[name] = str(ParameterRange(low=span.low, high=span.high))
