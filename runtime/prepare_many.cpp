#include "runtime/prepare_many.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>

namespace splitkv {
namespace {

constexpr uint64_t kMiB = uint64_t(1) << 20;

// 0 where the file is not there or does not begin with a number ("max").
uint64_t number_in(const char* path) {
  std::ifstream stream(path);
  uint64_t number = 0;
  stream >> number;
  return stream ? number : 0;
}

uint64_t system_memory() {
  std::ifstream stream("/proc/meminfo");
  for (std::string word; stream >> word;) {
    uint64_t kilobytes = 0;
    if (word == "MemAvailable:" && stream >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

// Items of one kernel, by position, and whether it has to be compiled.
struct Group {
  std::vector<size_t> items;
  bool compiles = false;
};

std::vector<Group> groups_of(const std::vector<Result<Located>>& located) {
  std::vector<Group> groups;
  std::map<std::string, size_t> by_digest;
  for (size_t i = 0; i < located.size(); ++i) {
    if (!located[i]) continue;
    const auto [position, fresh] = by_digest.try_emplace(located[i]->key.digest, groups.size());
    if (fresh) groups.push_back({{}, located[i]->origin == Origin::compiled});
    groups[position->second].items.push_back(i);
  }
  // Compiles first: the rest fills what the slowest of them leaves idle.
  std::stable_partition(groups.begin(), groups.end(), [](const Group& g) { return g.compiles; });
  return groups;
}

// What the workers share.
class Preparing {
 public:
  using Clock = std::chrono::steady_clock;

  Preparing(KernelRuntime& runtime, const std::vector<PrepareRequest>& requests,
            const PrepareHooks& hooks, PreparedMany& result)
      : runtime_(runtime), requests_(requests), hooks_(hooks), result_(result) {}

  // The kernel's first item, then the others, which find it in memory or share its failure.
  void prepare(const Group& group) {
    for (const size_t item : group.items) {
      if (is_cancelled()) return;
      auto& kernel = result_.kernels[item];
      const auto& first = result_.kernels[group.items.front()];
      if (item != group.items.front() && !first) {
        kernel = first.error();
      } else {
        kernel = prepared(requests_[item]);
      }
      tell(1);
    }
  }

  // That so many more are done.
  void tell(int64_t more) {
    const std::lock_guard lock(mutex_);
    done_ += more;
    if (!hooks_.progress || result_.cancelled) return;
    const int64_t items = int64_t(requests_.size());
    const std::chrono::duration<double> taken = Clock::now() - begin_;
    const double left =
        done_ > 0 ? taken.count() / double(done_) * double(items - done_) : result_.plan.seconds;
    if (!hooks_.progress({done_, items, left})) result_.cancelled = true;
  }

 private:
  bool is_cancelled() {
    const std::lock_guard lock(mutex_);
    return result_.cancelled;
  }

  // An exception must not end a thread.
  Result<std::unique_ptr<PreparedKernel>> prepared(const PrepareRequest& request) {
    try {
      return runtime_.prepare(request);
    } catch (const std::bad_alloc&) {
      return Error{Status::out_of_memory, "host memory is used up"};
    } catch (const std::exception& exception) {
      return Error{Status::internal, exception.what()};
    }
  }

  KernelRuntime& runtime_;
  const std::vector<PrepareRequest>& requests_;
  const PrepareHooks& hooks_;
  PreparedMany& result_;
  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;
  int64_t done_ = 0;
};

}  // namespace

void side_by_side(int workers, size_t n, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < n; i = next++) body(i);
  };
  std::vector<std::thread> threads;
  try {
    for (int i = 1; i < workers; ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that there are do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

CompileCost cost_of_compile(TargetKind kind) {
  if (kind == TargetKind::cpu) return {0.15, 150 * kMiB, 80 << 10};
  return {0.5, 300 * kMiB, 160 << 10};
}

uint64_t available_memory() {
  uint64_t bytes = system_memory();
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  if (limit > 0) {
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
    const uint64_t rest = limit > used ? limit - used : 0;
    bytes = bytes == 0 ? rest : std::min(bytes, rest);
  }
  return bytes;
}

int workers_for(int64_t compiles, uint64_t bytes_each, const PrepareLimits& limits) {
  int64_t workers = limits.workers;
  if (workers <= 0) workers = std::max(1, int(std::thread::hardware_concurrency()));
  const uint64_t memory = limits.memory_bytes > 0 ? limits.memory_bytes : available_memory() / 2;
  if (memory > 0) workers = std::min<int64_t>(workers, int64_t(memory / bytes_each));
  return int(std::max<int64_t>(1, std::min(workers, compiles)));
}

PreparePlan plan_of(const std::vector<Result<Located>>& items, TargetKind kind,
                    const PrepareLimits& limits) {
  const CompileCost cost = cost_of_compile(kind);
  PreparePlan plan;
  plan.items = int64_t(items.size());
  std::set<std::string> seen;
  for (const Result<Located>& item : items) {
    if (!item) {
      ++plan.refused;
      continue;
    }
    if (!seen.insert(item->key.digest).second) continue;
    ++plan.kernels;
    if (item->origin == Origin::pack) ++plan.in_packs;
    if (item->origin == Origin::memory) ++plan.in_memory;
    if (item->origin == Origin::disk) ++plan.on_disk;
    if (item->origin == Origin::compiled) ++plan.to_compile;
  }
  plan.workers = workers_for(plan.to_compile, cost.memory_bytes, limits);
  const int64_t rounds = (plan.to_compile + plan.workers - 1) / plan.workers;
  plan.seconds = double(rounds) * cost.seconds;
  plan.memory_bytes =
      uint64_t(std::min<int64_t>(plan.workers, plan.to_compile)) * cost.memory_bytes;
  plan.kept_bytes = uint64_t(plan.to_compile) * cost.kept_bytes;
  return plan;
}

std::vector<Result<Located>> locate_many(KernelRuntime& runtime,
                                         const std::vector<PrepareRequest>& requests) {
  std::vector<Result<Located>> located;
  located.reserve(requests.size());
  for (const PrepareRequest& request : requests) located.push_back(runtime.locate(request));
  return located;
}

PreparedMany prepare_many(KernelRuntime& runtime, const std::vector<PrepareRequest>& requests,
                          const PrepareLimits& limits, const PrepareHooks& hooks) {
  const std::vector<Result<Located>> located = locate_many(runtime, requests);
  const bool is_cpu = !requests.empty() && requests.front().device.starts_with("cpu");
  PreparedMany many;
  many.plan = plan_of(located, is_cpu ? TargetKind::cpu : TargetKind::cuda, limits);
  for (const Result<Located>& item : located) {
    many.kernels.emplace_back(
        item ? Error{Status::not_prepared, "it was not begun: the preparation was cancelled"}
             : item.error());
  }
  const std::vector<Group> groups = groups_of(located);
  Preparing preparing(runtime, requests, hooks, many);
  preparing.tell(many.plan.refused);
  side_by_side(many.plan.workers, groups.size(), [&](size_t i) { preparing.prepare(groups[i]); });
  return many;
}

}  // namespace splitkv
