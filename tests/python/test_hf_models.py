"""falchion.hf in every model of transformers that can be built small, also where the model computes
attention itself: against eager, whether padding is seen, and whether the future is."""

from __future__ import annotations

import collections

import pytest
from hf_models import NAMES, NotBuilt, build, image_for, inputs_of, outputs_of, small_model, transformers
from torch_support import torch

import falchion
import falchion.hf

falchion.hf.register()
transformers.logging.set_verbosity_error()

# How many models ran at least, of transformers 5.17. What did not is counted by its reason.
FEWEST = 255
TOLERANCE = 2e-5  # of the largest number of eager's result
# What attention there needs and falchion refuses by name.
REFUSED = ("over the limit of 256", "indices: falchion.hf")

left_out: collections.Counter[str] = collections.Counter()
ran: list[str] = []
losses: list[int] = []


def expected_of(model_class, config, inputs):
    """Eager's model and result."""
    try:
        eager = build(model_class, config, "eager")
        expected = outputs_of(eager, inputs)
    except NotBuilt:
        raise
    except Exception as error:  # the model wants more
        if "input_ids" not in inputs or "pixel_values" in inputs:
            raise NotBuilt(f"eager: {type(error).__name__}") from None
        inputs.update(image_for(model_class, config))
        return expected_of(model_class, config, inputs)
    if not expected.isfinite().all() or expected.abs().max() == 0:
        raise NotBuilt("eager's result is not finite, or 0")
    return eager, expected


def compare(name):
    model_class, kind, config = small_model(name)
    inputs = inputs_of(model_class, config)
    tokens = inputs.get("input_ids")
    if tokens is not None:
        inputs["attention_mask"] = torch.ones_like(tokens)
    eager, expected = expected_of(model_class, config, inputs)
    try:
        ours = build(model_class, config, "falchion", eager.state_dict())
        found = outputs_of(ours, inputs)
    except KeyError as error:  # the model has a table of its attention classes
        assert "falchion" in str(error)
        raise NotBuilt("the model knows no attention but its own: KeyError") from None
    except falchion.Unsupported as error:
        assert any(words in str(error) for words in REFUSED), str(error)
        raise NotBuilt(f"refused: {str(error)[:30]}") from None
    limit = TOLERANCE * expected.abs().max()
    assert (found - expected).abs().max() <= limit, "without padding"
    if tokens is not None:
        if "pixel_values" not in inputs:  # with an image a result may be taken from a row of padding
            compare_padding(ours, eager, inputs, limit)
        if kind == "causal":
            see_no_future(ours, eager, tokens)
            compare_loss(ours, eager, inputs)


def compare_padding(ours, eager, inputs, limit):
    """Rows that are no padding, beside eager's; also with other tokens in the padding."""
    marks = {name: inputs["attention_mask"].clone() for name in ("right", "left", "holes")}
    marks["right"][0, 6:] = marks["left"][0, :3] = marks["holes"][1, 3:5] = 0
    for padding, mask in marks.items():

        def rows(model, tokens, mask=mask):
            found = outputs_of(model, {**inputs, "input_ids": tokens, "attention_mask": mask})
            return found[mask.bool()] if found.shape[:2] == mask.shape else found

        tokens = inputs["input_ids"]
        other = torch.where(mask.bool(), tokens, 96 - tokens)
        try:
            expected = rows(eager, tokens)
        except Exception:  # eager takes no such padding
            continue
        assert (rows(ours, tokens) - expected).abs().max() <= limit, f"padding: {padding}"
        if padding == "right" and torch.equal(rows(eager, other), expected):
            seen = (rows(ours, other) - expected).abs().max()
            assert seen <= limit, f"tokens of the padding move the others by {seen}"


def see_no_future(ours, eager, tokens):
    """The last token does not move what stands at the first, with a mask and without one."""
    changed = tokens.clone()
    changed[:, -1] = 96 - changed[:, -1]
    for more in ({}, {"attention_mask": torch.ones_like(tokens)}):

        def moves(model, more=more):
            pair = [outputs_of(model, {"input_ids": x, **more})[:, 0] for x in (tokens, changed)]
            return (pair[0] - pair[1]).abs().max().item()

        assert moves(ours) == 0 or moves(eager) > 0, f"the first moves by {moves(ours)}, {more}"


def compare_loss(ours, eager, inputs):
    """Each keyword of a model comes as far as the attention, so also those of the loss."""
    labels = dict(labels=inputs["input_ids"], shift_labels=inputs["input_ids"])
    try:
        expected = eager(**inputs, **labels).loss
    except Exception:  # no such loss, or no such keyword
        return
    assert abs(ours(**inputs, **labels).loss - expected) <= 1e-4 * abs(expected), "loss"
    losses.append(1)


@pytest.mark.parametrize("name", NAMES)
def test_a_model(name):
    try:
        compare(name)
    except NotBuilt as why:
        left_out[str(why)] += 1
        pytest.skip(str(why))
    ran.append(name)


def test_how_many_models_ran():
    if len(ran) + left_out.total() < len(NAMES):
        pytest.skip("not all models were asked for")
    print(f"{len(ran)} ran; left out: {dict(left_out.most_common())}")
    assert len(ran) >= FEWEST, f"{len(ran)} of {len(NAMES)}; left out: {left_out.most_common()}"
    named = {"bloom", "codegen", "gpt_neox_japanese", "megatron-bert", "roformer", "llama", "bert"}
    assert named <= set(ran)
    assert len(losses) >= 100, len(losses)
