"""Counts the parameters of the models that a program makes."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from opsk.workload.unstated.layer_limit import LayerSums
from opsk.workload.unstated.sample_limit import OPEN_FEATURES, SEVERAL
from opsk_jobcheck.scripts.frameworks.own_models.counting import count_parameters
from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.machine import MAX_STEPS, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.noted_calls import NotedCall
from opsk_jobcheck.scripts.frameworks.own_models.stand_ins import find_stand_in
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory, join_steps
from opsk_jobcheck.scripts.frameworks.own_models.training.layer_sums import (
    REPEATS,
    find_calls,
    repeat_no_layer,
    runs_layers_once,
    sum_layers,
)
from opsk_jobcheck.scripts.frameworks.own_models.training.model_classes import list_classes
from opsk_jobcheck.scripts.frameworks.own_models.training.open_layers import sum_open_layers
from opsk_jobcheck.scripts.frameworks.own_models.training.reached import (
    reaches_training,
    starts_training_by_decorator,
)
from opsk_jobcheck.scripts.frameworks.own_models.training.training_steps import TrainingSteps
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    CannotCountError,
    File,
    FinishedError,
    Frame,
    Span,
)

SHORT = 2
_GRAPHS = re.compile(r"(torch_geometric|dgl|torch_scatter|torch_sparse|torch_cluster|ogb)\b")
"""Packages of graphs."""
_OTHER_ENGINES = re.compile(r"(tensorflow|keras|jax|flax|mxnet)\b")
"""Packages whose training loops are not followed."""
_PUBLIC = re.compile(
    r"torchvision(\.|:)models|^timm\b(?!(\.|:)(utils|data|scheduler|optim|loss|layers|models(\.|:)layers)\b)|torch(\.|:)hub|diffusers|open_clip|segmentation_models_pytorch|efficientnet_pytorch"
    r"|monai\.networks|transformers(\.|:)(\w+\.)*(Auto\w*Model\w*|\w+For[A-Z]\w+|\w+Model)$"
)
"""Packages of public models, and their classes."""
_MAKES_PUBLIC = re.compile(
    r"(wide_)?resne[xs]?t\d\w*|vgg\d\w*|densenet\d\w*|create_model|from_pretrained|inception_v3|alexnet"
)
"""Functions that make one."""
_READS_IMAGES = re.compile(
    r"torchvision|PIL|\bcv2|skimage|imageio|timm|albumentations|kornia|monai|nibabel|SimpleITK|tifffile|rasterio|pydicom"
)
"""Packages of images."""
_NOT_UNDERSTOOD = (RecursionError, TypeError, ValueError, ArithmeticError, KeyError, AttributeError, IndexError)
"""What following a text may raise that is no program, or none that runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The parameters of the models that a program uses, and of those whose parameters it hands on; of all for none."""

    parameters: Span
    trained: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLayers:
    """Sums over the layers of models by what the sizes that only the data tell may be, and what reads a sample.

    ``passes`` are how many passes a step saves at most; ``reads_images`` tells that a package of images is imported,
    ``joins_parts`` that the parts of a sample are joined with the samples of a batch.
    """

    rows: tuple[LayerSums, ...]
    is_graph: bool
    passes: int
    reads_images: bool = True
    joins_parts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What following a program tells: its models' parameters, or ``why`` they are not known, and what it calls.

    ``step`` is the memory of its largest training step; ``None`` where none was found. ``is_usual`` tells that the
    input of its model was taken from the settings, since its data set does not tell it; ``trains`` that it comes to a
    backward pass, or hands a module to a trainer, for sure, ``is_other`` that it ends without any, ``may_train`` that
    what it calls goes backward, by the names alone. ``layers`` are the
    sums over its models' layers where these run once on each sample, ``open_layers`` those with sizes that only the
    data tell, ``cut_side`` and ``batch_size`` what its loader yields as far as that is known (0), ``is_batch_known``
    that this is so of each that it trains with, and that these are the same. ``places`` are the
    files and lines in which it loads a model or makes tokens, or may; ``None`` where it was not followed to its end.
    """

    count: Count | None
    why: str
    step: StepMemory | None
    is_usual: bool
    trains: bool
    is_other: bool
    calls: tuple[NotedCall, ...]
    may_train: bool = False
    layers: LayerSums | None = None
    open_layers: OpenLayers | None = None
    cut_side: int = 0
    batch_size: int = 0
    is_batch_known: bool = False
    places: frozenset[tuple[str, int]] | None = None


