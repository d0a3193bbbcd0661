#include "tools/splitkv/bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "compiler/text.hpp"

namespace splitkv::tool {
namespace {

using nlohmann::json;

double gb_per_s(const RowReport& report, double us) {
  return us > 0 ? double(report.kv_bytes) / us * 1e-3 : 0;
}

json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json json_of(const OurTime& ours, const RowReport& report) {
  json j = {{"label", ours.label}, {"named", ours.named}, {"schedule", ours.schedule}};
  if (!ours.failure.empty()) {
    j["failure"] = ours.failure;
    return j;
  }
  j["us"] = ours.us;
  j["least_us"] = ours.least_us;
  j["greatest_us"] = ours.greatest_us;
  j["ratio"] = ratio_of(report, ours);
  j["gb_per_s"] = gb_per_s(report, ours.us);
  j["error"] = finite(ours.error);
  j["error_limit"] = ours.error_limit;
  j["registers"] = {ours.registers_split, ours.registers_reduce};
  j["local_bytes"] = ours.local_bytes;
  j["smem_bytes"] = ours.smem_bytes;
  return j;
}

json json_of(const PeerTime& peer) {
  json j = {{"name", peer.name}, {"handed", peer.handed}};
  if (!peer.cannot.empty()) j["cannot"] = peer.cannot;
  if (peer.us > 0) {
    j["us"] = peer.us;
    j["ratio"] = peer.ratio;
  }
  return j;
}

json json_of(const RowReport& report) {
  json j = {{"row", report.row.name},
            {"problem", report.row.problem},
            {"batch", report.row.kv_len.size()},
            {"kv_len", report.row.kv_len},
            {"kv_bytes", report.kv_bytes},
            {"sets", report.sets},
            {"launches", report.launches},
            {"cold", report.cold},
            {"floor_us", report.floor_us},
            {"floor_method", report.floor_method},
            {"bound_us", bound_us(report)},
            {"refused", report.refused},
            {"drawn", report.row.drawn}};
  if (report.row.floor_us > 0) j["handed_floor_us"] = report.row.floor_us;
  if (report.row.matrix_flops > 0) j["matrix_flops"] = report.row.matrix_flops;
  if (report.row.goal_ratio > 0) j["goal_ratio"] = report.row.goal_ratio;
  if (!report.broken.empty()) j["broken"] = report.broken;
  j["ours"] = json::array();
  for (const OurTime& ours : report.ours) j["ours"].push_back(json_of(ours, report));
  j["peers"] = json::array();
  for (const PeerTime& peer : report.peers) j["peers"].push_back(json_of(peer));
  return j;
}

json json_of(const Comparison& comparison) {
  json rows = json::array();
  for (const ComparedRow& row : comparison.rows) {
    json relative = json::object();
    for (size_t i = 0; i < row.relative.size(); ++i) {
      if (row.relative[i] > 0) relative[comparison.columns[i]] = row.relative[i];
    }
    rows.push_back({{"row", row.row},
                    {"schedules", row.schedules},
                    {"best_ratio", row.best_ratio},
                    {"relative", relative}});
  }
  return {{"words", comparison.words}, {"rows", rows}};
}

std::string megabytes(const RowReport& report) {
  const double mb = double(report.kv_bytes) * 1e-6;
  return mb < 10 ? fmt::format("{:.1f}", mb) : fmt::format("{:.0f}", mb);
}

std::string peer_cell(const PeerTime& peer) {
  if (peer.us <= 0) return "cannot";
  if (peer.handed) return fmt::format("{:.2f} (handed)", peer.ratio);
  return fmt::format("{:.1f} us, {:.2f}", peer.us, peer.ratio);
}

// The names of all peers, in the order they first appear.
std::vector<std::string> peer_names(const std::vector<RowReport>& reports) {
  std::vector<std::string> names;
  for (const RowReport& report : reports) {
    for (const PeerTime& peer : report.peers) {
      if (std::find(names.begin(), names.end(), peer.name) == names.end()) {
        names.push_back(peer.name);
      }
    }
  }
  return names;
}

std::string resources_of(const OurTime& ours) {
  if (ours.registers_split == 0) return "";  // no GPU's
  std::string text = fmt::format("{} regs", ours.registers_split);
  if (ours.registers_reduce > 0) text += fmt::format("+{}", ours.registers_reduce);
  text += fmt::format(", {} B smem", ours.smem_bytes);
  if (ours.local_bytes > 0) text += fmt::format(", {} B local", ours.local_bytes);
  return text;
}

std::string goal_cell(const RowReport& report) {
  return report.row.goal_ratio > 0 ? fmt::format("{:.2f}", report.row.goal_ratio) : "-";
}

std::string markdown_row(const RowReport& report, const OurTime& ours,
                         const std::vector<std::string>& peers) {
  std::string line = fmt::format("| {} | {} | {:.2f} | {} |", report.row.name, megabytes(report),
                                 report.floor_us, ours.label);
  if (!ours.failure.empty()) {
    line += fmt::format(" - | - | {} | - | - |", goal_cell(report));
  } else {
    line +=
        fmt::format(" {:.2f} | {:.3f} | {} | {:.0f} | {:.1e} |", ours.us, ratio_of(report, ours),
                    goal_cell(report), gb_per_s(report, ours.us), ours.error);
  }
  for (const std::string& name : peers) {
    const auto found = std::find_if(report.peers.begin(), report.peers.end(),
                                    [&](const PeerTime& peer) { return peer.name == name; });
    line += found == report.peers.end() ? " - |" : fmt::format(" {} |", peer_cell(*found));
  }
  return line + "\n";
}

// What names of drawn rows do not tell.
std::string markdown_rows(const std::vector<RowReport>& reports) {
  std::string text;
  for (const RowReport& report : reports) {
    if (!report.row.drawn) continue;
    text += fmt::format("- {}: `{}`, batch {}, lengths {}\n", report.row.name, report.row.problem,
                        report.row.kv_len.size(), describe_lengths(report.row.kv_len));
  }
  return text.empty() ? "" : "\nRows:\n\n" + text;
}

std::string markdown_notes(const std::vector<RowReport>& reports) {
  std::string text = markdown_rows(reports) + "\nSchedules:\n\n";
  for (const RowReport& report : reports) {
    for (const OurTime& ours : report.ours) {
      const std::string resources = resources_of(ours);
      text += ours.failure.empty()
                  ? fmt::format("- {}, {}: `{}`{}\n", report.row.name, ours.label, ours.schedule,
                                resources.empty() ? "" : " (" + resources + ")")
                  : fmt::format("- {}, {}: {}\n", report.row.name, ours.label, ours.failure);
    }
    if (report.refused > 0) {
      text += fmt::format("- {}: {} schedules do not fit the problem\n", report.row.name,
                          report.refused);
    }
    if (!report.broken.empty()) {
      text += fmt::format("- {}: **{}**\n", report.row.name, report.broken);
    }
    if (!report.cold) {
      text += fmt::format("- {}: {} copies are too few: runs may find KV in a cache\n",
                          report.row.name, report.sets);
    }
    for (const PeerTime& peer : report.peers) {
      if (peer.cannot.empty()) continue;
      text += fmt::format("- {}, {}: cannot: {}\n", report.row.name, peer.name, peer.cannot);
    }
  }
  return text;
}

}  // namespace

double bound_us(const RowReport& report) {
  return std::max(report.floor_us, report.row.matrix_flops / kHandedMatrixFlops * 1e6);
}

double ratio_of(const RowReport& report, const OurTime& ours) {
  if (ours.beside_ratio > 0) return ours.beside_ratio;
  const double bound = bound_us(report);
  return bound > 0 ? ours.us / bound : 0;
}

void add_handed_peers(RowReport& report) {
  const double matrix_us = report.row.matrix_flops / kHandedMatrixFlops * 1e6;
  const double handed_bound =
      report.row.floor_us > 0 ? std::max(report.row.floor_us, matrix_us) : bound_us(report);
  for (const HandedPeer& handed : report.row.peers) {
    const auto found = std::find_if(report.peers.begin(), report.peers.end(),
                                    [&](const PeerTime& peer) { return peer.name == handed.name; });
    const double ratio = handed_bound > 0 ? handed.us / handed_bound : 0;
    if (found == report.peers.end()) {
      report.peers.push_back({handed.name, handed.us, true, ratio, ""});
    } else if (found->us <= 0) {
      found->us = handed.us;
      found->ratio = ratio;
      found->handed = true;
    }
  }
}

const OurTime* best_of(const RowReport& report) {
  const OurTime* best = nullptr;
  for (const OurTime& ours : report.ours) {
    if (!ours.failure.empty()) continue;
    if (best == nullptr || ours.us < best->us) best = &ours;
  }
  return best;
}

bool is_failed(const RowReport& report) {
  if (!report.broken.empty()) return true;
  return std::any_of(report.ours.begin(), report.ours.end(), [](const OurTime& ours) {
    return !ours.failure.empty() || !(ours.error <= ours.error_limit);
  });
}

std::string header_text(const BenchHeader& header) {
  const std::pair<const char*, const std::string&> parts[] = {
      {"driver ", header.driver},   {"CUDA ", header.cuda}, {"NVRTC ", header.nvrtc},
      {"SplitKV ", header.version}, {"", header.date},      {"", header.note}};
  std::string text = header.card;
  for (const auto& [what, value] : parts) {
    if (!value.empty()) text += fmt::format(", {}{}", what, value);
  }
  return text;
}

std::string text_of(const RowReport& report) {
  std::string text = fmt::format(
      "{}: {} MB of KV, lengths {}, {} {}{}\n"
      "  {:<24} {:9.2f} us          {:6.0f} GB/s  {}\n",
      report.row.name, megabytes(report), describe_lengths(report.row.kv_len), report.sets,
      report.sets == 1 ? "copy" : "copies",
      report.launches > 1 ? fmt::format(", {} launches a graph", report.launches) : "", "floor",
      report.floor_us, gb_per_s(report, report.floor_us), report.floor_method);
  if (report.row.drawn) {
    text += fmt::format("  {}, batch {}\n", report.row.problem, report.row.kv_len.size());
  }
  if (bound_us(report) > report.floor_us) {
    text += fmt::format("  {:<24} {:9.2f} us\n", "bound of operations", bound_us(report));
  }
  for (const OurTime& ours : report.ours) {
    if (!ours.failure.empty()) {
      text += fmt::format("  {:<24} {}\n", ours.label, ours.failure);
      continue;
    }
    text +=
        fmt::format("  {:<24} {:9.2f} us  {:6.3f}  {:6.0f} GB/s  error {:.1e}{}  {}\n", ours.label,
                    ours.us, ratio_of(report, ours), gb_per_s(report, ours.us), ours.error,
                    ours.error <= ours.error_limit ? "" : " WRONG", resources_of(ours));
    text += fmt::format("  {:<24} {}\n", "", ours.schedule);
  }
  if (report.row.goal_ratio > 0) {
    text += fmt::format("  {:<24} {:9.2f} us  {:6.3f}\n", "goal",
                        report.row.goal_ratio * bound_us(report), report.row.goal_ratio);
  }
  for (const PeerTime& peer : report.peers) {
    text += fmt::format("  {:<24} {}{}\n", peer.name, peer_cell(peer),
                        peer.cannot.empty() ? "" : " (" + peer.cannot + ")");
  }
  if (report.refused > 0) {
    text += fmt::format("  {} schedules do not fit the problem\n", report.refused);
  }
  if (!report.cold) text += "  too few copies: runs may find KV in a cache\n";
  if (!report.broken.empty()) text += fmt::format("  BROKEN: {}\n", report.broken);
  return text;
}

std::string markdown_of(const BenchHeader& header, const std::vector<RowReport>& reports) {
  const std::vector<std::string> peers = peer_names(reports);
  std::string text = header_text(header) +
                     ". Times in microseconds; a ratio is to the floor, or to the bound of "
                     "operations where that is longer.\n\n";
  text += "| row | KV MB | floor | schedule | ours | ratio | goal | GB/s | error |";
  std::string rule = "|---|---|---|---|---|---|---|---|---|";
  for (const std::string& name : peers) {
    text += fmt::format(" {} |", name);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const RowReport& report : reports) {
    for (const OurTime& ours : report.ours) text += markdown_row(report, ours, peers);
  }
  return text + markdown_notes(reports);
}

std::string json_of(const BenchHeader& header, const std::vector<RowReport>& reports,
                    const std::vector<Comparison>& comparisons) {
  json j = {{"card", header.card},   {"driver", header.driver}, {"cuda", header.cuda},
            {"nvrtc", header.nvrtc}, {"date", header.date},     {"version", header.version},
            {"note", header.note},   {"rows", json::array()}};
  for (const RowReport& report : reports) j["rows"].push_back(json_of(report));
  for (const Comparison& comparison : comparisons) j["comparisons"].push_back(json_of(comparison));
  return j.dump(1) + "\n";
}

std::string json_line_of(const RowReport& report, const OurTime& time) {
  json j = json_of(time, report);
  j["row"] = report.row.name;
  j["problem"] = report.row.problem;
  j["batch"] = report.row.kv_len.size();
  j["lengths"] = describe_lengths(report.row.kv_len);
  j["kv_bytes"] = report.kv_bytes;
  j["floor_us"] = report.floor_us;
  return j.dump() + "\n";
}

void keep_best(RowReport& report) {
  int ran = 0;
  const OurTime* best = nullptr;
  const auto is_right = [](const OurTime& ours) { return ours.error <= ours.error_limit; };
  for (const OurTime& ours : report.ours) {
    if (ours.named || !ours.failure.empty()) continue;
    ++ran;
    if (is_right(ours) && (best == nullptr || ours.us < best->us)) best = &ours;
  }
  std::vector<OurTime> kept;
  for (const OurTime& ours : report.ours) {
    const bool is_wrong = ours.failure.empty() && !is_right(ours);
    if (!ours.named && &ours != best && !is_wrong) continue;
    kept.push_back(ours);
    if (&ours == best) kept.back().label = fmt::format("best of {}", ran);
  }
  report.ours = std::move(kept);
}

}  // namespace splitkv::tool
