"""layer_norm() and rms_norm() with gradients, and the operators torch.ops.falchion.norm and norm_backward.

The first operator gives (y, residual_out), the second the gradients of what was normalised, of weight
and of bias. What is not there is empty."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Never, NamedTuple, Sequence

import torch
from torch import Tensor

from falchion import Unsupported
from falchion._names import refuse

from ._autograd import autograd_kernel, eager, past_transforms, recorded_backward
from ._eager import are_ordinary, is_recorded
from ._nested import refuse_nested
from ._ops import library
from ._options import Backend, engine, flag, number


class NormOptions(NamedTuple):
    """The options of both operators, in the order of their schema."""

    kind: str
    eps: float
    zero_centered: bool
    backend: str

    def keywords(self) -> dict[str, Any]:
        return {"eps": self.eps, "zero_centered": self.zero_centered, "backend": self.backend}


SCHEMA = "str kind, Scalar eps, bool zero_centered, str backend"
library.define(f"norm(Tensor x, Tensor? weight, Tensor? bias, Tensor? residual, {SCHEMA}) -> (Tensor, Tensor)")
library.define(
    "norm_backward(Tensor grad_y, Tensor? grad_residual_out, Tensor v, Tensor? weight, Tensor? bias, "
    f"{SCHEMA}) -> (Tensor, Tensor, Tensor)"
)


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, *options: Any
) -> tuple[Tensor, Tensor]:
    given = NormOptions(*options)
    norm = engine.layer_norm if given.kind == "layer" else engine.rms_norm
    found = norm(x, weight, bias=bias, residual=residual, **given.keywords())
    return found if residual is not None else (found, x.new_empty(0))


def fake_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, *options: Any
) -> tuple[Tensor, Tensor]:
    total = x.new_empty(0) if residual is None else residual.new_empty(x.shape)
    return x.new_empty(x.shape), total


def backward(
    grad_y: Tensor,
    grad_residual_out: Tensor | None,
    v: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    given = NormOptions(*options)
    norm = engine.layer_norm_backward if given.kind == "layer" else engine.rms_norm_backward
    grad_v, grad_weight, grad_bias = norm(
        grad_y, v, weight, bias=bias, grad_residual_out=grad_residual_out, **given.keywords()
    )
    empty = v.new_empty(0)
    return grad_v, empty if weight is None else grad_weight, empty if bias is None else grad_bias


def fake_backward(
    grad_y: Tensor,
    grad_residual_out: Tensor | None,
    v: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    grad_weight, grad_bias = (v.new_empty(0) if x is None else x.new_empty(x.shape) for x in (weight, bias))
    return v.new_empty(v.shape), grad_weight, grad_bias


def _mapped(batch: int, dims: Sequence[Any], args: Sequence[Any], rows: Sequence[int], factors: Sequence[int]) -> Any:
    """The arguments with the mapped axis in front: the rows of args[i] for i in rows, and the weight and bias, which get
    the axes of x, so that each mapped call has its own."""
    found = list(args)
    for i in rows:
        x, dim = args[i], dims[i]
        if x is not None:
            found[i] = x.movedim(dim, 0) if dim is not None else x.expand(batch, *x.shape)
    axes = found[rows[0]].dim()
    if axes > 4:
        raise Unsupported("falchion: vmap over a norm of tensors of four axes is not there")
    for i in factors:
        x, dim = args[i], dims[i]
        if x is not None:
            x = x.movedim(dim, 0) if dim is not None else x.expand(batch, *x.shape)
            found[i] = x.reshape(batch, *(1,) * (axes - x.dim()), *x.shape[1:])
    return found


def vmap_forward(info: Any, dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    found = torch.ops.falchion.norm(*_mapped(info.batch_size, dims, args, (0, 3), (1, 2)))
    return found, (0, None if args[3] is None else 0)


def vmap_backward(info: Any, dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
    grad_v, *factors = torch.ops.falchion.norm_backward(*_mapped(info.batch_size, dims, args, (2, 0, 1), (3, 4)))
    gone = [args[3] is None, args[4] is None]
    for i, dim in enumerate(dims[3:5]):
        if not gone[i]:
            own = args[3 + i].dim() - (dim is not None)
            factors[i] = factors[i].reshape(info.batch_size, *factors[i].shape[factors[i].dim() - own :])
    return (grad_v, *factors), (0, *(None if is_gone else 0 for is_gone in gone))


for device in ("CPU", "CUDA"):
    library.impl("norm", torch.no_grad()(forward), device)
    library.impl("norm_backward", torch.no_grad()(backward), device)
torch.library.register_fake("falchion::norm", fake_forward, lib=library)
torch.library.register_fake("falchion::norm_backward", fake_backward, lib=library)
if hasattr(torch.library, "register_vmap"):  # from PyTorch 2.5 on
    torch.library.register_vmap("falchion::norm", vmap_forward, lib=library)
    torch.library.register_vmap("falchion::norm_backward", vmap_backward, lib=library)

_gradients = recorded_backward(torch.ops.falchion.norm_backward)


class Norm(torch.autograd.Function):
    """(y, residual_out) of the tensors and options of falchion::norm. What was normalised is kept, and nothing else of
    the rows: residual_out where there is a residual, else x."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*args: Any) -> Any:
        return torch.ops.falchion.norm(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, bias, residual, *options = inputs
        ctx.save_for_backward(x if residual is None else output[1], weight, bias)
        ctx.options = options
        ctx.types = x.dtype, None if residual is None else residual.dtype
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor | None, grad_total: Tensor | None) -> Any:
        v, weight, bias = ctx.saved_tensors
        of_x, of_residual = ctx.types
        if of_residual is None:
            grad_total = None  # of an empty tensor
        if grad_y is None and grad_total is None:
            return (None,) * (4 + len(ctx.options))
        if grad_y is None:
            grad_v, grad_weight, grad_bias = grad_total, None, None
        else:
            run: Any = torch.ops.falchion.norm_backward
            if not torch.compiler.is_compiling():
                if torch.is_grad_enabled():
                    run = _gradients
                elif are_ordinary(grad_y, grad_total, v, weight, bias):
                    run = backward  # without the dispatcher
            grad_v, grad_weight, grad_bias = run(grad_y, grad_total, v, weight, bias, *ctx.options)
        assert grad_v is not None
        grad_residual = None if of_residual is None else grad_v.to(of_residual)
        grads = (grad_v.to(of_x), grad_weight, grad_bias, grad_residual)
        wanted = zip(grads, ctx.needs_input_grad[:4])
        return (*(x if wants else None for x, wants in wanted), *(None,) * len(ctx.options))


