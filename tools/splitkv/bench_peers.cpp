// Peers are measured by a Python script in a process of its own: a request on its stdin, a line of
// JSON for each (row, peer) back. tools/bench_peers.py says what it measures and how.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "compiler/text.hpp"
#include "tools/splitkv/bench.hpp"

namespace splitkv::tool {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// For a shell: in single quotes, those within it written apart.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// Beside the binary, or in tools/ of a folder above it: where a build or an install has it.
Result<std::string> find_script(const std::string& given) {
  if (!given.empty()) {
    if (fs::exists(given)) return given;
    return invalid_argument(fmt::format("--peers-script={}: there is no such file", given));
  }
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  for (fs::path folder = binary.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    for (const char* name : {"bench_peers.py", "tools/bench_peers.py"}) {
      if (fs::exists(folder / name)) return (folder / name).string();
    }
  }
  return invalid_argument(
      fmt::format("--peers: bench_peers.py is neither beside {} nor in tools/ above it; "
                  "--peers-script=tools/bench_peers.py would work",
                  binary.string()));
}

// A file that goes with the object.
class RequestFile {
 public:
  explicit RequestFile(const std::string& text) {
    path_ = (fs::temp_directory_path() / "splitkv-peers-XXXXXX").string();
    const int handle = mkstemp(path_.data());
    if (handle < 0) return;
    written_ = write(handle, text.data(), text.size()) == ssize_t(text.size());
    close(handle);
  }
  RequestFile(const RequestFile&) = delete;
  RequestFile& operator=(const RequestFile&) = delete;
  ~RequestFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  bool written() const { return written_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool written_ = false;
};

// Calls each(line) for what the command writes; its exit status.
Result<int> for_each_line(const std::string& command,
                          const std::function<Outcome(const std::string&)>& each) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return Error{Status::internal, "--peers: no process could be started"};
  std::string line;
  Outcome taken = Unit{};
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    if (c != '\n') {
      line += char(c);
      continue;
    }
    if (taken && !line.empty()) taken = each(line);
    line.clear();
  }
  const int status = pclose(pipe);
  if (!taken) return taken.error();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string peer_request(const PeerRun& run, const std::vector<RowReport>& reports) {
  json request = {{"device", run.ordinal},
                  {"l2_bytes", run.l2_bytes},
                  {"repeat", run.repeat},
                  {"rows", json::array()}};
  for (const RowReport& report : reports) {
    const Result<Problem> problem = parse_problem(report.row.problem);
    if (!problem) continue;  // it was parsed to be measured
    const Problem& p = *problem;
    request["rows"].push_back({{"row", report.row.name},
                               {"kv_len", report.row.kv_len},
                               {"q_heads", p.q_heads},
                               {"kv_heads", p.kv_heads},
                               {"dim_qk", p.dim_qk},
                               {"dim_v", p.dim_v},
                               {"query_len", p.query_len},
                               {"q_dtype", std::string(name(p.q_dtype))},
                               {"k_dtype", std::string(name(p.k_dtype))},
                               {"v_dtype", std::string(name(p.v_dtype))},
                               {"v_in_k", p.v_in_k},
                               {"page_size", p.kv_layout.page_size},
                               {"window", p.window},
                               {"softcap", p.softcap},
                               {"scale", scale_of(p)},
                               {"kv_bytes", report.kv_bytes}});
  }
  if (!run.only.empty()) request["peers"] = run.only;
  return request.dump() + "\n";
}

Outcome take_peer_line(const std::string& line, std::vector<RowReport>& reports) {
  const json answer = json::parse(line, nullptr, false);
  const auto is_text = [&](const char* field) {
    return answer.contains(field) && answer[field].is_string();
  };
  const bool timed = answer.is_object() && answer.contains("us") && answer["us"].is_number();
  if (!answer.is_object() || !is_text("row") || !is_text("peer") || timed == is_text("cannot")) {
    return Error{Status::internal, fmt::format("--peers: the script wrote a line that is no "
                                               "answer: {}",
                                               line)};
  }
  const std::string row = answer["row"];
  const auto found = std::find_if(reports.begin(), reports.end(),
                                  [&](const RowReport& report) { return report.row.name == row; });
  if (found == reports.end()) {
    return Error{Status::internal, fmt::format("--peers: the script names a row {}, which is not "
                                               "among those asked for",
                                               row)};
  }
  PeerTime peer;
  peer.name = answer["peer"];
  if (timed) {
    peer.us = answer["us"];
    peer.ratio = bound_us(*found) > 0 ? peer.us / bound_us(*found) : 0;
  } else {
    peer.cannot = answer["cannot"];
  }
  found->peers.push_back(std::move(peer));
  return Unit{};
}

Outcome run_peers(const PeerRun& run, std::vector<RowReport>& reports) {
  const Result<std::string> script = find_script(run.script);
  if (!script) return script.error();
  const RequestFile request(peer_request(run, reports));
  if (!request.written()) {
    return Error{Status::internal, fmt::format("--peers: {} cannot be written", request.path())};
  }
  const std::string command =
      fmt::format("python3 {} < {}", quoted(*script), quoted(request.path()));
  const Result<int> status = for_each_line(
      command, [&](const std::string& line) { return take_peer_line(line, reports); });
  if (!status) return status.error();
  if (*status == 0) return Unit{};
  return Error{
      Status::library_missing,
      fmt::format("--peers: {} ended with status {}; its messages stand above", command, *status)};
}

}  // namespace splitkv::tool
