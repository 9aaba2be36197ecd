"""A language model with the attention of eager, of sdpa and of Falchion, as tables.

    python compare_model.py MODEL.gguf --device cuda --json figures.json
    python compare_model.py tiny            # a small model with random weights; nothing is loaded

The first table is exactness: how far the logits of a text are from those of eager in float32 (of
the first name in the first type), the text's perplexity, and whether greedy generation gives
eager's tokens of the same type, from one prompt and from sixteen that are padded at the left. The
second is tokens a second, of prompts and of generation, in the last of the types."""

import argparse
import json

import torch
from language_model import ATTENTIONS, TEXT, generate, load, prompts, speeds
from torch.nn.functional import cross_entropy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--names", nargs="+", default=ATTENTIONS)
    parser.add_argument("--prompts", nargs="+", type=int, default=[512, 8192])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--json")
    a = parser.parse_args()
    model, read = load(a.model, a.device)
    tokens, rows, rows_of_speed = read(TEXT.read_text()), [], []
    text, reference = torch.tensor([tokens]).to(a.device), None
    inputs = [prompts(tokens, batch, 64, a.device) for batch in (1, 16)]
    print(f"{'':<18} {'max |d logit|':>13} {'perplexity':>10} {'greedy':>7} {'16 padded':>9}")
    for dtype in a.dtypes:
        model, first = model.to(getattr(torch, dtype)), None
        for name in a.names:
            model.set_attn_implementation(name)
            with torch.inference_mode():
                logits = model(text).logits[0].float()
                made = [generate(model, *x, a.new) for x in inputs]
            reference, first = logits if reference is None else reference, first or made
            away = (logits - reference).abs().max()
            entropy = cross_entropy(logits[:-1], text[0, 1:])
            same = ["same" if torch.equal(x, y) else "differ" for x, y in zip(made, first)]
            rows.append([dtype, name, away.item(), entropy.exp().item(), *same])
            print("{:<9}{:<9} {:>13.2e} {:>10.4f} {:>7} {:>9}".format(*rows[-1]), flush=True)
    print(f"{'tokens a second':<18} {'batch':>6} {'prompt':>7} {'read':>10} {'generated':>10}")
    for batch, length in ((b, n) for b in a.batches for n in a.prompts):
        with torch.inference_mode():
            found = speeds(model, a.names, *prompts(tokens, batch, length, a.device), a.new)
        for name, rates in found.items():
            rows_of_speed.append([dtype, name, batch, length, *(rates or (0, 0))])
            line = "{:>10.0f} {:>10.1f}".format(*rates) if rates else f"{'no memory':>21}"
            print(f"{dtype:<9}{name:<9} {batch:>6} {length:>7} {line}", flush=True)
    if a.json:
        with open(a.json, "w") as file:
            json.dump({"exactness": rows, "speeds": rows_of_speed}, file)


if __name__ == "__main__":
    main()
