#include "tests/numeric/draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"
#include "tests/numeric/test_device.hpp"
#include "tools/splitkv/partials.hpp"

namespace splitkv::testing_support {
namespace {

constexpr auto kFloats = {DType::fp32, DType::fp16, DType::bf16};
constexpr auto kTypes = {DType::fp32, DType::fp16, DType::bf16,
                         DType::e4m3, DType::e5m2, DType::int8};
constexpr auto kScales = {KvScale::none, KvScale::tensor, KvScale::head, KvScale::token,
                          KvScale::inl};

// User texts, with the words of params that they need.
constexpr auto kScores = {
    "params=w:head score=score*1.5-w",
    "params=w:head score=score*w",
    "params=w:scalar score=score-abs(query_pos-key_pos)*w*0.01",
    "params=w:head score=tanh(score/20)*20*w",
    "score=select(key_pos%7==0,score+1,score)",
    "params=w:row score=score+log(1+abs(key_pos-query_pos))*w",
    "score=max(min(score,3),-3)",
    "params=w:scalar score=score*sigmoid(score)*w",
    "score=score+exp(-abs(score))",
    "score=select(head%2==0,score,score*2)+batch*0.125",
};
constexpr auto kPredicates = {
    "where=key_pos%3!=1",
    "where=key_pos>=query_pos//16*16",
    "where=key_pos<2||key_pos>=5",
    "where=query_pos-key_pos<100",
    "where=key_pos<kv_len-2",
    "where=head%2==0||key_pos%2==0",
    "params=first:row where=key_pos>=first",
    "where=!(key_pos>3&&key_pos<9)",
};

KvLayout draw_layout(Draw& draw) {
  KvLayout layout;
  layout.kind =
      draw.of({KvLayoutKind::bhtd, KvLayoutKind::bthd, KvLayoutKind::paged, KvLayoutKind::paged});
  if (layout.kind == KvLayoutKind::paged) {
    layout.page_size = draw.of({1, 2, 3, 16, 19, 48, 64, 96, 256, 784});
    layout.page_order = draw.of({PageOrder::nhd, PageOrder::hnd});
  }
  return layout;
}

int draw_dim(Draw& draw) {
  switch (draw.between(0, 5)) {
    case 0:
      return 2 * draw.between(4, 64);
    case 1:
      return draw.of({40, 46, 72, 80, 88, 96, 112, 120, 160, 192, 224, 256});
    case 2:
      return draw.one_in(4) ? draw.of({320, 512, 576}) : 8 * draw.between(1, 32);
    default:
      return draw.of({8, 16, 32, 64, 64, 128});
  }
}

KvScale draw_scale(Draw& draw, DType type) {
  const bool wants = size_bytes(type) == 1 ? !draw.one_in(4) : draw.one_in(8);
  return wants ? draw.of(kScales) : KvScale::none;
}

void draw_types(Draw& draw, Problem& problem) {
  problem.q_dtype = draw.of(kFloats);
  problem.k_dtype = draw.one_in(2) ? draw.of(kTypes) : problem.q_dtype;
  problem.v_dtype = draw.one_in(4) ? draw.of(kTypes) : problem.k_dtype;
  problem.out_dtype = draw.one_in(4) ? draw.of(kFloats) : problem.q_dtype;
  problem.out_partial = draw.one_in(5);
  if (problem.out_partial) problem.out_dtype = DType::fp32;
  problem.k_scale = draw_scale(draw, problem.k_dtype);
  problem.v_scale = draw.one_in(2) ? problem.k_scale : draw_scale(draw, problem.v_dtype);
}

void draw_shape(Draw& draw, Problem& problem) {
  problem.kv_heads = draw.between(1, 3);
  problem.q_heads = problem.kv_heads * draw.of({1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 12, 16, 71});
  problem.dim_qk = draw_dim(draw);
  problem.dim_v = draw.one_in(3) ? draw_dim(draw) : problem.dim_qk;
  problem.query_len = draw.one_in(2) ? 1 : draw.of({2, 3, 4, 5, 8, 13, 16, 64});
  problem.v_in_k = draw.one_in(7);
  if (problem.v_in_k) {
    problem.v_dtype = problem.k_dtype;
    problem.v_scale = problem.k_scale;
    problem.dim_v = std::min(problem.dim_v, problem.dim_qk);
  }
  const auto whole_words = [](int dim, DType type) {
    return size_bytes(type) == 1 ? (dim + 3) / 4 * 4 : dim;
  };
  problem.dim_qk = whole_words(problem.dim_qk, problem.k_dtype);
  problem.dim_v = whole_words(problem.dim_v, problem.v_dtype);
  if (draw.one_in(5)) problem.dim_rope = 2 * draw.between(1, problem.dim_qk / 2 - 1);
}

// The words of `text` in the problem; a later `params=` adds to an earlier one.
void add_words(Problem& problem, std::string text) {
  const std::string now = print(problem);
  const std::string params = "params=";
  if (const size_t at = now.find(params); at != std::string::npos && text.starts_with(params)) {
    const std::string earlier = now.substr(at, now.find(' ', at) - at);
    const size_t end = text.find(' ');
    text = earlier + "," + text.substr(params.size(), end - params.size()) + text.substr(end);
    problem = *parse_problem(now.substr(0, at) + text + now.substr(at + earlier.size()));
    return;
  }
  const auto parsed = parse_problem(now + " " + text);
  if (parsed) problem = *parsed;
}

void draw_score_and_mask(Draw& draw, Problem& problem) {
  if (draw.one_in(3)) problem.scale = draw.of({0.05, 0.25, 1.0, -0.125});
  if (draw.one_in(4)) problem.softcap = draw.of({1.0, 30.0, 50.0});
  problem.alibi = draw.one_in(5);
  if (draw.one_in(5)) problem.bias = draw.of({DType::fp16, DType::fp32});
  problem.mask = draw.of({Mask::causal, Mask::causal, Mask::none, Mask::tree});
  if (draw.one_in(5)) problem.window = draw.of({1, 2, 17, 64, 128, 1000});
  if (draw.one_in(7)) problem.chunk = draw.of({1, 16, 100, 256});
  problem.strided_positions = problem.mask != Mask::tree && draw.one_in(5);
  problem.sink = !problem.out_partial && draw.one_in(4);
  if (draw.one_in(4)) add_words(problem, draw.of(kScores));
  if (draw.one_in(5)) add_words(problem, draw.of(kPredicates));
  // A masked key's -inf has to stay -inf: not every function of it is.
  const std::string text = print(problem);
  for (const char* function : {"sigmoid(", "tanh(", "exp(", "max("}) {
    if (text.find(function) != std::string::npos) problem.bias.reset();
  }
}

// One that dense rows of K and V satisfy.
int draw_align(Draw& draw, const Problem& problem) {
  int most = 16;
  const auto limit = [&](int dim, DType type, KvScale scale) {
    if (scale == KvScale::inl) return;  // rows are filled up
    while (dim * size_bytes(type) % most != 0) most /= 2;
  };
  limit(problem.dim_qk, problem.k_dtype, problem.k_scale);
  if (!problem.v_in_k) limit(problem.dim_v, problem.v_dtype, problem.v_scale);
  if (draw.one_in(3)) most = std::min(most, draw.of({2, 4, 8}));
  return most;
}

Problem draw_problem(Draw& draw) {
  Problem problem;
  draw_types(draw, problem);
  draw_shape(draw, problem);
  problem.kv_layout = draw_layout(draw);
  problem.separate_tables = is_paged(problem) && !problem.v_in_k && draw.one_in(3);
  problem.lse = draw.of({LseOutput::none, LseOutput::natural, LseOutput::base2});
  problem.merge = draw.of({Merge::automatic, Merge::mlo, Merge::lse});
  problem.deterministic = draw.one_in(5);
  problem.checked = draw.of({Checked::automatic, Checked::off, Checked::on});
  problem.align = draw_align(draw, problem);
  draw_score_and_mask(draw, problem);
  return problem;
}

void draw_pieces(Draw& draw, Schedule& schedule) {
  schedule.splits = 1;
  schedule.blocks = 0;
  if (schedule.partition == Partition::flat) {
    schedule.blocks = draw.between(1, 40);
  } else if (schedule.reduce == Reduce::cluster) {
    schedule.splits = schedule.cluster * draw.between(1, 4);
  } else {
    schedule.splits = draw.one_in(8) ? 1 : draw.between(2, 17);
  }
}

// Words that CUDA alone has, where the problem and the architecture allow them.
void draw_cuda_words(Draw& draw, const Problem& problem, const Target& target, Schedule& schedule) {
  if (problem.out_dtype == DType::bf16) {
    schedule.partial_dtype = draw.of({DType::fp32, DType::bf16});
  }
  if (!has_clusters(target)) return;
  schedule.pdl = draw.one_in(3);
  if (!draw.one_in(3)) return;
  schedule.reduce = Reduce::cluster;
  schedule.cluster = draw.of({2, 4, 8, 16});
  schedule.partition = draw.of({Partition::fixed, Partition::strided});
  draw_pieces(draw, schedule);
}

// Warps of the mma family that divide the rows, of which each has a panel or two.
Schedule draw_row_warps(Draw& draw, Schedule schedule) {
  schedule.row_warps = draw.of({2, 3, 4});
  const int panels = schedule.row_warps * draw.of({1, 1, 2});
  schedule.rows = draw.between(8 * panels - 7, 8 * panels);
  schedule.warps = schedule.row_warps * draw.of({1, 1, 2});
  schedule.tile_kv = 16 * streams(schedule) * draw.of({1, 1, 2, 4});
  schedule.stages = draw.between(2, 4);
  return schedule;
}

// A schedule of warp groups, where they take the problem.
std::optional<Schedule> draw_wgmma(Draw& draw, const Problem& problem, const Target& target) {
  const Schedule schedule = {.family = Family::wgmma,
                             .tile_kv = kWgmmaTile,
                             .rows = draw.between(1, draw.one_in(2) ? 8 : kWgmmaTile),
                             .warps = kWgmmaWarps,
                             .unroll = 1,
                             .stages = draw.of({2, 2, 3, 4, 5}),
                             .loads = Loads::tensor};
  if (verify(problem, schedule, target)) return std::nullopt;
  return schedule;
}

// A problem that warp groups take, mostly of latent attention.
void fit_wgmma(Draw& draw, Problem& problem) {
  problem.q_dtype = draw.of({DType::bf16, DType::fp16});
  problem.k_dtype = problem.v_dtype = problem.q_dtype;
  problem.k_scale = problem.v_scale =
      draw.of({KvScale::none, KvScale::none, KvScale::tensor, KvScale::head});
  problem.align = 16;
  problem.dim_v = kWgmmaColumn * draw.of({1, 1, 2, 2, 3, 4, 8});
  problem.dim_qk = kWgmmaColumn * draw.of({1, 2, 2, 3, 4, 9});
  problem.dim_rope = draw.one_in(3) ? draw.of({8, 30, 32}) : 0;
  problem.v_in_k = problem.dim_qk >= problem.dim_v && draw.one_in(2);
  if (problem.v_in_k) problem.separate_tables = false;
  if (is_paged(problem)) problem.kv_layout.page_size = kWgmmaTile * draw.of({1, 1, 2, 3});
}

Schedule draw_schedule(Draw& draw, const Problem& problem, const Target& target) {
  Schedule schedule;
  const bool cuda = target.kind == TargetKind::cuda;
  schedule.family = !cuda ? Family::vector : draw.one_in(2) ? Family::mma : Family::simt;
  schedule.warps = cuda ? draw.of({1, 2, 3, 4, 8}) : 1;
  schedule.tile_kv = draw.of({8, 8, 16, 16, 24, 32, 64, 128});
  schedule.rows = draw.between(1, 8);
  schedule.unroll = draw.of({1, 2, 4, 8});
  if (schedule.family == Family::mma) {
    schedule.tile_kv = 16 * schedule.warps * draw.of({1, 1, 2, 4});
    schedule.rows = draw.between(1, 32);
    schedule.unroll = 1;
    schedule.stages = draw.between(2, 6);
    // Three quarters of those whose rows several warps can divide are.
    const bool divide = query_rows(problem) > 8 && !draw.one_in(4);
    for (int attempt = 0; divide && attempt < 6 && schedule.row_warps == 1; ++attempt) {
      const Schedule divided = draw_row_warps(draw, schedule);
      if (!verify(problem, divided, target)) schedule = divided;
    }
  }
  if (target.arch == "sm_90a" && draw.one_in(2)) {
    if (const auto groups = draw_wgmma(draw, problem, target)) schedule = *groups;
  }
  schedule.partition = draw.of({Partition::fixed, Partition::flat, Partition::strided});
  draw_pieces(draw, schedule);
  schedule.reduce = draw.of({Reduce::kernel, Reduce::last_block});
  schedule.merge = draw.of({Merge::automatic, Merge::mlo, Merge::lse});
  if (cuda) draw_cuda_words(draw, problem, target, schedule);
  // Half of those that can be loaded by tensor map are.
  Schedule mapped = schedule;
  mapped.loads = Loads::tensor;
  if (draw.one_in(2) && !verify(problem, mapped, target)) return mapped;
  return schedule;
}

// Multiply-adds that the reference may spend on one case.
constexpr double kBudget = 4e6;

std::vector<int32_t> draw_lengths(Draw& draw, const Problem& problem) {
  std::vector<int32_t> lengths(size_t(draw.between(1, draw.one_in(8) ? 24 : 4)));
  const double a_key = double(problem.q_heads) * problem.query_len *
                       (problem.dim_qk + problem.dim_v) * double(lengths.size());
  const int most = int(std::clamp(kBudget / a_key, 40.0, 700.0));
  for (int32_t& length : lengths) {
    length = draw.one_in(6) ? draw.of({0, 1, 15, 16, 17, 33}) : draw.between(0, most);
  }
  return lengths;
}

void draw_queries(Draw& draw, const Problem& problem, size_t batch, tool::StepForm& form) {
  for (size_t row = 0; row < batch; ++row) {
    form.queries.push_back(draw.one_in(4) ? 0 : draw.between(1, problem.query_len));
  }
  if (draw.one_in(2)) form.queries.back() = 0;
  form.spare_rows = draw.between(0, 3);
  form.minus_one_tail = draw.one_in(2);
}

void draw_step(Draw& draw, Case& c) {
  c.kv_len = draw_lengths(draw, c.problem);
  draw_pieces(draw, c.schedule);
  c.form = {};
  tool::StepForm& form = c.form;
  form.lengths =
      draw.of({tool::LengthForm::int32, tool::LengthForm::int64, tool::LengthForm::host});
  if (form.lengths == tool::LengthForm::host) {
    std::fill(c.kv_len.begin(), c.kv_len.end(), c.kv_len.front());
  }
  if (draw.one_in(3)) draw_queries(draw, c.problem, c.kv_len.size(), form);
  if (draw.one_in(4)) {
    for (const int32_t length : c.kv_len) {
      form.kv_begin.push_back(draw.one_in(3) ? 0 : draw.between(0, length / 2 + 1));
    }
  }
  if (c.problem.strided_positions) {
    form.pos_step = draw.between(1, 4);
    form.pos0 = draw.between(0, int(form.pos_step) - 1);
  }
  form.bias_for_all_heads = draw.one_in(3);
  form.bias_for_all_queries = draw.one_in(3);
  form.padded_rows = draw.one_in(3);
  form.interleaved = draw.one_in(3);
  form.page_offsets = draw.one_in(3);
  form.infinite_poison = draw.one_in(3);
}

// As count_partials of the inputs to be, but for the totals of shards, of which the least is taken.
bool has_several_pieces(const Case& c) {
  tool::Rows rows;
  rows.kv_len = c.kv_len;
  rows.kv_begin = c.form.kv_begin;
  rows.queries = c.form.queries;
  if (c.problem.strided_positions) {
    rows.pos0 = c.form.pos0;
    rows.pos_step = c.form.pos_step;
    for (const int64_t length : c.kv_len) {
      rows.total_len.push_back(length == 0 ? 0
                                           : int32_t(rows.pos0 + (length - 1) * rows.pos_step + 1));
    }
  }
  return tool::count_partials(c.problem, c.schedule, rows).pieces >= 2;
}

}  // namespace

// Steps of which no sequence has several pieces are drawn again, mostly.
void redraw_step(Draw& draw, Case& c) {
  for (int i = 0; i < 3; ++i) {
    draw_step(draw, c);
    if (has_several_pieces(c) || draw.one_in(4)) return;
  }
}

Case draw_case(uint64_t seed, const Target& target) {
  Draw draw(seed);
  while (true) {
    Case c;
    c.problem = draw_problem(draw);
    if (target.arch == "sm_90a" && draw.one_in(6)) fit_wgmma(draw, c.problem);
    c.schedule = draw_schedule(draw, c.problem, target);
    if (verify(c.problem, target) || verify(c.problem, c.schedule, target)) continue;
    redraw_step(draw, c);
    return c;
  }
}

}  // namespace splitkv::testing_support
