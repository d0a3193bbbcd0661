#include "runtime/repro.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/query_tensors.hpp"

namespace splitkv {
namespace {

std::string line(std::string_view name, std::string_view value) {
  return fmt::format("{:<16}{}\n", name, value);
}

// Variables that change what the library does.
std::string environment_lines() {
  std::vector<std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("SPLITKV_") || text.starts_with("CUDA_")) found.emplace_back(text);
  }
  std::sort(found.begin(), found.end());
  std::string lines;
  for (const std::string& text : found) lines += line("environment", text);
  return lines;
}

std::string kernel_lines(const PreparedKernel& kernel) {
  const bool is_loaded = kernel.loaded.code != nullptr;
  const CodeFacts facts = is_loaded ? kernel.loaded.code->facts() : CodeFacts{};
  return line("splitkv", splitkv_version()) + line("problem", kernel.problem_text) +
         line("schedule", kernel.schedule_text) + line("decided_by", name(kernel.decider)) +
         line("why", kernel.why) + line("device", kernel.device) +
         line("target", kernel.target_text) + line("kernel", kernel.source.split_entry) +
         (kernel.source.reduce_entry.empty() ? "" : line("kernel", kernel.source.reduce_entry)) +
         line("key", kernel.loaded.key.digest) +
         line("origin", is_loaded ? name(kernel.loaded.origin) : "not loaded") +
         line("code", fmt::format("{} bytes, {} and {} registers, {} and {} local bytes a thread",
                                  facts.module_bytes, facts.registers_split, facts.registers_reduce,
                                  facts.local_bytes_split, facts.local_bytes_reduce));
}

// The greatest power of two that divides the address, up to 256: what alignment is about.
std::string alignment_of(const void* pointer) {
  if (pointer == nullptr) return "NULL";
  return fmt::format("aligned to {}", uintptr_t(1)
                                          << std::min(std::countr_zero(uintptr_t(pointer)), 8));
}

std::string tensor_lines(const splitkv_tensors& t) {
  std::string lines =
      line("k", fmt::format("{}, strides block={} head={} token={}", alignment_of(t.k),
                            t.k_stride_block, t.k_stride_head, t.k_stride_token)) +
      line("v", fmt::format("{}, strides block={} head={} token={}", alignment_of(t.v),
                            t.v_stride_block, t.v_stride_head, t.v_stride_token)) +
      line("k_scale",
           fmt::format("{}, strides block={} head={} token={}", alignment_of(t.k_scale),
                       t.k_scale_stride_block, t.k_scale_stride_head, t.k_scale_stride_token)) +
      line("v_scale",
           fmt::format("{}, strides block={} head={} token={}", alignment_of(t.v_scale),
                       t.v_scale_stride_block, t.v_scale_stride_head, t.v_scale_stride_token)) +
      line("alibi_slopes", alignment_of(t.alibi_slopes)) + line("sink", alignment_of(t.sink));
  for (const float* param : t.params) {
    if (param != nullptr) lines += line("params", alignment_of(param));
  }
  return lines;
}

std::string strides_text(const QueryStrides& strides) {
  return fmt::format("strides batch={} query={} head={}", strides.batch, strides.query,
                     strides.head);
}

std::string argument_lines(const Problem& problem, const splitkv_args& args) {
  const QueryTensors dense = query_tensors(problem, args);
  const std::string shape =
      problem.ragged
          ? fmt::format("[{} rows, {} heads, ", args.query_rows, problem.q_heads)
          : fmt::format("[{}, {}, {} heads, ", args.batch, problem.query_len, problem.q_heads);
  return line("batch", fmt::format("{}", args.batch)) +
         line("q", fmt::format("{}{}], {}, {}", shape, problem.dim_qk - problem.dim_rope,
                               alignment_of(args.q), strides_text(dense.q))) +
         line("q_rope", fmt::format("{}{}], {}, {}", shape, problem.dim_rope,
                                    alignment_of(args.q_rope), strides_text(dense.q_rope))) +
         line("out", fmt::format("{}{}], {}, {}", shape, problem.dim_v, alignment_of(args.out),
                                 strides_text(dense.out))) +
         line("lse",
              fmt::format("{}1], {}, {}", shape, alignment_of(args.lse), strides_text(dense.lse))) +
         line("kv_len", fmt::format("{}, int64={}, host={}", alignment_of(args.kv_len),
                                    args.kv_len_is_int64, args.kv_len_host)) +
         line("page_table", fmt::format("{}, stride={}, offsets {}", alignment_of(args.page_table),
                                        args.page_table_stride, alignment_of(args.page_offset))) +
         line("v_page_table",
              fmt::format("{}, stride={}, offsets {}", alignment_of(args.v_page_table),
                          args.v_page_table_stride, alignment_of(args.v_page_offset))) +
         line("q_offset",
              fmt::format("{}, query_rows={}", alignment_of(args.q_offset), args.query_rows)) +
         line("kv_begin", alignment_of(args.kv_begin)) +
         line("positions", fmt::format("pos0={} pos_step={} total_len {}", args.pos0, args.pos_step,
                                       alignment_of(args.total_len))) +
         line("bias",
              fmt::format("{}, strides batch={} head={} query={} key={}", alignment_of(args.bias),
                          args.bias_stride_batch, args.bias_stride_head, args.bias_stride_query,
                          args.bias_stride_key)) +
         line("tree", fmt::format("{}, strides batch={} query={}", alignment_of(args.tree),
                                  args.tree_stride_batch, args.tree_stride_query)) +
         line("work", fmt::format("scratch_bytes={} state_bytes={}", args.scratch_bytes,
                                  args.state_bytes)) +
         line("limits",
              fmt::format("page_count={} kv_capacity={}", args.page_count, args.kv_capacity));
}

