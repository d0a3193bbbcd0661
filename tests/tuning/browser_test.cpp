// The tuning page in a browser: a script of the test, added to the page, measures what is on the
// screen, in light and dark and in a wide and a narrow window. SPLITKV_BROWSER names a Chromium;
// else one is looked for on the PATH. Skipped, with the reason, where there is none.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/process.hpp"
#include "tests/tuning/page_case.hpp"
#include "tests/tuning/tuning_case.hpp"
#include "tools/splitkv/tune_page_drawings.hpp"

using namespace splitkv;
using namespace splitkv::tuning_test;
using splitkv::cli_test::Finished;
using splitkv::cli_test::run_splitkv;

namespace {

// Leaves what it saw as one line "rows=5 marks=5 ..." in an attribute of the body. Faults: text
// outside of its drawing, texts that touch, cells and a page wider than their place, faint ink.
constexpr const char* kScript = R"(<script>
const faults = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const shown = (selector) => all(selector).filter((e) => {
  const box = e.getBoundingClientRect(), style = getComputedStyle(e);
  const paint = e.closest('svg') ? (style.fill != 'none' ? style.fill : style.stroke) : style.color;
  return box.width > 0 && box.height > 0 && style.visibility == 'visible' &&
         !/^(none|transparent|rgba\(.*, 0\))$/.test(paint);
}).length;
for (const svg of all('svg')) {
  const frame = svg.getBoundingClientRect();
  const inside = (b) => b.left >= frame.left - 1 && b.right <= frame.right + 1 &&
                        b.top >= frame.top - 1 && b.bottom <= frame.bottom + 1;
  for (const e of svg.querySelectorAll('text, circle, rect, line')) {
    if (!inside(e.getBoundingClientRect())) faults.push('outside: ' + (e.textContent || e.tagName));
  }
  const texts = [...svg.querySelectorAll('text')].map((e) => [e, e.getBoundingClientRect()]);
  texts.forEach(([e, a], i) => texts.slice(i + 1).forEach(([f, b]) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2) {
      faults.push('touching: ' + e.textContent + ' and ' + f.textContent);
    }
  }));
}
for (const e of all('th, td, h1, h2, h3, p, li')) {
  if (e.scrollWidth > e.clientWidth + 1) faults.push('too wide: ' + e.textContent);
}
const wide = document.documentElement.scrollWidth;
if (wide > innerWidth) faults.push('the page has ' + wide + ' of ' + innerWidth);
const light = (color) => {
  const part = color.match(/[\d.]+/g).map(Number).slice(0, 3).map((c) => c / 255).map(
      (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
};
const paper = light(getComputedStyle(document.body).backgroundColor);
const contrast = (ink) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
for (const e of all('td, p, h1, svg text')) {
  const style = getComputedStyle(e);
  const ink = light(e.closest('svg') ? style.fill : style.color);
  if (contrast(ink) < 4.5) faults.push('faint: ' + e.textContent);
}
document.body.dataset.seen = ['rows=' + shown('tr.record'), 'marks=' + shown('circle.tuned'),
    'own=' + shown('circle.own'), 'bars=' + shown('rect.bar'), 'drawings=' + shown('svg'),
    'devices=' + shown('table.devices tbody tr'), 'paper=' + (paper > 0.5 ? 'light' : 'dark'),
    'faults=' + faults.length, faults.slice(0, 5).join('; ')].join(' ');
</script>)";

std::string browser() {
  const char* named = std::getenv("SPLITKV_BROWSER");
  if (named != nullptr) return named;
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    const std::string look = fmt::format("command -v {} >/dev/null 2>&1", name);
    if (std::system(look.c_str()) == 0) return name;
  }
  return "";
}

class TunePageInABrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << "no browser is here: chromium would do";
  }

  void TearDown() override {
    if (pages_ > 0) fmt::print("{} pages looked at in a browser\n", pages_);
  }

  // What the script saw of a page in a window.
  std::string seen(const std::string& page, bool is_dark, int width) {
    const std::string file = folder_ / "page.html", dom = folder_ / "dom.html";
    const size_t end = page.rfind("</body>");
    overwrite(file, page.substr(0, end) + kScript + page.substr(end));
    const std::string command = fmt::format(
        "timeout 120 {} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
        "--user-data-dir='{}' --window-size={},900 --blink-settings=preferredColorScheme={} "
        "--dump-dom 'file://{}' >'{}' 2>'{}'",
        browser(), folder_ / "profile", width, is_dark ? 0 : 1, file, dom, folder_ / "err");
    const int status = std::system(command.c_str());
    EXPECT_EQ(status, 0) << command << "\n" << contents(folder_ / "err");
    const std::string shown = contents(dom), key = "data-seen=\"";
    const size_t begin = shown.find(key);
    if (begin == std::string::npos) return "the script did not run: " + shown;
    ++pages_;
    const size_t first = begin + key.size();
    return shown.substr(first, shown.find('"', first) - first);
  }

  TempFolder folder_;
  int pages_ = 0;
};

TEST_F(TunePageInABrowser, ShowsEveryRowMarkAndBarAndNoTextLeavesItsPlace) {
  const std::string page = tool::tune_report(reported());
  const std::string counts = "rows=5 marks=5 own=4 bars=8 drawings=2 devices=2 ";
  for (const int width : {1400, 600}) {
    EXPECT_EQ(seen(page, false, width), counts + "paper=light faults=0 ") << width;
    EXPECT_EQ(seen(page, true, width), counts + "paper=dark faults=0 ") << width;
  }
}

// So that the numbers above mean something.
TEST_F(TunePageInABrowser, FaultsOfAPageAreSeen) {
  const auto with = [](const std::string& what, const std::string& by) {
    std::string page = tool::tune_report(reported());
    const size_t at = page.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return at == std::string::npos ? page : page.replace(at, what.size(), by);
  };
  const auto expect = [](const std::string& seen, const std::string& words) {
    EXPECT_NE(seen.find(words), std::string::npos) << words << ": " << seen;
  };
  const std::string hidden = with("<tr class=\"record\">", "<tr class=\"record\" hidden>");
  expect(seen(hidden, false, 1400), "rows=4 ");
  expect(seen(with("svg .bar { fill: var(--bar); }", "svg .bar { fill: none; }"), false, 1400),
         "bars=4 ");
  const std::string longer = with(">best</text>", ">" + std::string(200, 'w') + "</text>");
  expect(seen(longer, false, 1400), "outside: www");
  expect(seen(longer, false, 1400), "touching: www");
  expect(seen(with(".wide { overflow-x: auto; }", ""), false, 600), "the page has ");
  expect(seen(with("--ink: #e4e8ec", "--ink: #1c2128"), true, 1400), "faint: ");
}

#ifdef SPLITKV_TEST_CPU

TEST_F(TunePageInABrowser, ShowsWhatTheVerbTuned) {
  const std::string out = folder_ / "tuning.txt", report = folder_ / "report.html";
  const std::vector<std::string> arguments = {
      "tune",
      "attention q=fp32 kv=fp32 heads=4/2 dim=32 score=select(score<0&&key_pos>3,score*2,score)",
      "attention q=fp32 kv=fp32 heads=4/2 dim=32",
      "--target",
      "cpu",
      "--batch",
      "1,2",
      "--kv-len",
      "256",
      "--rows",
      "equal",
      "--candidates",
      "6",
      "--budget",
      "60",
      "--out",
      out,
      "--report",
      report};
  const Finished tuned = run_splitkv(arguments);
  ASSERT_EQ(tuned.status, 0) << tuned.out << tuned.err;
  const std::string first = contents(report);
  EXPECT_NE(first.find("score&lt;0&amp;&amp;3&lt;key_pos"), std::string::npos) << first;
  const std::string once = seen(first, false, 1400);
  EXPECT_EQ(once.find("rows=4 marks=4 own=4 "), 0u) << once;
  EXPECT_NE(once.find(" drawings=3 devices=1 paper=light faults=0 "), std::string::npos) << once;

  // A run that finds everything known shows the records.
  const Finished again = run_splitkv(arguments);
  ASSERT_EQ(again.status, 0) << again.out << again.err;
  const std::string known = seen(contents(report), true, 1400);
  EXPECT_EQ(known, "rows=4 marks=4 own=0 bars=0 drawings=1 devices=1 paper=dark faults=0 ");
}

#endif

}  // namespace
