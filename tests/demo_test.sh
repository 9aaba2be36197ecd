#!/usr/bin/env bash
# usage: demo_test.sh BUILD_DIR
# `./dev demo` is the first thing that a newcomer runs, so it builds only what it runs: of the tools nothing that storms,
# rooflines, ladders and layouts need. Looks at what ninja would build for it.
set -euo pipefail
[[ -f $1/build.ninja ]] || { echo "skipped: $1 is not built by ninja"; exit 0; }
inputs=$(ninja -C "$1" -t inputs falchion_demo)
objects=$(grep -E '\.o$' <<<"$inputs" | grep -v /generated/variants/ || true)
for needed in tools/demo.cpp.o tools/main_demo.cpp.o src/plan/; do
  grep -q "$needed" <<<"$objects" || { echo "$needed is not among what falchion_demo needs: does this test read ninja rightly?"; exit 1; }
done
more=$(grep -E '(tools/(verify|ladder|layout|roofline|run|bench)|src/(ladder|layout))/' <<<"$objects" || true)
[[ -z $more ]] || { printf 'falchion_demo need not build\n%s\n' "$more"; exit 1; }
count=$(wc -l <<<"$objects")
((count <= 137)) || { echo "falchion_demo builds $count objects besides kernels, at most 137"; exit 1; }
echo "falchion_demo builds $count objects besides kernels"