// The longest row that the call can have, as far as strides tell; 4096 where they do not.
int64_t longest_row(const Problem& problem, const ReproCall& call) {
  constexpr int64_t kUnknown = 4096, kLongest = int64_t(1) << 20;
  int64_t tokens = 0;
  if (call.workload != nullptr) return std::min(call.workload->kv_len, kLongest);
  if (call.args != nullptr) {
    const splitkv_args& args = *call.args;
    tokens = args.kv_len == nullptr ? args.kv_len_host : args.kv_capacity;
    if (tokens <= 0 && is_paged(problem))
      tokens = args.page_table_stride * problem.kv_layout.page_size;
  }
  if (tokens <= 0 && call.tensors != nullptr && !is_paged(problem)) {
    const splitkv_tensors& t = *call.tensors;
    const int64_t row = t.k_stride_head > t.k_stride_token ? t.k_stride_head : t.k_stride_block;
    if (t.k_stride_token > 0) tokens = row / t.k_stride_token;
  }
  return tokens > 0 ? std::min(tokens, kLongest) : kUnknown;
}

std::string command_text(const PreparedKernel& kernel, const ReproCall& call) {
  const int64_t batch = call.args != nullptr       ? std::max<int64_t>(call.args->batch, 1)
                        : call.workload != nullptr ? call.workload->batch
                                                   : 1;
  return fmt::format(
      "#!/bin/sh\n"
      "# Exit status 0: the result is right; 1: it is not.\n"
      "exec \"${{SPLITKV:-splitkv}}\" run '{}' \\\n"
      "  --target {} --batch {} --kv-len {} \\\n"
      "  --schedule '{}' --check\n",
      kernel.problem_text, kernel.device, batch, longest_row(kernel.problem, call),
      kernel.schedule_text);
}

Outcome write_file(const std::filesystem::path& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return Unit{};
  return invalid_argument(fmt::format("{} cannot be written: {}; a folder that can be would fit",
                                      path.string(), std::strerror(errno)));
}

}  // namespace

Outcome dump_repro(const PreparedKernel& kernel, const ReproCall& call, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return invalid_argument(fmt::format("folder={} cannot be made: {}; one that can be would fit",
                                        folder, error.message()));
  }
  std::string report = kernel_lines(kernel) + environment_lines();
  if (call.workload != nullptr) {
    report +=
        line("workload", fmt::format("batch={} kv_len={} kv_len_mean={}", call.workload->batch,
                                     call.workload->kv_len, call.workload->kv_len_mean));
  }
  if (call.tensors != nullptr) report += tensor_lines(*call.tensors);
  if (call.args != nullptr) report += argument_lines(kernel.problem, *call.args);
  const bool cuda = kernel.source.language == SourceLanguage::cuda;
  const std::pair<const char*, std::string> files[] = {
      {"repro.txt", report},
      {"run.sh", command_text(kernel, call)},
      {cuda ? "kernel.cu" : "kernel.ll", kernel.source.text},
      {"key.txt", std::string(key_head(kernel.loaded.key))}};
  for (const auto& [file, text] : files) {
    if (Outcome written = write_file(fs::path(folder) / file, text); !written) return written;
  }
  fs::permissions(fs::path(folder) / "run.sh", fs::perms::owner_exec | fs::perms::group_exec,
                  fs::perm_options::add, error);
  return Unit{};
}

}  // namespace splitkv
