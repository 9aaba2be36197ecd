"""python -m falchion, and falchion.verify and bench behind it."""

import copy
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import falchion
import numpy as np
import pytest
from falchion import __main__ as command
from falchion import _verify


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = command.main(list(arguments))
    said = capsys.readouterr()
    return code, said.out, said.err


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert subprocess.run([sys.executable, "-m", "falchion", "info"], check=True, capture_output=True, text=True).stdout
    code, out, _ = run(capsys, "info", "--json")
    assert code == 0 and json.loads(out)["falchion"] == falchion.version() == falchion.__version__
    assert {"compiler", "cpu levels", "gpus", "variants"} <= set(json.loads(out))


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", "1,40,8,128", "--k", "1,90,8,128", "--causal", "30", "--target", "cpu")
    assert "query 0 stands at key 30" in out
    code, out, _ = run(capsys, "explain", "1,4096,8,128", "--causal", "bottom_right", "--target", "sm90")
    assert code == 0 and "sm_90" in out
    code, out, _ = run(
        capsys,
        "explain",
        "1,1,8,128",
        "--k",
        "1,4096,2,128",
        "--window",
        "16",
        "-1",
        "--backward",
        "--json",
        "--target",
        "cpu",
        "--dtype",
        "float32",
    )
    story = json.loads(out)
    assert code == 0 and story["problem"]["band"]["left"] == 16 and story["pass"] == "backward"
    assert story["problem"]["s_k"] == 4096 and story["decision"]["backend"] == "cpu"


FEW = tuple(p for p in _verify.PROBLEMS if p.name in ("full", "chunk", "decode", "odd head dims"))


