#include "tools/splitkv/tune_page_drawings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "compiler/text.hpp"

namespace splitkv::tool {
namespace {

// A word of a schedule as something to order and something to print.
struct Value {
  int order;
  std::string text;

  auto operator<=>(const Value&) const = default;
};

template <class Choice>
Value named(Choice choice) {
  return {int(choice), std::string(name(choice))};
}
Value number(int value) { return {value, fmt::format("{}", value)}; }

struct Word {
  const char* name;
  Value (*of)(const Schedule&);
};

const Word kWords[] = {
    {"family", [](const Schedule& s) { return named(s.family); }},
    {"partition", [](const Schedule& s) { return named(s.partition); }},
    {"reduce", [](const Schedule& s) { return named(s.reduce); }},
    {"rows", [](const Schedule& s) { return number(s.rows); }},
    {"tile", [](const Schedule& s) { return number(s.tile_kv); }},
    {"warps", [](const Schedule& s) { return number(s.warps); }},
    {"stages", [](const Schedule& s) { return number(s.stages); }},
    {"unroll", [](const Schedule& s) { return number(s.unroll); }},
    {"loads", [](const Schedule& s) { return named(s.loads); }},
    {"merge", [](const Schedule& s) { return named(s.merge); }},
    {"pdl",
     [](const Schedule& s) {
       return Value{s.pdl, s.pdl ? "on" : "off"};
     }},
};

// What is known of one value while the workloads are gone through.
struct Sum {
  double log_slowdown = 0;
  int workloads = 0;
  std::set<std::string> schedules;
};

// The plot's area within its drawing, in units of the drawing.
constexpr double kWidth = 560, kHeight = 470;
constexpr double kLeft = 70, kTop = 30, kSide = 380;

// Both axes, in microseconds.
struct Axis {
  double least, greatest;

  double at(double us) const { return std::log(us / least) / std::log(greatest / least) * kSide; }
  double x(double us) const { return kLeft + at(us); }
  double y(double us) const { return kTop + kSide - at(us); }
};

Axis axis_of(const std::vector<PlotMark>& marks) {
  double least = marks.front().floor_us, greatest = least;
  for (const PlotMark& mark : marks) {
    for (const double us : {mark.floor_us, mark.tuned_us, mark.own_us}) {
      if (!(us > 0)) continue;
      least = std::min(least, us);
      greatest = std::max(greatest, us);
    }
  }
  // Room around the outermost marks, and never less than a decade and a half.
  const double room = std::max(1.4, std::sqrt(30 * least / greatest));
  return {least / room, greatest * room};
}

// 1, 2 and 5 of each power of ten; the powers alone where those would crowd.
std::vector<double> ticks_of(const Axis& axis) {
  std::vector<double> ticks;
  const double decades = std::log10(axis.greatest / axis.least);
  const int every = std::max(1, int(decades / 10));
  for (int power = int(std::floor(std::log10(axis.least))) / every * every - every;
       power <= std::log10(axis.greatest); power += every) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double us = digit * std::pow(10, power);
      if (us < axis.least || us > axis.greatest || (digit != 1 && decades > 2.5)) continue;
      ticks.push_back(us);
    }
  }
  return ticks;
}

std::string line(const char* kind, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                     kind, x1, y1, x2, y2);
}

std::string text_at(double x, double y, const char* anchor, std::string_view text,
                    const char* kind = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n",
                     x, y, anchor, kind, escaped(text));
}

