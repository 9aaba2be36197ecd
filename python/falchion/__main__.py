"""python -m falchion info | explain | verify | bench"""

import argparse
import dataclasses
import json
import os
import sys

import falchion
from falchion import _command


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(extent) for extent in text.split(","))
    except ValueError:
        shape = ()
    if len(shape) != 4 or min(shape) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape: it is four numbers b,s,h,d, each 0 or more")
    return shape


def _corner(text: str) -> str | int:
    if text in ("bottom_right", "top_left"):
        return text
    try:
        return int(text)
    except ValueError:
        why = f"{text!r} is no corner: it is bottom_right, top_left or the number of the key at which query 0 stands"
        raise argparse.ArgumentTypeError(why) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m falchion",
        description=falchion.__doc__,
        epilog=f"{', '.join(_command.VERBS)}: verbs of the falchion command, where the package has it",
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--json", action="store_true", help="for programs")
    runs = argparse.ArgumentParser(add_help=False)
    runs.add_argument("--device", default="cpu", help="cpu (NumPy), cuda or cuda:1 (PyTorch)")
    runs.add_argument("--backend", default="best", choices=("best", "ref", "cpu", "sm80", "sm90"))
    runs.add_argument("--threads", type=int, default=0, help="of the CPU; 0: all that there are")
    verbs.add_parser("info", parents=[both], help="this machine, this build, this package")
    explain = verbs.add_parser("explain", parents=[both], help="what a plan would decide, and why; needs no GPU")
    explain.add_argument("q", type=_shape, metavar="b,s,h,d", help="the shape of q")
    explain.add_argument("--k", type=_shape, metavar="b,s,h,d", help="the shape of k and v, where it is not that of q")
    explain.add_argument("--dtype", default="bfloat16", choices=("float32", "float16", "bfloat16"))
    explain.add_argument("--causal", type=_corner, metavar="bottom_right|top_left|N", help="N: query 0 stands at key N")
    explain.add_argument("--window", type=int, nargs=2, metavar=("LEFT", "RIGHT"), help="-1 is unbounded")
    explain.add_argument("--backward", action="store_true")
    explain.add_argument(
        "--target", help="ref, cpu, avx2, amx, neon, sm80, sm90, a100, h200, ...; this machine where it is not given"
    )
    verify = verbs.add_parser("verify", parents=[both, runs], help="attention here against the definition in double")
    verify.add_argument("--seed", type=int, default=0)
    bench = verbs.add_parser("bench", parents=[both, runs], help="how fast attention is here")
    bench.add_argument("--shape", type=_shape, default=(1, 1024, 8, 64), metavar="b,s,h,d")
    bench.add_argument("--repeats", type=int, default=7)
    return parser


def _run(args: argparse.Namespace) -> int:
    if args.verb == "info":
        info = falchion.info()
        lines = "\n".join(f"{name:12} {text}" for name, text in info.items())
        print(json.dumps({**info, "facts": dataclasses.asdict(info.facts)}) if args.json else lines)
        return 0
    if args.verb == "explain":
        window = None if args.window is None else tuple(None if side < 0 else side for side in args.window)
        story = falchion.explain(
            args.q,
            args.k,
            dtype=args.dtype,
            causal=args.causal is not None,
            window=window,
            align=args.causal if args.causal is not None else "bottom_right" if window else None,
            backward=args.backward,
            target=args.target,
        )
        print(json.dumps(story.json) if args.json else story)
        return 0
    if args.verb == "verify":
        checks = falchion.verify(device=args.device, backend=args.backend, threads=args.threads, seed=args.seed)
        print(json.dumps(checks.as_json()) if args.json else checks)
        return 0 if checks.ok else 1
    results = falchion.bench(
        args.shape, device=args.device, backend=args.backend, threads=args.threads, repeats=args.repeats
    )
    print(json.dumps(results.as_json()) if args.json else results)
    return 0


def _run_command(arguments: list[str]) -> int:
    """A verb of the falchion command, in place of this process."""
    command = _command.path()
    if command is None:
        print(f"falchion: this build of the package lacks the command, which has {arguments[0]}", file=sys.stderr)
        return 2
    sys.stdout.flush()
    os.execv(command, ["falchion", *arguments])


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a check failed, 2 it could not be done."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in _command.VERBS:
        return _run_command(given)
    args = _parser().parse_args(given)
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except (falchion.Error, ImportError, OSError) as why:
        print(f"falchion: {why}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    _command.as_a_program()
    sys.exit(main())