def test_verify(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run(capsys, "verify", "--json", "--seed", "3")
    checks = json.loads(out)
    assert code == 0 and err == "" and len(checks) == 3 * len(_verify.PROBLEMS) and all(c["ok"] for c in checks)
    assert {c["backend"] for c in checks} <= {"cpu", "ref"}
    monkeypatch.setattr(_verify, "PROBLEMS", FEW)
    assert "12 of 12 are within their limits; 0 skipped" in run(capsys, "verify")[1]


def test_verify_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong element, a NaN and a gradient of another problem are each found."""
    monkeypatch.setattr(_verify, "PROBLEMS", FEW)
    right, right_backward = _verify._fal.attention, _verify._fal.attention_backward

    def spoil(place: Any) -> Any:
        def attention(*x: Any, **options: Any) -> Any:
            o, lse = right(*x, **options)
            if options["backend"] != "ref":
                place(o)
            return o, lse

        return attention

    def one_more(o: Any) -> None:
        o[0, 0, 0, 0] += np.asarray(0.25, o.dtype)

    def a_nan(o: Any) -> None:
        o[0, 0, 0, 0] = np.nan

    for place in (one_more, a_nan):
        monkeypatch.setattr(_verify._fal, "attention", spoil(place))
        checks = falchion.verify(dtypes=("float32",))
        assert not checks.ok and "FAILED" in str(checks) and not any(c.ok for c in checks)
    monkeypatch.setattr(_verify._fal, "attention", right)
    monkeypatch.setattr(
        _verify._fal,
        "attention_backward",
        lambda *x, **options: right_backward(*x, **(options | ({"scale": 0.3} if options["backend"] != "ref" else {}))),
    )
    checks = falchion.verify(dtypes=("float32",))
    assert not any(c.ok for c in checks if c.problem != "decode")


def test_nothing_that_ran_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    if "none" in falchion.info()["gpus"]:
        code, out, _ = run(capsys, "verify", "--backend", "sm80")
        assert code == 1 and "0 of 0 are within their limits; 42 skipped" in out


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "bench", "--shape", "1,64,2,32", "--repeats", "2", "--json")
    results = json.loads(out)
    assert code == 0 and err == "" and len(results) == 8
    assert {r["operation"] for r in results} == {"forward", "backward"}
    assert all(r["microseconds"] > 0 and r["tflops"] > 0 and r["plan"].startswith("attention_") for r in results)
    assert "TFLOP/s" in run(capsys, "bench", "--shape", "1,8,1,8", "--repeats", "1")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "1,2,3"], "it is four numbers"),
        (["bench", "--shape", "1,-1,2,3"], "each 0 or more"),
        (["explain", "1,2,3,x"], "it is four numbers"),
        ([], "required"),
        (["explain", "1,2,3,4", "--dtype", "int8"], "invalid choice"),
        (["bench", "--repeats", "x"], "invalid int"),
    ],
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as left:
        command.main(arguments)
    assert left.value.code == 2 and words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["explain", "1,2,3,4", "--target", "sm70"], "target = 'sm70'"),
        (["bench", "--repeats", "0"], "repeats = 0"),
        (["verify", "--threads", "-1"], "threads = -1"),
        (["bench", "--device", "nonsense"], "device = 'nonsense': it is cpu, cuda or cuda:1"),
        (["verify", "--device", "cuda:-1"], "device = 'cuda:-1'"),
    ],
)
def test_what_could_not_be_done(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2 and err.startswith("falchion: ") and words in err and err.count("\n") == 1


def test_a_torch_that_cannot_be_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text('raise OSError("libcudart.so.13 is not there")\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    code, _, err = run(capsys, "bench", "--device", "cuda")
    assert code == 2 and err == "falchion: torch cannot be imported: libcudart.so.13 is not there\n"


def entry(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """The console entry, as a wheel installs it."""
    program = "import sys; from falchion._console import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)


def test_the_command_of_the_package() -> None:
    """Where the package has it the console entry runs it, and python -m falchion hands over what it lacks."""
    command = falchion.info().facts.command
    if command is None:
        assert "lacks the command, which has layout" in module("layout").stderr
        pytest.skip("this build of the package has no command")
    assert entry("explain", "--s", "4096", "--target", "h200").returncode == 0
    for run in (entry, module):
        found = run("layout", "print", "(4,2):(2,1)")
        assert found.returncode == 0 and found.stdout == "(_4,_2):(_2,_1)\n", found.stderr
        assert run("roofline", "--device", "h200").returncode == 0
        assert "--help" in run("run", "--help").stdout
        assert run("run").returncode != 0


def module(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "falchion", *arguments], capture_output=True, text=True)


def test_a_closed_pipe_and_an_interrupt() -> None:
    """They end the process as they end other programs, and nothing is told."""
    for arguments in (["info"], ["info", "--json"], ["explain", "1,64,4,32"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "falchion", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == -signal.SIGPIPE
        process.stderr.close()
    process = subprocess.Popen(
        [sys.executable, "-m", "falchion", "bench", "--shape", "1,2048,8,64", "--repeats", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == -signal.SIGINT and err == b"" and out == b""
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "falchion", "info"], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert (
            done.returncode == 2 and done.stderr.startswith("falchion: [Errno 28]") and "Traceback" not in done.stderr
        )


def test_the_facts_of_info() -> None:
    info = falchion.info()
    facts = info.facts
    assert facts.version == info["falchion"] == falchion.version() and facts.threads >= 1
    assert "generic" in facts.cpu_levels and not set(facts.cpu_levels) & set(facts.cpu_levels_missing)
    assert (facts.gpu is None) == bool(facts.gpu_missing) and 0 < facts.variants_built <= facts.variants_listed
    kinds = {"float32": "f32"}
    found = [x for x in facts.kernels if x.operation == "gemm" and x.level == "generic"]
    assert len(found) == 1 and kinds["float32"] in found[0].dtypes and found[0].backend == "cpu"
    assert copy.deepcopy(info) == info and pickle.loads(pickle.dumps(info)).facts == facts
    out = json.loads(module("info", "--json").stdout)
    assert out["facts"]["cpu_levels"] == list(facts.cpu_levels) and out["compiler"] == info["compiler"]
