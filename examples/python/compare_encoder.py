"""Embeddings of sentences of unequal length with the attention of eager, of sdpa and of Falchion.

    python compare_encoder.py DIR           # such as sentence-transformers' all-MiniLM-L6-v2
    python compare_encoder.py tiny          # a small model with random weights; nothing is loaded

Sentences are padded at the right to the longest one. For each attention: the lowest cosine of an
embedding to that of eager, how far padding moves an embedding, and sentences a second."""

import argparse
import time

import torch
import transformers
from torch.nn.functional import cosine_similarity

import falchion.hf


def sentences(tokenizer, vocabulary, count, device):
    """Token numbers and the padding mask of sentences made of the words of a text about lengths."""
    words = (
        "attention weighs what each token has to say to every other one and padding says nothing"
    )
    words, generator = words.split(), torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 100, (count,), generator=generator).tolist()
    if tokenizer is not None:
        texts = [" ".join(words[i % len(words)] for i in range(n)) for n in lengths]
        made = tokenizer(texts, padding=True, return_tensors="pt").to(device)
        return made["input_ids"], made["attention_mask"]
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    tokens = torch.randint(3, vocabulary, mask.shape, generator=generator)
    return (tokens * mask).to(device), mask.to(device)


def embed(model, tokens, mask):
    hidden = model(tokens, attention_mask=mask).last_hidden_state.float()
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=64)
    a = parser.parse_args()
    falchion.hf.register()
    first = None
    print(f"{'attention':<10} {'lowest cosine':>13} {'by padding':>10} {'sentences':>11}")
    for implementation in ("eager", "sdpa", "falchion"):
        if a.model == "tiny":
            torch.manual_seed(0)
            config = transformers.BertConfig(
                vocab_size=512, hidden_size=96, num_hidden_layers=2, num_attention_heads=6,
                intermediate_size=192, attn_implementation=implementation,
            )  # fmt: skip
            model, tokenizer = transformers.BertModel(config), None
        else:
            options = {"attn_implementation": implementation, "dtype": torch.float32}
            model = transformers.AutoModel.from_pretrained(a.model, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(a.model)
        model = model.to(a.device).eval()
        tokens, mask = sentences(tokenizer, model.config.vocab_size, a.count, a.device)
        with torch.inference_mode():
            found = embed(model, tokens, mask)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                embed(model, tokens, mask).sum().item()
                seconds.append(time.perf_counter() - start)
            n = int(mask[0].sum())
            alone = embed(model, tokens[:1, :n], mask[:1, :n])
        first = found if first is None else first
        lowest = cosine_similarity(found, first).min().item()
        moved = (alone - found[:1]).abs().max().item()
        speed = a.count / min(seconds)
        print(f"{implementation:<10} {lowest:>13.8f} {moved:>10.1e} {speed:>9.1f}/s")


if __name__ == "__main__":
    main()
