"""Follows one step of each training loop of a program, with a batch as its loader yields it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, MAX_STEPS, Flow, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.names import NO_CALL
from opsk_jobcheck.scripts.frameworks.own_models.statements import iterate
from opsk_jobcheck.scripts.frameworks.own_models.tensors.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.tensors.tensors import make_tensor
from opsk_jobcheck.scripts.frameworks.own_models.training.keras_models import KerasModels
from opsk_jobcheck.scripts.frameworks.own_models.training.made import is_data, is_made
from opsk_jobcheck.scripts.frameworks.own_models.training.tensor_values import list_tensors
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs, make_usual_input
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    DATA,
    CannotCountError,
    File,
    FinishedError,
    Frame,
    FunctionValue,
    Module,
    Tensor,
    is_unknown,
    list_options,
)

MAX_STEPS_OF_LOOPS = 10_000
"""Steps that are followed in training loops, beyond those that make the models."""
_NOT_UNDERSTOOD = (RecursionError, TypeError, ValueError, ArithmeticError, KeyError, AttributeError, IndexError)
_GIVES_BACK = frozenset({"scale", "gather", "reduce", "gather_for_metrics"})
"""Methods of a gradient scaler, or of Accelerate, that return what they are given."""
_READS = frozenset(
    {"log", "log_dict", "update", "add_scalar", "add_scalars", "step", "append", "set_postfix", "info", "add"}
)
"""Methods of loggers, meters and optimizers, which save nothing for the backward pass."""
_PREPARES = frozenset({"prepare", "setup", "setup_dataloaders", "prepare_data_loader", "prepare_model"})
"""Methods of Accelerate and of Lightning's Fabric that return what they are given, or one around it."""
_OF_MODELS = frozenset(
    {"parameters", "named_parameters", "get_parameters", "train", "eval", "modules", "children", "requires_grad_"}
)
"""Methods of models, and of what trains one: what has one of them and is not known may be a model of any size."""
_MAY_TRAIN = frozenset({"fit", "learn", "optimize", "launch", "spawn"})
"""Methods of packages that may train."""
_METRICS = re.compile(
    r"(Binary|Multiclass|Multilabel)?(Accuracy|F1Score|AUROC|Precision|Recall|JaccardIndex|ConfusionMatrix|AveragePrecision)"
    r"|MeanMetric|R2Score|MetricCollection|MeanAbsoluteError|PeakSignalNoiseRatio"
)
"""Classes of torchmetrics."""
_EVALUATION = re.compile(r"_?(run_|do_)?(val|vali|valid|validate|validation|test|eval|evaluate|evaluation)(_\w{1,40})?")
"""Functions that evaluate, by their names."""
_REPEATS = "how often line "
_LOADERS = ("train_dataloaders", "train_dataloader", "train_loader", "datamodule")


