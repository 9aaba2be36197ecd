"""Keywords that a function lacks: the TypeError says what an argument of another library is called here."""

from __future__ import annotations

import functools

from falchion import _fal

TYPE_CHECKING = False  # as typing's, whose import would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["own_names", "refuse", "with_options"]


def refuse(function: Callable[..., Any], foreign: dict[str, Any]) -> None:
    """Raises TypeError for the first of these keywords, which `function` has not got."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if hasattr(function, "__signature__"):
        known = tuple(function.__signature__.parameters)
    _fal._no_argument(function.__name__, next(iter(foreign)), known)


def with_options(options: Any) -> Callable[[F], F]:
    """Gives a function (..., **options) the signature that it has once the keywords are spelled out. `options` is the
    TypedDict of them, in falchion.types; their order and defaults are those of falchion.attention."""
    import inspect
    from typing import get_type_hints

    defaults = dict(inspect.signature(_fal.attention).parameters) | {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False) for _, name in _fal._gradients
    }

    def give(function: F) -> F:
        own = inspect.signature(function)
        parameters = [x for x in own.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
        hints = get_type_hints(options)
        for name in sorted(hints, key=list(defaults).index):
            kind, default = inspect.Parameter.KEYWORD_ONLY, defaults[name].default
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=hints[name]))
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return give


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
