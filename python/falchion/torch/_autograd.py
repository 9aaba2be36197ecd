"""Kernels of the Autograd key: what an operator does where torch records gradients."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch._functorch.utils import enable_single_level_autograd_function


def autograd_kernel(operator: Any, function: Any) -> Callable[..., Any]:
    """Records `function`, a _SingleLevelFunction, where a gradient is wanted. Without such a kernel
    torch would take the result for a constant, and torch.compile(torch.func.grad(f)) would be 0."""

    def kernel(*args: Any) -> Any:
        wanted = any(isinstance(x, torch.Tensor) and x.requires_grad for x in args)
        if wanted and torch.is_grad_enabled():
            with enable_single_level_autograd_function():
                return function.apply(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args)

    return kernel
