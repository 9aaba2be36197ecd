#!/usr/bin/env bash
# Checks the house rules that a machine can check. `./dev lint` checks formatting and runs clang-tidy.
set -uo pipefail
comma_rule=$(cd "$(dirname "$0")" && pwd)/lint_comma.awk
cd "${1:-$(dirname "$0")/..}"
max_file=400 max_function=80
bad=0
complain() { echo "$1"; bad=1; }
sources() { find include src tools tests examples bench python -type f \
  \( -name '*.[ch]pp' -o -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort; }

for file in $(sources); do
  lines=$(wc -l <"$file")
  ((lines <= max_file)) || complain "$file: $lines lines, at most $max_file"
  # A function begins with a line that ends in "{" after a ")", at column 0 or 2, and ends with the "}" at the same
  # column.
  out=$(awk -v max=$max_function -v file="$file" '
    match($0, /^ */) { indent = RLENGTH }
    !start && (indent == 0 || indent == 2) && /\)[^;=]*\{ *(\/\/.*)?$/ && !/^ *(namespace|struct|class|enum|if|for|while|switch|TEST)/ { start = NR; at = indent; name = $0 }
    start && indent == at && /^ *\}/ { if (NR - start + 1 > max) { sub(/^ */, "", name); printf "%s:%d: %d lines, at most %d: %s\n", file, start, NR - start + 1, max, name }; start = 0 }
  ' "$file")
  [[ -z $out ]] || complain "$out"
done

all=$(sources)
# find_bad WHAT PATTERN FILES... complains with WHAT if a file has the pattern.
find_bad() {
  local what=$1 pattern=$2 out
  shift 2
  out=$(grep -nE "$pattern" "$@" /dev/null | head -20)
  [[ -z $out ]] || complain "$what:"$'\n'"$out"
}
library=$(grep -E '^(src|include)/' <<<"$all")
find_bad "unfinished" '\b(TODO|FIXME|XXX|HACK)\b' $all
find_bad "dead code" '^ *#if +0\b|^ *// *(if|for|while|return)\b.*[;{]$' $all
find_bad "ends the process of whoever loaded us" \
  '(^|[^_[:alnum:]."])(std::)?(exit|_Exit|quick_exit|abort|terminate|__builtin_trap|HWY_ABORT|HWY_ASSERT|assert) *\(' $library
find_bad "prints" '(std::)?(cout|cerr)\b|(^|[^_[:alnum:]])f?printf *\(' $library

kernels=$(grep -E '^src/' <<<"$all" | grep -v '^src/base/host_device.hpp')
find_bad "write FALCHION_DEVICE" '__device__ __forceinline__|__forceinline__ __device__|\bCUTE_DEVICE\b' $kernels
find_bad "names another back end; what both have is in namespace gpu" '\bsm80::' $(grep -E '^src/(sm90|gpu)/' <<<"$kernels")
find_bad "names another back end; what both have is in namespace gpu" '\bsm90::' $(grep -E '^src/(sm80|gpu)/' <<<"$kernels")

# One statement a line. The rule is tried first: each of these lines is a find, and each of those that follow is none.
tried=$(awk -f "$comma_rule" <(cat <<'END'
a = 1, b = f(x, y);
if (more) f(x), ++y;
CUTE_UNROLL for (int i = 0, j = 1; i < n; ++i) m[i] = 0, l[i] = {};
void start() { x_ = x, y_ = y; }
call(a, [&] { at.advance(), slot.advance(); });
return *out = nullptr, none();
case Kind::b: a = 1, b = 2;
END
) | wc -l)
((tried == 7)) || complain "lint_comma.awk finds $tried of 7 statements chained by comma"
tried=$(awk -f "$comma_rule" <(cat <<'END'
int a = 1, b = f(x, y);
const std::array<int, 2> a{1, 2}, b;
float *x = f(), *y = nullptr;
for (int i = 0; i < n; ++i, at.advance()) (f(x), ...);
launch<Config, true>(x, [&](int, int) { return g<1, 2>(y); });
template <class A, class B> void f(A, B);
enum class Kind { one, two = 2, three };
END
))
[[ -z $tried ]] || complain "lint_comma.awk finds what is no chain:"$'\n'"$tried"
out=$(xargs awk -f "$comma_rule" <<<"$all")
[[ -z $out ]] || complain "statements are chained by a comma; write each on a line of its own:"$'\n'"$out"

for file in $all; do
  head -1 "$file" | grep -q '^\(///\?\|/\*\)' || complain "$file: the first line says what the file is"
  case $file in *.hpp|*.cuh) grep -q '^#pragma once' "$file" || complain "$file: no #pragma once" ;; esac
done

# Subjects of the commits of this branch: those that origin/main, or else main, does not have. An export has no commits.
bad_subjects() {  # Reads lines "<commit> <subject>", and prints those that break the rule.
  LC_ALL=C awk -v max=72 '{
    commit = $1
    subject = letters = substr($0, length(commit) + 2)
    gsub(/[\200-\277]/, "", letters)  # mawk counts bytes, so what follows the first byte of a letter goes
    if (subject ~ /^ *$/) print commit ": the subject is empty"
    else if (length(letters) > max) printf "%s: the subject has %d letters, at most %d; the rest goes below it: %s\n", commit, length(letters), max, subject
    else if (subject ~ /[.]$/) print commit ": the subject ends with a period: " subject
  }'
}
tried=$(printf '%s\n' "a $(printf 'x%.0s' {1..72})" "b $(printf 'x%.0s' {1..73})" 'c Add a mask.' 'd ' 'e Add a mask' "f $(printf '§%.0s' {1..72})" | bad_subjects | cut -d: -f1 | paste -sd' ')
[[ $tried == "b c d" ]] || complain "of the subjects tried, 'b c d' break the rule, and found are: $tried"
if git rev-parse --git-dir >/dev/null 2>&1 && [[ -z $(git rev-parse --show-prefix) ]]; then
  for main in origin/main main; do
    base=$(git merge-base HEAD "$main" 2>/dev/null) || continue
    out=$(git log --no-merges --format='%h %s' "$base..HEAD" | bad_subjects)
    [[ -z $out ]] || complain "$out"
    break
  done
fi
exit $bad
