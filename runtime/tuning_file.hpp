// Files of tuning records: a record a line (tuning_record.hpp), blank lines and lines from # on
// left out. A later record of a problem, bucket and target counts instead of an earlier one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options.hpp"
#include "runtime/tuning_record.hpp"

namespace splitkv {

struct KeptRecord {
  TuningRecord record;
  std::string origin;  // "FILE:LINE"

  bool operator==(const KeptRecord&) const = default;
};

// Records in the order of the lines. A damaged line is left out, and complained of as "FILE:LINE:
// what is wrong".
using Complain = std::function<void(const std::string& line)>;
std::vector<KeptRecord> read_records(std::string_view text, const std::string& file,
                                     const Complain& complain);

// The whole of a file; an empty text where there is none, an error where it cannot be read.
Result<std::string> read_tuning_file(const std::string& path);

// Adds lines, each ended, at once and whole: under an exclusive flock, behind an end of line where
// a writer was killed within one; what a full disk let through of them is taken back. The file and
// its folders are made where they are missing.
Outcome append_lines(const std::string& path, const std::vector<std::string>& lines);
Outcome append_record(const std::string& path, const TuningRecord& record);

// SPLITKV_TUNING_FILE, else $XDG_CONFIG_HOME/splitkv/tuning.txt, else
// $HOME/.config/splitkv/tuning.txt; empty where none of them is set, and for "off".
std::string user_tuning_file(const Environment& environment);

// SPLITKV_TUNING_FILE=off: no records at all, not even those that come with the library.
bool tuning_is_off(const Environment& environment);

// The records that come with the library, a line each.
std::string_view shipped_records();

}  // namespace splitkv
