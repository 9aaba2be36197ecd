"""Runs a sample of FlashAttention's own test file against falchion.flash_attn.

    python tests/python/fa_runner.py FILE [--count 4000] [--processes 16] [--seconds 480]
        [--device cuda] [--seed 0] [--log cases.jsonl] [--only test_flash_attn_output]

FILE is a copy of tests/test_flash_attn.py of the flash-attention repository, which is no part of
this one (its version 0251105a has 508,777 cases, which pytest alone takes a minute to collect).
Nothing of it is changed, tolerances least of all, but for one thing: with --device cpu "cuda" is
read as "cpu". FILE may be hopper/test_flash_attn.py too, with padding.py and test_util.py beside it,
for FlashAttention-3's functions; the variables FLASH_ATTENTION_DISABLE_FP8 and ..._LOCAL=TRUE leave
out what falchion does not offer (fp8, attention_chunk).

Each test function gets its share of the sample, at least --least cases. Within a function each
value of each parameter is drawn equally often. A case passes, fails, is skipped by the file itself,
or is refused by Falchion as unsupported; each reason is counted, and --log has every case and its
seconds. What the cases print is not shown."""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib
import io
import itertools
import json
import multiprocessing
import pathlib
import queue
import random
import sys
import time
import traceback
import types
from typing import Any, Iterator


