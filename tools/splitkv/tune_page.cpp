#include "tools/splitkv/tune_page.hpp"

#include <fmt/format.h>

#include "compiler/text.hpp"
#include "runtime/tuning_pool.hpp"
#include "tools/splitkv/tune_page_drawings.hpp"

namespace splitkv::tool {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --dim: #59636e; --rule: #d5dbe1;
  --panel: #f5f7f9; --accent: #0b62c4; --other: #a15c00; --bar: #9db8d6; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e8ec; --dim: #9aa5b1;
  --rule: #333c46; --panel: #1c2229; --accent: #6cb2ff; --other: #f0ad4e; --bar: #41617f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 90rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; font-weight: 600; overflow-wrap: anywhere; }
p, ul { margin: .4rem 0; max-width: 60rem; color: var(--dim); overflow-wrap: anywhere; }
code { font: .85em ui-monospace, monospace; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .35rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--rule); }
thead th { color: var(--dim); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.long { min-width: 18rem; }
.next { padding-left: 3.2em; text-indent: -3.2em; }
.workload { white-space: nowrap; }
tr.problem th { background: var(--panel); font-weight: 600; padding-top: .6rem; }
.origin { display: block; font-weight: normal; white-space: normal; color: var(--dim); font-size: .85em; overflow-wrap: anywhere; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .axis, svg .count, svg .guide { fill: var(--dim); }
svg .word { font-weight: 600; }
svg line { stroke: var(--rule); }
svg .floor { stroke: var(--ink); }
svg .twice { stroke: var(--dim); stroke-dasharray: 4 4; }
svg .gain { stroke: var(--other); }
svg .tuned, svg .key-tuned { fill: var(--accent); }
svg .own, svg .key-own { fill: none; stroke: var(--other); stroke-width: 1.5; }
svg .bar { fill: var(--bar); }
svg .bar.best { fill: var(--accent); }
)";

std::string code(const std::string& text) { return fmt::format("<code>{}</code>", escaped(text)); }

// Without its first word, which is the same for all.
std::string words_of(const Schedule& schedule) {
  const std::string text = print(schedule);
  return code(text.substr(text.find(' ') + 1));
}

std::string header(const TuneReportData& data) {
  std::string html = fmt::format(
      "<header><h1>SplitKV tuning report</h1>\n<p>{}, splitkv {}, {} problems, {:.0f} s</p>\n"
      "<div class=\"wide\"><table class=\"devices\"><thead><tr><th>device</th><th>model</th>"
      "<th>target</th><th>compiler</th><th>driver</th></tr></thead>\n<tbody>\n",
      escaped(data.date), escaped(data.version), data.problems.size(), data.seconds);
  for (const ReportedDevice& device : data.devices) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escaped(device.name), escaped(device.card), code(device.target),
                        escaped(device.compiler), escaped(device.driver));
  }
  return html + "</tbody></table></div></header>\n";
}

std::string runners_up(const TuningRecord& record) {
  std::string html;
  for (const TunedTime& time : record.runners_up) {
    html += fmt::format("<div class=\"next\">{:.3f} {}</div>", time.ratio, words_of(time.schedule));
  }
  return html.empty() ? "-" : html;
}

std::string row_of(const ReportedRecord& reported) {
  const TuningRecord& record = reported.record;
  const double ratio = record.best.ratio, own = reported.untuned_ratio;
  const std::string floor = ratio > 0 ? short_number(record.best.us / ratio) : "-";
  const std::string origin = reported.origin.empty()
                                 ? ""
                                 : fmt::format("<span class=\"origin\">{}, {}</span>",
                                               escaped(reported.origin), escaped(record.date));
  return fmt::format(
      "<tr class=\"record\"><td class=\"workload\">{}{}</td><td class=\"long\">{}</td><td "
      "class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"n\">{:.3f}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"long\">{}</td></tr>\n",
      escaped(print(record.bucket)), origin, words_of(record.best.schedule),
      short_number(record.best.us), floor, ratio, own > 0 ? fmt::format("{:.3f}", own) : "-",
      own > 0 && ratio > 0 ? fmt::format("{:.2f}x", own / ratio) : "-", runners_up(record));
}

