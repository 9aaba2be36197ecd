#!/usr/bin/env python3
# tests/results_test.py: checks that bench/results stays small and that each file in it can be trusted. A file must say
# which commit was measured, when, on which device and with which driver, and its name must begin with that date and
# commit. It must hold no single runs. Some document must cite it by its name, and no document may cite one that is
# gone. Then copies are spoilt to see that each fault is found, and a program of bench/ writes a new file.
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 1_000_000
FIELDS = ("commit", "date", "device", "driver")


def cited_names(text):
    """Returns the file names in a text. a-{b,c}.json stands for two, as in a shell."""
    names = set()
    for pattern in re.findall(r"[\w{},.-]+\.json", text):
        parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^{}]*\})", pattern)]
        names.update("".join(choice) for choice in itertools.product(*parts))
    return names


def documents():
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"), ROOT / "bench" / "README.md"]
    return "\n".join(file.read_text() for file in files)


def faults_of(file, cited):
    try:
        result = json.loads(file.read_text())
    except ValueError as error:
        return [f"is not JSON: {error}"]
    missing = [field for field in FIELDS if not (isinstance(result.get(field), str) and result[field].strip())]
    if missing:
        return [f"does not say its {', '.join(missing)}"]
    faults = []
    start = f"{result['date'][:10]}-{result['commit']}-"
    if not file.name.startswith(start):
        faults.append(f"does not begin with {start}, its date and commit")
    if file.name not in cited:
        faults.append("is cited by no document: name it where its figures are, or remove it")
    if any(row.get("run_type") == "iteration" for row in result.get("benchmarks", [])):
        faults.append("holds single runs: aggregates alone are kept")
    return faults


def faults_in(folder, text):
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    size, cited = sum(file.stat().st_size for file in files), cited_names(text)
    faults = [f"{file.relative_to(folder)} {fault}" for file in files for fault in faults_of(file, cited)]
    there = {file.name for file in files}
    faults += [f"{name} is cited and not there" for name in sorted(cited - there) if re.match(r"\d{4}-\d\d-\d\d-", name)]
    if size > MOST_BYTES:
        faults.append(f"{size} bytes in {len(files)} files, at most {MOST_BYTES}")
    return faults if files else ["there is no result"]


def spoilt(folder, text):
    """Yields (what is wrong, the fault that should be found, what was found) for copies with one fault each."""
    def change(**fields):
        result = json.loads(original) | fields
        return json.dumps({name: value for name, value in result.items() if value is not None})

    first = min(folder.rglob("*.json"))
    original = first.read_text()
    contents = {f"no {field}": (change(**{field: None}), f"does not say its {field}") for field in FIELDS}
    contents["an empty commit"] = (change(commit=""), "does not say its commit")
    contents["another commit"] = (change(commit="0123456"), "its date and commit")
    contents["another day"] = (change(date="2001-01-01"), "its date and commit")
    contents["a single run"] = (change(benchmarks=[{"run_type": "iteration"}]), "holds single runs")
    contents["no JSON"] = (original[:-3], "is not JSON")
    contents["too much"] = (original + " " * MOST_BYTES, "at most 1000000")
    for what, (content, expected) in contents.items():
        first.write_text(content)
        yield what, expected, faults_in(folder, text)
    first.write_text(original)
    uncited = first.with_name(first.name.replace(".json", "_again.json"))
    uncited.write_text(original)
    yield "a file that nobody cites", "is cited by no document", faults_in(folder, text)
    uncited.unlink()
    yield "a file that is not there", "is cited and not there", faults_in(folder, text + f" {uncited.name}")


def faults_of_backward(row):
    """A row of the backward pass compares both of our calls with each rival, alone and together with the forward pass.
    Our own call any_order is no rival, and fa2 is PyTorch's flash."""
    rivals = ("cudnn", "flash", "fa4", "fa3", "fa3_det")
    fastest = lambda times: min(times[name] for name in rivals)
    expected = {"ratio": fastest(row["ms"]) / row["ms"]["falchion"],
                "ratio_any_order": fastest(row["ms"]) / row["ms"]["any_order"],
                "both_ratio": fastest(row["both_ms"]) / row["both_ms"]["falchion"]}
    faults = [f"{row['name']}: {name} is {row[name]} and not {x}" for name, x in expected.items()
              if abs(row[name] / x - 1) > 1e-5]
    if set(row["ratios"]) != set(rivals):
        faults.append(f"{row['name']}: ratios to {', '.join(row['ratios'])}")
    return faults


def new_result(folder, program, *arguments):
    """Lets a program of bench/ write a file, which must have the fields, and which compare.py must read with each median.
    Returns the result, or None, and the faults."""
    file = folder / "new.json"
    done = subprocess.run([sys.executable, ROOT / "bench" / program, "--fake", "--json", file, *arguments],
                          capture_output=True, text=True, env=os.environ | {"FALCHION_COMMIT": "abc1234"})
    if done.returncode:
        return None, [f"{program} --fake: {done.stdout}{done.stderr}"]
    result = json.loads(file.read_text())
    medians = sum(len(row["ms"]) + len(row.get("both_ms", {})) for row in result["rows"])
    read = subprocess.run([sys.executable, ROOT / "bench" / "compare.py", file, file], capture_output=True, text=True).stdout
    faults = [f"{program} writes no {field}" for field in FIELDS if not result.get(field)]
    return result, faults + ([] if f"\n{medians} in common" in read else [f"compare.py does not read {medians} medians:\n{read}"])


def faults_of_new_ones(folder):
    faults = new_result(folder, "compare_gemm.py", "--shapes", "64x64x64,16x4096x4096")[1]
    sections = "prefill,gqa,varlen,chunked,small,decode,backward"
    result, more = new_result(folder, "compare_torch.py", "--quick", "--sections", sections, "--rivals", "cudnn,fa2,fa4",
                              "--fa3", "libfa3.so")
    faults += more
    if result is None:
        return faults
    backward = [row for row in result["rows"] if row["section"] == "backward"]
    for row in backward:
        faults += faults_of_backward(row)
    if not backward or not result["context"]["summary"]["backward burst"].keys() >= {"ratio_any_order", "both_ratio"}:
        faults.append("compare_torch.py writes no means of the backward pass")
    return faults


def faults_of_fa3():
    """FlashAttention-3 runs from a library, which has to be there and to be named."""
    faults = []
    for arguments in (["--fa3", "nowhere/libfa3.so"], ["--rivals", "fa3"]):
        done = subprocess.run([sys.executable, ROOT / "bench" / "compare_torch.py", *arguments], capture_output=True, text=True)
        if done.returncode != 2 or "no library with FlashAttention-3 at" not in done.stderr:
            faults.append(f"compare_torch.py {' '.join(arguments)}: {done.returncode}, {done.stderr}")
    return faults


def main():
    text = documents()
    bad = faults_in(ROOT / "bench" / "results", text)
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(shutil.copytree(ROOT / "bench" / "results", pathlib.Path(name) / "results"))
        if not bad:
            bad = [f"{what}: '{expected}' is expected, found: {found}" for what, expected, found in spoilt(copy, text)
                   if len(found) != 1 or expected not in found[0]]
        bad += faults_of_new_ones(pathlib.Path(name)) + faults_of_fa3()
    print("\n".join(bad) or "bench/results is as it should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
