#include "runtime/merge_launch.hpp"

#include <fmt/format.h>

#include <limits>

#include "runtime/overlap.hpp"
#include "runtime/pointer_checks.hpp"

namespace splitkv {
namespace {

Outcome check_counts(const splitkv_merge_args& args) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (args.parts < 1 || args.parts > kMost) {
    return invalid_argument(
        fmt::format("args.parts={} cannot be merged; 1 to {} would fit", args.parts, kMost));
  }
  if (args.dim < 1 || args.dim > kMaxMergeDim) {
    return invalid_argument(fmt::format(
        "args.dim={} is no length of a partial's o; 1 to {} would fit", args.dim, kMaxMergeDim));
  }
  if (args.rows <= kMost) return Unit{};
  return invalid_argument(
      fmt::format("args.rows={} is above {}; several merges would fit", args.rows, kMost));
}

Outcome check_pointers(Merge form, const splitkv_merge_args& args) {
  if (Outcome o = check_given({"args", "o", args.o}, 4, "float [parts, rows, dim]"); !o) return o;
  if (Outcome s = check_given({"args", "s_or_m", args.s_or_m}, 4, "float [parts, rows]"); !s)
    return s;
  if (Outcome out = check_given({"args", "out", args.out}, 4, "float [rows, dim]"); !out)
    return out;
  if (Outcome s = check_given({"args", "out_s_or_m", args.out_s_or_m}, 4, "float [rows]"); !s)
    return s;
  const bool mlo = form == Merge::mlo;
  const char* why = "the merger is of the form lse";
  const char* remedy = "a merger of mlo";
  if (Outcome l =
          check_presence({"args", "l", args.l}, {mlo, 4, "float [parts, rows]", why, remedy});
      !l)
    return l;
  return check_presence({"args", "out_l", args.out_l}, {mlo, 4, "float [rows]", why, remedy});
}

// Rows of one array, in bytes; parts = 1 for outputs and for one part alone.
struct Rows {
  const char* name;
  const float* data;
  int64_t stride_part, parts;
  int64_t stride_row;
  int64_t dim;
};

Footprint footprint(const Rows& rows, int64_t count) {
  return {rows.name,
          rows.data,
          rows.dim * 4,
          {{rows.stride_part * 4, rows.parts}, {rows.stride_row * 4, count}}};
}

Outcome refuse(const Footprint& written, const Footprint& other) {
  if (!may_overlap(written, other)) return Unit{};
  return invalid_argument(fmt::format(
      "args.{}={} overlaps args.{}={}; memory of its own, or exactly that of part 0, would fit",
      written.name, written.data, other.name, other.data));
}

// An output against its own input: exactly part 0 (each row is read before it is written), or apart
// from it; in either case apart from all later parts.
Outcome check_in_place(const Rows& out, const Rows& in, int64_t count) {
  const Footprint written = footprint(out, count);
  const bool same = out.data == in.data && (out.stride_row == in.stride_row || count == 1);
  Rows part = in;
  part.parts = 1;
  if (!same) {
    if (Outcome apart = refuse(written, footprint(part, count)); !apart) return apart;
  }
  if (in.parts == 1) return Unit{};
  part.data = in.data + in.stride_part;
  part.parts = in.parts - 1;
  return refuse(written, footprint(part, count));
}

Outcome check_places(Merge form, const splitkv_merge_args& a) {
  const Rows in[] = {
      {"o", a.o, a.o_stride_part, a.parts, a.o_stride_row, a.dim},
      {"s_or_m", a.s_or_m, a.statistics_stride_part, a.parts, a.statistics_stride_row, 1},
      {"l", a.l, a.statistics_stride_part, a.parts, a.statistics_stride_row, 1}};
  const Rows out[] = {{"out", a.out, 0, 1, a.out_stride_row, a.dim},
                      {"out_s_or_m", a.out_s_or_m, 0, 1, a.out_statistics_stride_row, 1},
                      {"out_l", a.out_l, 0, 1, a.out_statistics_stride_row, 1}};
  const size_t arrays = form == Merge::mlo ? 3 : 2;
  if (Outcome apart =
          check_rows_apart("args", a.dim, {{"out_stride_row", a.out_stride_row, a.rows}});
      !apart)
    return apart;
  if (Outcome apart = check_rows_apart(
          "args", 1, {{"out_statistics_stride_row", a.out_statistics_stride_row, a.rows}});
      !apart)
    return apart;
  for (size_t i = 0; i < arrays; ++i) {
    for (size_t j = 0; j < arrays; ++j) {
      const Outcome apart = i == j ? check_in_place(out[i], in[j], a.rows)
                                   : refuse(footprint(out[i], a.rows), footprint(in[j], a.rows));
      if (!apart) return apart;
      if (j <= i) continue;
      if (Outcome own = refuse(footprint(out[i], a.rows), footprint(out[j], a.rows)); !own)
        return own;
    }
  }
  return Unit{};
}

}  // namespace

Result<MergeArgs> make_merge(const PreparedMerge& merge, const splitkv_merge_args& args) {
  if (Outcome ok = check_counts(args); !ok) return ok.error();
  if (Outcome ok = check_pointers(merge.form, args); !ok) return ok.error();
  if (Outcome ok = check_places(merge.form, args); !ok) return ok.error();
  MergeArgs launch;
  launch.o = args.o;
  launch.s_or_m = args.s_or_m;
  launch.l = args.l;
  launch.out = args.out;
  launch.out_s_or_m = args.out_s_or_m;
  launch.out_l = args.out_l;
  launch.o_stride_part = args.o_stride_part;
  launch.o_stride_row = args.o_stride_row;
  launch.statistics_stride_part = args.statistics_stride_part;
  launch.statistics_stride_row = args.statistics_stride_row;
  launch.out_stride_row = args.out_stride_row;
  launch.out_statistics_stride_row = args.out_statistics_stride_row;
  launch.parts = args.parts;
  launch.rows = args.rows;
  launch.dim = args.dim;
  if (merge.errors != nullptr) launch.errors = merge.errors->device();
  return launch;
}

}  // namespace splitkv