def load(path: str, device: str) -> types.ModuleType:
    """The file as a module, whose flash_attn is Falchion's."""
    import torch

    import falchion.flash_attn

    if "flash_attn" not in sys.modules:
        falchion.flash_attn.install()
    falchion.flash_attn.check_bounds()  # the file has cases of page numbers that must be refused
    source = pathlib.Path(path).read_text()
    if "from flash_attn_interface import" in source:  # FlashAttention-3's file
        sys.modules["flash_attn_interface"] = importlib.import_module("falchion.flash_attn.v3")
        sys.path.insert(0, str(pathlib.Path(path).parent))
    if device == "cpu":
        torch.set_num_threads(1)
        source = source.replace('"cuda"', '"cpu"').replace("'cuda'", "'cpu'")
        torch.cuda.get_device_capability = lambda *_: (8, 0)
        torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 34)
    module = types.ModuleType("fa_tests")
    module.__file__ = path
    sys.modules["fa_tests"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def axes_of(function: Any) -> list[tuple[list[str], list[Any]]]:
    """The parametrisations of a test: names, and the values that they take together."""
    found = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args[0], list(mark.args[1])
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        rows = [getattr(v, "values", v) if hasattr(v, "marks") else v for v in values]
        if len(names) == 1:
            rows = [
                row if isinstance(row, tuple) and hasattr(v, "marks") else (row,)
                for row, v in zip(rows, values)
            ]
        found.append((names, rows))
    return found


def sizes_of(module: types.ModuleType, only: str | None) -> dict[str, int]:
    """How many cases each test function has."""
    sizes = {}
    for name, function in vars(module).items():
        if name.startswith("test_") and callable(function) and (only is None or name == only):
            sizes[name] = 1
            for _, rows in axes_of(function):
                sizes[name] *= len(rows)
    return sizes


def shares_of(sizes: dict[str, int], count: int, least: int) -> dict[str, int]:
    total = sum(sizes.values())
    return {n: min(size, max(least, round(count * size / total))) for n, size in sizes.items()}


def drawn(function: Any, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """`count` cases. Each parametrisation is a deck that is shuffled anew when it is used up."""
    generator = random.Random(f"{function.__name__} {seed}")
    axes, seen, tries = axes_of(function), set(), itertools.count()
    decks: list[list[int]] = [[] for _ in axes]
    while len(seen) < count and next(tries) < 20 * count:
        picks = []
        for deck, (_, rows) in zip(decks, axes):
            if not deck:
                deck.extend(generator.sample(range(len(rows)), len(rows)))
            picks.append(deck.pop())
        if tuple(picks) in seen:
            continue
        seen.add(tuple(picks))
        case: dict[str, Any] = {}
        for pick, (names, rows) in zip(picks, axes):
            case.update(zip(names, rows[pick]))
        yield case


def run_once(function: Any, case: dict[str, Any]) -> tuple[str, str]:
    """(outcome, reason) of one case."""
    import pytest

    import falchion

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            function(**case)
    except pytest.skip.Exception as reason:
        return "skipped", str(reason)
    except falchion.Unsupported as reason:
        return "refused", str(reason).splitlines()[0]
    except Exception as reason:
        text = str(reason).strip().splitlines()
        place = traceback.extract_tb(reason.__traceback__)[-1]
        where = f"{pathlib.Path(place.filename).name}:{place.lineno}"
        return "failed", f"{type(reason).__name__} at {where}: {(text or [place.line])[0]}"
    return "passed", ""


def run_case(function: Any, case: dict[str, Any], tries: int = 8) -> tuple[str, str]:
    """As run_once. The processes share the GPU's memory, of which the file's own reference takes
    much: a case that finds too little of it waits and is tried again."""
    for _ in range(tries):
        found = run_once(function, case)
        give_back_memory(1 << 30)
        if not found[1].startswith("OutOfMemoryError"):
            break
        give_back_memory(0)
        time.sleep(1 + random.random())
    return found


def give_back_memory(kept: int) -> None:
    """Where PyTorch keeps more bytes than that for later calls, they go back to the GPU."""
    import torch

    if torch.cuda.is_available() and torch.cuda.memory_reserved() > kept:
        torch.cuda.empty_cache()


def work(index: int, a: argparse.Namespace, results: Any) -> None:
    """One process: every a.processes-th case of the sample, until the time is over."""
    module = load(a.file, a.device)
    end = time.monotonic() + a.seconds
    shares = shares_of(sizes_of(module, a.only), a.count, a.least)
    cases = [(n, case) for n in shares for case in drawn(getattr(module, n), shares[n], a.seed)]
    random.Random(a.seed).shuffle(cases)  # each process has its part of those that take long
    for name, case in cases[index :: a.processes]:
        start, outcome, reason = time.monotonic(), "no time", ""
        if start < end:
            outcome, reason = run_case(getattr(module, name), case)
        row = {"test": name, "outcome": outcome, "reason": reason}
        row["case"] = {key: str(value) for key, value in case.items()}
        row["seconds"] = round(time.monotonic() - start, 3)
        results.put(row)
    results.put(None)


def report(rows: list[dict[str, Any]], sizes: dict[str, int]) -> int:
    """Prints the tables; returns how many cases failed."""
    outcomes = ["passed", "failed", "refused", "skipped", "no time"]
    counts = collections.Counter((row["test"], row["outcome"]) for row in rows)
    print(f"{'test':<42} {'of':>8} " + " ".join(f"{outcome:>8}" for outcome in outcomes))
    for name, size in sizes.items():
        print(f"{name:<42} {size:>8} " + " ".join(f"{counts[name, o]:>8}" for o in outcomes))
    for outcome in ("failed", "refused", "skipped"):
        reasons = collections.Counter(r["reason"] for r in rows if r["outcome"] == outcome)
        for reason, count in reasons.most_common(12):
            print(f"{outcome} {count:>6}  {reason[:150]}")
    for row in [r for r in rows if r["outcome"] == "failed"][:10]:
        print(f"{row['test']}({', '.join(f'{k}={v}' for k, v in row['case'].items())})")
    totals = collections.Counter(row["outcome"] for row in rows)
    print(f"{totals['passed']} passed, {totals['failed']} failed")
    return totals["failed"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file")
    for name, value in dict(count=4000, least=8, processes=16, seed=0).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--seconds", type=float, default=480.0, help="no case starts after them")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds for those that run then")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only")
    parser.add_argument("--log")
    a = parser.parse_args(arguments)
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers = [context.Process(target=work, args=(i, a, results)) for i in range(a.processes)]
    for worker in workers:
        worker.start()
    rows, running, end = [], len(workers), time.monotonic() + a.seconds + a.grace
    while running and time.monotonic() < end:
        try:
            row = results.get(timeout=5)
        except queue.Empty:
            running = min(running, sum(worker.is_alive() for worker in workers))
            continue
        running -= row is None
        if row is not None:
            rows.append(row)
    for worker in workers:
        worker.join(5)
        worker.kill()  # one that is still in a case has had its time
        worker.join()
    broken = [worker.exitcode for worker in workers if worker.exitcode != 0]
    if a.log:
        pathlib.Path(a.log).write_text("".join(json.dumps(row) + "\n" for row in rows))
    failed = report(rows, sizes_of(load(a.file, a.device), a.only))
    if broken:
        print(f"{len(broken)} processes ended with {sorted(set(broken))}")
    return 1 if failed or broken or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
