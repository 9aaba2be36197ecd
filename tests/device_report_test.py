#!/usr/bin/env python3
# tests/device_report_test.py: tests what bench/device_report.py makes of the folder that bench/device.sh leaves: its
# exit code, what it says, and the facts that its report begins with. A storm that was too short must be a failure.
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
REPORT = ROOT / "bench" / "device_report.py"
ENOUGH = {"attention": (19999, 5, 1), "linear": (20000, 0, 0), "linear-backward": (20100, 7, 0),
          "attention-backward": (20000, 9, 0), "gemm": (21000, 0, 0), "norm": (21000, 0, 0),
          "quantise": (21000, 0, 0), "norm-backward": (21000, 0, 0)}
# Each case has what ran of each operation (passed, refused, failed), the exit code of the storm, the exit code of the
# report, and what the report says.
CASES = (
    (ENOUGH, 0, 0, ""),
    (ENOUGH, 1, 1, ""),
    (ENOUGH | {"linear": (19999, 500, 0)}, 0, 1, "FAILED linear: 19999 problems ran, 20000 are to run"),
    ({name: n for name, n in ENOUGH.items() if name != "linear-backward"}, 0, 1, "FAILED linear-backward: 0 problems ran"),
    (None, 124, 1, "did not end well"),
    (None, None, 0, ""),  # No storm was asked for.
)


def storm(counts):
    groups = [{"op": op, "backend": backend, "dtype": "bf16", "passed": share, "refused": refused, "failed": failed}
              for op, (passed, refused, failed) in counts.items()
              for backend, share, refused, failed in (("sm90", passed - 1000, refused, failed), ("sm80", 1000, 0, 0))]
    return {"seed": 1, "problems": 60000, "failed": 0, "seconds": 200.0, "groups": groups, "failures": []}


def facts():
    """Returns what is wrong with the first fields of the report of a machine with a GPU."""
    header = "| NVIDIA-SMI 580.159.04    Driver Version: 580.159.04    CUDA Version: 13.0     |"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "gpu.csv").write_text("NVIDIA H200, 580.159.04, 1980 MHz, 3201 MHz, 700.00 W, 143771 MiB\n")
        (folder / "nvidia_smi.log").write_text("\n".join(["Mon Nov 23", "+---+", header] + 40 * ["| a process |"]))
        subprocess.run([sys.executable, REPORT, folder, folder / "device.json", "250"], capture_output=True,
                       env=os.environ | {"FALCHION_COMMIT": "abc1234"})
        result = json.loads((folder / "device.json").read_text())
    expected = {"commit": "abc1234", "device": "NVIDIA H200", "driver": "580.159.04, CUDA 13.0"}
    bad = [f"{field}: {result.get(field)}, not {value}" for field, value in expected.items() if result.get(field) != value]
    return bad + ([] if result.get("date", "").startswith("20") else ["no date"])


def operations():
    """Returns what is wrong with the storm of device.sh: it must draw enough of each operation that the command knows, and
    the report must ask after each."""
    known = re.findall(r'\{Op::\w+, "([a-z-]+)",', (ROOT / "src" / "api" / "problem_line.cpp").read_text())
    asked = re.search(r"STORM_OPERATIONS = \((.*)\)", REPORT.read_text()).group(1)
    drawn = int(re.search(r"verify --random (\d+) ", (ROOT / "bench" / "device.sh").read_text()).group(1))
    bad = [f"the report does not ask after {name}" for name in known if f'"{name}"' not in asked]
    return bad + ([] if drawn >= 22000 * len(known) > 0 else [f"{drawn} problems are too few for {len(known)} operations"])


def main():
    bad = facts() + operations()
    for counts, storm_code, expected, says in CASES:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            if storm_code is not None:
                (folder / "storm.log.rc").write_text(f"{storm_code} 300.0 100.0\n")
            if counts is not None:
                (folder / "storm.json").write_text(json.dumps(storm(counts)))
            done = subprocess.run([sys.executable, REPORT, folder, folder / "device.json", "250"], capture_output=True, text=True)
        if done.returncode != expected or says not in done.stdout or (not says and "FAILED" in done.stdout):
            bad.append(f"{counts}, storm's exit code {storm_code}: exit code {done.returncode}, not {expected}, or without "
                       f"'{says}':\n{done.stdout}{done.stderr}")
    print("\n".join(bad) or f"{len(CASES)} folders as they should be")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
