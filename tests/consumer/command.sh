#!/usr/bin/env bash
# usage: command.sh BUILD_DIR
# Installs a built Falchion far from its sources and runs what `falchion --help` says to start with, from an empty folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/made" >"$work/install.log"
mv "$work/made" "$work/moved prefix"  # a package may be moved
mkdir "$work/empty"
cd "$work/empty"
"$work/moved prefix/bin/falchion" demo --runs 1 --svg picture.svg >"$work/demo.txt" || { cat "$work/demo.txt"; exit 1; }
grep -q 'Everything passed' "$work/demo.txt"
[[ -s picture.svg ]] || { echo "demo wrote no picture"; exit 1; }
