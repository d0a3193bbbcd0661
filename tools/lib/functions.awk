# Prints "file:line: message" for every outermost function longer than `limit` lines. Reads C++ as
# clang-format leaves it: comments, strings, characters and raw strings are skipped, braces counted.
# A brace opens a function when the statement before it has a ')' and is no namespace, type or
# initialiser.

FNR == 1 { reset() }
{ scan($0) }

function reset() {
  depth = 0; function_depth = 0; statement = ""; begin = 0; raw_end = ""; in_comment = 0
}

function scan(line,    i, n, c, two, rest, at) {
  n = length(line)
  for (i = 1; i <= n; i++) {
    if (raw_end != "") {
      at = index(substr(line, i), raw_end)
      if (!at) return
      i += at + length(raw_end) - 2
      raw_end = ""
      continue
    }
    two = substr(line, i, 2)
    if (in_comment) {
      if (two == "*/") { in_comment = 0; i++ }
      continue
    }
    if (two == "//") return
    if (two == "/*") { in_comment = 1; i++; continue }
    c = substr(line, i, 1)
    if (two == "R\"") {
      rest = substr(line, i + 2)
      at = index(rest, "(")
      raw_end = ")" substr(rest, 1, at - 1) "\""
      i += at + 1
      continue
    }
    if (c == "\"" || (c == "'" && !(substr(line, i - 1, 2) ~ /^[0-9a-fA-F]'/))) {
      for (i++; i <= n && substr(line, i, 1) != c; i++)
        if (substr(line, i, 1) == "\\") i++
      statement = statement "s"
      continue
    }
    if (c == "#" && statement ~ /^ *$/) return
    if (c == "{") open_brace()
    else if (c == "}") close_brace()
    else if (c == ";") { statement = ""; begin = 0 }
    else {
      if (!begin && c != " ") begin = FNR
      statement = statement c
    }
  }
  statement = statement " "
}

function open_brace() {
  depth++
  if (!function_depth && opens_function(statement)) {
    function_depth = depth
    function_begin = begin
  }
  statement = ""; begin = 0
}

function close_brace(    lines) {
  if (function_depth && depth == function_depth) {
    lines = FNR - function_begin + 1
    if (lines > limit)
      print FILENAME ":" function_begin ": function of " lines " lines (limit " limit ")"
    function_depth = 0
  }
  depth--
  statement = ""; begin = 0
}

function opens_function(text) {
  if (text !~ /\)/) return 0
  while (match(text, /template *<[^<>]*>/))
    text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
  if (text ~ /^ *(namespace|class|struct|union|enum|extern) /) return text ~ /^ *(extern|struct)[^(=]*\([^=]*$/
  return text !~ /= *$/
}
