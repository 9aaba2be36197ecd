"""A model of Hugging Face with the attention of eager, of sdpa and of Falchion, as a table.

    python compare_model.py DIR [--gguf FILE] [--device cuda] [--dtype bfloat16] [--prompt 512]
    python compare_model.py tiny            # a small model with random weights; nothing is loaded

For each attention: how far the logits are from those of eager, whether greedy generation gives the
same tokens, and tokens a second of the prompt and of generation (the best of three runs)."""

import argparse
import time

import torch
import transformers

import falchion.hf


def load(arguments, implementation):
    options = {"attn_implementation": implementation, "dtype": getattr(torch, arguments.dtype)}
    if arguments.model == "tiny":
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=512, hidden_size=96, intermediate_size=192, num_hidden_layers=3,
            num_attention_heads=6, num_key_value_heads=2, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = transformers.AutoModelForCausalLM.from_config(config, **options)
    else:
        options.update({"gguf_file": arguments.gguf} if arguments.gguf else {})
        model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, **options)
    return model.to(arguments.device).eval()


def best_seconds(run, device, times=3):
    seconds = []
    for _ in range(times):
        wait = torch.cuda.synchronize if device == "cuda" else bool
        wait()
        start = time.perf_counter()
        run()
        wait()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--new", type=int, default=24)
    arguments = parser.parse_args()
    falchion.hf.register()
    first = None
    print(f"{'attention':<10} {'max |d logit|':>13} {'greedy':>7} {'prompt':>9} {'generate':>9}")
    for implementation in ("eager", "sdpa", "falchion"):
        model = load(arguments, implementation)
        torch.manual_seed(1)
        shape = (arguments.batch, arguments.prompt)
        tokens = torch.randint(3, model.config.vocab_size, shape).to(arguments.device)
        with torch.inference_mode():
            logits = model(tokens).logits.float()
            prompt = best_seconds(lambda: model(tokens), arguments.device)
            length = dict(max_new_tokens=arguments.new, min_new_tokens=arguments.new)
            options = dict(do_sample=False, pad_token_id=0, **length)
            whole = model.generate(tokens, **options)
            both = best_seconds(lambda: model.generate(tokens, **options), arguments.device)
        first = first or (logits, whole)
        distance = (logits - first[0]).abs().max().item()
        same = "same" if torch.equal(whole, first[1]) else "differ"
        read, made = tokens.numel() / prompt, arguments.batch * arguments.new / (both - prompt)
        print(f"{implementation:<10} {distance:>13.2e} {same:>7} {read:>7.0f}/s {made:>7.1f}/s")


if __name__ == "__main__":
    main()