class TrainingSteps(KerasModels):
    """Follows training loops; what they set counts no more afterwards."""

    def __init__(
        self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS, *, inputs: Inputs | None = None
    ) -> None:
        super().__init__(files, settings, max_steps)
        self.inputs = inputs or Inputs()
        self.has_input, self.is_usual = False, False
        self.step_memories: list[StepMemory] = []
        self.step_reasons: list[str] = []
        self.is_in_loop, self.is_sure_loop = False, False
        self.trains, self.may_train_here, self.is_whole = False, False, False
        self.measured: set[int] = set()
        self.loop_steps = 0
        self.step_names: frozenset[str] = frozenset()

    def train(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> Flow:
        """Follow a loop that trains."""
        if self.tape is not None and not _calls_backward(statement, frame.file):
            self._repeat_in_step(statement, frame)
            return GO_ON
        if self.is_in_loop:
            self._follow_loop(statement, frame)
            return GO_ON
        if id(statement) not in self.measured:
            self._measure(lambda: self._follow_loop(statement, frame))
        return super().train(statement, frame)

    def is_followed(self, code: ast.FunctionDef | ast.AsyncFunctionDef, file: File, *, gets_settings: bool) -> bool:
        """Return whether a function is followed: all are while a step is, and those that train while a loop is."""
        if self.tape is not None or (self.is_in_loop and id(code) in file.digest.trains):
            return True
        return super().is_followed(code, file, gets_settings=gets_settings)

    def follow(
        self, function: FunctionValue, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Follow a function; one that trains without a loop is a step."""
        code, trains = function.node, function.file.digest.trains
        if id(code) in trains and _evaluates(code, function.file):
            self.use_arguments(positional, keywords, node, frame)
            return DATA
        if self.tape is not None and id(code) in trains:
            self.measured.add(id(code))
        if isinstance(code, ast.Lambda) or self.tape is not None or id(code) not in trains:
            return super().follow(function, positional, keywords, node, frame)
        has_loop = any(id(part) in trains for part in ast.walk(code) if part is not code)
        if self.is_in_loop and not has_loop:
            self._take_step(
                lambda: super(TrainingSteps, self).follow(function, positional, keywords, node, frame),
                code,
                trains=_calls_backward(code, function.file),
            )
            return DATA
        is_main = function.kind is None or not function.kind.node.bases
        is_left_out = is_main and not self.is_followed(code, function.file, gets_settings=False)
        if not self.is_in_loop and id(code) not in self.measured and (is_left_out or not has_loop):
            self.measured.add(id(code))
            self._measure(lambda: self.follow(function, positional, keywords, node, frame))
        return super().follow(function, positional, keywords, node, frame)

    def use_arguments(
        self, positional: Sequence[Any], keywords: Mapping[str, Any], node: ast.Call, frame: Frame
    ) -> None:
        """Note what is handed on; a function that trains may be called by what it is handed to."""
        for value in (*positional, *keywords.values()):
            if isinstance(value, FunctionValue) and not isinstance(value.node, ast.Lambda):
                trains = id(value.node) in value.file.digest.trains or self.may_train(value.node, value.file)
                self.may_train_here = self.may_train_here or trains
        super().use_arguments(positional, keywords, node, frame)

    def finish(self) -> None:
        """End where the training begins, unless it is followed."""
        if not self.is_in_loop:
            super().finish()

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's; ``fit`` of Lightning's trainer trains."""
        self.may_train_here = self.may_train_here or name in _MAY_TRAIN
        if (
            name in _OF_MODELS
            and not _asks_for_more(name, positional, keywords)
            and any(option is DATA or is_unknown(option) for option in list_options(owner))
        ):
            self.has_lost_model = True
        model = positional[0] if positional else keywords.get("model")
        if name == "fit" and isinstance(model, Module) and model.definition is not None and not self.is_in_loop:
            given = positional[1] if len(positional) > 1 else None
            loader = next((keywords[word] for word in _LOADERS if word in keywords), given)
            self._measure(lambda: self._fit(model, loader, frame))
        if owner is DATA and name in _PREPARES and positional:
            self.use_arguments(positional, keywords, node, frame)
            return tuple(positional) if len(positional) > 1 else positional[0]
        if self.tape is not None and not isinstance(owner, list | dict | Tensor):
            if name in _GIVES_BACK and positional:
                return positional[0]
            if name in _READS:
                return DATA
        return super().call_method(owner, name, positional, keywords, node, frame)

    def _repeat_unknown(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame, item: Any) -> None:
        """Follow a loop that may run any number of times, which a step has no limit with where it saves anything."""
        tape = self.tape
        if tape is None and not isinstance(statement, ast.While):
            value = self.evaluate(statement.iter, frame)
            item = self.make_batch(value, frame) if is_made(value) else item
        before = (len(tape.saved), tape.joined_bytes, tape.reason) if tape is not None else None
        super()._repeat_unknown(statement, frame, item)
        after = self.tape
        if tape is None or after is None or before is None or before[2] or not after.reason.startswith(_REPEATS):
            return
        if (len(after.saved), after.joined_bytes) == before[:2]:
            after.reason = ""

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call; the first model of a step gets its usual input where that is not known."""
        if self.tape is not None and not self.has_input and isinstance(target, Module) and target.is_model:
            self.has_input = True
            given = self._put_usual_input(target, positional)
            result = super().call(target, given, keywords, node, frame)
            if given is not positional:
                self._put_usual_targets(given[0], result, frame)
            return result
        if self.tape is not None and isinstance(target, Module) and _METRICS.fullmatch(target.name):
            return DATA
        return super().call(target, positional, keywords, node, frame)

    def _put_usual_input(self, model: Module, positional: list[Any]) -> list[Any]:
        """Return what a model is called with, its usual input in place of one that is not known."""
        if not positional or not all(
            is_data(row) or (isinstance(row, Tensor) and row.shape is None) for row in positional
        ):
            return positional
        side = max([self.inputs.side, *self.sides])
        known = make_usual_input(
            model, replace(self.inputs, side=side, batch=max(self.batch_sizes, default=self.inputs.batch))
        )
        if known is None or (len(positional) > 1 and known.dtype != "int64"):
            return positional
        self.is_usual = True
        return [known] * min(2, len(positional)) + positional[2:]

    def _put_usual_targets(self, given: Any, output: Any, frame: Frame) -> None:
        """Give what else a step takes from its batch the size of what the model puts out: it is no larger, mostly.

        Words are predicted for words: of a text it has the size of what the model gets.
        """
        known = given if isinstance(given, Tensor) and given.dtype == "int64" else output
        if not isinstance(known, Tensor) or not known.shape:
            return
        for name in self.step_names:
            value = frame.names.get(name)
            target = make_tensor(known.shape, known.dtype)
            if _is_unknown_tensor(value):
                self.write(frame.names, name, target)
            elif isinstance(value, list | tuple) and any(map(_is_unknown_tensor, value)):
                self.write(frame.names, name, [target if _is_unknown_tensor(part) else part for part in value])

    # ---- steps

    def _measure(self, action: Callable[[], object]) -> None:
        """Follow a training loop; undo what it sets, and note why where it cannot be followed."""
        self.is_sure_loop = len(self.logs) == self.guards
        left = MAX_STEPS_OF_LOOPS - self.loop_steps
        if self.unknown or left <= 0:  # its parameters are not known either
            self.step_reasons.append("the training takes more steps than opsk follows")
            return
        before = (dict(self.used), dict(self.trained), list(self.unknown), dict(self.noted), self.guards, self.depth)
        steps, max_steps, active = self.steps, self.max_steps, dict(self.active)
        self.is_in_loop, self.max_steps = True, self.steps + left

        def attempt() -> Flow:
            try:
                action()
            except (CannotCountError, FinishedError) as error:
                self.step_reasons.append(str(error) or "the training ends early")
            except _NOT_UNDERSTOOD as error:
                self.step_reasons.append(f"the training is not understood: {type(error).__name__}")
            return GO_ON

        logs, born, branches = list(self.logs), list(self.born), self.branches
        try:
            self._try_branch(attempt)
        finally:
            self.used, self.trained, self.unknown, self.noted, self.guards, self.depth = before
            self.logs, self.born, self.branches = logs, born, branches
            self.loop_steps += self.steps - steps
            self.steps, self.max_steps, self.active = steps, max_steps, active
            self.is_in_loop, self.tape = False, None

    def _follow_loop(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
        """Follow one round of a loop: a step where it takes batches of a loader."""
        self.measured.add(id(statement))
        is_step, batch, is_loader = _goes_back(statement, frame.file), DATA, False
        if not isinstance(statement, ast.While):
            value = self.evaluate(statement.iter, frame)
            if is_made(value):
                is_step, batch, is_loader = True, self.make_batch(value, frame), True
            else:
                batch, *others = self.list_rounds(statement, frame)
                for item in others if not is_step else ():
                    self._run_round(statement, item, frame)
        if is_step and self.tape is None:
            trains = _calls_backward(statement, frame.file)
            self.has_open_batch = self.has_open_batch or (trains and not is_loader)
            self._take_step(lambda: self._run_round(statement, batch, frame), statement, trains=trains)
        else:
            self._run_round(statement, batch, frame)

    def _repeat_in_step(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
        """Follow a loop inside of a step, which goes backward after it, for each of its rounds."""
        items = None if isinstance(statement, ast.While) else iterate(self.evaluate(statement.iter, frame))
        for item in items if items is not None else [DATA]:
            self._run_round(statement, item, frame)
        if items is None and self.tape is not None:
            self.tape.give_up(f"{_REPEATS}{statement.lineno} repeats is not known")

    def _run_round(self, statement: ast.For | ast.AsyncFor | ast.While, batch: Any, frame: Frame) -> None:
        """Follow the body of a loop."""
        if not isinstance(statement, ast.While):
            self.assign(statement.target, batch, frame)
        self.run(statement.body, frame)

    def _fit(self, model: Module, loader: Any, frame: Frame) -> None:
        """Follow the step of a module of Lightning."""
        if isinstance(loader, list | tuple) and loader:
            loader = loader[0]
        if getattr(loader, "name", "") == "?":  # a data module of the program
            data = self.make_data(loader, frame)
            for name in ("setup", "train_dataloader"):
                method = self.get(data, name, frame)
                loader = self.call(method, [], {}, NO_CALL, frame) if isinstance(method, FunctionValue) else DATA
        elif loader is None:
            method = self.get(model, "train_dataloader", frame)
            loader = self.call(method, [], {}, NO_CALL, frame) if isinstance(method, FunctionValue) else DATA
        batch, step = self.make_batch(loader, frame), self.get(model, "training_step", frame)
        if isinstance(step, FunctionValue):
            self._take_step(
                lambda: self._hold_loss(self.call(step, [batch, 0], {}, NO_CALL, frame)), step.node, trains=True
            )

    def _hold_loss(self, loss: Any) -> None:
        """Note the loss of a step from which Lightning goes backward."""
        if self.tape is not None and not list_tensors(loss):
            self.tape.give_up("what the backward pass starts from is not known")

    def _take_step(self, action: Callable[[], object], code: ast.AST, *, trains: bool) -> None:
        """Follow what takes one step, and note its memory; ``code`` is the loop or the function of the step."""
        self.trains = self.trains or (trains and self.is_sure_loop)
        self.may_train_here = self.may_train_here or trains
        self.step_names = _list_taken(code)
        limit = self.max_steps
        self.start_step()
        self.max_steps = limit
        self.has_input = False
        try:
            action()
        except (CannotCountError, *_NOT_UNDERSTOOD) as error:
            if self.tape is not None:
                self.tape.give_up(f"the step is not understood: {type(error).__name__} {error}")
        finally:
            tape = self.tape
            if tape is not None:
                memory, is_training = self.end_step(), tape.largest is not None or bool(tape.saved)
                if is_training or memory.reason:  # an evaluation saves nothing
                    self.step_memories.append(memory)


def _is_unknown_tensor(value: Any) -> bool:
    """Return whether a value may be a tensor of which no size is known."""
    return value is DATA or (isinstance(value, Tensor) and value.shape is None)


def _asks_for_more(name: str, positional: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Return whether a method gets more than that of a model: ``tokenizer.train(files)``, ``x.requires_grad_()``."""
    if name == "requires_grad_":
        return positional != [False]
    return name in ("train", "eval") and (bool(keywords) or not all(isinstance(value, bool) for value in positional))


def _evaluates(code: ast.AST, file: File) -> bool:
    """Return whether a function only evaluates, which takes less memory than the training that is followed."""
    return _EVALUATION.fullmatch(getattr(code, "name", "")) is not None and not _calls_backward(code, file)


def _goes_back(statement: ast.For | ast.AsyncFor | ast.While, file: File) -> bool:
    """Return whether a loop itself goes backward, not one inside of it or in a function that it calls."""
    inner = [part for part in ast.walk(statement) if isinstance(part, ast.For | ast.While) and part is not statement]
    return _calls_backward(statement, file) and not any(_calls_backward(part, file) for part in inner)


def _calls_backward(code: ast.AST, file: File) -> bool:
    """Return whether a loop goes backward, or one inside of it does."""
    return any(name in ("backward", "manual_backward") for name, _ in file.digest.calls.get(id(code), ()))


def _list_taken(code: ast.AST) -> frozenset[str]:
    """Return the names that a loop or a function gives to what it takes, and to parts of it."""
    names: set[str] = set()
    for part in ast.walk(code):
        if isinstance(part, ast.For | ast.AsyncFor):
            is_counted = isinstance(part.iter, ast.Call) and getattr(part.iter.func, "id", "") == "enumerate"
            is_pair = is_counted and isinstance(part.target, ast.Tuple)
            targets = part.target.elts[1:] if is_pair and isinstance(part.target, ast.Tuple) else [part.target]
            names |= {row.id for target in targets for row in ast.walk(target) if isinstance(row, ast.Name)}
        elif isinstance(part, ast.Assign):
            names |= {row.id for target in part.targets for row in ast.walk(target) if isinstance(row, ast.Name)}
        elif isinstance(part, ast.arg) and part.arg != "self":
            names.add(part.arg)
    return frozenset(names)