std::string draw_axes(const Axis& axis) {
  std::string svg;
  for (const double us : ticks_of(axis)) {
    svg += line("grid", axis.x(us), kTop, axis.x(us), kTop + kSide);
    svg += line("grid", kLeft, axis.y(us), kLeft + kSide, axis.y(us));
    svg += text_at(axis.x(us), kTop + kSide + 18, "middle", short_number(us));
    svg += text_at(kLeft - 8, axis.y(us) + 4, "end", short_number(us));
  }
  svg += text_at(kLeft + kSide / 2, kTop + kSide + 42, "middle", "floor, us: a plain read", "axis");
  svg += fmt::format(
      "<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
      "class=\"axis\">time, us</text>\n",
      kTop + kSide / 2);
  // Times that are the floor, and twice it, named above the frame where they leave it.
  svg += line("floor", kLeft, kTop + kSide, kLeft + kSide, kTop);
  svg += text_at(kLeft + kSide, kTop - 8, "middle", "1.0x", "guide");
  const double twice = std::log(2) / std::log(axis.greatest / axis.least) * kSide;
  if (twice > 32) {  // else the two names would touch
    svg += line("twice", kLeft, kTop + kSide - twice, kLeft + kSide - twice, kTop);
    svg += text_at(kLeft + kSide - twice, kTop - 8, "middle", "2.0x", "guide");
  }
  return svg;
}

std::string draw_key() {
  const double x = kLeft + kSide + 22;
  return fmt::format(
             "<circle class=\"key-tuned\" cx=\"{0:.0f}\" cy=\"56\" r=\"5\"/>"
             "<circle class=\"key-own\" cx=\"{0:.0f}\" cy=\"78\" r=\"5\"/>\n",
             x) +
         text_at(x + 12, 60, "start", "tuned") + text_at(x + 12, 82, "start", "untuned");
}

std::string draw_mark(const Axis& axis, const PlotMark& mark) {
  std::string svg = fmt::format("<g class=\"mark\"><title>{}</title>", escaped(mark.title));
  const double x = axis.x(mark.floor_us);
  if (mark.own_us > 0) {
    svg += line("gain", x, axis.y(mark.own_us), x, axis.y(mark.tuned_us));
    svg += fmt::format("<circle class=\"own\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>", x,
                       axis.y(mark.own_us));
  }
  return svg + fmt::format("<circle class=\"tuned\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/></g>\n", x,
                           axis.y(mark.tuned_us));
}

double time_of(const PointTimes& point, const Schedule& schedule) {
  for (const PointTimes::Timed& timed : point.times) {
    if (timed.schedule == schedule) return timed.us;
  }
  return 0;
}

std::string title_of(const ReportedProblem& problem, const std::string& workload,
                     const PlotMark& mark) {
  std::string title = fmt::format("{}\n{}: {} us, {:.3f} of the floor ({} us)", problem.problem,
                                  workload, short_number(mark.tuned_us),
                                  mark.tuned_us / mark.floor_us, short_number(mark.floor_us));
  if (mark.own_us > 0) {
    title += fmt::format("\nuntuned: {} us, {:.3f} of the floor", short_number(mark.own_us),
                         mark.own_us / mark.floor_us);
  }
  return title;
}

// The record that a caller with this workload would be given; null where there is none.
const TuningRecord* record_for(const ReportedProblem& problem, const TuningPoint& point) {
  const Result<Problem> parsed = parse_problem(problem.problem);
  if (!parsed) return nullptr;
  const TuningBucket bucket = bucket_of(*parsed, workload_of(point));
  for (const ReportedRecord& reported : problem.records) {
    if (reported.origin.empty() && reported.record.bucket == bucket) return &reported.record;
  }
  return nullptr;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default: {
        const bool is_control = (c >= 0 && c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
        safe += is_control ? '?' : c;
      }
    }
  }
  return safe;
}

std::string short_number(double value) {
  if (!(value > 0) || !std::isfinite(value)) return "-";
  const int whole = int(std::floor(std::log10(value) + 1e-9)) + 1;  // digits before the point
  return fmt::format("{:.{}f}", value, std::clamp(3 - whole, 0, 6));
}

