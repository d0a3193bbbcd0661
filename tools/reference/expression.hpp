// User expressions as the reference understands them: a small evaluator over the text itself, in
// double precision. It shares nothing with the library's parser or lowering.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace splitkv::reference {

// A parsed expression without spaces: numbers, names, + - * / // %, unary -, comparisons, && || !,
// parentheses, and tanh exp log abs min max sigmoid select. Conditions are 1 or 0.
class Expression {
 public:
  struct Node;

  // `names`: what may stand in the text; evaluate() takes their values in the same order. Throws
  // std::invalid_argument, naming the place, where the text is no such expression.
  Expression(std::string_view text, std::vector<std::string> names);

  double evaluate(std::span<const double> values) const;

 private:
  std::shared_ptr<const Node> root_;
};

}  // namespace splitkv::reference
