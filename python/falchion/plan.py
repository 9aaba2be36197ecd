"""Plans that are kept, and what they say of themselves."""

from __future__ import annotations

from falchion import _fal

TYPE_CHECKING = False  # as typing's, whose import would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Explanation", "Plan", "explain"]


class Explanation(str):
    """What a plan decided and why, as text. `json` is the same for programs (docs/explain.md lists its keys).

    In a notebook it is a table with the paths that were not taken folded away, and a picture of the band.
    """

    if TYPE_CHECKING:
        json: dict[str, Any]
    else:
        json: dict  # typing.get_type_hints looks for each name when it is asked, and Any is not there

    @classmethod
    def of(cls, texts: tuple[str, str]) -> Explanation:
        """An Explanation of (text, JSON), as the engine gives them."""
        import json

        made = cls(texts[0].rstrip("\n"))
        made.json = json.loads(texts[1])
        return made

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from falchion._html import explanation_html

        return explanation_html(self.json)


class Plan(_fal.Plan):
    """A decided way to run one problem: choose once, run often, from any thread.

    Plan(q, k, v, ...) takes arrays, or shapes with a dtype: k is as q, and v as k, where they are not given. Of the
    options of attention it takes all that say what is computed and where. Of those that are arrays it takes only whether
    there will be one: alibi=True. For packed sequences it takes how many (sequences) and the longest (max_q, max_k).

    backward=True plans the backward pass, with the options of attention_backward: of arrays whether there will be one,
    and instead of grads frozen (1: no grad_q, 2: no grad_k and grad_v, 3: none of them).

    target: what to plan for, in place of this machine: "ref", "cpu", a CPU's instruction set ("avx2", "avx512", ...),
    or "sm80", "sm90". sms: how many SMs of a GPU the plan may use, where others are for other work; 0 is all.

    A call runs it: plan(q, k, v, out=..., lse=...) gives O or (O, LSE), and plan(grad_o, q, k, v, o, lse, grads=...) the
    three gradients. The arrays that were announced are given by name, and so are seed, offset, cu_seqlens_q,
    cu_seqlens_k and stream.

    Raises Invalid, Unsupported or Device, as attention does.
    """

    def explain(self) -> Explanation:
        """What was decided, and why."""
        return Explanation.of(self._explain_text())

    def __repr__(self) -> str:
        return f"<falchion.Plan: {self.describe()}>"

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


def explain(*shapes: object, op: str = "attention", **options: object) -> Explanation:
    """What Plan(q, k, v, dtype, ...) would decide and why, also where there is no such plan. It needs no GPU.

    >>> import falchion
    >>> text = falchion.explain((1, 4096, 8, 128), dtype="bfloat16", causal=True, target="sm90")
    >>> text.json["decision"]["backend"]
    'sm90'

    op="gemm", "layer_norm" or "rms_norm" explains a call of that function, with its arguments. Each array may be a
    shape, and `target` is that of Plan. Shapes have the type `dtype`; where it has 8 bits those of a and b alone, and
    the others are float32.

    >>> text = falchion.explain((4096, 4096), (512, 4096), op="gemm", dtype="bfloat16", target="sm90")
    >>> text.json["problem"]["n"]
    512
    """
    if op == "attention":
        return Explanation.of(_fal._explain_text(*shapes, **options))
    dtype, target = options.pop("dtype", None), options.pop("target", None)
    return Explanation.of(_fal._explain_call(op, dtype, target, *shapes, **options))