def follow_program(
    files: Sequence[File], settings: LookUp, *, is_short: bool = False, inputs: Inputs | None = None
) -> Followed:
    """Follow a program, the file that is started first, as far as that can be done.

    Parameters
    ----------
    is_short
        Whether a part of the usual steps is enough: its model is known, and only what it is given is not.
    inputs
        Sizes of a sample by the settings of the program, for what its data sets do not tell.
    """
    machine = TrainingSteps(Files(files), settings, MAX_STEPS // SHORT if is_short else MAX_STEPS, inputs=inputs)
    try:
        count, why = _count(machine), ""
    except CannotCountError as error:
        count, why = None, str(error)
    step = join_steps(machine.step_memories, machine.step_reasons)
    is_other = _ends_without_training(machine)
    return Followed(
        count=count,
        why=why,
        step=step,
        is_usual=machine.is_usual,
        trains=machine.trains,
        is_other=is_other,
        may_train=machine.trains or (not is_other and reaches_training(machine.files.rows)),
        calls=tuple(machine.noted.values()),
        layers=_sum_layers(machine, count),
        open_layers=_sum_open_layers(machine) if count is not None and not _is_exact(count, step) else None,
        cut_side=max(machine.sides, default=0),
        batch_size=max(machine.batch_sizes, default=0),
        is_batch_known=machine.may_train_here and len(machine.batch_sizes) == 1 and not machine.has_open_batch,
        places=frozenset(machine.places) if machine.is_whole and count is not None else None,
    )


def _ends_without_training(machine: TrainingSteps) -> bool:
    """Return whether a program was followed to its end, and came to nothing that may train."""
    if machine.may_train_here or machine.step_reasons or machine.unknown or machine.trained or not machine.is_whole:
        return False
    files = machine.files.rows
    is_tensorflow = any(_OTHER_ENGINES.match(name) for name in files[0].imports.values())
    return not is_tensorflow and not starts_training_by_decorator(files[0])


def _sum_layers(machine: TrainingSteps, count: Count | None) -> LayerSums | None:
    """Return the sums over all layers, where each runs once on each sample."""
    if count is None or count.parameters.high is None or not runs_layers_once(machine.files.rows):
        return None
    return sum_layers(machine.used.values(), machine.files.rows)


def _is_exact(count: Count, step: StepMemory | None) -> bool:
    """Return whether the parameters of a program and what its step stores have limits without its layers."""
    return count.parameters.high is not None and step is not None and not step.reason


def _sum_open_layers(machine: TrainingSteps) -> OpenLayers | None:
    """Return the sums over all layers with sizes that only the data tell, where each runs once on each sample."""
    files, models = machine.files.rows, list(machine.used.values())
    classes = list_classes(models, files)
    if machine.has_lost_model or find_calls(files, REPEATS) or not repeat_no_layer(classes, may_join=True):
        return None
    rows = sum_open_layers(models, files, OPEN_FEATURES)
    if not rows or (_name_public_models(files) and not rows[0].has_public):
        return None
    is_graph = any(_GRAPHS.match(name) for file in files for name in file.imports.values())
    reads_images = any(_READS_IMAGES.search(name) for file in files for name in file.imports.values())
    passes = SEVERAL if find_calls(files, {"grad"}) else 1
    joins = not repeat_no_layer(classes)
    return OpenLayers(rows=rows, is_graph=is_graph, passes=passes, reads_images=reads_images, joins_parts=joins)


def _name_public_models(files: Sequence[File]) -> bool:
    """Return whether a program imports public models, or calls what makes one."""
    names = (name for file in files for name in file.imports.values())
    imported = any(_PUBLIC.search(name) and find_stand_in(name.replace(":", ".")) is None for name in names)
    own = {name for file in files for name in file.nodes} | {
        part.name
        for file in files
        for row in file.nodes.values()
        for node in row
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef)
    }
    called = (name for file in files for calls in file.digest.calls.values() for name, _ in calls)
    return imported or any(name not in own and _MAKES_PUBLIC.fullmatch(name) for name in called)


def _count(machine: TrainingSteps) -> Count:
    """Follow a program and return the parameters of its models.

    Raises
    ------
    CannotCountError
        Why they cannot be counted.
    """
    try:
        _run_program(machine)
        if machine.unknown:
            raise CannotCountError(f"line {machine.unknown[0].lineno} uses a model that is not known")
        used = [*machine.used.values()]
        if not used:
            raise CannotCountError("no model was found in its text")
        every = count_parameters(used)
        if every.high == 0:
            raise CannotCountError("no layer was found in its text")
        return Count(parameters=every, trained=count_parameters(machine.trained.values() or used))
    except _NOT_UNDERSTOOD as error:
        raise CannotCountError("the program is not understood") from error


def _run_program(machine: TrainingSteps) -> None:
    """Follow the file that is started, and the function of it that a decorator starts."""
    file = machine.files.rows[0]
    frame = Frame(file, file.names)
    file.names["__name__"] = "__main__"
    file.is_run = True
    with suppress(FinishedError):
        machine.run(file.digest.tree.body, frame)
        machine.is_whole = True
