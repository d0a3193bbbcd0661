// Reports that were written as JSON, read again.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/splitkv/bench_compare.hpp"

namespace splitkv::tool {
namespace {

using nlohmann::json;

// Fields that older reports have not are taken as they were then.
OurTime time_of(const json& j) {
  OurTime ours;
  ours.label = j.at("label");
  ours.schedule = j.at("schedule");
  ours.named = j.value("named", ours.label.find('=') == std::string::npos);
  if (j.contains("failure")) {
    ours.failure = j.at("failure");
    return ours;
  }
  ours.us = j.at("us");
  ours.least_us = j.at("least_us");
  ours.greatest_us = j.at("greatest_us");
  ours.beside_ratio = j.at("ratio");
  const json& error = j.at("error");  // null where it was no number
  ours.error = error.is_null() ? std::numeric_limits<double>::infinity() : error.get<double>();
  ours.error_limit = j.at("error_limit");
  ours.registers_split = j.at("registers").at(0);
  ours.registers_reduce = j.at("registers").at(1);
  ours.local_bytes = j.at("local_bytes");
  ours.smem_bytes = j.at("smem_bytes");
  return ours;
}

PeerTime peer_of(const json& j) {
  PeerTime peer;
  peer.name = j.at("name");
  peer.handed = j.at("handed");
  peer.us = j.value("us", 0.0);
  peer.ratio = j.value("ratio", 0.0);
  peer.cannot = j.value("cannot", "");
  return peer;
}

// The row of that name and problem, which is added where there is none. A line of a sweep has less
// than a report.
RowReport& row_of(const json& j, std::vector<RowReport>& reports) {
  const std::string name = j.at("row"), problem = j.at("problem");
  const auto found = std::find_if(reports.begin(), reports.end(), [&](const RowReport& report) {
    return report.row.name == name && report.row.problem == problem;
  });
  if (found != reports.end()) return *found;
  RowReport report;
  report.row.name = name;
  report.row.problem = problem;
  report.row.kv_len = j.value("kv_len", std::vector<int32_t>());
  report.row.floor_us = j.value("handed_floor_us", 0.0);
  report.row.goal_ratio = j.value("goal_ratio", 0.0);
  report.row.drawn = j.value("drawn", false);
  report.kv_bytes = j.at("kv_bytes");
  report.sets = j.value("sets", int64_t(0));
  report.launches = j.value("launches", int64_t(0));
  report.cold = j.value("cold", true);
  report.floor_us = j.at("floor_us");
  report.floor_method = j.value("floor_method", "");
  const double bound = j.value("bound_us", report.floor_us);
  report.row.matrix_flops =
      j.value("matrix_flops", bound > report.floor_us ? bound * 1e-6 * kHandedMatrixFlops : 0.0);
  report.refused = j.value("refused", int64_t(0));
  report.broken = j.value("broken", "");
  reports.push_back(std::move(report));
  return reports.back();
}

void take_peers(const json& peers, RowReport& report) {
  for (const json& one : peers) {
    PeerTime peer = peer_of(one);
    const bool known = std::any_of(report.peers.begin(), report.peers.end(),
                                   [&](const PeerTime& other) { return other.name == peer.name; });
    if (!known) report.peers.push_back(std::move(peer));
  }
}

void take_report(const json& j, std::vector<RowReport>& reports, BenchHeader& header) {
  if (header.card.empty()) {
    header = {j.at("card"), j.at("driver"),         j.at("cuda"), j.at("nvrtc"),
              j.at("date"), j.value("version", ""), j.at("note")};
  }
  for (const json& row : j.at("rows")) {
    RowReport& report = row_of(row, reports);
    for (const json& ours : row.at("ours")) report.ours.push_back(time_of(ours));
    take_peers(row.value("peers", json::array()), report);
  }
}

void take_lines(const std::string& text, std::vector<RowReport>& reports) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.empty()) continue;
    const json j = json::parse(line);
    row_of(j, reports).ours.push_back(time_of(j));
  }
}

}  // namespace

Result<std::vector<RowReport>> read_reports(const std::vector<std::string>& files,
                                            BenchHeader& header) {
  std::vector<RowReport> reports;
  for (const std::string& path : files) {
    std::ifstream file(path);
    if (!file) return invalid_argument(fmt::format("--from={}: cannot be read", path));
    std::stringstream text;
    text << file.rdbuf();
    try {
      const json whole = json::parse(text.str(), nullptr, false);
      if (whole.is_object() && whole.contains("rows")) {
        take_report(whole, reports, header);
      } else {
        take_lines(text.str(), reports);
      }
    } catch (const json::exception& fault) {
      return invalid_argument(
          fmt::format("--from={}: is no JSON that splitkv bench wrote, with --format=json or of a "
                      "sweep: {}",
                      path, fault.what()));
    }
  }
  if (reports.empty()) {
    return invalid_argument(fmt::format("--from={}: holds no row", files.front()));
  }
  return reports;
}

}  // namespace splitkv::tool
