// Which tensors a problem has, in which shapes, and where they go in the structs of the C API.
#include <fmt/format.h>

#include "runtime/dlpack.hpp"

namespace splitkv {
namespace {

using Dims = std::vector<WantedDim>;

constexpr splitkv_dl_dtype kFp32 = {2, 32, 1}, kInt32 = {0, 32, 1}, kInt64 = {0, 64, 1},
                           kUint8 = {1, 8, 1};

// Reads tensors one after another; the first that does not fit is the outcome.
class Reader {
 public:
  explicit Reader(const PreparedKernel& kernel) : kernel_(kernel) {}

  const Problem& problem() const { return kernel_.problem; }
  const Outcome& outcome() const { return outcome_; }
  bool failed() const { return !outcome_.ok(); }

  FoundTensor read(const splitkv_dl_tensor* tensor, const WantedTensor& wanted) {
    if (failed()) return empty(wanted);
    Result<FoundTensor> found = find_tensor(kernel_, tensor, wanted);
    if (found) return *std::move(found);
    outcome_ = found.error();
    return empty(wanted);
  }

  // A tensor that is there exactly where `has` is true; `why`: what the problem says otherwise.
  FoundTensor read_where(bool has, const char* why, const splitkv_dl_tensor* tensor,
                         const WantedTensor& wanted) {
    if (has) return read(tensor, wanted);
    if (tensor != nullptr) {
      refuse(fmt::format("{} is given, but {}; NULL would fit", wanted.field, why));
    }
    return empty(wanted);
  }

  void refuse(const std::string& message) {
    if (!failed()) outcome_ = invalid_argument(message);
  }

 private:
  static FoundTensor empty(const WantedTensor& wanted) {
    FoundTensor none;
    none.sizes.resize(wanted.dims.size());
    none.strides.resize(wanted.dims.size());
    return none;
  }

  const PreparedKernel& kernel_;
  Outcome outcome_ = Unit{};
};

// ---- K, V and what belongs to a layer -----------------------------------------------------------

struct CacheStrides {
  int64_t block, head, token;
};

bool tokens_come_first(const KvLayout& layout) {
  return layout.kind == KvLayoutKind::paged ? layout.page_order == PageOrder::nhd
                                            : layout.kind == KvLayoutKind::bthd;
}

Dims cache_dims(const Problem& problem) {
  const bool paged = is_paged(problem);
  const WantedDim block = {paged ? "pages" : "batch"}, heads = {"kv_heads", problem.kv_heads};
  const WantedDim tokens = {paged ? "page_size" : "tokens",
                            paged ? problem.kv_layout.page_size : WantedDim::kAny};
  if (tokens_come_first(problem.kv_layout)) return {block, tokens, heads};
  return {block, heads, tokens};
}

CacheStrides cache_strides(const Problem& problem, const std::vector<int64_t>& strides) {
  const bool first = tokens_come_first(problem.kv_layout);
  return {strides[0], strides[first ? 2 : 1], strides[first ? 1 : 2]};
}

// Elements of a row with its scale, where that is in the row; 0 where it is no whole number of
// them.
int64_t row_with_scale(int64_t dim, DType type) {
  return 4 % size_bytes(type) == 0 ? dim + 4 / size_bytes(type) : 0;
}

FoundTensor read_cache(Reader& reader, const char* field, const splitkv_dl_tensor* tensor,
                       DType type, int64_t dim, KvScale scale) {
  WantedTensor wanted{field, dl_types_of(type), cache_dims(reader.problem())};
  // With a scale in the row its elements, or these and the scale, or more up to an alignment; the
  // row's stride says what there is.
  const bool has_row = scale == KvScale::inl && tensor != nullptr && tensor->ndim == 4 &&
                       tensor->shape != nullptr && tensor->shape[3] >= row_with_scale(dim, type);
  if (scale == KvScale::inl && size_bytes(type) == 1) wanted.dtypes.push_back(kUint8);
  wanted.dims.push_back({"dim", has_row ? tensor->shape[3] : dim});
  return reader.read(tensor, wanted);
}

CacheStrides read_scale(Reader& reader, const char* field, const splitkv_dl_tensor* tensor,
                        KvScale kind, const float** pointer) {
  const Problem& problem = reader.problem();
  WantedTensor wanted{field, {kFp32}, {}, false};
  if (kind == KvScale::head) wanted.dims = {{"kv_heads", problem.kv_heads}};
  if (kind == KvScale::token) wanted.dims = cache_dims(problem);
  // One number, as [1] or without a dimension.
  const bool one = kind == KvScale::tensor && tensor != nullptr && tensor->ndim != 0;
  if (one) wanted.dims = {{"one", 1}};
  wanted.last_is_dense = kind == KvScale::head;
  const bool has = kind != KvScale::none && kind != KvScale::inl;
  const char* why =
      kind == KvScale::inl ? "scales lie in the rows" : "the problem has no such scale";
  const FoundTensor found = reader.read_where(has, why, tensor, wanted);
  *pointer = static_cast<const float*>(found.data);
  if (kind != KvScale::token) return {};
  return cache_strides(problem, found.strides);
}

const float* read_floats(Reader& reader, bool has, const char* why, const char* field,
                         const splitkv_dl_tensor* tensor, const WantedDim& dim) {
  return static_cast<const float*>(
      reader.read_where(has, why, tensor, {field, {kFp32}, {dim}}).data);
}

void read_values(Reader& reader, const splitkv_dl_cache& cache, splitkv_tensors& tensors) {
  const Problem& problem = reader.problem();
  const WantedDim heads = {"q_heads", problem.q_heads};
  tensors.alibi_slopes = read_floats(reader, problem.alibi, "the problem has no alibi=on",
                                     "cache.alibi_slopes", cache.alibi_slopes, heads);
  tensors.sink = read_floats(reader, problem.sink, "the problem has no sink=on", "cache.sink",
                             cache.sink, heads);
  for (size_t i = 0; i < std::size(cache.params); ++i) {
    const bool has = i < problem.params.size();
    const ParamScope scope = has ? problem.params[i].scope : ParamScope::scalar;
    const WantedDim dim = scope == ParamScope::scalar ? WantedDim{"one", 1}
                          : scope == ParamScope::head ? heads
                                                      : WantedDim{"batch"};
    const std::string field = fmt::format("cache.params[{}]", i);
    tensors.params[i] = read_floats(reader, has, "the problem names fewer params", field.c_str(),
                                    cache.params[i], dim);
  }
}

// ---- q, out and what belongs to a step ----------------------------------------------------------

struct QueryPlace {
  int64_t batch = 0, query = 0, head = 0;
};

// [batch, query_len, q_heads, dim], [batch, q_heads, dim] or, ragged, [tokens, q_heads, dim];
// without dim where it is 0.
class QueryShape {
 public:
  explicit QueryShape(const Problem& problem) : problem_(problem) {}

