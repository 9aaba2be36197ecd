"""Trains a language model on a text for some steps, with sdpa's attention and with Falchion's.

    python train_model.py MODEL.gguf --device cuda --steps 50 --picture losses.svg --json losses.json
    python train_model.py tiny              # a small model with random weights; nothing is loaded

Both runs start from the same weights and see the same pieces of the text. The weights and AdamW are
in float32, the products in --dtype. It prints losses, their largest difference, tokens a second."""

import argparse
import json
import time

import torch
from byte_gpt import draw_losses
from language_model import TEXT, load


def train(a, model, weights, tokens, name):
    """The loss of each step, and tokens a second after the first tenth of them."""
    model.load_state_dict(weights)
    model.set_attn_implementation(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=a.rate)
    generator, losses, warm = torch.Generator().manual_seed(0), [], max(a.steps // 10, 1)
    for step in range(a.steps):
        if step == warm:
            losses[-1].item()  # waits for the device
            start = time.perf_counter()
        at = torch.randint(len(tokens) - a.length, (a.batch,), generator=generator)
        rows = torch.stack([tokens[i : i + a.length] for i in at]).to(a.device)
        with torch.autocast(a.device, getattr(torch, a.dtype), enabled=a.dtype != "float32"):
            loss = model(rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach().float())
    found = torch.stack(losses).tolist()
    return found, (a.steps - warm) * a.batch * a.length / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rate", type=float, default=3e-5)
    for name, value in dict(steps=50, length=512, batch=8).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--picture")
    parser.add_argument("--json")
    a = parser.parse_args()
    model, read = load(a.model, a.device)
    model.train()
    weights = {name: x.detach().clone() for name, x in model.state_dict().items()}
    tokens, losses = torch.tensor(read(TEXT.read_text())), {}
    for name in ("sdpa", "falchion"):
        losses[name], rate = train(a, model, weights, tokens, name)
        marks = ", ".join(f"{losses[name][i]:.4f}" for i in (0, a.steps // 2, a.steps - 1))
        print(f"{name:<9} loss at first, in the middle and at last {marks}; {rate:.0f} tokens/s")
    gaps = [abs(x - y) for x, y in zip(losses["sdpa"], losses["falchion"])]
    print(f"largest difference: first step {gaps[0]:.1e}, all steps {max(gaps):.1e}")
    if a.picture:
        draw_losses(a.picture, losses)
    if a.json:
        with open(a.json, "w") as file:
            json.dump(losses, file)


if __name__ == "__main__":
    main()
