#!/usr/bin/env bash
# The pictures of docs/roofline.md, drawn again: docs/img/roofline.sh [path of the command falchion]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
falchion=${1:-$here/../../build/cpu/falchion}
results=$here/../../bench/results/h200
draw() { "$falchion" roofline --device h200 --format svg --mode "$1" -o "$here/roofline_$1.svg" "${@:2}"; }
draw prefill --points "$results/2026-11-21-90d4871-prefill.json" --match falchion,burst
draw decode --points "$results/2026-11-21-00ef490-torch.json" --match falchion,decode
draw linear
