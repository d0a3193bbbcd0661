// Which schedule was chosen for a problem, as bytes: what one process hands to others, so that all
// of them run the same kernel whatever they would have chosen themselves.
//
//   splitkv-decision 1
//   splitkv=VERSION
//   problem=TEXT
//   arch=cuda:sm_90a
//   schedule=TEXT
//   why=WORDS
//   sum=XXH3-64 of all lines before, 16 hexadecimal digits
#pragma once

#include <string>
#include <string_view>

#include "compiler/problem.hpp"
#include "compiler/result.hpp"
#include "compiler/schedule.hpp"
#include "compiler/target.hpp"

namespace splitkv {

struct Decision {
  std::string version;   // of the library
  std::string problem;   // canonical text
  std::string arch;      // "cuda:sm_90a"; of a CPU its name and vector width
  std::string schedule;  // canonical text, whole
  std::string why;       // how it was chosen

  bool operator==(const Decision&) const = default;
};

// The architecture that a decision is for: all of a target that its schedules depend on to be
// legal.
std::string decision_arch(const Target& target);

std::string encode_decision(const Decision& decision);
// invalid_argument where the bytes are no decision, or not whole.
Result<Decision> decode_decision(std::string_view bytes);

// The schedule, where the decision was made by this version of the library for this problem and
// architecture and no rule refuses it. Otherwise invalid_argument (or unsupported, of the rule),
// naming what differs.
Result<Schedule> decided_schedule(const Decision& decision, const Problem& problem,
                                  const Target& target);

}  // namespace splitkv
