#include "runtime/launch_checks.hpp"

#include <fmt/format.h>

#include <limits>

#include "runtime/pointer_checks.hpp"

namespace splitkv {
namespace {

Outcome check_queries(const Problem& problem, const splitkv_args& args) {
  const int q_bytes = size_bytes(problem.q_dtype);
  if (Outcome q = check_given({"args", "q", args.q}, q_bytes, "[batch, query_len, q_heads, dim]");
      !q)
    return q;
  if (Outcome rope =
          check_presence({"args", "q_rope", args.q_rope},
                         {problem.dim_rope > 0, q_bytes, "[batch, query_len, q_heads, dim_rope]",
                          "the problem has no q_rope=", "q_rope=DIM"});
      !rope)
    return rope;
  if (Outcome offset = check_presence(
          {"args", "q_offset", args.q_offset},
          {problem.ragged, 4, "int32 [batch + 1]", "the problem has no ragged=on", "ragged=on"});
      !offset)
    return offset;
  if (!problem.ragged) {
    if (args.query_rows == 0) return Unit{};
    return invalid_argument(
        fmt::format("args.query_rows={} is given without q_offset; 0, or q_offset, would fit",
                    args.query_rows));
  }
  if (args.query_rows >= 0 && args.query_rows <= std::numeric_limits<int32_t>::max()) return Unit{};
  return invalid_argument(
      fmt::format("args.query_rows={} is no count of the token rows of out; 0 to {} would fit",
                  args.query_rows, std::numeric_limits<int32_t>::max()));
}

Outcome check_outputs(const Problem& problem, const splitkv_args& args) {
  if (Outcome out = check_given({"args", "out", args.out}, size_bytes(problem.out_dtype),
                                "[batch, query_len, q_heads, dim_v]");
      !out)
    return out;
  if (Outcome lse = check_presence(
          {"args", "lse", args.lse},
          {written_lse(problem) != LseOutput::none, 4, "float [batch, query_len, q_heads]",
           "the problem has lse=none", "a problem with lse=natural or lse=base2"});
      !lse)
    return lse;
  return check_presence({"args", "partial_l", args.partial_l},
                        {writes_partial_l(problem), 4, "float like lse",
                         "the problem puts out no l", "out=partial with merge=mlo"});
}

Outcome check_lengths(const splitkv_args& args) {
  if (args.kv_len_is_int64 != 0 && args.kv_len_is_int64 != 1) {
    return invalid_argument(
        fmt::format("args.kv_len_is_int64={} is no flag; 0 or 1 would fit", args.kv_len_is_int64));
  }
  if (args.kv_len == nullptr) {
    if (args.kv_len_is_int64 != 0) {
      return invalid_argument(
          "args.kv_len is NULL, but kv_len_is_int64=1; int64 [batch], or 0, would fit");
    }
    if (args.kv_len_host >= 0) return Unit{};
    return invalid_argument(
        fmt::format("args.kv_len_host={} is negative; 0 or more would fit", args.kv_len_host));
  }
  if (args.kv_len_host != 0) {
    return invalid_argument(
        fmt::format("args.kv_len_host={} is given beside kv_len; 0, or kv_len=NULL, would fit",
                    args.kv_len_host));
  }
  const bool wide = args.kv_len_is_int64 != 0;
  return check_given({"args", "kv_len", args.kv_len}, wide ? 8 : 4,
                     wide ? "int64 [batch]" : "int32 [batch]");
}

Outcome check_optional(const PointerField& given, int align, const char* what) {
  return given.pointer == nullptr ? Outcome(Unit{}) : check_given(given, align, what);
}

Outcome check_positions(const Problem& problem, const splitkv_args& args) {
  if (Outcome begin = check_optional({"args", "kv_begin", args.kv_begin}, 4, "int32 [batch]");
      !begin)
    return begin;
  if (Outcome total = check_presence({"args", "total_len", args.total_len},
                                     {problem.strided_positions, 4, "int32 [batch]",
                                      "the problem has positions=contiguous", "positions=strided"});
      !total)
    return total;
  if (!problem.strided_positions) {
    if (args.pos0 == 0 && args.pos_step == 0) return Unit{};
    return invalid_argument(fmt::format(
        "args.pos0={} and pos_step={} are given, but the problem has positions=contiguous; 0 and "
        "0, or positions=strided, would fit",
        args.pos0, args.pos_step));
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (args.pos_step < 1 || args.pos_step > kMost) {
    return invalid_argument(fmt::format(
        "args.pos_step={} is no distance of keys; 1 to {} would fit", args.pos_step, kMost));
  }
  if (args.pos0 >= 0 && args.pos0 <= kMost) return Unit{};
  return invalid_argument(
      fmt::format("args.pos0={} is no position; 0 to {} would fit", args.pos0, kMost));
}

struct PageList {
  const char* prefix;  // "" or "v_"
  const int32_t* table;
  const int64_t* offset;
  int64_t stride;
};

Outcome check_page_list(const PageList& list, int64_t batch) {
  const std::string table = fmt::format("{}page_table", list.prefix);
  const std::string offset = fmt::format("{}page_offset", list.prefix);
  if (Outcome given = check_given({"args", table.c_str(), list.table}, 4, "int32 page ids"); !given)
    return given;
  if (list.offset != nullptr)
    return check_given({"args", offset.c_str(), list.offset}, 8, "int64 [batch]");
  if (list.stride != 0 || batch <= 1) return Unit{};
  return invalid_argument(fmt::format(
      "args.{}_stride=0 gives all rows one page list; entries a row, or {} for lists that are "
      "shared, would fit",
      table, offset));
}

Outcome check_no_page_list(const PageList& list, const char* why, const char* remedy) {
  const std::string table = fmt::format("{}page_table", list.prefix);
  const std::string offset = fmt::format("{}page_offset", list.prefix);
  if (Outcome absent = check_absent({"args", table.c_str(), list.table}, why, remedy); !absent)
    return absent;
  return check_absent({"args", offset.c_str(), list.offset}, why, remedy);
}

Outcome check_pages(const Problem& problem, const splitkv_args& args) {
  const PageList pages{"", args.page_table, args.page_offset, args.page_table_stride};
  const PageList v_pages{"v_", args.v_page_table, args.v_page_offset, args.v_page_table_stride};
  const char* why = "the problem's kv_layout has no pages";
  const Outcome k = is_paged(problem) ? check_page_list(pages, args.batch)
                                      : check_no_page_list(pages, why, "kv_layout=paged:...");
  if (!k) return k;
  if (problem.separate_tables) return check_page_list(v_pages, args.batch);
  return check_no_page_list(v_pages, "the problem has page_tables=shared", "page_tables=separate");
}

Outcome check_masks(const Problem& problem, const splitkv_args& args) {
  if (Outcome bias = check_presence(
          {"args", "bias", args.bias},
          {problem.bias.has_value(), problem.bias ? size_bytes(*problem.bias) : 1,
           "[batch, q_heads, query, key] by strides", "the problem has no bias=", "bias=fp32"});
      !bias)
    return bias;
  if (Outcome tree = check_presence({"args", "tree", args.tree},
                                    {problem.mask == Mask::tree, 1, "packed bits [batch, query]",
                                     "the problem has no mask=tree", "mask=tree"});
      !tree)
    return tree;
  if (problem.mask != Mask::tree || problem.query_len == 1) return Unit{};
  const int64_t bytes = (problem.query_len + 7) / 8;
  if (args.tree_stride_query >= bytes || args.tree_stride_query <= -bytes) return Unit{};
  return invalid_argument(
      fmt::format("args.tree_stride_query={} bytes is less than the {} that the bits of "
                  "query_len={} take; {} or more would fit",
                  args.tree_stride_query, bytes, problem.query_len, bytes));
}

Outcome check_limits(const splitkv_args& args) {
  for (const auto& [field, value] :
       {std::pair{"page_count", args.page_count}, std::pair{"kv_capacity", args.kv_capacity}}) {
    if (value >= 0) continue;
    return invalid_argument(fmt::format(
        "args.{}={} is negative; 0 for no check, or the true count, would fit", field, value));
  }
  return Unit{};
}

}  // namespace

Outcome check_args(const Problem& problem, const splitkv_args& args) {
  if (Outcome ok = check_queries(problem, args); !ok) return ok;
  if (Outcome ok = check_outputs(problem, args); !ok) return ok;
  if (Outcome ok = check_lengths(args); !ok) return ok;
  if (Outcome ok = check_positions(problem, args); !ok) return ok;
  if (Outcome ok = check_pages(problem, args); !ok) return ok;
  if (Outcome ok = check_masks(problem, args); !ok) return ok;
  return check_limits(args);
}

}  // namespace splitkv
