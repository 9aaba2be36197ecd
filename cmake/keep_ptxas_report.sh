#!/usr/bin/env bash
# A compiler launcher: runs the command, shows what it prints but for ptxas's report, and keeps that as <object>.ptxas.
# C75xx (wgmma serialised, setmaxnreg ignored) fails: ptxas gives it as information, which --warning-as-error lets pass.
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
if grep -E "\(C75[0-9]+\)" "$log" >&2; then
  status=1
  rm -f "${report%.ptxas}"  # or the next make would take it as built
fi
rm -f "$log"
exit $status
