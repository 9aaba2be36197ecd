#!/usr/bin/env python3
"""Shows what the counters of a GPU say about shared memory's banks, beside the model of `falchion layout banks`.

    bench/bank_probe.py [--probe PROGRAM] [--json FILE] [--ncu NCU]

PROGRAM is the compiled bench/bank_probe.cu, whose first lines say how to compile it. Without the option it is bank_probe
beside this script. The script needs ncu and the right to read counters. Without them the table has only cycles, which
say less, because a warp scheduler may be slower than the banks. It exits with 1 when a counter contradicts the model.
"""
import argparse
import csv
import io
import pathlib
import shutil
import subprocess
import sys
import tempfile

import result_file

# What the model says about each kernel, and the ARGUMENTS of `falchion layout banks` that ask it.
# name: (wavefronts, ideal, the operation in a counter's name, arguments)
SQ = "'Sw<3,3,3> o _0 o ((_8,_16),(_64,_2)):((_64,_512),(_1,_8192))' --elem 16b"
PLAIN, PADDED = "'(_128,_128):(_128,_1)' --elem 16b", "'(_128,_128):(_136,_1)' --elem 16b"
MODEL = {
    "ldmatrix_x4_row_major": (32, 4, "ldsm", f"{PLAIN} --access ldmatrix.x4 --tile 16x16"),
    "ldmatrix_x4_swizzled": (4, 4, "ldsm", f"{SQ} --access ldmatrix.x4 --tile 16x16"),
    "ldmatrix_x4_padded": (4, 4, "ldsm", f"{PADDED} --access ldmatrix.x4 --tile 16x16"),
    "ldmatrix_x4_panel_32": (16, 4, "ldsm", "'(_8,_32):(_32,_1)' --elem 16b --access ldmatrix.x4 --tile 8x32"),
    "ldmatrix_x4_panel_32_sw233": (
        4, 4, "ldsm", "'Sw<2,3,3> o _0 o (_8,_32):(_32,_1)' --elem 16b --access ldmatrix.x4 --tile 8x32"),
    "ldmatrix_x4_panel_32_sw333": (
        4, 4, "ldsm", "'Sw<3,3,3> o _0 o (_8,_32):(_32,_1)' --elem 16b --access ldmatrix.x4 --tile 8x32"),
    "store_16b_8_a_row_row_major": (4, 4, "st", f"{PLAIN} --access sts128 --tile 4x64"),
    "store_16b_8_a_row_swizzled": (4, 4, "st", f"{SQ} --access sts128 --tile 4x64"),
    "store_16b_8_a_row_padded": (4, 4, "st", f"{PADDED} --access sts128 --tile 4x64"),
    "store_16b_16_a_row_swizzled": (4, 4, "st", f"{SQ} --access sts128 --tile 2x128"),
    "cp_async_8_a_row_row_major": (4, 4, "ldgsts", f"{PLAIN} --access cp.async16 --tile 4x64"),
    "cp_async_8_a_row_swizzled": (4, 4, "ldgsts", f"{SQ} --access cp.async16 --tile 4x64"),
    "cp_async_8_a_row_padded": (4, 4, "ldgsts", f"{PADDED} --access cp.async16 --tile 4x64"),
    "cp_async_16_a_row_swizzled": (4, 4, "ldgsts", f"{SQ} --access cp.async16 --tile 2x128"),
    "accumulator_store_row_major": (8, 1, "st", f"{PLAIN} --access sts32 --tile 8x8"),
    "accumulator_store_swizzled": (1, 1, "st", f"{SQ} --access sts32 --tile 8x8"),
    "accumulator_store_padded": (1, 1, "st", f"{PADDED} --access sts32 --tile 8x8"),
    "f32_column_row_major": (32, 1, "ld", "'(_32,_32):(_32,_1)' --elem 32b --access lds32 --tile 32x1"),
    "f32_column_padded": (1, 1, "ld", "'(_32,_32):(_33,_1)' --elem 32b --access lds32 --tile 32x1"),
    "f32_column_sw505": (
        1, 1, "ld", "'Sw<5,0,5> o _0 o (_32,_32):(_32,_1)' --elem 32b --access lds32 --tile 32x1"),
    "load_8b_line": (2, 2, "ld", "'(_1,_64):(_64,_1)' --elem 32b --access lds64 --tile 1x64"),
    "load_16b_line": (4, 4, "ld", "'(_1,_128):(_128,_1)' --elem 32b --access lds128 --tile 1x128"),
    "load_16b_pairs": (8, 4, "ld", "'((_2,_8,_2),_4):((_32,_4,_64),_1)' --elem 32b --access lds128 --tile 32x4"),
}

WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
WANTED = [WAVEFRONTS, CONFLICTS]
for _op in ("ld", "st", "ldgsts"):
    WANTED += [f"{WAVEFRONTS}_op_{_op}", f"{CONFLICTS}_op_{_op}"]
for _op in ("ld", "ldsm", "st", "ldgsts"):
    WANTED += [f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{_op}",
               f"smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_{_op}"]
WANTED += ["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared",
           "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal",
           "smsp__inst_executed_op_ldsm", "smsp__inst_executed_op_ldgsts", "smsp__inst_executed_op_shared_ld",
           "smsp__inst_executed_op_shared_st", "smsp__sass_inst_executed_op_shared",
           "smsp__sass_inst_executed_op_shared_ld", "smsp__sass_inst_executed_op_shared_st"]


