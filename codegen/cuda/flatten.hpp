// The template headers as one text without includes.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace splitkv {

// Every header that `roots` need, each once, dependencies first. Names are those of templates/.
std::string flatten_templates(std::span<const std::string_view> roots);

}  // namespace splitkv
