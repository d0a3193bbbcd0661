// The text form of expressions: numbers, names, C's operators with C's precedence, and functions.
// print writes the fewest parentheses, and parse(print(x)) == x for what parse can give.
//
//   names      score (score= alone), query_pos, key_pos, kv_len, head, batch, those of `params`
//   operators  || && == != < <= > >= + - * / // % unary - !   (// and %: floor, by a constant)
//   functions  tanh exp log abs sigmoid (one operand), min max (two), select(c,a,b)
//
// a > b is b < a, a >= b is b <= a, and a != b is !(a == b): the graph has one form of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/expr.hpp"
#include "compiler/result.hpp"

namespace splitkv {

// Nodes are in the order of the text, each used once. Errors are invalid_argument and name the
// character, counted from 1, and what would work.
Result<ScoreExpr> parse_expression(std::string_view text, const std::vector<Param>& params,
                                   bool with_score);

std::string print_expression(const ScoreExpr& expr, const std::vector<Param>& params);

// True for a name that the text form has a meaning for already.
bool is_reserved_name(std::string_view name);

}  // namespace splitkv
