#include "runner.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace engine {
namespace {

size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

Runner::Runner(Device& device, const Model& model, const Attention& attention, const Limits& limits,
               Plant plant, RunnerOptions options)
    : device_(device),
      model_(model),
      attention_(attention),
      limits_(limits),
      plant_(plant),
      options_(options),
      workspace_(attention.make_workspace(device)) {
  const auto batch = size_t(limits.max_batch);
  const auto tokens = size_t(std::max(limits.max_batch, limits.prefill_tokens));
  // Rows may share pages (a prompt's common beginning), so that all their lists together can be
  // longer than the cache has pages.
  const auto a_row = size_t(limits.pages_of(limits.max_length));
  size_t end = 0;
  const auto place = [&end](size_t bytes) {
    const size_t begin = end;
    end += aligned(bytes);
    return begin;
  };
  at_.tokens = place(tokens * 4), at_.positions = place(tokens * 4);
  at_.kv_len = place(batch * 4), at_.attended = place(batch * 4);
  at_.q_offset = place((batch + 1) * 4), at_.last = place(batch * 4);
  at_.page_offset = place(batch * 8), at_.pages = place(batch * a_row * 4);
  at_.end = end;
  staging_ = device.allocate_staging(end);
  inputs_ = device.allocate(end);

  const ModelConfig& config = model.config;
  const auto rows_of = [&](size_t rows, int64_t width) {
    return device.allocate(rows * size_t(width) * size_of(device.dtype()));
  };
  hidden_ = rows_of(tokens, config.hidden), normed_ = rows_of(tokens, config.hidden);
  qkv_ = rows_of(tokens, config.qkv_width());
  attended_ = rows_of(tokens, config.q_heads * config.dim);
  gate_up_ = rows_of(tokens, 2 * config.intermediate), fed_ = rows_of(tokens, config.intermediate);
  last_ = rows_of(batch, config.hidden);
  logits_ = device.allocate(batch * size_t(config.vocab) * 4);
  next_ = device.allocate(batch * 4);
}

void Runner::write_row(const RunRow& row, size_t index, int64_t token, int64_t page,
                       bool is_decode) {
  const auto count = int32_t(row.tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    host<int32_t>(at_.tokens)[token + i] = row.tokens[size_t(i)];
    host<int32_t>(at_.positions)[token + i] = std::max(0, row.kv_len - count + i);
  }
  host<int32_t>(at_.kv_len)[index] = row.kv_len;
  host<int32_t>(at_.attended)[index] =
      plant_ == Plant::length && is_decode ? row.kv_len - 1 : row.kv_len;
  host<int32_t>(at_.q_offset)[index + 1] = int32_t(token) + count;
  host<int32_t>(at_.last)[index] = int32_t(token) + count - 1;
  host<int64_t>(at_.page_offset)[index] = page;
  int32_t* pages = host<int32_t>(at_.pages) + page;
  std::copy(row.pages.begin(), row.pages.end(), pages);
  if (plant_ == Plant::page && is_decode && row.pages.size() > 1) pages[0] = pages[1];
}

// Through one block of staging and one copy; what a graph has recorded are the places in it.
AttentionRows Runner::write_inputs(const std::vector<RunRow>& rows, bool is_decode) {
  static const RunRow empty{{0}, 0, {}};
  AttentionRows step;
  step.batch = is_decode ? attention_.bucket_of(int64_t(rows.size())) : int64_t(rows.size());
  int64_t page = 0;
  host<int32_t>(at_.q_offset)[0] = 0;
  for (size_t row = 0; row < size_t(step.batch); ++row) {
    const RunRow& each = row < rows.size() ? rows[row] : empty;
    write_row(each, row, step.tokens, page, is_decode);
    step.tokens += int64_t(each.tokens.size());
    page += int64_t(each.pages.size());
  }
  device_.upload(inputs_.get(), staging_.get(), at_.pages + size_t(page) * 4);
  step.kv_len = there<int32_t>(at_.kv_len);
  if (!is_decode) step.q_offset = there<int32_t>(at_.q_offset);
  step.page_table = there<int32_t>(at_.pages);
  step.page_offset = there<int64_t>(at_.page_offset);
  step.qkv = qkv_.get(), step.out = attended_.get();
  return step;
}

void Runner::attend(int64_t layer, AttentionRows rows) {
  if (options_.times) device_.mark(2 + size_t(layer) * 2);
  attention_.append(device_, layer, rows);
  if (plant_ == Plant::length) rows.kv_len = there<int32_t>(at_.attended);
  attention_.attend(device_, layer, rows, workspace_);
  if (options_.times) device_.mark(3 + size_t(layer) * 2);
  ++(rows.q_offset == nullptr ? counters_.decode_attention_calls
                              : counters_.prefill_attention_calls);
}

// `answers`: rows of which the next token is wanted.
void Runner::forward(const AttentionRows& rows, int64_t answers) {
  const ModelConfig& c = model_.config;
  const int64_t tokens = rows.tokens, q_width = c.q_heads * c.dim;
  if (options_.times) device_.mark(0);
  device_.gather(hidden_.get(), model_.embedding.get(), there<int32_t>(at_.tokens), tokens,
                 c.hidden);
  for (int64_t i = 0; i < c.layers; ++i) {
    const Layer& layer = model_.layers[size_t(i)];
    device_.rms_norm(normed_.get(), hidden_.get(), layer.attention_norm.get(), tokens, c.hidden,
                     c.rms_eps);
    device_.multiply({qkv_.get(), normed_.get(), layer.qkv.get(), tokens, c.qkv_width(), c.hidden});
    device_.rotate({qkv_.get(), there<int32_t>(at_.positions),
                    static_cast<const float*>(model_.cosines.get()),
                    static_cast<const float*>(model_.sines.get()), tokens, c.qkv_width(),
                    c.q_heads + c.kv_heads, c.dim});
    attend(i, rows);
    device_.multiply({hidden_.get(), attended_.get(), layer.attention_out.get(), tokens, c.hidden,
                      q_width, true});
    device_.rms_norm(normed_.get(), hidden_.get(), layer.feed_norm.get(), tokens, c.hidden,
                     c.rms_eps);
    device_.multiply(
        {gate_up_.get(), normed_.get(), layer.gate_up.get(), tokens, 2 * c.intermediate, c.hidden});
    device_.silu_multiply(fed_.get(), gate_up_.get(), tokens, c.intermediate);
    device_.multiply(
        {hidden_.get(), fed_.get(), layer.down.get(), tokens, c.hidden, c.intermediate, true});
  }
  device_.gather(last_.get(), hidden_.get(), there<int32_t>(at_.last), answers, c.hidden);
  device_.rms_norm(last_.get(), last_.get(), model_.final_norm.get(), answers, c.hidden, c.rms_eps);
  device_.multiply({logits_.get(), last_.get(), model_.embedding.get(), answers, c.vocab, c.hidden,
                    false, true});
  device_.argmax(static_cast<int32_t*>(next_.get()), static_cast<const float*>(logits_.get()),
                 answers, c.vocab);
  if (options_.times) device_.mark(1);
}

void Runner::capture(const std::vector<RunRow>& rows) {
  const AttentionRows step = write_inputs(rows, true);
  const Counters before = counters_;
  // Once without recording: cuBLAS may load kernels at its first call, which a capture forbids.
  // What it writes to the cache, the step itself writes again.
  forward(step, step.batch);
  device_.wait();
  graphs_[step.batch] = device_.capture([&] { forward(step, step.batch); });
  counters_ = before;
}

void Runner::begin(const std::vector<RunRow>& rows, bool is_decode) {
  if (rows.empty()) throw std::logic_error("a step has no rows");
  live_ = rows.size();
  const int64_t bucket = attention_.bucket_of(int64_t(rows.size()));
  const bool is_replayed = is_decode && options_.graphs && device_.has_graphs();
  if (is_replayed && graphs_.count(bucket) == 0) capture(rows);
  const AttentionRows step = write_inputs(rows, is_decode);
  if (is_replayed) {
    graphs_.at(bucket)->launch();
    ++counters_.graph_launches;
    counters_.decode_attention_calls += model_.config.layers;
  } else {
    forward(step, step.batch);
  }
  ++(is_decode ? counters_.decode_steps : counters_.prefill_steps);
  for (const RunRow& row : rows) counters_.tokens += int64_t(row.tokens.size());
}

std::vector<int32_t> Runner::finish() {
  std::vector<int32_t> next(live_);
  device_.download(next.data(), next_.get(), next.size() * 4);
  if (options_.times) {
    counters_.step_ms += device_.ms_between(0, 1);
    for (size_t layer = 0; layer < size_t(model_.config.layers); ++layer) {
      counters_.attention_ms += device_.ms_between(2 + layer * 2, 3 + layer * 2);
    }
  }
  return next;
}

std::vector<int32_t> Runner::run(const std::vector<RunRow>& rows, bool is_decode) {
  begin(rows, is_decode);
  return finish();
}

std::vector<int32_t> Runner::run(const Step& step) {
  std::vector<RunRow> rows;
  for (const auto& [request, count] : step.rows) {
    RunRow row;
    row.kv_len = request->computed + count;
    for (int32_t i = request->computed; i < row.kv_len; ++i)
      row.tokens.push_back(request->token(i));
    row.pages = request->pages;
    rows.push_back(std::move(row));
  }
  return run(rows, step.is_decode);
}

std::vector<float> Runner::logits(size_t row) {
  std::vector<float> logits(size_t(model_.config.vocab));
  const float* from = static_cast<const float*>(logits_.get()) + row * logits.size();
  device_.download(logits.data(), from, logits.size() * 4);
  return logits;
}

}  // namespace engine
