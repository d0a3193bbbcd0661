// The support matrix: what the verifier says of every option's values on representative targets.
#pragma once

#include <string>

namespace splitkv::tool {

// A page of Markdown: one table an option, one row a value, one column a target. A cell names the
// families that take the value, or the rule that refuses it. The same text everywhere: docs/ holds
// it.
std::string support_matrix();

}  // namespace splitkv::tool
