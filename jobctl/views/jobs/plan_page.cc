// Plans of GPUs as a page: a table that a browser sorts, a picture, and each plan in full.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/html.h"
#include "common/base/units.h"
#include "common/plot/svg.h"
#include "common/spec/feasibility/feasibility_text.h"
#include "jobctl/views/jobs/feasibility_view.h"
#include "jobctl/views/jobs/plan_columns.h"
#include "jobctl/views/text/display_text.h"

namespace hearth {

// sort_table.js, as it was when the program was built.
extern const unsigned char sort_table_js[];
extern const std::size_t sort_table_js_size;

namespace jobctl {
namespace {

using spec::Feasibility;

// Nothing is loaded, whatever a job is called.
constexpr const char* kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

constexpr const char* kStyle =
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:90em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}"
    ".wide{overflow-x:auto}"
    "td,th{padding:.2em .5em;text-align:left;white-space:nowrap;border-bottom:1px solid #8884}"
    ".right{text-align:right;font-variant-numeric:tabular-nums}"
    "th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}"
    "[aria-sort=ascending] button::after{content:\" \\2191\"}"
    "[aria-sort=descending] button::after{content:\" \\2193\"}"
    ".no td{opacity:.6}"
    "pre{overflow-x:auto}svg{width:100%}";

// Units of a time axis. The first one in which the longest time is below `most` is taken.
struct TimeUnit {
  const char* name;
  double seconds;
  double most;
};
constexpr TimeUnit kTimeUnits[] = {
    {"minutes", 60, 120}, {"hours", 3600, 240}, {"days", 86400, 1e300}};

const TimeUnit& UnitFor(const std::vector<Feasibility>& drawn) {
  double longest = 0;
  for (const Feasibility& f : drawn) {
    longest = std::max(longest, f.seconds);
  }
  return *std::find_if(std::begin(kTimeUnits), std::end(kTimeUnits),
                       [&](const TimeUnit& unit) { return longest < unit.most * unit.seconds; });
}

// What a point is, beside the pointer.
std::string PointText(const Feasibility& f, const std::string& cost) {
  return absl::StrCat(f.gpu, f.plan_only.empty() ? "" : " (plan only)", ": ",
                      std::string(spec::VerdictName(f.verdict)), ", ",
                      HumanDuration(absl::Seconds(f.seconds)), ", ", cost);
}

// Those that can be drawn. A NO is no way to do it, and is left out.
std::vector<Feasibility> Drawn(const std::vector<Feasibility>& plans, const PlanCost& cost) {
  std::vector<Feasibility> drawn;
  std::copy_if(plans.begin(), plans.end(), std::back_inserter(drawn), [&](const Feasibility& f) {
    return f.time.known() && f.verdict != spec::Verdict::kNo && cost.value(f).value_or(0) > 0;
  });
  return drawn;
}

// The first cost that is known of the most of them.
const PlanCost& CostFor(const std::vector<Feasibility>& plans) {
  return *std::max_element(PlanCosts().begin(), PlanCosts().end(),
                           [&](const PlanCost& a, const PlanCost& b) {
                             return Drawn(plans, a).size() < Drawn(plans, b).size();
                           });
}

// Time against cost, of two GPUs or more.
std::string Picture(const std::vector<Feasibility>& plans, const spec::FeasibilityQuery& query) {
  const PlanCost& cost = CostFor(plans);
  const std::vector<Feasibility> drawn = Drawn(plans, cost);
  if (drawn.size() < 2) {
    return "";
  }
  const TimeUnit& unit = UnitFor(drawn);
  std::vector<plot::Point> points;
  std::vector<std::string> names;
  std::vector<double> times, costs;
  for (const Feasibility& f : drawn) {
    times.push_back(f.seconds / unit.seconds);
    costs.push_back(*cost.value(f));
    points.push_back({times.back(), costs.back()});
    names.push_back(f.gpu);
  }
  const std::string of = cost.money ? query.prices.currency : "kWh";
  const std::string tokens = FormatCount(drawn.front().tokens);
  const plot::Panel panel(
      {80, 30, 760, 400},
      plot::Panel::Scales{
          plot::AxisFor(times, absl::StrCat("time for ", tokens, " tokens, ", unit.name)),
          plot::AxisFor(costs, absl::StrCat(cost.name, ", ", of))});
  std::string dots;
  for (size_t i = 0; i < points.size(); ++i) {
    const std::string amount =
        cost.money ? spec::MoneyText(costs[i], of) : absl::StrFormat("%.4g kWh", costs[i]);
    absl::StrAppend(&dots, panel.Dot(points[i], plot::ColourOf(i), PointText(drawn[i], amount)));
  }
  const std::string title = absl::StrCat("time against ", cost.name);
  return plot::Picture(860, 480, title, /*heading=*/false,
                       absl::StrCat(panel.Axes(title), dots, panel.Labels(points, names)));
}

const char* ClassOf(const PlanColumn& column) {
  return column.shows_number() ? " class=\"right\"" : "";
}

std::string Heading(const PlanColumn& column) {
  return absl::StrCat("<th scope=\"col\"", ClassOf(column),
                      column.number != nullptr ? " data-kind=\"number\"" : "", ">",
                      HtmlEscaped(column.title), "</th>");
}

std::string Cell(const PlanColumn& column, const Feasibility& f, const std::string& currency) {
  const std::optional<double> number =
      column.number != nullptr ? column.number(f) : std::optional<double>();
  return absl::StrCat("<td", ClassOf(column),
                      number.has_value() ? absl::StrFormat(" data-number=\"%.9g\"", *number) : "",
                      ">", HtmlEscaped(column.text(f, currency)), "</td>");
}

std::string SortableTable(const std::vector<Feasibility>& plans,
                          const spec::FeasibilityQuery& query) {
  std::string out = "<div class=\"wide\"><table class=\"sortable\"><thead><tr>";
  for (const PlanColumn& column : PlanColumns()) {
    absl::StrAppend(&out, Heading(column));
  }
  absl::StrAppend(&out, "</tr></thead>\n<tbody>\n");
  for (const Feasibility& f : plans) {
    absl::StrAppend(&out, f.verdict == spec::Verdict::kNo ? "<tr class=\"no\">" : "<tr>");
    for (const PlanColumn& column : PlanColumns()) {
      absl::StrAppend(&out, Cell(column, f, query.prices.currency));
    }
    absl::StrAppend(&out, "</tr>\n");
  }
  return absl::StrCat(out, "</tbody></table></div>\n");
}

}  // namespace

std::string PlanHtml(const std::vector<Feasibility>& plans, const spec::FeasibilityQuery& query) {
  const std::string job = HtmlEscaped(plans.empty() ? "" : plans.front().job);
  std::string out = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"",
      kPolicy, "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
      "<title>Plan of ", job, "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n<h1>Plan of ", job, "</h1>\n", SortableTable(plans, query),
      Picture(plans, query));
  for (const Feasibility& f : plans) {
    absl::StrAppend(&out, "<h2>", HtmlEscaped(f.gpu), "</h2>\n<pre>",
                    HtmlEscaped(spec::FeasibilityText(f, query, true)), "</pre>\n");
  }
  const std::string script(reinterpret_cast<const char*>(sort_table_js), sort_table_js_size);
  return absl::StrCat(out, "<script>\n", script, "</script>\n</body>\n</html>\n");
}

}  // namespace jobctl
}  // namespace hearth
