#include "tools/splitkv/support_matrix.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <sstream>
#include <vector>

#include "compiler/resources.hpp"
#include "compiler/text.hpp"
#include "compiler/verifier.hpp"

namespace splitkv::tool {
namespace {

constexpr const char* kBase[] = {"q=bf16", "heads=32/8", "dim=128"};
constexpr const char* kTargets[] = {"cuda:sm_80", "cuda:sm_90a", "cpu:x86-64-v3"};

// Words that replace those of the base problem; the option is the first word's.
struct Option {
  const char* title;
  std::vector<std::string> values;
};

std::vector<Option> tensor_options() {
  return {
      {"Type of q",
       {"q=fp32 kv=fp32", "q=fp16 kv=fp16", "q=bf16 kv=bf16", "q=bf16 kv=fp32", "q=fp16 kv=bf16",
        "q=e4m3 kv=bf16 out=bf16"}},
      {"Types of K and V",
       {"kv=fp32", "kv=fp16", "kv=bf16", "kv=e4m3", "kv=e5m2", "kv=int8", "k=bf16 v=fp16",
        "k=bf16 v=e4m3", "k=e5m2 v=bf16", "k=int8 v=e4m3", "k=bf16 v=fp32"}},
      {"Type and form of the output",
       {"out=fp32", "out=fp16", "out=bf16", "out=e4m3", "out=partial", "out=partial merge=lse",
        "out=partial merge=mlo", "out=partial lse=base2", "out=partial sink=on"}},
      {"Heads of q and of K and V",
       {"heads=1", "heads=32/32", "heads=32/8", "heads=12/4", "heads=40/8", "heads=28/4",
        "heads=24/2", "heads=71/1", "heads=128/1", "heads=65536/65536", "heads=32/5", "heads=2/8"}},
      {"Head dims",
       {"dim=4",          "dim=8",     "dim=16",         "dim=40",          "dim=46",
        "dim=64",         "dim=72",    "dim=80",         "dim=88",          "dim=96",
        "dim=100",        "dim=101",   "dim=112",        "dim=120",         "dim=128",
        "dim=160",        "dim=192",   "dim=256",        "dim=320",         "dim=512",
        "dim=576",        "dim=584",   "dim=192/128",    "dim=320/256",     "dim=576/512",
        "dim=128/256",    "dim=64/46", "dim=46 kv=fp32", "dim=100 kv=e4m3", "dim=46 kv=int8",
        "dim=576 kv=e5m2"}},
      {"q in two tensors", {"q_rope=64", "q_rope=2", "q_rope=128", "q_rope=63"}},
      {"V within the rows of K",
       {"v_in_k=on", "v_in_k=on dim=576/512 heads=128/1 q_rope=64",
        "v_in_k=on dim=576/512 heads=16/1 kv=e4m3 kv_scale=tensor", "v_in_k=on dim=64/128",
        "v_in_k=on k=bf16 v=fp16"}},
      {"Queries of a batch row",
       {"query_len=1", "query_len=2", "query_len=7", "query_len=64", "query_len=65", "ragged=on",
        "query_len=8 ragged=on"}},
      {"Layout of K and V",
       {"kv_layout=bhtd", "kv_layout=bthd", "kv_layout=paged:1:nhd", "kv_layout=paged:3:nhd",
        "kv_layout=paged:16:nhd", "kv_layout=paged:16:hnd", "kv_layout=paged:19:hnd",
        "kv_layout=paged:96:nhd", "kv_layout=paged:784:nhd", "kv_layout=paged:65536:hnd",
        "kv_layout=paged:65537:nhd"}},
      {"Page tables",
       {"page_tables=shared kv_layout=paged:16:nhd", "page_tables=separate kv_layout=paged:16:nhd",
        "page_tables=separate"}},
      {"Scales of K and V",
       {"kv_scale=none kv=int8", "kv_scale=tensor kv=e4m3", "kv_scale=head kv=e5m2",
        "kv_scale=token kv=int8", "kv_scale=inline kv=int8 align=4", "kv_scale=inline align=2",
        "kv_scale=tensor kv=bf16", "k_scale=token kv=e4m3", "v_scale=head kv=e4m3"}},
      {"Alignment of pointers and strides, in bytes",
       {"align=16", "align=8", "align=4", "align=2", "align=1", "align=2 kv=int8",
        "align=2 kv=fp32"}},
  };
}

std::vector<Option> score_options() {
  return {
      {"Scale", {"scale=0.125", "scale=-1", "scale=1e+16"}},
      {"Softcap", {"softcap=30", "softcap=0.001", "softcap=-1"}},
      {"ALiBi", {"alibi=on"}},
      {"Additive bias", {"bias=fp32", "bias=fp16", "bias=bf16"}},
      {"Parameters and the user's score",
       {"params=a:scalar score=score*a", "params=a:head score=score+a*key_pos",
        "params=a:row score=score-a", "score=tanh(score)+exp(-abs(score))",
        "score=select(key_pos<4,log(1+abs(score)),sigmoid(score))",
        "score=min(score,8)+max(head,batch)+key_pos//2%3", "score=score//2", "params=score:row"}},
      {"Mask",
       {"mask=causal", "mask=causal query_len=8", "mask=none", "mask=none query_len=8",
        "mask=tree query_len=8", "mask=tree query_len=8 positions=strided"}},
      {"Window", {"window=1", "window=4096", "window=4096 query_len=8", "window=-1"}},
      {"Chunk", {"chunk=8192", "chunk=8192 window=512", "chunk=64 query_len=8", "chunk=-1"}},
      {"The user's mask",
       {"where=query_pos-key_pos<1024", "where=key_pos<4||query_pos-key_pos<1024",
        "where=key_pos//64==query_pos//64 query_len=8", "params=a:row where=key_pos<a",
        "where=key_pos%2.5<1"}},
      {"Positions of keys",
       {"positions=contiguous", "positions=strided", "positions=strided query_len=8 window=4096"}},
      {"Sink", {"sink=on"}},
      {"Log-sum-exp", {"lse=none", "lse=natural", "lse=base2"}},
      {"Exchanged partials", {"merge=auto", "merge=mlo", "merge=lse"}},
      {"Bits that do not depend on the batch", {"deterministic=on"}},
      {"Checks of what lies on the device", {"checked=auto", "checked=on", "checked=off"}},
  };
}

// The base problem's words that `words` does not give, then `words`.
Problem problem_with(const std::string& words) {
  std::string text;
  for (const std::string base : kBase) {
    const std::string key = base.substr(0, base.find('=') + 1);
    if (!words.starts_with(key) && words.find(" " + key) == std::string::npos) text += base + " ";
  }
  const Result<Problem> problem = parse_problem(text + words);
  assert(problem.ok());
  return *problem;
}

// The least that a family asks of a block.
Schedule smallest_schedule(Family family) {
  Schedule schedule;
  schedule.family = family;
  schedule.rows = schedule.warps = schedule.unroll = 1;
  if (family == Family::mma || family == Family::wgmma) schedule.stages = 2;
  if (family == Family::wgmma) {
    schedule.warps = kWgmmaWarps;
    schedule.loads = Loads::tensor;
  }
  return schedule;
}

std::string cell(const Problem& problem, const Target& target) {
  if (const auto refusal = verify(problem, target)) return fmt::format("no: `{}`", refusal->rule);
  std::vector<Family> families = {Family::vector};
  if (target.kind == TargetKind::cuda) families = {Family::simt, Family::mma};
  if (target.arch == "sm_90a") families.push_back(Family::wgmma);
  std::string taken, refused;
  for (Family family : families) {
    const auto refusal = verify(problem, smallest_schedule(family), target);
    if (!refusal) taken += fmt::format("{}{}", taken.empty() ? "" : ", ", name(family));
    if (refusal) refused += fmt::format("; not {}: `{}`", name(family), refusal->rule);
  }
  return taken + refused;
}

// A bar would end the cell of a table.
std::string escaped(const std::string& words) {
  std::string text;
  for (char c : words) text += c == '|' ? std::string("\\|") : std::string(1, c);
  return text;
}

void write_option(std::string& page, const Option& option, const std::vector<Target>& targets) {
  page += fmt::format("\n## {}\n\n| words |", option.title);
  for (const char* target : kTargets) page += fmt::format(" {} |", target);
  page += "\n|---|---|---|---|\n";
  for (const std::string& words : option.values) {
    const Problem problem = problem_with(words);
    page += fmt::format("| `{}` |", escaped(words));
    for (const Target& target : targets) page += fmt::format(" {} |", cell(problem, target));
    page += "\n";
  }
}

}  // namespace

std::string support_matrix() {
  std::string page = fmt::format(
      "# What is supported\n\n"
      "`splitkv show --list` prints this page from the verifier's rules. Each row puts its words\n"
      "into `attention {}`. A cell names the kernel families that take\n"
      "the problem, or the rule that refuses it; `splitkv show` with the same words says what "
      "would\n"
      "fit. Options combine freely unless a rule says otherwise. Rules of schedules, which bound\n"
      "tiles, rows, warps and stages, are not listed: the default schedule keeps them.\n",
      fmt::join(kBase, " "));
  std::vector<Target> targets;
  for (const char* text : kTargets) targets.push_back(parse_target(text).value());
  for (const Option& option : tensor_options()) write_option(page, option, targets);
  for (const Option& option : score_options()) write_option(page, option, targets);
  return page;
}

}  // namespace splitkv::tool
