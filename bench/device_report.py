#!/usr/bin/env python3
"""Puts what device.sh left in a folder into one JSON and prints a short table.

    bench/device_report.py FOLDER device.json SECONDS
"""
import collections
import json
import pathlib
import re
import sys

import result_file

# A storm with fewer problems than this of each operation and pass shows little.
STORM_OPERATIONS = ("attention", "attention-backward", "linear", "linear-backward", "gemm", "norm", "quantise", "norm-backward")
STORM_PROBLEMS = 20000


def load(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def exit_code(log):
    """Returns (code, seconds) of a command that device.sh ran, or (None, 0) when it did not run it."""
    try:
        code, end, start = pathlib.Path(f"{log}.rc").read_text().split()
        return int(code), float(end) - float(start)
    except (OSError, ValueError):
        return None, 0.0


def tail(log, lines=25):
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def tests(folder):
    """Returns each test with its outcome. A program that did not end counts as a failure, with the end of its
    output."""
    out, broken = [], []
    for log in sorted(folder.glob("tests.*.log")):
        code, seconds = exit_code(log)
        data = load(log.with_suffix(".json"))
        program = ".".join(log.name.split(".")[1:-1])
        if code not in (0, 1) or data is None:
            broken.append({"program": program, "code": code, "seconds": seconds, "output": tail(log, 40)})
        for suite in (data or {}).get("testsuites", []):
            for test in suite["testsuite"]:
                if test.get("result") == "SUPPRESSED" or test["status"] == "NOTRUN":
                    continue
                failures = [f["failure"] for f in test.get("failures", [])]
                skipped = test.get("result") == "SKIPPED"
                out.append({"name": f"{suite['name']}.{test['name']}", "program": program,
                            "outcome": "failed" if failures else "skipped" if skipped else "passed",
                            "seconds": float(test["time"].rstrip("s")), "failures": [f[:1500] for f in failures[:5]],
                            "failure_count": len(failures)})
    return out, broken


def sanitizer(folder):
    out = []
    for log in sorted(folder.glob("sanitizer.*.log")):
        code, seconds = exit_code(log)
        text = log.read_text(errors="replace")
        found = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", text)
        count = int(next(g for g in found.groups() if g is not None)) if found else None
        _, tool, name, _ = log.name.split(".")
        passed = re.search(r"\[  PASSED  \] (\d+) test", text)
        outcome = "clean" if code == 0 and count == 0 else "timed out" if code in (124, 137) else "FAILED"
        if outcome == "clean" and not passed or passed and passed.group(1) == "0":
            outcome = "nothing ran"
        out.append({"tool": tool, "name": name, "outcome": outcome, "errors": count, "seconds": seconds,
                    "tests": int(passed.group(1)) if passed else 0, "output": "" if outcome in ("clean", "nothing ran") else tail(log, 60)})
    return out


def show_storm_groups(groups):
    """Prints one line for each operation and place where it ran, for all types. A group that was refused as a whole has
    none."""
    sums = collections.defaultdict(collections.Counter)
    for group in groups:
        sums[group["op"], group["backend"]].update({n: group[n] for n in ("passed", "refused", "failed")})
    for (op, backend), n in sums.items():
        print(f"  {op:<20}{backend:<19}{n['passed']:>7} passed{n['refused']:>7} refused{n['failed']:>5} failed"
              + ("" if n["passed"] + n["failed"] else "  NOTHING RAN"))


def storm_shortfalls(storm):
    """Returns what a storm left out: operations of which too few problems ran. A problem that was refused did not
    run."""
    ran = collections.Counter()
    for group in (storm or {}).get("groups", []):
        ran[group["op"]] += group["passed"] + group["failed"]
    return [f"{op}: {ran[op]} problems ran, {STORM_PROBLEMS} are to run" for op in STORM_OPERATIONS if ran[op] < STORM_PROBLEMS]


def show(result):
    print(f"\n==== {result['context']['gpu'] or 'no GPU'}, {result['context']['seconds']} s")
    counts = collections.Counter(t["outcome"] for t in result["tests"])
    print(f"tests      {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped, "
          f"{len(result['broken'])} programs that did not end well")
    for test in result["tests"]:
        if test["outcome"] == "failed":
            print(f"  FAILED {test['name']} ({test['failure_count']} failures): {test['failures'][0][:600]}")
    for program in result["broken"]:
        print(f"  BROKEN {program['program']}: exit code {program['code']}\n{program['output'][-1200:]}")
    for skip in [t for t in result["tests"] if t["outcome"] == "skipped"][:5]:
        print(f"  skipped {skip['name']}")
    for check in result["sanitizer"]:
        print(f"sanitizer  {check['tool']:<10}{check['name']:<12}{check['outcome']:<10}{check['tests']:>4} tests"
              f"{check['seconds']:>7.0f} s")
        if check["output"]:
            print(check["output"][:1500])
    storm = result["sections"].get("storm")
    if result["codes"].get("storm") is not None:
        print(f"storm      {storm['problems']} problems, {storm['failed']} failed, seed {storm['seed']}, {storm['seconds']:.0f} s" if storm
              else f"storm      did not end well\n{result['logs']['storm'][-3000:]}")
    show_storm_groups((storm or {}).get("groups", []))
    for shortfall in result["storm_shortfalls"]:
        print(f"  FAILED {shortfall}")
    for failure in (storm or {}).get("failures", []):
        print(f"  FAILED {failure['command']}\n         {failure['why']}")
    for name in ("bench", "torch"):
        code, section = result["codes"].get(name), result["sections"].get(name)
        if code is not None:
            print(f"{name:<11}exit code {code}" + ("" if section else ", no JSON"))
    for key, mean in ((result["sections"].get("torch") or {}).get("context", {}).get("summary", {})).items():
        print(f"  {key:<30} geo mean {mean['geometric_mean']:.3f}  lowest {mean['lowest']:.3f} ({mean['lowest_cell']})")
    if result["context"]["left_out"]:
        print(f"left out for time: {', '.join(result['context']['left_out'])}")


def main():
    folder, target, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    found, broken = tests(folder)
    left_out = folder / "left_out"
    gpu = folder / "gpu.csv"
    found_gpu = gpu.read_text().strip() if gpu.exists() else ""
    head = result_file.facts(found_gpu.split(",")[0], result_file.gpu_driver(tail(folder / "nvidia_smi.log", 200)))
    result = {**head,
              "context": {"gpu": found_gpu, "seconds": seconds,
                          "left_out": left_out.read_text().split() if left_out.exists() else []},
              "info": load(folder / "info.json"), "tests": found, "broken": broken, "sanitizer": sanitizer(folder),
              "codes": {n: exit_code(folder / f"{n}.log")[0] for n in ("storm", "bench", "torch")},
              "sections": {n: load(folder / f"{n}.json") for n in ("storm", "bench", "torch")},
              "logs": {n: tail(folder / f"{n}.log", 200) for n in ("storm", "bench", "torch", "nvidia_smi")}}
    result["storm_shortfalls"] = [] if result["codes"]["storm"] is None else storm_shortfalls(result["sections"]["storm"])
    result_file.write(target, result)
    show(result)
    print(f"written: {target}")
    bad = broken or any(t["outcome"] == "failed" for t in found) or any(c["outcome"] != "clean" for c in result["sanitizer"])
    bad = bad or result["storm_shortfalls"]
    bad = bad or (bool(found) and not any(t["outcome"] == "passed" for t in found))
    return 1 if bad or any(code not in (0, None) for code in result["codes"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
