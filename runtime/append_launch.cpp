#include "runtime/append_launch.hpp"

#include <fmt/format.h>

#include <limits>

#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "runtime/pointer_checks.hpp"

namespace splitkv {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

Outcome check_tokens(const PreparedAppend& prepared, const splitkv_append_args& args) {
  if (args.tokens > kMost) {
    return invalid_argument(
        fmt::format("args.tokens={} is above {}; several appends would fit", args.tokens, kMost));
  }
  const int64_t blocks = append_blocks(prepared.append, args.tokens);
  if (prepared.target.kind == TargetKind::cuda && blocks > kMost) {
    return invalid_argument(
        fmt::format("args.tokens={} makes a grid of {} blocks, above {}; several appends would fit",
                    args.tokens, blocks, kMost));
  }
  if (args.token_count == nullptr) return Unit{};
  return check_given({"args", "token_count", args.token_count}, 4, "int32 [1]");
}

Outcome check_new(const Append& append, const splitkv_append_args& args) {
  const int bytes = size_bytes(append.new_dtype);
  if (Outcome k = check_given({"args", "k_new", args.k_new}, bytes, "[tokens, kv_heads, dim_qk]");
      !k)
    return k;
  if (Outcome v = check_presence({"args", "v_new", args.v_new},
                                 {!append.v_in_k, bytes, "[tokens, kv_heads, dim_v]",
                                  "the problem has v_in_k=on", "v_in_k=off"});
      !v)
    return v;
  if (!append.v_in_k || (args.v_new_stride_token == 0 && args.v_new_stride_head == 0)) {
    return Unit{};
  }
  return invalid_argument(
      fmt::format("args.v_new_stride_token={} and v_new_stride_head={} are given, but the problem "
                  "has v_in_k=on; 0 and 0 would fit",
                  args.v_new_stride_token, args.v_new_stride_head));
}

Outcome check_not_negative(std::initializer_list<std::pair<const char*, int64_t>> counts) {
  for (const auto& [field, value] : counts) {
    if (value >= 0) continue;
    return invalid_argument(fmt::format(
        "args.{}={} is negative; 0 for no check, or the true count, would fit", field, value));
  }
  return Unit{};
}

Outcome check_unused(std::initializer_list<std::pair<const char*, int64_t>> values,
                     const char* why) {
  for (const auto& [field, value] : values) {
    if (value == 0) continue;
    return invalid_argument(
        fmt::format("args.{}={} is given, but {}; 0 would fit", field, value, why));
  }
  return Unit{};
}

Outcome check_slots(const Append& append, const splitkv_append_args& args) {
  const char* why = "the appender has places=slots";
  const char* remedy = "an appender of places=rows";
  if (Outcome slots = check_given({"args", "slots", args.slots}, 8, "int64 [tokens]"); !slots)
    return slots;
  if (Outcome slots = check_presence({"args", "v_slots", args.v_slots},
                                     {has_own_places(append), 8, "int64 [tokens]",
                                      "K and V have the same slots", "page_tables=separate"});
      !slots)
    return slots;
  const PointerField absent[] = {
      {"args", "q_offset", args.q_offset},         {"args", "kv_len", args.kv_len},
      {"args", "page_table", args.page_table},     {"args", "page_offset", args.page_offset},
      {"args", "v_page_table", args.v_page_table}, {"args", "v_page_offset", args.v_page_offset}};
  for (const PointerField& field : absent) {
    if (Outcome none = check_absent(field, why, remedy); !none) return none;
  }
  if (Outcome none = check_unused({{"batch", args.batch},
                                   {"kv_len_host", args.kv_len_host},
                                   {"kv_len_is_int64", args.kv_len_is_int64},
                                   {"page_count", args.page_count},
                                   {"kv_capacity", args.kv_capacity}},
                                  why);
      !none)
    return none;
  if (Outcome count = check_not_negative({{"slot_count", args.slot_count}}); !count) return count;
  if (append.page_size > 0) {
    return check_unused({{"slots_a_row", args.slots_a_row}}, "slots are counted by pages");
  }
  if (args.slots_a_row >= 1) return Unit{};
  return invalid_argument(
      fmt::format("args.slots_a_row={} is no count of a batch row's slots; 1 or more would fit",
                  args.slots_a_row));
}

Outcome check_row_lengths(const splitkv_append_args& args) {
  if (args.kv_len_is_int64 != 0 && args.kv_len_is_int64 != 1) {
    return invalid_argument(
        fmt::format("args.kv_len_is_int64={} is no flag; 0 or 1 would fit", args.kv_len_is_int64));
  }
  const bool wide = args.kv_len_is_int64 == 1;
  if (args.kv_len == nullptr) {
    if (args.kv_len_host >= 1 && !wide) return Unit{};
    return invalid_argument(
        fmt::format("args.kv_len is NULL with kv_len_host={} and kv_len_is_int64={}; int32 "
                    "[batch], or a length of 1 or more for every row, would fit",
                    args.kv_len_host, args.kv_len_is_int64));
  }
  if (args.kv_len_host != 0) {
    return invalid_argument(
        fmt::format("args.kv_len_host={} is given beside kv_len; 0, or kv_len=NULL, would fit",
                    args.kv_len_host));
  }
  return check_given({"args", "kv_len", args.kv_len}, wide ? 8 : 4,
                     wide ? "int64 [batch]" : "int32 [batch]");
}

struct Pages {
  const char *table_field, *offset_field;
  const int32_t* table;
  const int64_t* offset;
  int64_t stride;
};

Outcome check_pages(const Pages& pages, bool wanted, int64_t batch, const char* why,
                    const char* remedy) {
  if (Outcome table = check_presence({"args", pages.table_field, pages.table},
                                     {wanted, 4, "int32 page ids", why, remedy});
      !table)
    return table;
  if (!wanted) return check_absent({"args", pages.offset_field, pages.offset}, why, remedy);
  if (pages.offset != nullptr)
    return check_given({"args", pages.offset_field, pages.offset}, 8, "int64 [batch]");
  if (pages.stride != 0 || batch <= 1) return Unit{};
  return invalid_argument(
      fmt::format("args.{}_stride=0 gives all rows the same pages to write; entries a row would "
                  "fit",
                  pages.table_field));
}

Outcome check_rows(const Append& append, const splitkv_append_args& args) {
  const char* why = "the appender has places=rows";
  for (const PointerField& field :
       {PointerField{"args", "slots", args.slots}, PointerField{"args", "v_slots", args.v_slots}}) {
    if (Outcome none = check_absent(field, why, "an appender of places=slots"); !none) return none;
  }
  if (Outcome none =
          check_unused({{"slots_a_row", args.slots_a_row}, {"slot_count", args.slot_count}}, why);
      !none)
    return none;
  if (args.batch < 1 || args.batch > kMost) {
    return invalid_argument(
        fmt::format("args.batch={} is no count of rows; 1 to {} would fit", args.batch, kMost));
  }
  if (args.q_offset == nullptr && args.tokens % args.batch != 0) {
    return invalid_argument(
        fmt::format("args.tokens={} is no multiple of batch={}; {}, or q_offset, would fit",
                    args.tokens, args.batch, (args.tokens / args.batch + 1) * args.batch));
  }
  if (args.q_offset != nullptr) {
    if (Outcome given = check_given({"args", "q_offset", args.q_offset}, 4, "int32 [batch + 1]");
        !given)
      return given;
  }
  if (Outcome lengths = check_row_lengths(args); !lengths) return lengths;
  const Pages pages{"page_table", "page_offset", args.page_table, args.page_offset,
                    args.page_table_stride};
  const Pages v_pages{"v_page_table", "v_page_offset", args.v_page_table, args.v_page_offset,
                      args.v_page_table_stride};
  if (Outcome k = check_pages(pages, append.page_size > 0, args.batch,
                              "the problem's kv_layout has no pages", "kv_layout=paged:...");
      !k)
    return k;
  if (Outcome v = check_pages(v_pages, has_own_places(append), args.batch,
                              "the problem has page_tables=shared", "page_tables=separate");
      !v)
    return v;
  return check_not_negative({{"page_count", args.page_count}, {"kv_capacity", args.kv_capacity}});
}

Outcome check_binding(const PreparedAppend& prepared, const splitkv_binding& binding) {
  if (binding.kernel_id == prepared.binding_id) return Unit{};
  return invalid_argument(fmt::format(
      "binding.kernel_id={:#x} is of another problem or device than the appender's, {:#x}; "
      "splitkv_bind with a kernel of the same problem text and device would fit",
      binding.kernel_id, prepared.binding_id));
}

// Strides of new elements, both 0 where they lie densely.
void set_new_strides(int64_t token, int64_t head, int64_t heads, int64_t dim, int64_t* to_token,
                     int64_t* to_head) {
  const bool dense = token == 0 && head == 0;
  *to_token = dense ? heads * dim : token;
  *to_head = dense ? dim : head;
}

void fill_new(const Append& append, const splitkv_append_args& args, AppendArgs& launch) {
  launch.k_new = args.k_new;
  launch.v_new = args.v_new;
  launch.tokens = args.tokens;
  launch.token_count = args.token_count;
  set_new_strides(args.k_new_stride_token, args.k_new_stride_head, append.kv_heads, append.k.dim,
                  &launch.k_new_stride_token, &launch.k_new_stride_head);
  if (append.v_in_k) return;
  set_new_strides(args.v_new_stride_token, args.v_new_stride_head, append.kv_heads, append.v.dim,
                  &launch.v_new_stride_token, &launch.v_new_stride_head);
}

// A binding holds what is read; here it is written.
void fill_cache(const splitkv_tensors& kv, AppendArgs& launch) {
  launch.k = const_cast<void*>(kv.k);
  launch.k_stride_block = kv.k_stride_block;
  launch.k_stride_head = kv.k_stride_head;
  launch.k_stride_token = kv.k_stride_token;
  launch.k_scale = const_cast<float*>(kv.k_scale);
  launch.k_scale_stride_block = kv.k_scale_stride_block;
  launch.k_scale_stride_head = kv.k_scale_stride_head;
  launch.k_scale_stride_token = kv.k_scale_stride_token;
  launch.v = const_cast<void*>(kv.v);
  launch.v_stride_block = kv.v_stride_block;
  launch.v_stride_head = kv.v_stride_head;
  launch.v_stride_token = kv.v_stride_token;
  launch.v_scale = const_cast<float*>(kv.v_scale);
  launch.v_scale_stride_block = kv.v_scale_stride_block;
  launch.v_scale_stride_head = kv.v_scale_stride_head;
  launch.v_scale_stride_token = kv.v_scale_stride_token;
}

void fill_places(const splitkv_append_args& args, AppendArgs& launch) {
  launch.slots = args.slots;
  launch.v_slots = args.v_slots;
  launch.slots_a_row = args.slots_a_row;
  launch.slot_count = args.slot_count;
  launch.batch = args.batch;
  launch.tokens_a_row = args.batch > 0 ? args.tokens / args.batch : 0;
  launch.q_offset = args.q_offset;
  launch.kv_len = args.kv_len;
  launch.kv_len_bytes = args.kv_len_is_int64 != 0 ? 8 : 4;
  launch.kv_len_host = args.kv_len_host;
  launch.page_table = args.page_table;
  launch.page_offset = args.page_offset;
  launch.page_table_stride = args.page_table_stride;
  launch.v_page_table = args.v_page_table;
  launch.v_page_offset = args.v_page_offset;
  launch.v_page_table_stride = args.v_page_table_stride;
  launch.page_count = args.page_count;
  launch.kv_capacity = args.kv_capacity;
}

Result<AppendPlaces> places_of(const std::string& text) {
  const auto places = append_places_from_name(text);
  if (places) return *places;
  return invalid_argument(
      fmt::format("places={} is no way to say where tokens go; slots or rows would fit", text));
}

Result<DType> new_type_of(const char* text, const Problem& problem) {
  if (text == nullptr) return problem.q_dtype;
  const auto type = dtype_from_name(text);
  if (type) return *type;
  return invalid_argument(
      fmt::format("type={} is no element type; fp32, fp16 or bf16 would fit", text));
}

// What the text of a request says, verified on the device's target.
Result<Append> append_for(const AppendRequest& request, const Problem& problem,
                          const Target& target) {
  const Result<AppendPlaces> places = places_of(request.places);
  if (!places) return places.error();
  const Result<DType> type = new_type_of(request.type, problem);
  if (!type) return type.error();
  if (const auto refusal = verify(problem, target)) return to_error(*refusal);
  if (const auto refusal = verify_append(problem, *type, *places)) return to_error(*refusal);
  return append_of(resolved(problem), *type, *places);
}

}  // namespace

