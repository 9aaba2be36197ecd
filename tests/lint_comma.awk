# Prints each statement that a comma chains to another one, as in "a = 1, b = 2;" (tests/lint_test.sh calls it).
#
# It collects lines until one ends a statement or opens a block, replaces what stands in brackets by "@" from the inside
# out, and then looks for a comma that is left in something that is no declaration. So the commas of a for-header, of
# arguments, of a template and of a fold "(f(x), ...)" are no finds. What it cannot see: a
# comma in parentheses, in the body of a macro, and behind "<<", "throw", "delete", "co_await" or an attribute.

# Takes away the words that stand before a statement: a macro such as CUTE_UNROLL, "if (...)", "else", "case 1:".
function statement_alone(piece) {
  sub(/^[ \t]+/, "", piece)
  while (sub(/^([A-Z][A-Z0-9_]+ |(else +)?(if( constexpr)?|for|while|switch) *@|else |do |case ([^:]|::)*: |default: )[ \t]*/, "", piece)) { }
  return piece
}

# Looks at the statements of one block, in which brackets have become "@". A name that "=", "+=" or a comma follows
# begins an expression; a declaration has a type and then a name.
function check(block,    n, i, pieces, piece, returns) {
  n = split(block, pieces, ";")
  for (i = 1; i < n; ++i) {
    piece = statement_alone(pieces[i])
    returns = sub(/^return /, "", piece)
    if (piece ~ /[][(){}]/ || piece !~ /,/) continue  # part of a statement; or no comma is left
    if (returns || piece ~ /^[-+*]*[A-Za-z_][A-Za-z0-9_.:@>-]*( ([-+*\/%&|^]|<<|>>)?=|,)/) found = 1
  }
}

function inspect(text,    before) {
  do {
    before = text
    while (gsub(/\([^(){}]*\)|\[[^][{}]*\]|\{[^{}();]*\}/, "@", text)) { }
    while (gsub(/[A-Za-z0-9_]<[^<>;{}]*[^ <>;{}-]>|[A-Za-z0-9_]<>/, "@", text)) { }
    if (match(text, /\{[^{}()]*\}/)) {
      check(substr(text, RSTART + 1, RLENGTH - 2))
      text = substr(text, 1, RSTART - 1) "@" substr(text, RSTART + RLENGTH)
    }
  } while (text != before)
  check(text)
}

FNR == 1 { text = ""; in_macro = 0 }
in_macro || /^ *#/ { in_macro = /\\$/; next }
{
  line = $0
  gsub(/"([^"\\]|\\.)*"|'([^'\\]|\\.)'/, "s", line)
  sub(/ *\/\/.*/, "", line)
  if (line ~ /^ *$/) next
  if (text == "") first = FNR
  text = text " " line
}
line ~ /[;{}:]$/ {
  found = 0
  inspect(text)
  if (found) print FILENAME ":" first ":" text
  text = ""
}
