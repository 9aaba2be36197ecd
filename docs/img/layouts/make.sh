#!/usr/bin/env bash
# docs/img/layouts/make.sh: draws the pictures of docs/layouts.md with the command itself: each line of pictures.txt is
# NAME<TAB>ARGUMENTS of `falchion layout`, and becomes NAME.svg here. Usage: make.sh FALCHION; with --check it writes
# nothing, and fails where a picture is not what the command draws, or where all of them have more than 2,500 lines.
set -euo pipefail
check=0
if [[ ${1-} == --check ]]; then check=1; shift; fi
falchion=$(realpath "${1:?usage: make.sh [--check] FALCHION}")
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bad=0 drawn=0
while IFS=$'\t' read -r name arguments || [[ -n $name ]]; do
  [[ -z $name || $name == \#* ]] && continue
  mapfile -t words < <(xargs -n1 printf '%s\n' <<<"$arguments")  # quotes as in a shell, nothing else of it
  "$falchion" layout "${words[@]}" --format svg -o "$scratch/$name.svg" >/dev/null
  drawn=$((drawn + 1))
  if ((check)); then
    cmp -s "$scratch/$name.svg" "$name.svg" || { echo "$name.svg is not what falchion layout $arguments draws"; bad=1; }
  else
    mv "$scratch/$name.svg" "$name.svg"
  fi
done <pictures.txt
lines=$(cat ./*.svg | wc -l)
echo "$drawn pictures of $lines lines"
((!check || lines <= 2500)) || { echo "that is more than 2500: a row of cells is one line"; bad=1; }
exit $bad
