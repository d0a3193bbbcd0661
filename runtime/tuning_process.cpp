#include "runtime/tuning_process.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

#include "compiler/text.hpp"
#include "runtime/child_process.hpp"
#include "runtime/splitkv.h"

namespace splitkv {
namespace {

constexpr int kMostBarrenStarts = 3;
constexpr double kLookEvery_s = 0.1;  // whether it is cancelled

Error cancelled() { return {Status::not_prepared, "the measuring was cancelled"}; }

double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Answers are "ok", "ok NUMBER", or "error STATUS MESSAGE" with \n and \\ in the message.
std::string on_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') line += "\\\\";
    if (c == '\n') line += "\\n";
    if (c != '\\' && c != '\n') line += c;
  }
  return line;
}

std::string from_one_line(std::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    text += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return text;
}

std::string answer_of(const Error& error) {
  return fmt::format("error {} {}", int(error.status), on_one_line(error.message));
}
std::string answer_of(const Outcome& outcome) {
  return outcome ? "ok" : answer_of(outcome.error());
}
std::string answer_of(const Result<double>& value) {
  return value ? fmt::format("ok {}", *value) : answer_of(value.error());
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  return fault == std::errc() && stop == end && !text.empty();
}

std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return word;
}

Error not_understood(std::string_view line) {
  return {Status::internal, fmt::format("the measuring process said \"{}\"", line)};
}

// Of an answer other than "ok": the error it tells.
Error error_of(std::string_view answer) {
  const std::string_view whole = answer;
  int status = 0;
  if (take_word(answer) != "error" || !read_number(take_word(answer), status) || status <= 0 ||
      status > int(Status::internal)) {
    return not_understood(whole);
  }
  return {Status(status), from_one_line(answer)};
}

Outcome outcome_of(const Result<std::string>& answer) {
  if (!answer) return answer.error();
  if (*answer == "ok") return Unit{};
  return error_of(*answer);
}

Result<double> number_of(const Result<std::string>& answer) {
  if (!answer) return answer.error();
  std::string_view rest = *answer;
  if (!rest.starts_with("ok ")) return error_of(rest);
  double value = 0;
  rest.remove_prefix(3);
  if (!read_number(rest, value) || !std::isfinite(value)) return not_understood(*answer);
  return value;
}

std::string words_of(const TuningPoint& point) {
  return fmt::format("{} {} {}", point.batch, point.kv_len, name(point.rows));
}

bool read_point(std::string_view& text, TuningPoint& point) {
  if (!read_number(take_word(text), point.batch) || !read_number(take_word(text), point.kv_len)) {
    return false;
  }
  const std::string_view rows = take_word(text);
  point.rows = rows == "ragged" ? RowLengths::ragged : RowLengths::equal;
  return point.batch > 0 && point.kv_len > 0;
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

// Lines of a descriptor.
class Lines {
 public:
  explicit Lines(int descriptor) : descriptor_(descriptor) {}
  bool next(std::string& line) {
    size_t end;
    while ((end = unread_.find('\n')) == std::string::npos) {
      char part[4096];
      const ssize_t count = read(descriptor_, part, sizeof(part));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      unread_.append(part, size_t(count));
    }
    line = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return true;
  }

 private:
  int descriptor_;
  std::string unread_;
};

bool say(int out, const std::string& line) {
  const std::string text = line + '\n';
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(out, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += size_t(count);
  }
  return true;
}

std::string serve_prepare(TuningBench& bench, std::string_view count_text, Lines& lines) {
  int count = 0;
  if (!read_number(count_text, count) || count < 0) return answer_of(not_understood(count_text));
  std::vector<Schedule> schedules;
  for (int i = 0; i < count; ++i) {
    std::string line;
    if (!lines.next(line)) return answer_of(not_understood(line));
    const Result<Schedule> schedule = parse_schedule(line);
    if (!schedule) return answer_of(schedule.error());
    schedules.push_back(*schedule);
  }
  std::string answers;
  for (const Outcome& outcome : bench.prepare(schedules, HUGE_VAL)) {
    if (!answers.empty()) answers += '\n';
    answers += answer_of(outcome);
  }
  return answers;
}

std::string serve_one(TuningBench& bench, std::string_view line) {
  const std::string_view whole = line, verb = take_word(line);
  int repeat = 0;
  TuningPoint point;
  if (verb == "memory") {
    uint64_t bytes = 0;
    if (!read_number(line, bytes)) return answer_of(not_understood(whole));
    return answer_of(bench.limit_memory(bytes));
  }
  if (verb == "time" && !read_number(take_word(line), repeat))
    return answer_of(not_understood(whole));
  if (verb != "check" && !read_point(line, point)) return answer_of(not_understood(whole));
  if (verb == "floor") return answer_of(bench.floor_us(point, HUGE_VAL));
  const Result<Schedule> schedule = parse_schedule(line);
  if (!schedule) return answer_of(schedule.error());
  if (verb == "check") return answer_of(bench.check(*schedule, HUGE_VAL));
  if (verb == "time") return answer_of(bench.time_us(*schedule, point, repeat, HUGE_VAL));
  return answer_of(not_understood(whole));
}

}  // namespace

