#!/usr/bin/env python3
# tests/device_report_test.py: what bench/device_report.py makes of the folder that bench/device.sh leaves: its exit code
# and what it says. A storm that was too short is a failure.
import json
import pathlib
import subprocess
import sys
import tempfile

REPORT = pathlib.Path(__file__).parent.parent / "bench" / "device_report.py"
ENOUGH = {"attention": (19999, 5, 1), "linear": (20000, 0, 0), "linear-backward": (20100, 7, 0)}
# What ran of each operation (passed, refused, failed), the exit code of the storm, that of the report, what it says.
CASES = (
    (ENOUGH, 0, 0, ""),
    (ENOUGH, 1, 1, ""),
    (ENOUGH | {"linear": (19999, 500, 0)}, 0, 1, "FAILED linear: 19999 problems ran, 20000 are to run"),
    ({name: n for name, n in ENOUGH.items() if name != "linear-backward"}, 0, 1, "FAILED linear-backward: 0 problems ran"),
    (None, 124, 1, "did not end well"),
    (None, None, 0, ""),  # no storm was asked for
)


def storm(counts):
    groups = [{"op": op, "backend": backend, "dtype": "bf16", "passed": share, "refused": refused, "failed": failed}
              for op, (passed, refused, failed) in counts.items()
              for backend, share, refused, failed in (("sm90", passed - 1000, refused, failed), ("sm80", 1000, 0, 0))]
    return {"seed": 1, "problems": 60000, "failed": 0, "seconds": 200.0, "groups": groups, "failures": []}


def main():
    bad = []
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
