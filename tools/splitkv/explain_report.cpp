#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/arithmetic.hpp"
#include "compiler/text.hpp"
#include "tools/splitkv/explain.hpp"

namespace splitkv::tool {
namespace {

using json = nlohmann::ordered_json;

// What would have to change for a shorter time.
const char* sentence_of(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "the blocks draw all that device memory gives";
    case Bound::warps:
      return "the warps in flight draw less than device memory gives";
    case Bound::imbalance:
      return "the longest block reads on while others have ended";
    case Bound::overheads:
      return "launch, start and joins take more than the reading";
  }
  return "";
}

double floor_of(const Explanation& explanation) {
  return explanation.measured_floor_us > 0 ? explanation.measured_floor_us
                                           : explanation.chosen.cost.floor_us;
}

std::string ratio_text(const Explanation& explanation, double us) {
  const double floor = floor_of(explanation);
  return floor > 0 ? fmt::format(", {:.2f} x the floor", us / floor) : "";
}

std::string rows_text(const std::vector<RowGroup>& rows) {
  if (rows.size() > 3) {
    int64_t count = 0;
    for (const RowGroup& group : rows) count += group.rows;
    return fmt::format("{} of {} to {} tokens", count, rows.front().kv_len, rows.back().kv_len);
  }
  std::string text;
  for (const RowGroup& group : rows)
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", group.rows, group.kv_len);
  return text + " tokens";
}

// Blocks that an SM holds while the grid runs.
int64_t blocks_on_an_sm(const Explanation& explanation) {
  const int64_t sms = std::max(1, explanation.target.sm_count);
  return ceil_div(explanation.chosen.cost.resident, sms);
}

int64_t bytes_in_flight(const Explanation& explanation) {
  return blocks_on_an_sm(explanation) *
         block_bytes_in_flight(explanation.problem, explanation.chosen.schedule);
}

std::string bytes_text(const Explanation& explanation) {
  const Cost& cost = explanation.chosen.cost;
  std::string text =
      fmt::format("bytes     {:.3f} MB of K and V, {:.3f} MB of partials written and read again\n",
                  double(explanation.kv_bytes) / 1e6, cost.partial_bytes / 1e6);
  text += fmt::format("floor     {:.2f} us at {:.0f} GB/s\n", cost.floor_us,
                      explanation.target.read_gb_per_s);
  if (explanation.measured_floor_us > 0)
    text += fmt::format("          {:.2f} us measured on {} ({})\n", explanation.measured_floor_us,
                        explanation.device, explanation.floor_method);
  if (!explanation.cold)
    text += "          measured on too few copies: runs may find KV in a cache\n";
  return text;
}

std::string times_text(const Explanation& explanation) {
  const Cost& cost = explanation.chosen.cost;
  std::string text = fmt::format("predicted {:.2f} us{}\n", cost.total_us(),
                                 ratio_text(explanation, cost.total_us()));
  text += fmt::format(
      "parts     launch {:.2f}, start {:.2f}, read {:.2f}, join {:.2f}, exchange "
      "{:.2f}, second launch {:.2f} us\n",
      cost.launch_us, cost.start_us, cost.read_us, cost.join_us, cost.exchange_us,
      cost.second_launch_us);
  const Weighed& chosen = explanation.chosen;
  if (chosen.measured_us > 0)
    text += fmt::format("measured  {:.2f} us{}\n", chosen.measured_us,
                        ratio_text(explanation, chosen.measured_us));
  if (!chosen.failure.empty()) text += fmt::format("measured  no: {}\n", chosen.failure);
  return text + fmt::format("binds     {}: {}\n", name(cost.bound), sentence_of(cost.bound));
}

std::string machine_text(const Explanation& explanation) {
  const Cost& cost = explanation.chosen.cost;
  const Resources& resources = explanation.resources;
  std::string text = fmt::format(
      "blocks    {} in {} wave{}, {} at once; the longest reads {:.3f} MB; {} partials a "
      "sequence\n",
      cost.blocks, cost.waves, cost.waves == 1 ? "" : "s", cost.resident, cost.block_bytes / 1e6,
      cost.partials);
  text += fmt::format("occupancy {} of {} blocks on an SM that fit, {} warps\n",
                      blocks_on_an_sm(explanation), resources.blocks_per_sm,
                      blocks_on_an_sm(explanation) * explanation.chosen.schedule.warps);
  text += fmt::format("in flight up to {} bytes of K and V an SM\n", bytes_in_flight(explanation));
  for (const KernelResources& kernel : explanation.kernels)
    text += fmt::format(
        "kernel    {}: {} registers a thread, {} bytes spilled, {} bytes of stack, {} bytes of "
        "shared memory a block\n",
        kernel.name, kernel.registers, kernel.spilled_bytes, kernel.stack_bytes, kernel.smem_bytes);
  if (!explanation.not_compiled.empty())
    text += fmt::format(
        "kernel    about {} registers a thread, {} bytes of shared memory a block; "
        "not compiled: {}\n",
        resources.compiled_registers, resources.smem_bytes, explanation.not_compiled);
  return text;
}

std::string line_of(const Weighed& weighed, bool measured) {
  std::string time;
  if (measured)
    time = weighed.failure.empty() ? fmt::format("{:>10.2f}", weighed.measured_us) : "      none";
  const std::string line = fmt::format("{:>10.2f}{}  {:<24}{}\n", weighed.cost.total_us(), time,
                                       weighed.kind, print(weighed.schedule));
  return weighed.failure.empty() ? line : line + fmt::format("            {}\n", weighed.failure);
}

json parts_of(const Cost& cost) {
  return {{"launch", cost.launch_us},     {"start", cost.start_us},
          {"read", cost.read_us},         {"join", cost.join_us},
          {"exchange", cost.exchange_us}, {"second_launch", cost.second_launch_us}};
}

json json_of(const Weighed& weighed) {
  json j = {{"kind", weighed.kind},
            {"schedule", print(weighed.schedule)},
            {"predicted_us", weighed.cost.total_us()},
            {"parts_us", parts_of(weighed.cost)},
            {"binds", name(weighed.cost.bound)}};
  if (weighed.measured_us > 0) j["measured_us"] = weighed.measured_us;
  if (!weighed.failure.empty()) j["failure"] = weighed.failure;
  return j;
}

json machine_json(const Explanation& explanation) {
  const Cost& cost = explanation.chosen.cost;
  return {{"blocks", cost.blocks},
          {"blocks_at_once", cost.resident},
          {"waves", cost.waves},
          {"partials_of_a_sequence", cost.partials},
          {"longest_block_bytes", cost.block_bytes},
          {"blocks_of_an_sm", blocks_on_an_sm(explanation)},
          {"blocks_that_fit_an_sm", explanation.resources.blocks_per_sm},
          {"warps_of_an_sm", blocks_on_an_sm(explanation) * explanation.chosen.schedule.warps},
          {"bytes_in_flight_of_an_sm", bytes_in_flight(explanation)}};
}

json kernels_json(const Explanation& explanation) {
  json kernels = json::array();
  for (const KernelResources& kernel : explanation.kernels)
    kernels.push_back({{"name", kernel.name},
                       {"registers", kernel.registers},
                       {"spilled_bytes", kernel.spilled_bytes},
                       {"stack_bytes", kernel.stack_bytes},
                       {"smem_bytes", kernel.smem_bytes}});
  return kernels;
}

}  // namespace

