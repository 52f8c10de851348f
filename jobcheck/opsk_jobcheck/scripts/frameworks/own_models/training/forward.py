"""Follows the forward pass of a program's models with the tensors of a training step."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from opsk.workload.public_models.measured import find_measured
from opsk_jobcheck.scripts.frameworks.own_models.files import Files
from opsk_jobcheck.scripts.frameworks.own_models.layers import CONTAINERS, STACKS, Arguments
from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, MAX_STEPS, Flow, LookUp
from opsk_jobcheck.scripts.frameworks.own_models.operations import patterns
from opsk_jobcheck.scripts.frameworks.own_models.operations.module_calls import LAYER_RULES
from opsk_jobcheck.scripts.frameworks.own_models.operations.public_models import run_measured
from opsk_jobcheck.scripts.frameworks.own_models.operations.registry import OPERATIONS
from opsk_jobcheck.scripts.frameworks.own_models.operations.results import as_int, as_tensor, is_tensor
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import CUT, WHOLE, find_head
from opsk_jobcheck.scripts.frameworks.own_models.training.contexts import WITHOUT_GRADIENTS, Contexts
from opsk_jobcheck.scripts.frameworks.own_models.training.savings import SAVES_LESS, find_type, list_weights, may_freeze
from opsk_jobcheck.scripts.frameworks.own_models.training.tensor_values import list_tensors
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    CALLABLE,
    DATA,
    OPEN,
    Choice,
    ClassValue,
    External,
    File,
    Frame,
    FunctionValue,
    Module,
    Parameter,
    Partial,
    Tensor,
    choose,
    list_options,
)

MAX_STEPS_OF_PASS = 20_000
_CHECKPOINTS = frozenset({"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint"})
_SCALES = ("scale", "scale_loss")
"""Methods that return a loss times a factor."""


class Forward(Contexts):
    """Follows modules that are called with tensors."""

    def __init__(self, files: Files, settings: LookUp, max_steps: int = MAX_STEPS) -> None:
        super().__init__(files, settings, max_steps)
        self.frames: list[Frame] = []
        self.is_sure = not may_freeze(files)

    def start_step(self, *, autocast: str = "") -> None:
        """Begin to note what a training step saves."""
        super().start_step(autocast=autocast)
        self.frames = []
        self.notes.is_sure = self.is_sure
        self.max_steps = self.steps + MAX_STEPS_OF_PASS

    def run(self, body: Sequence[ast.stmt], frame: Frame) -> Flow:
        """Follow statements."""
        if self.tape is None:
            return super().run(body, frame)
        self.frames.append(frame)
        try:
            return super().run(body, frame)
        finally:
            self.frames.pop()

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call."""
        if isinstance(target, External):
            self._doubt_savings(target.name.rpartition(".")[2])
            if target.name.startswith("torch.") and target.name.endswith(".autocast"):
                return Partial(target, positional, keywords)  # which is entered, now or later
            if self.tape is not None and target.name in _CHECKPOINTS and positional:
                return self._checkpoint(positional, keywords, node, frame)
            result = self.call_torch(target.name, positional, keywords)
            if result is not ABSENT:
                self.take_step()
                return result
        if self.tape is None:
            return super().call(target, positional, keywords, node, frame)
        if isinstance(target, Module) and target.is_model:
            self.take_step()
            return self.run_module(target, positional, keywords, node, frame)
        if isinstance(target, Choice):
            return self._call_any(target, positional, keywords, node, frame)
        result = super().call(target, positional, keywords, node, frame)
        if not isinstance(target, CALLABLE) or (isinstance(target, External) and result in (DATA, OPEN)):
            return self._doubt(getattr(target, "name", "a function"), [*positional, *keywords.values()], result)
        return result

    def _doubt_savings(self, name: str) -> None:
        """Note that a step may save less than what its operations do."""
        if SAVES_LESS.fullmatch(name):
            self.is_sure = False
            self.notes.is_sure = False

    def _doubt(self, name: str, values: Sequence[Any], result: Any) -> Any:
        """Note that a function is not known which reads tensors."""
        if self.tape is not None and any(row.has_gradient for value in values for row in list_tensors(value)):
            self.tape.give_up(f"{name} is not followed")
            return DATA
        return result

    def _call_any(
        self, target: Choice, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of calling one of several modules or functions."""
        values: list[Any] = []
        known = [option for option in target.options if isinstance(option, (*CALLABLE, Module))]
        if len(known) < len([option for option in target.options if option is not None and option is not ABSENT]):
            self.notes.give_up("a module that is called is not known")

        def follow(option: Any) -> Flow:
            values.append(self.call(option, positional, keywords, node, frame))
            return GO_ON

        self._branch_all([lambda option=option: follow(option) for option in known])  # type: ignore[misc]
        return choose(part for value in values for part in list_options(value)) if values else DATA

    def _branch_all(self, actions: Sequence[Callable[[], Flow]]) -> None:
        """Follow several branches of which one is taken."""
        if len(actions) == 1:
            actions[0]()
        elif actions:

            def follow_others() -> Flow:
                self._branch_all(actions[1:])
                return GO_ON

            self.branch(actions[0], follow_others)

    # ---- modules

    def run_module(
        self, module: Module, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return what a module computes."""
        if module.definition is not None:
            forward = self.get_of_class(module.definition, "forward", module)
            if isinstance(forward, FunctionValue):
                return self.follow(forward, positional, keywords, node, frame)
        name, given = module.layer if module.layer is not None else (module.name, None)
        if name in STACKS:
            return self._run_stack(module, positional, keywords, node, frame)
        if name == "Sequential":
            return self._run_row([*module.attributes.values(), *module.parts], positional, node, frame)
        inputs = Arguments(positional, keywords)
        if name in patterns.LAYERS.values() and given is not None:
            rest = Arguments([*positional, *given.positional], given.keywords)
            return patterns.RULES[f"einops.{name}"](self.notes, rest)
        if name in (WHOLE, CUT) and given is not None:
            return self._run_public(module, name, given, inputs, node, frame)
        if (rule := LAYER_RULES.get(name)) is not None and given is not None:
            shell = module if module.name == name else Module(name, module.attributes, module.parts)
            return rule(self.notes, given, shell, inputs)
        return self._doubt(f"the module {name}", [*positional, *keywords.values(), self._weight(module)], DATA)

    def _run_public(
        self, module: Module, name: str, given: Arguments, inputs: Arguments, node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a public model of images, with its own head or another one."""
        model, tensor = find_measured(module.name), as_tensor(self.notes, inputs.get(0, "x"))
        if model is None:
            return self._doubt(f"the module {module.name}", inputs.positional, DATA)
        batch = tensor.shape[0] if tensor.shape else None
        head, width = find_head(module.name) or ("", None)
        if name == CUT:
            is_pooled = given.get(0, "end") == -1
            sides = tensor.shape[2:] if tensor.shape is not None else ()
            places = [1 if is_pooled else None if side is None else -(-side // 32) for side in sides]
            return run_measured(self.notes, module, model, tensor, (batch, width, *places))
        classes = as_int(given.get(0, "num_classes"))
        known = module.attributes.get(head)
        shape = (batch, classes or width) if known is None else (batch, width)
        result = run_measured(self.notes, module, model, tensor, shape)
        return self.call(known, [result], {}, node, frame) if known is not None else result

    def _weight(self, module: Module) -> Any:
        """Return a weight of a module as a tensor, for whether its gradient is computed."""
        weight = next((part for part in module.attributes.values() if isinstance(part, Parameter)), None)
        return as_tensor(self.notes, weight) if weight is not None else None

    def _run_row(self, parts: Sequence[Any], positional: list[Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of modules one after another; one that may be absent may change nothing."""
        given = list(positional)
        for part in parts:
            options = list_options(part)
            if not any(isinstance(option, Module) or option is OPEN or option is DATA for option in options):
                continue
            value = self.call(part, given, {}, node, frame)
            if ABSENT in options:
                value = choose([*list_options(value), *given[:1]])
            given = [value]
        return given[0] if given else DATA

    def _run_stack(
        self, module: Module, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of the layers of ``TransformerEncoder`` or ``TransformerDecoder``."""
        tensor, rest = (positional[0], positional[1:]) if positional else (DATA, [])
        for name in ("src", "tgt"):
            tensor = keywords.get(name, tensor)
        memory = [keywords.get("memory", rest[0] if rest else DATA)] if module.name == "TransformerDecoder" else []
        for part in module.parts:
            if isinstance(part, Module):
                is_layer = part.name.startswith("Transformer") or part.definition is not None
                tensor = self.call(part, [tensor, *memory] if is_layer else [tensor], {}, node, frame)
            elif part is not None:
                self.notes.give_up("the layers of a transformer are not known")
        return tensor

    def _checkpoint(self, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a part that is computed again in the backward pass: what it reads is saved."""
        outer = self.notes
        inner = outer.copy()
        inner.saved, inner.joined, inner.transient_bytes = {}, {}, 0
        given = {name: value for name, value in keywords.items() if not name.endswith(("reentrant", "_fn"))}
        self.tape = inner
        try:
            result = self.call(positional[0], positional[1:], given, node, frame)
        finally:
            memory = (self.tape or inner).read_pass()
            self.tape = outer
        for tensor in list_tensors(positional[1:]):
            outer.save(tensor)
        outer.note_transient([memory.saved_bytes.high, memory.transient_bytes.high])
        if memory.reason:
            outer.give_up(memory.reason)
        return result

    # ---- statements

    def _repeat_unknown(self, statement: ast.For | ast.AsyncFor | ast.While, frame: Frame, item: Any) -> None:
        before = self.tape.describe() if self.tape is not None else None
        super()._repeat_unknown(statement, frame, item)
        if self.tape is not None and self.tape.describe() != before:
            self.tape.give_up(f"how often line {statement.lineno} repeats is not known")

    def assign_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of an object, which may hold a tensor for longer than the pass needs it."""
        if self.tape is not None:
            for tensor in list_tensors(value):
                self.tape.save(tensor, is_sure=False)
        super().assign_attribute(owner, name, value)

    # ---- what the program does with modules and tensors

    def call_builtin(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a function of Python."""
        if name == "isinstance" and self.tape is not None and len(positional) == 2:
            known = self._is_instance(*positional)
            if known is not DATA:
                return known
        if self.tape is not None and positional and name in ("sum", "len", "abs"):
            known = self._reduce(name, positional[0])
            if known is not DATA:
                return known
        return super().call_builtin(name, positional, keywords, node, frame)

    def _reduce(self, name: str, value: Any) -> Any:
        """Return the sum of tensors, or the length or absolute value of one; ``DATA`` for anything else."""
        if name == "sum" and isinstance(value, list | tuple) and value and all(map(is_tensor, value)):
            total = value[0]
            for tensor in value[1:]:
                total = self.combine(ast.Add(), total, tensor)
            return total
        if not isinstance(value, Tensor) or name == "sum":
            return DATA
        if name == "len":
            return value.shape[0] if value.shape and value.shape[0] is not None else DATA
        return OPERATIONS["abs"](self.notes, Arguments([value], {}))

    def _is_instance(self, value: Any, kind: Any) -> Any:
        """Return whether a value is a module or tensor of a class; ``DATA`` where that is not known."""
        kinds = list(kind) if isinstance(kind, list | tuple) else [kind]
        names = [part.name if isinstance(part, External) else "" for part in kinds]
        if isinstance(value, Tensor | Parameter) and all(isinstance(part, External) for part in kinds):
            return any(name in ("torch.Tensor", "torch.FloatTensor") for name in names)
        if not isinstance(value, Module) or not value.is_model:
            return (
                False
                if names
                and all(name.startswith(("torch.nn.", "torch.Tensor")) for name in names)
                and (value is None or isinstance(value, str | int | float | list | tuple | dict))
                else DATA
            )
        if value.definition is not None:
            rows = self.list_bases(value.definition)
            is_own = any(isinstance(part, ClassValue) and part.node is row.node for part in kinds for row in rows)
            return True if is_own else DATA if any(names) else False
        is_known = value.layer is not None or value.name in CONTAINERS
        return f"torch.nn.{value.name}" in names if is_known and all(names) else DATA

    def is_followed(self, code: ast.FunctionDef | ast.AsyncFunctionDef, file: File, *, gets_settings: bool) -> bool:
        """Return whether a function is followed: all are while a step is."""
        return self.tape is not None or super().is_followed(code, file, gets_settings=gets_settings)

    def follow(
        self, function: FunctionValue, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Follow a function; one that is decorated so computes no gradients."""
        decorators = getattr(function.node, "decorator_list", ()) if self.tape is not None else ()
        names = [ast.unparse(row) for row in decorators]
        for name in names:
            self._doubt_savings(name.partition("(")[0].rpartition(".")[2])
        if self.tape is None or not any(word in name for name in names for word in WITHOUT_GRADIENTS):
            return super().follow(function, positional, keywords, node, frame)
        saves, self.tape.saves = self.tape.saves, False
        try:
            return super().follow(function, positional, keywords, node, frame)
        finally:
            self.notes.saves = saves

    def get_of_module(self, owner: Module, name: str) -> Any:
        """Return an attribute of an object."""
        if name == "training" and self.tape is not None and owner.is_model:
            return True
        return super().get_of_module(owner, name)

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's."""
        if isinstance(owner, Tensor | Parameter) and (self.tape is not None or owner.shape is not None):
            if name == "backward":
                return self._go_back(owner, keywords)
            result = self.call_of_tensor(owner, name, positional, keywords)
            if result is not ABSENT:
                return result
        self._doubt_savings(name)
        if isinstance(owner, Module) and owner.is_model:
            self._change_weights(owner, name, positional, keywords)
            if name == "register_buffer" and len(positional) >= 2 and isinstance(positional[0], str):
                self.write(owner.attributes, positional[0], positional[1])
                return None
            if name == "forward" and self.tape is not None:
                return self.run_module(owner, positional, keywords, node, frame)
        if self.tape is None:
            return super().call_method(owner, name, positional, keywords, node, frame)
        if name in ("backward", "manual_backward"):
            return self._go_back(positional[0] if positional else owner, keywords)
        if name in _SCALES and positional and isinstance(positional[0], Tensor):
            return positional[0]
        result = super().call_method(owner, name, positional, keywords, node, frame)
        is_plain = isinstance(owner, list | dict | str | Module) and not is_tensor_result(owner, result)
        return result if is_plain else self._doubt(f".{name}()", [owner, *positional, *keywords.values()], result)

    def _change_weights(self, owner: Module, name: str, positional: list[Any], keywords: dict[str, Any]) -> None:
        """Follow methods that cast a module, or freeze it."""
        dtype = find_type(name, positional, keywords)
        is_frozen = name == "requires_grad_" and positional == [False]
        if name == "requires_grad_" and self.logs:
            self.is_sure = False
        elif dtype is not None or name == "requires_grad_":
            for weight in list_weights(owner):
                weight.is_frozen = is_frozen if dtype is None else weight.is_frozen
                if dtype is not None and weight.dtype != dtype:
                    weight.dtype = "" if self.logs else dtype

    def _go_back(self, loss: Any, keywords: dict[str, Any]) -> None:
        """Follow the backward pass: what names hold is in memory as well."""
        if self.tape is None:
            return
        if not isinstance(loss, Tensor):
            self.tape.give_up("what the backward pass starts from is not known")
        for frame in self.frames:
            for value in list(frame.names.values()):
                for tensor in list_tensors(value):
                    self.tape.save(tensor)
        self.tape.finish_pass(keeps=keywords.get("retain_graph", False) is not False)


def is_tensor_result(owner: Any, result: Any) -> bool:
    """Return whether a method of a module that is not the program's may compute with what it is given."""
    return isinstance(owner, Module) and result in (DATA, OPEN)