std::vector<PlotMark> plot_marks(const TuneReportData& data) {
  std::vector<PlotMark> marks;
  const auto add = [&](const ReportedProblem& problem, const std::string& workload, PlotMark mark) {
    mark.title = title_of(problem, workload, mark);
    marks.push_back(std::move(mark));
  };
  for (const ReportedProblem& problem : data.problems) {
    for (const PointTimes& point : problem.points) {
      const TuningRecord* record = record_for(problem, point.point);
      if (record == nullptr || !(point.floor_us > 0)) continue;
      const double tuned = time_of(point, record->best.schedule);
      if (!(tuned > 0)) continue;
      add(problem, print(point.point), {point.floor_us, tuned, time_of(point, point.own), ""});
    }
    for (const ReportedRecord& known : problem.records) {
      const TunedTime& best = known.record.best;
      if (known.origin.empty() || !(best.us > 0) || !(best.ratio > 0)) continue;
      add(problem, print(known.record.bucket), {best.us / best.ratio, best.us, 0, ""});
    }
  }
  return marks;
}

std::string draw_times(const std::vector<PlotMark>& marks) {
  if (marks.empty()) return "";
  const Axis axis = axis_of(marks);
  std::string svg = fmt::format(
      "<svg class=\"times\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" role=\"img\" "
      "aria-label=\"Time against floor of {2} workloads\">\n",
      kWidth, kHeight, marks.size());
  svg += draw_axes(axis) + draw_key();
  for (const PlotMark& mark : marks) svg += draw_mark(axis, mark);
  return svg + "</svg>\n";
}

std::vector<ChoiceWorth> worth_of_choices(const std::vector<PointTimes>& points) {
  std::vector<ChoiceWorth> choices;
  for (const Word& word : kWords) {
    std::map<Value, Sum> sums;
    for (const PointTimes& point : points) {
      std::set<Value> seen;
      for (const PointTimes::Timed& timed : point.times) {
        const Value value = word.of(timed.schedule);
        Sum& sum = sums[value];
        sum.schedules.insert(print(timed.schedule));
        if (!seen.insert(value).second) continue;
        sum.log_slowdown += std::log(timed.us / point.times.front().us);
        ++sum.workloads;
      }
    }
    if (sums.size() < 2) continue;
    for (const auto& [value, sum] : sums) {
      choices.push_back({word.name, value.text, std::exp(sum.log_slowdown / sum.workloads),
                         int(sum.schedules.size()), sum.workloads});
    }
  }
  return choices;
}

std::string draw_choices(const std::vector<ChoiceWorth>& choices) {
  if (choices.empty()) return "";
  constexpr double row = 20, gap = 10, value_at = 190, bar_at = 200, longest = 320, width = 720;
  double greatest = 1.05;  // a scale on which noise does not look large
  for (const ChoiceWorth& choice : choices) greatest = std::max(greatest, choice.slowdown);
  std::string body, word;
  double y = 4;
  for (const ChoiceWorth& choice : choices) {
    if (choice.word != word) {
      y += word.empty() ? 0 : gap;
      word = choice.word;
      body += text_at(4, y + 14, "start", word, "word");
    }
    const double loss = choice.slowdown - 1;
    const double length = std::max(2.0, loss / (greatest - 1) * longest);
    const bool is_best = loss < 0.0005;
    const std::string said = is_best ? "best" : fmt::format("+{:.1f} %", 100 * loss);
    body += text_at(value_at, y + 14, "end", choice.value);
    body += fmt::format(
        "<rect class=\"bar{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\">"
        "<title>{}</title></rect>",
        is_best ? " best" : "", bar_at, y + 3, length, row - 6,
        escaped(fmt::format("{}={}: the best of {} schedules, {} workloads: {}", choice.word,
                            choice.value, choice.schedules, choice.workloads, said)));
    body += text_at(bar_at + length + 6, y + 14, "start", said);
    body += text_at(width - 4, y + 14, "end",
                    fmt::format("{} schedule{}", choice.schedules, choice.schedules > 1 ? "s" : ""),
                    "count");
    y += row;
  }
  return fmt::format(
             "<svg class=\"choices\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
             "role=\"img\" aria-label=\"How much slower the best schedule with each choice is\">\n",
             width, y + 4) +
         body + "</svg>\n";
}

}  // namespace splitkv::tool