Result<std::unique_ptr<ProcessBench>> ProcessBench::start(std::vector<std::string> command,
                                                          double ready_limit_s,
                                                          ProcessOptions options) {
  std::unique_ptr<ProcessBench> bench(
      new ProcessBench(std::move(command), ready_limit_s, std::move(options)));
  if (const Outcome begun = bench->begin(); !begun) return begun.error();
  return bench;
}

ProcessBench::~ProcessBench() {
  if (process_ > 0) (void)ended("is no longer needed");
}

Outcome ProcessBench::spawn() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error{Status::internal, fmt::format("socketpair: {}", std::strerror(errno))};
  }
  FileHandle here(ends[0]), there(ends[1]);
  const Result<pid_t> started =
      start_process(command_, there.get(), options_.environment, options_.quiet);
  if (!started) return started.error();
  process_ = *started;
  socket_ = std::move(here);
  unread_.clear();
  ++starts_;
  return Unit{};
}

// "ready WORKERS VERSION".
Outcome ProcessBench::greet() {
  const Result<std::string> answer = receive(now_s() + ready_limit_s_);
  if (!answer) return answer.error();
  std::string_view rest = *answer;
  if (take_word(rest) != "ready" || !read_number(take_word(rest), workers_)) {
    (void)ended("");
    return error_of(*answer);
  }
  if (rest == splitkv_version()) return Unit{};
  (void)ended("is of another version");
  return Error{Status::invalid_argument,
               fmt::format("the measuring process ({}) is of SplitKV {} and would measure its own "
                           "kernels; one of {} would work",
                           command_.front(), rest.empty() ? "that does not say its version" : rest,
                           splitkv_version())};
}

Outcome ProcessBench::begin() {
  if (options_.is_cancelled()) return cancelled();
  if (process_ > 0) return Unit{};
  if (barren_ >= kMostBarrenStarts) {
    return Error{Status::device_error, "measuring processes end before they are ready"};
  }
  ++barren_;
  if (const Outcome spawned = spawn(); !spawned) return spawned;
  if (const Outcome ready = greet(); !ready) return ready;
  barren_ = 0;
  return options_.memory_bytes > 0 ? limit_memory(options_.memory_bytes) : Outcome(Unit{});
}