Result<AppendArgs> make_append(const PreparedAppend& prepared, const splitkv_binding& binding,
                               const splitkv_append_args& args) {
  const Append& append = prepared.append;
  if (Outcome ok = check_binding(prepared, binding); !ok) return ok.error();
  if (Outcome ok = check_tokens(prepared, args); !ok) return ok.error();
  if (Outcome ok = check_new(append, args); !ok) return ok.error();
  const bool slots = append.places == AppendPlaces::slots;
  if (Outcome ok = slots ? check_slots(append, args) : check_rows(append, args); !ok)
    return ok.error();
  AppendArgs launch;
  fill_new(append, args, launch);
  fill_cache(binding.tensors, launch);
  fill_places(args, launch);
  if (prepared.errors != nullptr) launch.errors = prepared.errors->device();
  return launch;
}

Result<std::unique_ptr<PreparedAppend>> KernelRuntime::prepare_append(
    const AppendRequest& request) {
  const Result<Platform*> platform = platform_of(request.device);
  if (!platform) return platform.error();
  const Result<Problem> problem = parse_problem(request.problem);
  if (!problem) return problem.error();
  const Result<Target> target = (*platform)->target_of(request.device);
  if (!target) return target.error();
  const Result<Append> append = append_for(request, *problem, *target);
  if (!append) return append.error();
  auto prepared = std::make_unique<PreparedAppend>();
  prepared->append = *append;
  prepared->target = *target;
  prepared->binding_id = binding_id_of(request.device, print(*problem));
  const KernelSource source = emit_append(*append, *target);
  Result<Loaded> loaded = (*platform)->load(
      {.device = request.device, .target = *target, .source = source, .split_smem_bytes = 0});
  if (!loaded) return loaded.error();
  prepared->loaded = *std::move(loaded);
  if (append->checked) {
    auto errors = (*platform)->make_error_memory(request.device);
    if (!errors) return errors.error();
    prepared->errors = *std::move(errors);
  }
  services_.log.debug(fmt::format("prepared [{}] on {}, key {}, {}", print(*append), request.device,
                                  prepared->loaded.key.digest, name(prepared->loaded.origin)));
  return prepared;
}

}  // namespace splitkv
