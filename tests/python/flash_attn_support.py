"""What the tests of falchion.flash_attn share: calls of its caches."""

from __future__ import annotations

from torch_support import problem, torch


def cache(device, **changes):
    """A call with two sequences, caches of 20 keys, of which 5 and 14 are there, and 3 new ones."""
    q, k_cache, v_cache = problem(b=2, s_q=3, s_k=20, device=device)
    _, k, v = problem(b=2, s_q=3, s_k=3, device=device, seed=1)
    lengths = torch.tensor([5, 14], dtype=torch.int32, device=device)
    given = {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}
    given["cache_seqlens"] = lengths
    given.update(changes)
    given = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    return {name: x for name, x in given.items() if x is not None}


def paged(device, table, **changes):
    given = cache(device, **changes)
    for name in ("k_cache", "v_cache"):
        given[name] = given[name].unflatten(1, (-1, 4)).flatten(0, 1)  # 10 pages of 4
    table = table if isinstance(table, torch.Tensor) else ints(*table)
    return {**given, "block_table": table.to(device)}


def ints(*numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype)