class Ordinary(Norm):
    """The same for ordinary tensors, without the dispatcher."""

    forward = staticmethod(forward)


_eager = eager(Norm)
_record = past_transforms(Ordinary)
library.impl("norm", autograd_kernel(torch.ops.falchion.norm, Norm), "Autograd")


def _norm(
    kind: str, x: Tensor, weight: Any, bias: Any, eps: Any, residual: Any, zero_centered: Any, backend: Backend
) -> Any:
    refuse_nested(f"{kind}_norm", x)
    options = NormOptions(kind, number("eps", eps), flag("zero_centered", zero_centered), backend)
    tensors = (x, weight, bias, residual)
    run: Any = torch.ops.falchion.norm
    if not torch.compiler.is_compiling():
        run = _eager
        if are_ordinary(*tensors):
            run = _record if is_recorded(*tensors) else forward
    y, total = run(*tensors, *options)
    return y if residual is None else (y, total)


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    residual: Tensor | None = None,
    zero_centered: bool = False,
    backend: Backend = "best",
    **foreign: Never,
) -> Any:
    """falchion.layer_norm with gradients in x, weight, bias and the residual.

    With a residual the result is (y, residual_out), both of which are differentiable; residual_out, as it is rounded, is
    what the gradients are computed from. There is no second derivative."""
    if foreign:
        refuse(layer_norm, foreign)
    return _norm("layer", x, weight, bias, eps, residual, zero_centered, backend)


def rms_norm(
    x: Tensor,
    weight: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    residual: Tensor | None = None,
    zero_centered: bool = False,
    backend: Backend = "best",
    **foreign: Never,
) -> Any:
    """falchion.rms_norm with gradients; the rest is as in layer_norm."""
    if foreign:
        refuse(rms_norm, foreign)
    return _norm("rms", x, weight, bias, eps, residual, zero_centered, backend)
