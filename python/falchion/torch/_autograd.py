"""How an operator and its backward pass stand in autograd: what attention and linear attention share."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._functorch.utils import enable_single_level_autograd_function

from ._options import no_forward_mode, no_second_derivative


def recorded_backward(operator: Any) -> Callable[..., Any]:
    """A backward pass where autograd records it (create_graph, torch.func.grad): it says that it has
    no derivative as soon as somebody asks for one, and not before."""

    class Gradients(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            return operator(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            raise no_second_derivative()

    run: Callable[..., Any] = Gradients.apply
    return run


def eager(function: Any) -> Callable[..., Any]:
    """An autograd.Function with a text for forward-mode AD. torch.compile takes no class that has a
    jvp."""

    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_forward_mode()

    made: Any = type("Eager", (function,), {"jvp": staticmethod(jvp)})
    run: Callable[..., Any] = made.apply
    return run


def past_transforms(function: Any) -> Callable[..., Any]:
    """An autograd.Function for ordinary tensors. Function.apply itself sees to torch.func, which does
    nothing there, and takes 2 us for it."""
    run: Callable[..., Any] = super(torch.autograd.Function, function).apply
    return run


def autograd_kernel(operator: Any, function: Any, more: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """A kernel of the Autograd key: what an operator does where torch records gradients. Without it
    torch would take the result for a constant, and torch.compile(torch.func.grad(f)) would be 0.

    The gradient is that of `function`, which takes the operator's arguments and then `more`. It is
    recorded on one level of torch.func: below this the levels that are further out see the operator
    again. torch.compile traces torch.func.grad this way, and an exported program is differentiated
    this way."""

    class OneLevel(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                output = operator(*args)
            function.setup_context(ctx, (*args, *more), output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            found = function.backward(ctx, *grads)
            return found[: len(found) - len(more)]

    record = getattr(OneLevel, "apply")

    def kernel(*args: Any) -> Any:
        wanted = any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        if wanted and torch.is_grad_enabled():
            with enable_single_level_autograd_function():
                return record(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    return kernel
