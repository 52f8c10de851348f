"""Follows one step of each training loop of a program, with a batch as its loader yields it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.data_sets import DataSets
from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, MAX_STEPS, Flow, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.made import is_data, is_made
from opsk_jobcheck.scripts.frameworks.own_models.names import NO_CALL
from opsk_jobcheck.scripts.frameworks.own_models.statements import iterate
from opsk_jobcheck.scripts.frameworks.own_models.step_memory import StepMemory
from opsk_jobcheck.scripts.frameworks.own_models.usual_inputs import Inputs, make_usual_input
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    DATA,
    CannotCountError,
    File,
    FinishedError,
    Frame,
    FunctionValue,
    Module,
)

MAX_STEPS_OF_LOOPS = 20_000
"""Steps that are followed in training loops, beyond those that make the models."""
_NOT_UNDERSTOOD = (RecursionError, TypeError, ValueError, ArithmeticError, KeyError, AttributeError, IndexError)
_LOADERS = ("train_dataloaders", "train_dataloader", "train_loader", "datamodule")


class TrainingSteps(DataSets):
    """Follows training loops; what they set counts no more afterwards."""

    def __init__(
        self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS, *, inputs: Inputs | None = None
    ) -> None:
        super().__init__(files, settings, max_steps)
        self.inputs = inputs or Inputs()
        self.has_input, self.is_usual = False, False
        self.step_memories: list[StepMemory] = []
        self.step_reasons: list[str] = []
        self.is_in_loop = False
        self.measured: set[int] = set()

    def train(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> Flow:
        """Follow a loop that trains."""
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
        code = function.node
        if isinstance(code, ast.Lambda) or self.tape is not None or id(code) not in function.file.digest.trains:
            return super().follow(function, positional, keywords, node, frame)
        if self.is_in_loop:
            if any(id(part) in function.file.digest.trains for part in ast.walk(code) if part is not code):
                return super().follow(function, positional, keywords, node, frame)
            self._take_step(lambda: super(TrainingSteps, self).follow(function, positional, keywords, node, frame))
            return DATA
        is_main = function.kind is None or not function.kind.node.bases
        if is_main and not self.is_followed(code, function.file, gets_settings=False):
            self._measure(lambda: self.follow(function, positional, keywords, node, frame))
        return super().follow(function, positional, keywords, node, frame)

    def finish(self) -> None:
        """End where the training begins, unless it is followed."""
        if not self.is_in_loop:
            super().finish()

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's; ``fit`` of Lightning's trainer trains."""
        model = positional[0] if positional else keywords.get("model")
        if name == "fit" and isinstance(model, Module) and model.definition is not None and not self.is_in_loop:
            given = positional[1] if len(positional) > 1 else None
            loader = next((keywords[word] for word in _LOADERS if word in keywords), given)
            self._measure(lambda: self._fit(model, loader, frame))
        return super().call_method(owner, name, positional, keywords, node, frame)

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call; the first model of a step gets its usual input where that is not known."""
        if self.tape is not None and not self.has_input and isinstance(target, Module) and target.is_model:
            self.has_input = True
            is_open = not keywords and len(positional) == 1 and is_data(positional[0])
            batch = self.batch_size or self.inputs.batch
            known = make_usual_input(target, replace(self.inputs, batch=batch)) if is_open else None
            self.is_usual = self.is_usual or known is not None
            positional = [known] if known is not None else positional
        return super().call(target, positional, keywords, node, frame)

    # ---- steps

    def _measure(self, action: Callable[[], object]) -> None:
        """Follow a training loop; undo what it sets, and note why where it cannot be followed."""
        before = (dict(self.used), dict(self.trained), list(self.unknown), dict(self.noted), self.guards, self.depth)
        steps, max_steps, active = self.steps, self.max_steps, dict(self.active)
        self.is_in_loop, self.max_steps = True, self.steps + MAX_STEPS_OF_LOOPS

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
            self.steps, self.max_steps, self.active = steps, max_steps, active
            self.is_in_loop, self.tape = False, None

    def _follow_loop(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame) -> None:
        """Follow one round of a loop: a step where it takes batches of a loader."""
        self.measured.add(id(statement))
        if isinstance(statement, ast.While):
            self.run(statement.body, frame)
            return
        value = self.evaluate(statement.iter, frame)
        if is_made(value):
            batch = self.make_batch(value, frame)
            if self.tape is None:
                self._take_step(lambda: self._run_round(statement, batch, frame))
                return
        else:
            items = iterate(value)
            batch = items[0] if items else DATA
        self._run_round(statement, batch, frame)

    def _run_round(self, statement: ast.For | ast.AsyncFor, batch: Any, frame: Frame) -> None:
        """Follow the body of a loop."""
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
            self._take_step(lambda: self.call(step, [batch, 0], {}, NO_CALL, frame))

    def _take_step(self, action: Callable[[], object]) -> None:
        """Follow what takes one step, and note its memory."""
        self.start_step()
        self.has_input = False
        try:
            action()
        except (CannotCountError, *_NOT_UNDERSTOOD) as error:
            if self.tape is not None:
                self.tape.give_up(f"the step is not understood: {type(error).__name__} {error}")
        finally:
            if self.tape is not None:
                self.step_memories.append(self.end_step())
