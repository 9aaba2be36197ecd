"""How the programs of bench/ write a result file. It begins with commit, date, device and driver. Then come aggregates, with
one row on each line, so that the difference of two files can be read.
"""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit():
    """Returns what FALCHION_COMMIT says, else the file that ./dev device-build writes beside bench/, else what git
    says."""
    carried = HERE.parent / "commit"
    return (os.environ.get("FALCHION_COMMIT") or (carried.read_text().strip() if carried.is_file() else "")
            or output_of("git", "-C", str(HERE), "describe", "--always", "--dirty"))


def gpu_driver(said=None):
    """Returns the driver and the newest CUDA that it runs, as "580.159.04, CUDA 13.0", from what nvidia-smi says."""
    said = output_of("nvidia-smi") if said is None else said
    versions = [re.search(name + r" Version: *([\d.]+)", said) for name in ("Driver", "CUDA(?: UMD)?")]
    return ", CUDA ".join(v.group(1) for v in versions) if all(versions) else ""


def cpu_driver(build_info):
    """A CPU has no driver, so this returns the compiler and the kernel. build_info is what the library says of
    itself."""
    compiler = re.search(r"^compiler +(.+)$", build_info, re.MULTILINE)
    return f"none (CPU), compiler {compiler.group(1) if compiler else 'unknown'}, {platform.system()} {platform.release().split('-')[0]}"


def facts(device, driver):
    return {"commit": commit(), "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "device": device, "driver": driver}


def rounded(value):
    """Keeps seven digits of each measured number, since no clock gives more. Whole numbers are counts and stay as they
    are."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    return float(f"{value:.7g}") if isinstance(value, float) and not value.is_integer() else value


def text_of(result):
    """Returns JSON with a line for each row of a list and for each member of an object. What lies deeper stays on its
    line."""
    def shown(value):
        if value and isinstance(value, dict):
            return "{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }"
        if value and isinstance(value, list):
            return "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]"
        return json.dumps(value)
    return "{\n " + ",\n ".join(f"{json.dumps(k)}: {shown(v)}" for k, v in result.items()) + "\n}\n"


def write(path, result):
    pathlib.Path(path).write_text(text_of(rounded(result)))