std::string summary(const TuneReportData& data) {
  std::string html =
      "<section><h2>Summary</h2>\n<p>Ratios are to the floor, the fastest plain read of the same "
      "bytes; of a bucket with several workloads, the worst of them. Untuned is the library's own "
      "choice on the same measurements, and gain how much faster than that the winner is.</p>\n"
      "<div class=\"wide\"><table class=\"summary\"><thead><tr><th>workload</th><th>winner</th>"
      "<th class=\"n\">time, us</th><th class=\"n\">floor, us</th><th class=\"n\">ratio</th>"
      "<th class=\"n\">untuned</th><th class=\"n\">gain</th><th>runners-up</th></tr></thead>\n";
  for (const ReportedProblem& problem : data.problems) {
    const std::string devices =
        problem.devices.empty()
            ? ""
            : fmt::format("<span class=\"origin\">on {}</span>", escaped(problem.devices));
    html += fmt::format("<tbody><tr class=\"problem\"><th colspan=\"8\">{}{}</th></tr>\n",
                        code(problem.problem), devices);
    for (const ReportedRecord& record : problem.records) html += row_of(record);
    for (const std::string& untuned : problem.untuned) {
      html += fmt::format("<tr class=\"untuned\"><td colspan=\"8\">untuned: {}</td></tr>\n",
                          escaped(untuned));
    }
    html += "</tbody>\n";
  }
  return html + "</table></div></section>\n";
}

std::string times(const TuneReportData& data) {
  const std::string drawing = draw_times(plot_marks(data));
  if (drawing.empty()) return "";
  return "<section><h2>Time against floor</h2>\n<p>A mark a workload. On the line marked 1.0x a "
         "run takes as long as a plain read of the bytes that its queries see. Hover for the "
         "numbers.</p>\n" +
         drawing + "</section>\n";
}

std::string failures(const ReportedProblem& problem) {
  if (problem.failures.empty()) return "";
  std::string html = fmt::format("<p>{} schedules failed:</p>\n<ul class=\"failures\">\n",
                                 problem.failures.size());
  for (const TuningFailure& failure : problem.failures) {
    html += fmt::format("<li>{} ({}): {}</li>\n", code(failure.schedule), escaped(failure.stage),
                        escaped(failure.why.substr(0, failure.why.find('\n'))));
  }
  return html + "</ul>\n";
}

std::string choices(const TuneReportData& data) {
  std::string html;
  for (const ReportedProblem& problem : data.problems) {
    const std::string drawing = draw_choices(worth_of_choices(problem.points));
    const std::string failed = failures(problem);
    if (drawing.empty() && failed.empty()) continue;
    html += fmt::format("<h3>{}</h3>\n", code(problem.problem)) + drawing + failed;
  }
  if (html.empty()) return "";
  return "<section><h2>What each choice is worth</h2>\n<p>The best measured schedule with each "
         "value against the best of all: how much longer it takes, the geometric mean over the "
         "workloads on which that value was measured. Most schedules are measured once, so a "
         "percent is within the noise. Words with a single value are left out.</p>\n" +
         html + "</section>\n";
}

}  // namespace

void add_report(ReportedProblem& problem, const TuningReport& report) {
  for (size_t i = 0; i < report.records.size(); ++i) {
    problem.records.push_back({report.records[i], report.untuned_ratio[i], ""});
  }
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(problem.points, report.points);
  append(problem.failures, report.failures);
  append(problem.untuned, report.untuned);
}

std::string tune_report(const TuneReportData& data) {
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>SplitKV tuning report</title>\n<style>{}</style></head>\n<body>\n",
             kStyle) +
         header(data) + "<main>\n" + summary(data) + times(data) + choices(data) +
         "</main>\n</body></html>\n";
}

}  // namespace splitkv::tool