std::string text_of(const Explanation& explanation) {
  std::string text =
      fmt::format("problem   {}\ntarget    {}\nrows      {}\nschedule  {}\nwhy       {}\n",
                  print(explanation.problem), print(explanation.target),
                  rows_text(explanation.rows), print(explanation.chosen.schedule), explanation.why);
  text += bytes_text(explanation) + times_text(explanation) + machine_text(explanation);
  const bool measured = explanation.measured_floor_us > 0;
  text += fmt::format("\nthe least of every partition and reduce, in us\n predicted{}  {:<24}{}\n",
                      measured ? "  measured" : "", "kind", "schedule");
  text += line_of(explanation.chosen, measured);
  for (const Weighed& other : explanation.others) text += line_of(other, measured);
  return text;
}

std::string json_of(const Explanation& explanation) {
  json rows = json::array();
  for (const RowGroup& group : explanation.rows)
    rows.push_back({{"rows", group.rows}, {"kv_len", group.kv_len}});
  json j = {{"problem", print(explanation.problem)},
            {"target", print(explanation.target)},
            {"rows", rows},
            {"why", explanation.why},
            {"kv_bytes", explanation.kv_bytes},
            {"partial_bytes", explanation.chosen.cost.partial_bytes},
            {"floor_us", explanation.chosen.cost.floor_us}};
  if (explanation.measured_floor_us > 0) {
    j["measured_floor_us"] = explanation.measured_floor_us;
    j["floor_method"] = explanation.floor_method;
    j["cold"] = explanation.cold;
    j["device"] = explanation.device;
  }
  j["chosen"] = json_of(explanation.chosen);
  j["machine"] = machine_json(explanation);
  j["kernels"] = kernels_json(explanation);
  if (!explanation.not_compiled.empty()) j["not_compiled"] = explanation.not_compiled;
  j["others"] = json::array();
  for (const Weighed& other : explanation.others) j["others"].push_back(json_of(other));
  return j.dump(1) + "\n";
}

}  // namespace splitkv::tool
