#include "tools/splitkv/bench_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/splitkv/bench_random.hpp"
#include "tools/splitkv/key_range.hpp"

namespace splitkv::tool {
namespace {

// A row of dense attention; times in microseconds, 0 where none was measured.
struct Dense {
  int batch, q_heads, kv_heads, kv_len;
  double mb, floor, floor_step;
  double cudnn, fa3, flashinfer, fa2;
};

// bf16, dim 128.
constexpr Dense kUniform[] = {
    {1, 32, 8, 8192, 34, 8.9, 0.1, 15.7, 17.3, 16.5, 23.0},
    {1, 32, 8, 32768, 134, 30.6, 0.1, 38.3, 43.6, 42.6, 46.9},
    {1, 32, 8, 131072, 537, 116, 1, 127, 143, 136, 144},
    {1, 64, 8, 131072, 537, 116, 1, 127, 143, 136, 145},
    {8, 32, 8, 8192, 268, 59.1, 0.1, 67.8, 79.7, 71.8, 70.4},
    {32, 32, 8, 4096, 537, 116, 1, 124, 151, 129, 197},
    {64, 32, 8, 2048, 537, 116, 1, 125, 155, 134, 199},
    {128, 32, 8, 8192, 4295, 914, 1, 952, 1166, 980, 1751},
    {1, 32, 32, 16384, 268, 59.1, 0.1, 66.6, 74.3, 69.1, 75.7},
    {16, 32, 32, 4096, 1074, 230, 1, 243, 267, 245, 421},
    {1, 8, 1, 131072, 67, 16.0, 0.1, 28.1, 31.4, 30.7, 48.6},
    {16, 64, 8, 32768, 2147, 459, 1, 476, 558, 493, 485},
    {1, 32, 8, 1024, 4.2, 2.5, 0.1, 7.8, 0, 0, 10.8},
};

struct Model {
  int batch, q_heads, kv_heads, kv_len, dim;
  double mb;
  double cudnn, fa2, flex;
};

constexpr Model kModels[] = {
    {1, 28, 4, 32768, 128, 67, 24.0, 36.8, 590},   {1, 40, 8, 32768, 128, 134, 37.8, 46.7, 591},
    {8, 64, 8, 32768, 64, 537, 122.9, 135.7, 976}, {8, 16, 8, 8192, 256, 537, 163.5, 127.8, 396},
    {8, 32, 32, 4096, 96, 403, 102.5, 162.1, 166}, {8, 71, 1, 8192, 64, 17, 24.0, 19.9, 535},
    {1, 24, 2, 16384, 128, 17, 12.4, 36.0, 298},   {4, 9, 3, 8192, 64, 25, 12.2, 19.7, 0},
};

struct Mla {
  int batch, q_heads, kv_len;
  double floor, flashmla, goal;
};

constexpr Mla kMla[] = {
    {1, 128, 8192, 3.6, 25.0, 10},  {1, 128, 65536, 17.7, 52.6, 33},
    {8, 128, 8192, 17.6, 47.0, 33}, {32, 128, 4096, 33.8, 75.1, 60},
    {64, 128, 8192, 130, 251, 222}, {128, 128, 4096, 130, 257, 222},
    {1, 16, 32768, 9.6, 43.4, 14},  {32, 16, 8192, 65.9, 79.5, 72},
};

void add_peer(BenchRow& row, const char* name, double us) {
  if (us > 0) row.peers.push_back({name, us});
}

std::string layout_words(const TableChoice& choice) {
  return choice.paged ? " kv_layout=paged:16:nhd" : "";
}

std::string dense_problem(const TableChoice& choice, int q_heads, int kv_heads, int dim) {
  return fmt::format("attention q={0} kv={0} heads={1}/{2} dim={3}{4}", choice.dtype, q_heads,
                     kv_heads, dim, layout_words(choice));
}

void add_uniform(const TableChoice& choice, std::vector<BenchRow>& rows) {
  for (const Dense& dense : kUniform) {
    BenchRow row;
    row.name = fmt::format("{},{}/{},{}", dense.batch, dense.q_heads, dense.kv_heads, dense.kv_len);
    row.problem = dense_problem(choice, dense.q_heads, dense.kv_heads, 128);
    row.kv_len.assign(size_t(dense.batch), dense.kv_len);
    row.kv_mb = dense.mb;
    row.floor_us = dense.floor;
    row.floor_step_us = dense.floor_step;
    row.goal_ratio = goal_ratio_of(dense.mb);
    add_peer(row, "cudnn", dense.cudnn);
    add_peer(row, "flash3", dense.fa3);
    add_peer(row, "flashinfer", dense.flashinfer);
    add_peer(row, "flash2", dense.fa2);
    rows.push_back(std::move(row));
  }
}

std::vector<int32_t> all_but_one(int count, int length, int last) {
  std::vector<int32_t> lengths(size_t(count), length);
  lengths.push_back(last);
  return lengths;
}

void add_ragged(const TableChoice& choice, std::vector<BenchRow>& rows) {
  const std::string problem = dense_problem(choice, 32, 8, 128);
  BenchRow one_long{"ragged 31x1024+131072", problem, all_but_one(31, 1024, 131072)};
  one_long.kv_mb = 667;
  one_long.floor_us = 147;
  one_long.floor_step_us = 1;
  one_long.goal_ratio = 1.05;
  add_peer(one_long, "flash3", 189);
  add_peer(one_long, "flashinfer", 246);
  rows.push_back(std::move(one_long));

  BenchRow drawn{"ragged 128 log-uniform", problem,
                 log_uniform_lengths(128, 64, 65536, choice.seed)};
  drawn.goal_ratio = 1.05;
  rows.push_back(std::move(drawn));

  BenchRow small{"8x100", problem, std::vector<int32_t>(8, 100)};
  rows.push_back(std::move(small));
}

void add_models(const TableChoice& choice, std::vector<BenchRow>& rows) {
  for (const Model& model : kModels) {
    BenchRow row;
    row.name = fmt::format("{},{}/{},{},d{}", model.batch, model.q_heads, model.kv_heads,
                           model.kv_len, model.dim);
    row.problem = dense_problem(choice, model.q_heads, model.kv_heads, model.dim);
    row.kv_len.assign(size_t(model.batch), model.kv_len);
    row.kv_mb = model.mb;
    row.goal_ratio = goal_ratio_of(model.mb);
    add_peer(row, "cudnn", model.cudnn);
    add_peer(row, "flash2", model.fa2);
    add_peer(row, "flex", model.flex);
    rows.push_back(std::move(row));
  }
}

BenchRow mla_row(const TableChoice& choice, const std::string& name, int q_heads,
                 std::vector<int32_t> kv_len) {
  BenchRow row;
  row.name = name;
  row.problem =
      fmt::format("attention q={0} kv={0} heads={1}/1 dim=576/512 v_in_k=on kv_layout=paged:64:nhd",
                  choice.dtype, q_heads);
  double tokens = 0;
  for (const int32_t length : kv_len) tokens += length;
  row.matrix_flops = 2.0 * q_heads * tokens * (576 + 512);
  row.kv_len = std::move(kv_len);
  return row;
}

// The floor that ratios are taken to: of bytes, or of operations where those take longer.
double bound_us(const BenchRow& row) {
  return std::max(row.floor_us, row.matrix_flops / kHandedMatrixFlops * 1e6);
}

// What a CPU runs in seconds.
void add_cpu(const TableChoice& choice, std::vector<BenchRow>& rows) {
  struct Cpu {
    int q_heads, kv_heads, kv_len, batch;
    double of_floor;  // the floor's time over ours that is aimed at
  };
  constexpr Cpu table[] = {{32, 8, 8192, 1, 0.9},   {32, 8, 32768, 1, 0.9}, {8, 1, 32768, 1, 0.9},
                           {32, 32, 4096, 1, 0.95}, {28, 4, 16384, 1, 0.9}, {32, 8, 4096, 4, 0.9}};
  for (const Cpu& cpu : table) {
    BenchRow row;
    row.name = fmt::format("{},{}/{},{}", cpu.batch, cpu.q_heads, cpu.kv_heads, cpu.kv_len);
    row.problem = dense_problem(choice, cpu.q_heads, cpu.kv_heads, 128);
    row.kv_len.assign(size_t(cpu.batch), cpu.kv_len);
    row.goal_ratio = 1 / cpu.of_floor;
    rows.push_back(std::move(row));
  }
}

void add_mla(const TableChoice& choice, std::vector<BenchRow>& rows) {
  for (const Mla& mla : kMla) {
    BenchRow row = mla_row(choice, fmt::format("mla {},{},{}", mla.batch, mla.q_heads, mla.kv_len),
                           mla.q_heads, std::vector<int32_t>(size_t(mla.batch), mla.kv_len));
    row.floor_us = mla.floor;
    row.floor_step_us = mla.floor < 100 ? 0.1 : 1;
    row.goal_ratio = mla.goal / bound_us(row);
    add_peer(row, "flashmla", mla.flashmla);
    rows.push_back(std::move(row));
  }
  BenchRow ragged = mla_row(choice, "mla ragged 31x1024+65536", 128, all_but_one(31, 1024, 65536));
  ragged.floor_us = 25.5;
  ragged.floor_step_us = 0.1;
  ragged.goal_ratio = 45 / bound_us(ragged);
  add_peer(ragged, "flashmla", 66.5);
  rows.push_back(std::move(ragged));
}

}  // namespace

double goal_ratio_of(double megabytes) {
  if (megabytes >= 1000) return 1.02;
  if (megabytes >= 256) return 1.05;
  if (megabytes >= 128) return 1.08;
  if (megabytes >= 16) return 1.25;
  return 1.7;
}

std::vector<int32_t> log_uniform_lengths(int count, int least, int most, uint64_t seed) {
  std::vector<int32_t> lengths;
  uint64_t state = seed * 2 + 1;
  const double span = std::log(double(most) / least);
  for (int i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double uniform = double(state >> 11) * 0x1p-53;
    const double length = least * std::exp(uniform * span);
    lengths.push_back(std::clamp(int32_t(std::lround(length)), least, most));
  }
  return lengths;
}

std::string describe_lengths(const std::vector<int32_t>& kv_len) {
  std::map<int32_t, int> counts;
  for (const int32_t length : kv_len) ++counts[length];
  if (counts.empty()) return "none";
  if (counts.size() == 1) return fmt::format("{}", counts.begin()->first);
  if (counts.size() > 3) {
    return fmt::format("{} of {} to {}", kv_len.size(), counts.begin()->first,
                       counts.rbegin()->first);
  }
  std::string text;
  for (const auto& [length, count] : counts) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", count, length);
  }
  return text;
}

