// Drawings of the tuning page, as inline SVG. Colours are classes of the page's style sheet.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/splitkv/tune_page.hpp"

namespace splitkv::tool {

// Safe as text and within quotes of HTML and SVG.
std::string escaped(std::string_view text);

// "0.0712", "71.2", "7120": three digits, without an exponent.
std::string short_number(double value);

// One workload of the plot of times.
struct PlotMark {
  double floor_us = 0, tuned_us = 0;
  double own_us = 0;  // of the library's own choice; 0: not known
  std::string title;
};

// A mark a workload that was measured now, of the schedule that its bucket's record names; one a
// record of those that were there before.
std::vector<PlotMark> plot_marks(const TuneReportData& data);

// Time against floor on equal logarithmic axes. A filled circle of class "tuned" a mark, and where
// it is known a ring of class "own". Empty where there are no marks.
std::string draw_times(const std::vector<PlotMark>& marks);

// How much slower the best schedule with one value of one word is than the best of all: the
// geometric mean over the workloads on which a schedule with that value was measured.
struct ChoiceWorth {
  std::string word, value;
  double slowdown = 1;  // 1: no schedule is faster
  int schedules = 0;    // that have the value
  int workloads = 0;    // on which one of them was measured

  bool operator==(const ChoiceWorth&) const = default;
};

// Of each word of which several values were measured, all values in order.
std::vector<ChoiceWorth> worth_of_choices(const std::vector<PointTimes>& points);

// A bar of class "bar" a choice, words in groups. Empty where there are none.
std::string draw_choices(const std::vector<ChoiceWorth>& choices);

}  // namespace splitkv::tool