// Ends the process. how: what it did; empty where it ended of itself and its status is told. A
// program that ignores SIGCHLD, or waits for every child, leaves no status here, and the id may be
// another process's by then: one that is not our child any more is not killed.
Error ProcessBench::ended(const std::string& how) {
  int status = 0;
  bool is_told = false;  // its status, to this waitpid
  const auto look = [&] {
    const pid_t found = waitpid(process_, &status, WNOHANG);
    is_told = found == process_;
    return is_told || (found < 0 && errno == ECHILD);
  };
  socket_ = FileHandle();
  // A process that closed its end may still be ending: its own status is the better answer.
  bool is_over = look();
  for (int i = 0; i < 100 && how.empty() && !is_over; ++i) {
    usleep(10'000);
    is_over = look();
  }
  if (!is_over) {
    kill(process_, SIGKILL);
    pid_t found;
    while ((found = waitpid(process_, &status, 0)) < 0 && errno == EINTR) {
    }
    is_told = found == process_;
  }
  process_ = -1;
  if (!how.empty()) return {Status::device_error, how};
  return {Status::device_error,
          "the measuring process " +
              (is_told ? how_it_ended(status)
                       : "ended; this program's handling of SIGCHLD or of its children took the "
                         "status")};
}

Outcome ProcessBench::send(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count =
        ::send(socket_.get(), text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return ended("");
    done += size_t(count);
  }
  return Unit{};
}

Result<std::string> ProcessBench::receive(double until_s) {
  const double begun = now_s();
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const double left = until_s - now_s();
    if (left <= 0) {
      return ended(
          fmt::format("gave no answer within {:.1f} s; its process was ended", until_s - begun));
    }
    if (options_.is_cancelled()) {
      (void)ended("is no longer needed");
      return cancelled();
    }
    pollfd waiting{socket_.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, int(std::min(left, kLookEvery_s) * 1e3) + 1);
    if (ready <= 0) continue;
    char part[4096];
    const ssize_t count = recv(socket_.get(), part, sizeof(part), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return ended("");
    unread_.append(part, size_t(count));
  }
}

Result<std::string> ProcessBench::ask(const std::string& line, double limit_s) {
  if (const Outcome begun = begin(); !begun) return begun.error();
  const double until = now_s() + limit_s;
  if (const Outcome sent = send(line + '\n'); !sent) return sent.error();
  return receive(until);
}

// Where the process ends within a batch, the rest is handed over one by one: so it is known whose
// fault it was.
std::vector<Outcome> ProcessBench::prepare(const std::vector<Schedule>& schedules, double limit_s) {
  std::vector<Outcome> outcomes;
  const double until = now_s() + limit_s;
  std::string request = fmt::format("prepare {}", schedules.size());
  for (const Schedule& schedule : schedules) request += '\n' + print(schedule);
  Result<std::string> answer = ask(request, limit_s);
  while (answer && outcomes.size() < schedules.size()) {
    outcomes.push_back(outcome_of(answer));
    if (outcomes.size() < schedules.size()) answer = receive(until);
  }
  if (answer) return outcomes;
  const bool alone = schedules.size() == 1;
  while (outcomes.size() < schedules.size()) {
    const std::vector<Schedule> one = {schedules[outcomes.size()]};
    const double left = until - now_s();
    outcomes.push_back(alone || left <= 0 || barren_ >= kMostBarrenStarts
                           ? Outcome(answer.error())
                           : prepare(one, left).front());
  }
  return outcomes;
}

Outcome ProcessBench::check(const Schedule& schedule, double limit_s) {
  return outcome_of(ask("check " + print(schedule), limit_s));
}

Result<double> ProcessBench::floor_us(const TuningPoint& point, double limit_s) {
  return number_of(ask("floor " + words_of(point), limit_s));
}

Result<double> ProcessBench::time_us(const Schedule& schedule, const TuningPoint& point, int repeat,
                                     double limit_s) {
  return number_of(
      ask(fmt::format("time {} {} {}", repeat, words_of(point), print(schedule)), limit_s));
}

// Of every process that is started from now on as well.
Outcome ProcessBench::limit_memory(uint64_t bytes) {
  options_.memory_bytes = bytes;
  return outcome_of(ask(fmt::format("memory {}", bytes), ready_limit_s_));
}

void serve_bench(const Result<std::unique_ptr<TuningBench>>& opened, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a candidate that hangs must not outlive who asked for it
  if (!opened) {
    say(out, answer_of(opened.error()));
    return;
  }
  TuningBench& bench = **opened;
  Lines lines(in);
  if (!say(out, fmt::format("ready {} {}", bench.workers(), splitkv_version()))) return;
  for (std::string line; lines.next(line);) {
    constexpr std::string_view prepare = "prepare ";
    const std::string answer = line.starts_with(prepare)
                                   ? serve_prepare(bench, line.substr(prepare.size()), lines)
                                   : serve_one(bench, line);
    if (!say(out, answer)) return;
  }
}

}  // namespace splitkv
