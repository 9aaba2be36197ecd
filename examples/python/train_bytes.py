"""A small GPT learns the bytes of Python's own sources, with torch's attention and with Falchion's.

    python train_bytes.py --steps 300 --device cuda --dtype bfloat16 --picture losses.svg

Both start from the same weights and see the same batches. It prints both losses, their largest
difference, and tokens a second. Then it trains with Falchion twice, for at most 60 steps, to see
that the bits are the same. For that torch's deterministic algorithms are on, because on a GPU some
of torch's own gradients (of an embedding) have other bits in each run."""

import argparse
import os
import pathlib
import sysconfig
import time

import torch
from byte_gpt import Gpt, draw_losses
from torch.nn import functional

import falchion.torch


def train(a, text, sdpa):
    """The loss of each step, and tokens a second after the first tenth of them."""
    torch.manual_seed(0)
    model = Gpt(a.layers, a.heads, a.head_dim, a.length, sdpa).to(a.device)
    run = torch.compile(model) if a.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator, losses, warm = torch.Generator().manual_seed(1), [], a.steps // 10
    start = time.perf_counter()
    for step in range(a.steps):
        if step == warm:
            float(losses[-1] if losses else 0)  # waits for the device
            start = time.perf_counter()
        at = torch.randint(len(text) - a.length - 1, (a.batch,), generator=generator)
        rows = torch.stack([text[i : i + a.length + 1] for i in at]).to(a.device).long()
        with torch.autocast(a.device, getattr(torch, a.dtype), enabled=a.dtype != "float32"):
            logits = run(rows[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    found = torch.stack(losses).tolist()
    return found, (a.steps - warm) * a.batch * a.length / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = dict(steps=300, layers=12, heads=12, head_dim=64, length=1024, batch=8)
    for name, value in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--picture")
    a = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS needs for that
    sources = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = torch.frombuffer(bytearray(b"".join(s.read_bytes() for s in sources)), dtype=torch.uint8)
    theirs, their_speed = train(a, text, functional.scaled_dot_product_attention)
    ours, our_speed = train(a, text, falchion.torch.sdpa)
    for step in sorted({0, a.steps // 4, a.steps // 2, a.steps - 1}):
        print(f"step {step:>4}  sdpa {theirs[step]:.5f}  falchion {ours[step]:.5f}")
    gaps = [abs(x - y) for x, y in zip(theirs, ours)]
    late = max(gaps[-max(a.steps // 3, 1) :])
    early = max(gaps[:50])
    print(f"largest difference: all {max(gaps):.2e}, first 50 {early:.2e}, last third {late:.2e}")
    print(f"tokens a second: sdpa {their_speed:.0f}, falchion {our_speed:.0f}")
    if a.picture:
        draw_losses(a.picture, {"sdpa": theirs, "falchion": ours})
    torch.use_deterministic_algorithms(True)
    a.steps = min(a.steps, 60)
    same = train(a, text, falchion.torch.sdpa)[0] == train(a, text, falchion.torch.sdpa)[0]
    print("falchion twice: " + ("the same bits" if same else "other bits"))


if __name__ == "__main__":
    main()
