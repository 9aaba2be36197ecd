"""Keywords that a function lacks: the TypeError says what an argument of another library is called here."""

from __future__ import annotations

import functools

from falchion import _fal

TYPE_CHECKING = False  # as typing's, whose import would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["own_names", "refuse"]


def refuse(function: Callable[..., Any], foreign: dict[str, Any]) -> None:
    """Raises TypeError for the first of these keywords, which `function` has not got."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    _fal._no_argument(function.__name__, next(iter(foreign)), known)


def own_names(function: F) -> F:
    """A function that refuses other keywords than its own in this way, for signatures that are another library's."""
    code = function.__code__
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                refuse(function, {name: None})
        return function(*args, **keywords)

    return call  # type: ignore[return-value]
