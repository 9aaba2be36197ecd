#!/usr/bin/env bash
# A compiler launcher: runs the command, shows what it prints but for ptxas's report, and keeps that as <object>.ptxas.
report=/dev/null previous=''
for argument in "$@"; do
  [[ $previous == -o ]] && report=$argument.ptxas
  previous=$argument
done
log=$(mktemp)
"$@" 2>"$log"
status=$?
grep -E "^ptxas info|bytes stack frame" "$log" >"$report"
grep -vE "^ptxas info|bytes stack frame" "$log" >&2
rm -f "$log"
exit $status
