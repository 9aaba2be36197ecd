"""What compare_model.py and train_model.py share: a model in float32, and how it reads a text.

The model is a folder of Hugging Face, a GGUF file, or "tiny": a small one with random weights."""

import pathlib
import sys
import time

import torch
import transformers

import falchion.hf

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
TEXT = EXAMPLES / "smollm2" / "text.txt"
ATTENTIONS = ("eager", "sdpa", "falchion")
falchion.hf.register()


def load(path, device):
    """(model, tokens of a text). Another attention is model.set_attn_implementation(name)."""
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    if path == "tiny":
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=512, hidden_size=96, intermediate_size=192, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_config(config, **options)
        return model.to(device).eval(), lambda text: [3 + byte for byte in text.encode()]
    file = pathlib.Path(path)
    if file.suffix == ".gguf":
        sys.path.insert(0, str(EXAMPLES / "smollm2"))
        from gguf_file import Tokenizer, open_model

        read = Tokenizer(open_model(file).meta).encode
        path, options["gguf_file"] = file.parent, file.name
    else:
        read = transformers.AutoTokenizer.from_pretrained(path).encode
    model = transformers.AutoModelForCausalLM.from_pretrained(path, **options)
    return model.to(device).eval(), read


def prompts(tokens, batch, length, device):
    """(token numbers, mask) of prompts of unequal length, padded at the left: the first has `length`
    tokens, the last about half of them. They begin at different places of the text."""
    text = torch.tensor(tokens).repeat(1 + 2 * length // len(tokens))
    ids, mask = torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch, length).long()
    for row in range(batch):
        n = length - row * (length // 2) // batch
        ids[row, length - n :], mask[row, length - n :] = text[7 * row : 7 * row + n], 1
    return ids.to(device), mask.to(device)


def generate(model, ids, mask, new):
    length = dict(max_new_tokens=new, min_new_tokens=new)
    return model.generate(ids, attention_mask=mask, do_sample=False, pad_token_id=0, **length)


def seconds(run):
    start = time.perf_counter()
    run().flatten()[-1].item()  # waits for the device
    return time.perf_counter() - start


def speeds(model, names, ids, mask, new, turns=2):
    """Tokens a second of the prompts (without padding) and of generation, by attention: the best of
    some turns. In each turn every attention has its part, and a first one is not counted."""
    best = {name: [float("inf")] * 2 for name in names}
    for turn, name in ((turn, name) for turn in range(turns + 1) for name in names if best[name]):
        model.set_attn_implementation(name)
        try:
            reads = [lambda: model(ids, attention_mask=mask, logits_to_keep=1).logits] * 4
            times = min(map(seconds, reads)), seconds(lambda: generate(model, ids, mask, new))
        except torch.OutOfMemoryError:
            times = best[name] = []
        if turn > 0:
            best[name] = [min(pair) for pair in zip(best[name], times)]
    read, made = int(mask.sum()), ids.shape[0] * new
    return {name: x and (read / x[0], made / (x[1] - x[0])) for name, x in best.items()}
