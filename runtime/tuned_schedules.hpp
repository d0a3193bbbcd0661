// Finding what was tuned: by this process, in the user's file, in packs, and the records that come
// with the library.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/default_schedule.hpp"
#include "runtime/log.hpp"
#include "runtime/tuning_file.hpp"

namespace splitkv {

// How a record matches what is asked for. The kinds stand from the best to the least.
enum class Match {
  exact,         // problem, bucket and machine
  near_bucket,   // problem and machine; a bucket at most two steps away
  other_device,  // problem and architecture; a bucket at most two steps away
};
const char* name(Match match);  // "exact", "near bucket", "other device of the same architecture"

struct TunedMatch {
  const KeptRecord* kept = nullptr;
  Match match = Match::exact;
  double distance = 0;  // steps between the buckets: doublings of batch and of kv_len together
};

// Those that match, the best first; of equal ones the later first. A step to rows=any counts half;
// a record of rows=equal or ragged serves no other kind of rows.
std::vector<TunedMatch> matching(const std::vector<KeptRecord>& records, const Problem& problem,
                                 const Workload& workload, const Target& target);

// The schedule that a match stands for, and why. exact: the record's own. Otherwise its kernel,
// with splits or blocks that the cost model weighs for this workload and machine (CPU: its own).
// What a rule of the verifier refuses is told, as a record may be older than the rule.
Result<ScheduleChoice> schedule_of(const TunedMatch& found, const Problem& problem,
                                   const Workload& workload, const Target& target);

// Reads the user's file when it changed. Thread-safe.
class TunedSchedules {
 public:
  explicit TunedSchedules(const Log& log, std::string_view shipped = shipped_records());

  // Records that stand between the user's and the library's, the later added first.
  void add(std::vector<KeptRecord> records);
  // Records that this process made, and keeps nowhere else: they stand before the user's.
  void add_own(std::vector<KeptRecord> records);
  // From now on the user's file is not read.
  void ignore_user_file();

  // The best match of all; where they match alike, this process's own, then the user's. Nothing
  // where none does.
  std::optional<ScheduleChoice> find(const Problem& problem, const Workload& workload,
                                     const Target& target, const Environment& environment);

 private:
  // What tells whether a file is the one that was read.
  struct Stamp {
    std::string path;
    dev_t device = 0;
    ino_t inode = 0;
    off_t bytes = -1;
    timespec changed = {};

    bool operator==(const Stamp& other) const;
  };
  static Stamp stamp_of(const std::string& path);
  void read_user_file(const std::string& path);

  const Log log_;
  const std::string_view shipped_text_;
  std::mutex mutex_;
  bool reads_user_file_ = true;
  std::vector<KeptRecord> own_;
  std::vector<KeptRecord> added_;
  bool shipped_read_ = false;
  std::vector<KeptRecord> shipped_;
  Stamp stamp_;
  std::vector<KeptRecord> user_;
};

}  // namespace splitkv
