#include "tools/splitkv/tune_deal.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace splitkv::tool {
namespace {

double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// What is left to do for one machine.
struct Pile {
  std::deque<size_t> left;
  size_t devices = 0;  // that take part
  size_t in_hand = 0;  // jobs that are being done, and may come back
};

class Dealer {
 public:
  Dealer(const std::vector<TuneJob>& jobs, const std::vector<std::vector<size_t>>& machines,
         double budget_s, const DealHooks& hooks)
      : jobs_(jobs), machines_(machines), hooks_(hooks), end_(now_s() + budget_s) {}

  Result<std::vector<TuningReport>> run();

 private:
  struct Taken {
    size_t job;
    double budget_s;
  };

  std::optional<Taken> take(size_t machine);
  void serve(size_t machine, size_t device);
  bool work(size_t machine, size_t device, const Taken& taken);
  void finish(size_t machine, const Taken& taken, size_t device, TuningReport report);
  void lose(size_t machine, size_t device, size_t job, const Error& error);

  const std::vector<TuneJob>& jobs_;
  const std::vector<std::vector<size_t>>& machines_;
  const DealHooks& hooks_;
  const double end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Pile> piles_;
  std::vector<std::optional<TuningReport>> reports_;
  std::optional<Error> fatal_, first_loss_;
};

// Waits while others of the machine are at work: what they hold may come back.
std::optional<Dealer::Taken> Dealer::take(size_t machine) {
  std::unique_lock lock(mutex_);
  Pile& pile = piles_[machine];
  changed_.wait(lock, [&] { return fatal_ || !pile.left.empty() || pile.in_hand == 0; });
  if (fatal_ || pile.left.empty()) return std::nullopt;
  // What earlier jobs left over is shared by the later ones.
  const size_t rounds = (pile.left.size() + pile.devices - 1) / pile.devices;
  const Taken taken{pile.left.front(), std::max(0.0, end_ - now_s()) / double(rounds)};
  pile.left.pop_front();
  ++pile.in_hand;
  return taken;
}

void Dealer::finish(size_t machine, const Taken& taken, size_t device, TuningReport report) {
  const std::lock_guard lock(mutex_);
  const Outcome kept = hooks_.done(taken.job, device, report);
  if (!kept && !fatal_) fatal_ = kept.error();
  reports_[taken.job] = std::move(report);
  --piles_[machine].in_hand;
  changed_.notify_all();
}

void Dealer::lose(size_t machine, size_t device, size_t job, const Error& error) {
  const std::lock_guard lock(mutex_);
  Pile& pile = piles_[machine];
  pile.left.push_front(job);
  --pile.in_hand;
  --pile.devices;
  if (!first_loss_) first_loss_ = error;
  if (pile.devices > 0) hooks_.lost(device, error);
  changed_.notify_all();
}

// Whether the device can go on.
bool Dealer::work(size_t machine, size_t device, const Taken& taken) {
  TuningRequest request = jobs_[taken.job].request;
  request.budget_s = taken.budget_s;
  std::optional<Error> fault;
  try {
    Result<std::unique_ptr<TuningBench>> bench = hooks_.open(device, request.problem);
    if (bench) {
      TuningHooks hooks;
      hooks.progress = [&](const TuningProgress& progress) {
        hooks_.progress(taken.job, device, progress);
      };
      finish(machine, taken, device, autotune(request, **bench, hooks));
      return true;
    }
    fault = bench.error();
  } catch (const std::exception& error) {  // of the standard library: memory, threads
    fault = Error{Status::internal, error.what()};
  }
  lose(machine, device, taken.job, *fault);
  return false;
}

void Dealer::serve(size_t machine, size_t device) {
  while (const std::optional<Taken> taken = take(machine)) {
    if (!work(machine, device, *taken)) return;
  }
}

Result<std::vector<TuningReport>> Dealer::run() {
  reports_.resize(jobs_.size());
  size_t devices = 0;
  for (const std::vector<size_t>& machine : machines_) {
    piles_.push_back({{}, machine.size(), 0});
    devices += machine.size();
  }
  for (size_t i = 0; i < jobs_.size(); ++i) piles_[jobs_[i].machine].left.push_back(i);
  if (devices == 1) {
    serve(0, machines_.front().front());
  } else {
    std::vector<std::thread> threads;
    for (size_t m = 0; m < machines_.size(); ++m) {
      for (const size_t device : machines_[m]) {
        threads.emplace_back([this, m, device] { serve(m, device); });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }
  if (fatal_) return *fatal_;
  std::vector<TuningReport> reports;
  for (std::optional<TuningReport>& report : reports_) {
    if (!report) return *first_loss_;
    reports.push_back(std::move(*report));
  }
  return reports;
}

}  // namespace

std::vector<TuningRequest> divided(const TuningRequest& request, size_t parts) {
  // Points that share a record: those of one size.
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> sizes;
  for (size_t i = 0; i < request.points.size(); ++i) {
    const TuningBucket bucket = bucket_of(request.problem, workload_of(request.points[i]));
    sizes[{bucket.batch, bucket.kv_len}].push_back(i);
  }
  struct Part {
    int64_t tokens = 0;
    std::vector<size_t> points;
  };
  const auto tokens_of = [&](const std::vector<size_t>& points) {
    int64_t tokens = 0;
    for (const size_t i : points) tokens += request.points[i].batch * request.points[i].kv_len;
    return tokens;
  };
  std::vector<Part> groups, dealt(std::clamp<size_t>(parts, 1, std::max<size_t>(1, sizes.size())));
  for (const auto& [size, points] : sizes) groups.push_back({tokens_of(points), points});
  // The largest first, each to whoever has least.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Part& a, const Part& b) { return a.tokens > b.tokens; });
  for (const Part& group : groups) {
    Part& least = *std::min_element(dealt.begin(), dealt.end(), [](const Part& a, const Part& b) {
      return std::pair(a.tokens, a.points.size()) < std::pair(b.tokens, b.points.size());
    });
    least.tokens += group.tokens;
    least.points.insert(least.points.end(), group.points.begin(), group.points.end());
  }
  std::vector<TuningRequest> requests;
  for (Part& part : dealt) {
    std::sort(part.points.begin(), part.points.end());
    TuningRequest one = request;
    one.points.clear();
    for (const size_t i : part.points) one.points.push_back(request.points[i]);
    requests.push_back(std::move(one));
  }
  return requests;
}

Result<std::vector<TuningReport>> deal(const std::vector<TuneJob>& jobs,
                                       const std::vector<std::vector<size_t>>& machines,
                                       double budget_s, const DealHooks& hooks) {
  return Dealer(jobs, machines, budget_s, hooks).run();
}

}  // namespace splitkv::tool
