#include "jobctl/views/jobs/plan_columns.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/units.h"
#include "common/spec/feasibility/prices.h"
#include "jobctl/views/text/display_text.h"

namespace hearth::jobctl {
namespace {

using spec::Feasibility;
using Number = std::optional<double>;

constexpr double kJoulesPerKwh = 3.6e6;
constexpr const char* kNotKnown = "-";

double Gb(int64_t bytes) {
  return static_cast<double>(bytes) * 1e-9;
}

std::string Money(const Number& amount, const std::string& currency) {
  return amount.has_value() ? spec::MoneyText(*amount, currency) : kNotKnown;
}

Number IfKnown(const Feasibility& f, double value) {
  return f.time.known() ? Number(value) : std::nullopt;
}

Number Kwh(const Feasibility& f) {
  return f.joules.has_value() ? Number(*f.joules / kJoulesPerKwh) : std::nullopt;
}

Number PowerCost(const Feasibility& f) {
  return f.power_cost;
}
Number RentCost(const Feasibility& f) {
  return f.rent_cost;
}
Number PurchaseCost(const Feasibility& f) {
  return f.purchase_cost;
}

std::string Basis(const Feasibility& f, const std::string&) {
  return !f.plan_only.empty()                        ? "plan only"
         : absl::StartsWith(f.confidence, "nothing") ? "data sheet"
                                                     : "measured";
}

constexpr PlanColumn kColumns[] = {
    {"GPU", [](const Feasibility& f, const std::string&) { return f.gpu; }, nullptr},
    {"VERDICT",
     [](const Feasibility& f, const std::string&) {
       return std::string(spec::VerdictName(f.verdict));
     },
     [](const Feasibility& f) { return Number(static_cast<double>(f.verdict)); },
     /*is_word=*/true},
    {"GB",
     [](const Feasibility& f, const std::string&) {
       return absl::StrFormat("%.1f", Gb(f.total_bytes));
     },
     [](const Feasibility& f) { return Number(Gb(f.total_bytes)); }},
    {"OF",
     [](const Feasibility& f, const std::string&) {
       return absl::StrFormat("%.1f", Gb(f.device_bytes));
     },
     [](const Feasibility& f) { return Number(Gb(f.device_bytes)); }},
    {"BATCH", [](const Feasibility& f, const std::string&) { return absl::StrCat(f.micro_batch); },
     [](const Feasibility& f) { return Number(static_cast<double>(f.micro_batch)); }},
    {"RECOMPUTE", [](const Feasibility& f, const std::string&) { return f.recompute; }, nullptr},
    {"TOK/S",
     [](const Feasibility& f, const std::string&) {
       return f.time.known() ? FormatCount(f.tok_s) : kNotKnown;
     },
     [](const Feasibility& f) { return IfKnown(f, f.tok_s); }},
    {"OF-PEAK",
     [](const Feasibility& f, const std::string&) {
       return f.time.known() ? absl::StrFormat("%.0f %%", 100 * f.peak_share()) : kNotKnown;
     },
     [](const Feasibility& f) { return IfKnown(f, f.peak_share()); }},
    {"TIME",
     [](const Feasibility& f, const std::string&) {
       return f.time.known() ? HumanDuration(absl::Seconds(f.seconds)) : kNotKnown;
     },
     [](const Feasibility& f) { return IfKnown(f, f.seconds); }},
    {"KWH",
     [](const Feasibility& f, const std::string&) {
       return f.joules.has_value() ? absl::StrFormat("%.4g", *Kwh(f)) : kNotKnown;
     },
     Kwh},
    {"POWER",
     [](const Feasibility& f, const std::string& currency) {
       return Money(f.power_cost, currency);
     },
     PowerCost},
    {"RENT",
     [](const Feasibility& f, const std::string& currency) { return Money(f.rent_cost, currency); },
     RentCost},
    {"BOUGHT",
     [](const Feasibility& f, const std::string& currency) {
       return Money(f.purchase_cost, currency);
     },
     PurchaseCost},
    {"BASIS", Basis, nullptr},
};

constexpr PlanCost kCosts[] = {
    {"cost of renting", true, RentCost},
    {"cost of power", true, PowerCost},
    {"cost of a bought GPU", true, PurchaseCost},
    {"energy", false, Kwh},
};

}  // namespace

absl::Span<const PlanColumn> PlanColumns() {
  return kColumns;
}

absl::Span<const PlanCost> PlanCosts() {
  return kCosts;
}

}  // namespace hearth::jobctl