def run(command, seconds=300):
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def known_metrics(ncu):
    """Returns the counters of WANTED that this ncu and this chip have, or the two that matter if ncu does not list
    them."""
    try:
        words = set(run([ncu, "--query-metrics"], 120).stdout.split())
    except (OSError, subprocess.TimeoutExpired):
        words = set()
    return [m for m in WANTED if m in words] or [WAVEFRONTS, CONFLICTS]


def parse_ncu(text):
    """Returns [{metric: value}] with an entry for each launch, from ncu --csv."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except (ValueError, AttributeError):
            continue
        launches.setdefault(int(row["ID"]), {})[row["Metric Name"].removesuffix(".sum")] = value
    return [launches[i] for i in sorted(launches)]


def counters(ncu, probe, metrics):
    """Returns (counters by launch, or why there are none)."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "ncu.csv"
        command = [ncu, "--clock-control", "none", "--csv", "--log-file", str(log), "--metrics",
                   ",".join(m + ".sum" for m in metrics), str(probe)]
        try:
            done = run(command, 480)
        except (OSError, subprocess.TimeoutExpired) as error:
            return [], str(error)
        text = log.read_text(errors="replace") if log.exists() else ""
        launches = parse_ncu(text)
        if len(launches) == len(MODEL):
            return launches, ""
        said = " | ".join((text + done.stdout + done.stderr).splitlines()[-6:])
        return [], f"ncu ended with {done.returncode}: {said}"


def measure(ncu, probe):
    """Returns (rows, counters by launch, a note)."""
    plain = run([str(probe)])
    if plain.returncode != 0:
        sys.exit(f"bank_probe.py: {probe} ended with {plain.returncode}: {plain.stderr.strip()}")
    rows = list(csv.DictReader(io.StringIO(plain.stdout)))
    if [r["name"] for r in rows] != list(MODEL):
        sys.exit("bank_probe.py: the program's kernels are not those of the model's table: compile it anew")
    if not ncu:
        return rows, [], "no ncu here: cycles alone"
    launches, why = counters(ncu, probe, known_metrics(ncu))
    if not launches:  # With one unknown counter ncu gives none of them.
        launches, why = counters(ncu, probe, [WAVEFRONTS, CONFLICTS])
    return rows, launches, "" if launches else f"no counters, cycles alone: {why}"


def result_of(row, launch):
    accesses = int(row["accesses"])
    wavefronts, ideal, operation, arguments = MODEL[row["name"]]
    each = {name: value / accesses for name, value in launch.items()}
    sass = "smsp__sass_l1tex_data_{}_lsu{}_mem_shared_op_" + operation
    measured = each.get(WAVEFRONTS)
    result = {
        "name": row["name"], "accesses": accesses, "cycles": int(row["cycles"]) / accesses,
        "model": {"wavefronts": wavefronts, "ideal": ideal, "conflicts": wavefronts - ideal},
        "wavefronts": measured, "conflicts": each.get(CONFLICTS),
        "wavefronts_of_operation": each.get(sass.format("pipe", "_wavefronts"),
                                            each.get(f"{WAVEFRONTS}_op_{operation}")),
        "conflicts_of_operation": each.get(sass.format("bank_conflicts_pipe", ""),
                                           each.get(f"{CONFLICTS}_op_{operation}")),
        "banks": f"falchion layout banks {arguments}",
    }
    # cp.async also goes through the data pipe. Its conflicts in the banks are in a counter of its own.
    judged = result["wavefronts_of_operation"] if operation == "ldgsts" else measured
    result["agrees"] = None if judged is None else abs(judged - wavefronts) < 0.02 * wavefronts + 0.01
    return result


def print_table(results):
    text = lambda value: "-" if value is None else f"{value:.2f}"
    head = ("a warp's access", "model", "ideal", "wavefronts", "conflicts", "of the op", "its confl.", "cycles", "")
    form = "{:<29}{:>6}{:>6}{:>11}{:>10}{:>10}{:>11}{:>8}  {}"
    print(form.format(*head))
    for r in results:
        verdict = {None: "", True: "as the model", False: "NOT as the model"}[r["agrees"]]
        print(form.format(r["name"], r["model"]["wavefronts"], r["model"]["ideal"], text(r["wavefronts"]),
                          text(r["conflicts"]), text(r["wavefronts_of_operation"]), text(r["conflicts_of_operation"]),
                          text(r["cycles"]), verdict))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--probe", type=pathlib.Path, default=here / "bank_probe", help="the compiled program")
    parser.add_argument("--json", type=pathlib.Path, help="write the table there")
    parser.add_argument("--ncu", default=shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin"),
                        help="Nsight Compute's command line")
    options = parser.parse_args()
    if not options.probe.exists():
        sys.exit(f"bank_probe.py: no {options.probe}: compile bench/bank_probe.cu, or say --probe")
    rows, launches, note = measure(options.ncu, options.probe)
    results = [result_of(row, launch) for row, launch in zip(rows, launches or [{}] * len(rows))]
    print_table(results)
    if note:
        print(note)
    if options.json:
        device = result_file.output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").split("\n")[0]
        result_file.write(options.json, {**result_file.facts(device, result_file.gpu_driver()), "note": note, "probes": results})
    return 1 if any(r["agrees"] is False for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