int64_t kv_bytes(const Problem& problem, const std::vector<int32_t>& kv_len) {
  Rows rows;
  rows.kv_len = kv_len;
  int64_t tokens = 0;
  for (size_t row = 0; row < kv_len.size(); ++row) {
    const KeyRange range = key_range(problem, rows, int64_t(row));
    tokens += range.end - range.first;
  }
  const int64_t k = problem.dim_qk * size_bytes(problem.k_dtype);
  const int64_t v = problem.v_in_k ? 0 : problem.dim_v * size_bytes(problem.v_dtype);
  return tokens * problem.kv_heads * (k + v);
}

Result<std::vector<BenchRow>> table_rows(const TableChoice& choice) {
  if (choice.dtype != "bf16" && choice.dtype != "fp16") {
    return invalid_argument(fmt::format("--dtype={}: bf16 or fp16 would work", choice.dtype));
  }
  if (choice.table == "random") return random_rows(choice.seed, choice.count);
  using Add = void (*)(const TableChoice&, std::vector<BenchRow>&);
  const std::pair<const char*, Add> tables[] = {
      {"uniform", add_uniform}, {"ragged", add_ragged}, {"models", add_models}, {"mla", add_mla}};
  std::vector<BenchRow> rows;
  if (choice.table == "cpu") add_cpu(choice, rows);
  for (const auto& [name, add] : tables) {
    if (choice.table == name || choice.table == "all") add(choice, rows);
  }
  for (BenchRow& row : rows) {
    if (choice.paged && row.matrix_flops == 0) row.name += ", paged";
  }
  if (rows.empty()) {
    return invalid_argument(fmt::format(
        "--table={}: uniform, ragged, models, mla, all, random or cpu would work", choice.table));
  }
  return rows;
}

}  // namespace splitkv::tool
