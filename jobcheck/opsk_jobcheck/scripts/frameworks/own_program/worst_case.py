"""States what the batch and the trained part of a program are at most, where nothing states them exactly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from opsk.frameworks.settings.usual_settings import BATCHES
from opsk.workload import smallest_case
from opsk.workload.public_models.measured import is_public
from opsk.workload.roles import METHOD
from opsk.workload.worst_case import CHECKED, MICRO_BATCH, TRAINED
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import is_only_about_adapters
from opsk_jobcheck.scripts.frameworks.own_models.count import Followed
from opsk_jobcheck.scripts.frameworks.own_program.adapters import state_largest_adapters
from opsk_jobcheck.scripts.frameworks.own_program.following import is_one_model
from opsk_jobcheck.scripts.frameworks.own_program.model import list_loaded
from opsk_jobcheck.scripts.frameworks.own_program.numbers import FIELDS
from opsk_jobcheck.scripts.frameworks.own_program.plan import spreads_layers
from opsk_jobcheck.scripts.frameworks.own_program.samples import check_samples
from opsk_jobcheck.scripts.frameworks.own_program.sentence_encoders import TEXTS, is_sentence_encoder
from opsk_jobcheck.scripts.frameworks.python.parts import is_installed
from opsk_jobcheck.scripts.frameworks.python.roles import find_trainers
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.settings.findings import Findings, parse_integer
from opsk_jobcheck.scripts.settings.reader import Reading

MAX_BATCH = 1 << 20
_FROZEN = "unknown: part of the model is frozen"
_OTHER_MODELS = re.compile(
    r"(?i)teacher|\bema\b|deepcopy|hub\.load|torch\.load|load_from_checkpoint|\bModule\b|discriminator|critic|perceptual"
    r"|lpips|momentum_encoder|target_net|ref_model|reference_model|reward_model"
)
"""Words of programs that may hold other models: copies, those of their own, and those of other files."""
_OTHER_LOADING = re.compile(
    r"(?i)peft|lora|quant|bitsandbytes|load_in|unsloth|freez|requires_grad|offload|8bit|4bit|galore|lomo|badam|fsdp|shard"
    r"|adafactor|\bsgd\b|half\(|float8|fp8|layer_indices|pop\(|num_hidden_layers|n_layer"
)
"""Words of programs that may take less memory than training the whole model with Adam does."""
_LOADERS = re.compile(r"\w*Loader\w*|BatchSampler")


def state_worst_case(
    settings: ProgramSettings, invocation: Invocation, reading: Reading, follow: Callable[[], Followed | None]
) -> None:
    """State the options of the worst case; see `opsk.workload.worst_case`.

    Parameters
    ----------
    follow
        Follows the program.
    """
    findings = reading.findings
    has_roles = METHOD in findings.options
    if settings.source is None or settings.closed or (find_trainers(settings) and not has_roles):
        return
    is_encoder, text = is_sentence_encoder(settings.source), "\n".join(settings.source.lines)
    if not check_samples(invocation, text, findings, has_roles=has_roles) and not is_encoder:
        return
    if is_encoder:
        findings.options[CHECKED] = "true"
        findings.mark_unknown("plan.micro_batch", "a sample is two texts, or more", invocation.line)
    _state_batch(settings, reading, follow, texts=TEXTS if is_encoder else 1)
    if is_only_about_adapters(findings.options) and len(list_loaded(settings)) == 1:
        findings.options[TRAINED] = "true"
        state_largest_adapters(settings, findings)
    elif findings.options.get(TRAINABLE, "").startswith(_FROZEN) and (
        _loads_one_model(settings) or is_one_model(reading.model_name, follow(), is_part_enough=True)
    ):
        findings.options[TRAINED] = "true"


def _loads_one_model(settings: ProgramSettings) -> bool:
    """Return whether a program loads one model by its name, and says nothing of copies, or of models of its own."""
    source = settings.source
    if source is None or len(list_loaded(settings)) != 1 or len(list(source.find_calls("from_pretrained"))) < 1:
        return False
    return not any(map(_OTHER_MODELS.search, source.lines))


def check_loading(settings: ProgramSettings, findings: Findings) -> None:
    """State whether a program loads the one model that it trains itself, and takes nothing from modules of its own."""
    source = settings.source
    if source is None or settings.closed or not all(map(is_installed, source.imports)):
        return
    loads = [call for call in source.find_calls("from_pretrained") if call.owner.startswith("AutoModel")]
    if len(loads) == 1 and not loads[0].conditions and not any(map(_OTHER_LOADING.search, source.lines)):
        findings.options[smallest_case.CHECKED] = "true"


def _state_batch(
    settings: ProgramSettings, reading: Reading, follow: Callable[[], Followed | None], *, texts: int
) -> None:
    """State the largest batch that the settings, or the loaders of the program, name, of so many texts a sample."""
    findings = reading.findings
    if "plan.micro_batch" in findings.values and "plan.micro_batch" not in findings.unknown:
        return
    if MICRO_BATCH in findings.options:  # what a batch is cut to
        return
    sizes = list(_list_batches(settings))
    if (not sizes or None in sizes) and is_public(reading.model_name or ""):
        followed = follow()
        sizes = [followed.batch_size] if followed is not None and followed.is_batch_known else sizes
    if sizes and None not in sizes:
        # one process that has several GPUs may gather what all of them put out on the first (nn.DataParallel), unless
        # it has the layers of one model on them
        is_copied = "plan.dp" in findings.unknown and not spreads_layers(settings)
        gathered = (findings.get("plan.gpus") or 1) if is_copied else 1
        findings.options[MICRO_BATCH] = str(texts * gathered * max(size for size in sizes if size is not None))


def _list_batches(settings: ProgramSettings) -> Iterator[int | None]:
    """Yield the batches that are named; ``None`` for one that is not known."""
    names = (*FIELDS["plan.micro_batch"], *BATCHES)
    entry = settings.find(names)
    if entry is not None and not entry.why:
        yield _parse_batch(entry.value)
        return
    if each := settings.find_each(names):
        yield from (None if row.why else _parse_batch(row.value) for row in each)
        return
    for call in settings.source.calls if settings.source is not None else ():
        value = call.keywords.get("batch_size") if _LOADERS.fullmatch(call.function) else None
        if value is not None:
            if value.options:
                yield from map(_parse_batch, value.options)
                continue
            given = settings.resolve(value)
            size = None if given.why else _parse_batch(given.value)
            yield None if size == 1 else size  # its data set may make whole batches


def _parse_batch(value: object) -> int | None:
    """Return a batch; ``None`` for what is none."""
    number = parse_integer(value) if value is not None else None
    return number if number is not None and 0 < number <= MAX_BATCH else None