  // The dimension that the first tensor has must be that of all.
  Dims dims(const splitkv_dl_tensor* tensor, int64_t dim, int64_t rows) const {
    Dims wanted = {{problem_.ragged ? "tokens" : "batch", rows}};
    if (has_queries(tensor, dim)) wanted.push_back({"query_len", problem_.query_len});
    wanted.push_back({"q_heads", problem_.q_heads});
    if (dim > 0) wanted.push_back({"dim", dim});
    return wanted;
  }

  QueryPlace place(const FoundTensor& found, int64_t dim) const {
    const std::vector<int64_t>& strides = found.strides;
    const size_t inner = dim > 0 ? 1 : 0;
    const int64_t head = strides[strides.size() - 1 - inner];
    if (problem_.ragged) return {0, strides[0], head};
    if (strides.size() == 2 + inner) return {strides[0], 0, head};
    return {strides[0], strides[1], head};
  }

 private:
  bool has_queries(const splitkv_dl_tensor* tensor, int64_t dim) const {
    if (problem_.ragged) return false;
    const int32_t without = dim > 0 ? 3 : 2;
    return problem_.query_len > 1 || tensor == nullptr || tensor->ndim != without;
  }

  const Problem& problem_;
};

struct QueryField {
  const char* field;
  const splitkv_dl_tensor* tensor;
  bool has;
  const char* why;  // not
  DType type;
  int64_t dim;  // 0: statistics
};

struct QueryTensor {
  void* data = nullptr;
  int64_t rows = 0;
  QueryPlace place;
};

QueryTensor read_query(Reader& reader, const QueryField& field, int64_t rows) {
  const QueryShape shape(reader.problem());
  const WantedTensor wanted{field.field, dl_types_of(field.type),
                            shape.dims(field.tensor, field.dim, rows), field.dim > 0};
  const FoundTensor found = reader.read_where(field.has, field.why, field.tensor, wanted);
  if (!field.has || reader.failed()) return {};
  return {found.data, found.sizes[0], shape.place(found, field.dim)};
}

void read_queries(Reader& reader, const splitkv_dl_step& step, splitkv_args& args) {
  const Problem& problem = reader.problem();
  const int64_t dim_q = problem.dim_qk - problem.dim_rope;
  const QueryTensor q =
      read_query(reader, {"step.q", step.q, true, "", problem.q_dtype, dim_q}, WantedDim::kAny);
  args.q = q.data;
  args.q_stride_batch = q.place.batch;
  args.q_stride_query = q.place.query;
  args.q_stride_head = q.place.head;
  (problem.ragged ? args.query_rows : args.batch) = q.rows;
  const QueryTensor rope =
      read_query(reader,
                 {"step.q_rope", step.q_rope, problem.dim_rope > 0,
                  "the problem has no q_rope=", problem.q_dtype, problem.dim_rope},
                 q.rows);
  args.q_rope = rope.data;
  args.q_rope_stride_batch = rope.place.batch;
  args.q_rope_stride_query = rope.place.query;
  args.q_rope_stride_head = rope.place.head;
  const DType out_type = problem.out_partial ? DType::fp32 : problem.out_dtype;
  const QueryTensor out =
      read_query(reader, {"step.out", step.out, true, "", out_type, problem.dim_v}, q.rows);
  args.out = out.data;
  args.out_stride_batch = out.place.batch;
  args.out_stride_query = out.place.query;
  args.out_stride_head = out.place.head;
  const bool has_lse = written_lse(problem) != LseOutput::none;
  const QueryTensor lse = read_query(
      reader, {"step.lse", step.lse, has_lse, "the problem has lse=none", DType::fp32, 0}, q.rows);
  args.lse = static_cast<float*>(lse.data);
  args.lse_stride_batch = lse.place.batch;
  args.lse_stride_query = lse.place.query;
  args.lse_stride_head = lse.place.head;
  const QueryTensor l = read_query(reader,
                                   {"step.partial_l", step.partial_l, writes_partial_l(problem),
                                    "the problem puts out no l", DType::fp32, 0},
                                   q.rows);
  args.partial_l = static_cast<float*>(l.data);
  const bool alike = l.place.batch == lse.place.batch && l.place.query == lse.place.query &&
                     l.place.head == lse.place.head;
  if (writes_partial_l(problem) && !alike) {
    reader.refuse("step.partial_l has other strides than step.lse; the same would fit");
  }
}

// int32 or int64, dense, [size]; null where it is not given.
const void* read_list(Reader& reader, const char* field, const splitkv_dl_tensor* tensor,
                      std::vector<splitkv_dl_dtype> types, const WantedDim& dim) {
  if (tensor == nullptr) return nullptr;
  return reader.read(tensor, {field, std::move(types), {dim}}).data;
}

struct PageTable {
  const int32_t* table = nullptr;
  const int64_t* offset = nullptr;
  int64_t stride = 0;
};

PageTable read_pages(Reader& reader, const char* names[2], const splitkv_dl_tensor* table,
                     const splitkv_dl_tensor* offset, bool has, int64_t batch) {
  const char* why = "the problem has no such page table";
  if (!has) {
    reader.read_where(false, why, table, {names[0], {}, {}});
    reader.read_where(false, why, offset, {names[1], {}, {}});
    return {};
  }
  PageTable pages;
  WantedTensor wanted{names[0], {kInt32}, {{"ids"}}};
  if (offset == nullptr) wanted.dims = {{"batch", batch}, {"pages"}};
  const FoundTensor found = reader.read(table, wanted);
  pages.table = static_cast<const int32_t*>(found.data);
  if (offset == nullptr) {
    pages.stride = found.strides[0];
  } else {
    pages.offset = static_cast<const int64_t*>(
        read_list(reader, names[1], offset, {kInt64}, {"batch", batch}));
  }
  return pages;
}

void read_lists(Reader& reader, const splitkv_dl_step& step, splitkv_args& args) {
  const Problem& problem = reader.problem();
  if (problem.ragged) {
    const FoundTensor found =
        reader.read(step.q_offset, {"step.q_offset", {kInt32}, {{"batch + 1"}}});
    if (!reader.failed() && found.sizes[0] == 0) {
      reader.refuse("step.q_offset has the shape [0]; [batch + 1] would fit");
    }
    args.q_offset = static_cast<const int32_t*>(found.data);
    args.batch = found.sizes[0] - 1;
  } else {
    reader.read_where(false, "the problem has no ragged=on", step.q_offset,
                      {"step.q_offset", {}, {}});
  }
  const WantedDim batch = {"batch", args.batch};
  args.kv_len = read_list(reader, "step.kv_len", step.kv_len, {kInt32, kInt64}, batch);
  args.kv_len_is_int64 = args.kv_len != nullptr && step.kv_len->dtype.bits == 64 ? 1 : 0;
  args.kv_begin = static_cast<const int32_t*>(
      read_list(reader, "step.kv_begin", step.kv_begin, {kInt32}, batch));
  args.total_len = static_cast<const int32_t*>(
      read_list(reader, "step.total_len", step.total_len, {kInt32}, batch));
  const char* k_names[2] = {"step.page_table", "step.page_offset"};
  const PageTable k =
      read_pages(reader, k_names, step.page_table, step.page_offset, is_paged(problem), args.batch);
  args.page_table = k.table;
  args.page_offset = k.offset;
  args.page_table_stride = k.stride;
  const char* v_names[2] = {"step.v_page_table", "step.v_page_offset"};
  const PageTable v = read_pages(reader, v_names, step.v_page_table, step.v_page_offset,
                                 problem.separate_tables, args.batch);
  args.v_page_table = v.table;
  args.v_page_offset = v.offset;
  args.v_page_table_stride = v.stride;
}

void read_masks(Reader& reader, const splitkv_dl_step& step, splitkv_args& args) {
  const Problem& problem = reader.problem();
  const FoundTensor bias =
      reader.read_where(problem.bias.has_value(), "the problem has no bias=", step.bias,
                        {"step.bias",
                         dl_types_of(problem.bias.value_or(DType::fp32)),
                         {{"batch", args.batch, true},
                          {"q_heads", problem.q_heads, true},
                          {"query", problem.query_len, true},
                          {"key"}},
                         false});
  args.bias = bias.data;
  args.bias_stride_batch = bias.strides[0];
  args.bias_stride_head = bias.strides[1];
  args.bias_stride_query = bias.strides[2];
  args.bias_stride_key = bias.strides[3];
  std::vector<splitkv_dl_dtype> words;
  for (const uint8_t bits : {8, 16, 32, 64}) {
    words.push_back({0, bits, 1});
    words.push_back({1, bits, 1});
  }
  const FoundTensor tree =
      reader.read_where(problem.mask == Mask::tree, "the problem has no mask=tree", step.tree,
                        {"step.tree",
                         std::move(words),
                         {{"batch", args.batch, true}, {"query", problem.query_len}, {"words"}}});
  args.tree = static_cast<const uint8_t*>(tree.data);
  args.tree_stride_batch = tree.strides[0] * (tree.dtype.bits / 8);
  args.tree_stride_query = tree.strides[1] * (tree.dtype.bits / 8);
}

}  // namespace

Result<splitkv_tensors> tensors_from_dlpack(const PreparedKernel& kernel,
                                            const splitkv_dl_cache& cache) {
  Reader reader(kernel);
  const Problem& problem = kernel.problem;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  const FoundTensor k =
      read_cache(reader, "cache.k", cache.k, problem.k_dtype, problem.dim_qk, problem.k_scale);
  const CacheStrides k_strides = cache_strides(problem, k.strides);
  tensors.k = k.data;
  tensors.k_stride_block = k_strides.block;
  tensors.k_stride_head = k_strides.head;
  tensors.k_stride_token = k_strides.token;
  if (problem.v_in_k) {
    reader.read_where(false, "the problem has v_in_k=on", cache.v, {"cache.v", {}, {}});
  } else {
    const FoundTensor v =
        read_cache(reader, "cache.v", cache.v, problem.v_dtype, problem.dim_v, problem.v_scale);
    const CacheStrides v_strides = cache_strides(problem, v.strides);
    tensors.v = v.data;
    tensors.v_stride_block = v_strides.block;
    tensors.v_stride_head = v_strides.head;
    tensors.v_stride_token = v_strides.token;
  }
  const CacheStrides k_scale =
      read_scale(reader, "cache.k_scale", cache.k_scale, problem.k_scale, &tensors.k_scale);
  tensors.k_scale_stride_block = k_scale.block;
  tensors.k_scale_stride_head = k_scale.head;
  tensors.k_scale_stride_token = k_scale.token;
  const CacheStrides v_scale =
      read_scale(reader, "cache.v_scale", cache.v_scale,
                 problem.v_in_k ? KvScale::none : problem.v_scale, &tensors.v_scale);
  tensors.v_scale_stride_block = v_scale.block;
  tensors.v_scale_stride_head = v_scale.head;
  tensors.v_scale_stride_token = v_scale.token;
  read_values(reader, cache, tensors);
  if (reader.failed()) return reader.outcome().error();
  return tensors;
}

Result<splitkv_args> args_from_dlpack(const PreparedKernel& kernel, const splitkv_dl_step& step,
                                      const splitkv_args& given) {
  Reader reader(kernel);
  splitkv_args args = given;
  read_queries(reader, step, args);
  read_lists(reader, step, args);
  read_masks(reader, step, args);
  if (reader.failed()) return reader.outcome().error();
  return args;
}

}  // namespace splitkv
