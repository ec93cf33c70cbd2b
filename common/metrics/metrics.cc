#include "common/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "prometheus/text_serializer.h"

namespace hearth::metrics {
namespace {

absl::string_view Sv(std::string_view s) {
  return {s.data(), s.size()};
}

template <typename T>
constexpr MetricType kTypeOf = MetricType::kGauge;
template <>
constexpr MetricType kTypeOf<prometheus::Counter> = MetricType::kCounter;
template <>
constexpr MetricType kTypeOf<prometheus::Histogram> = MetricType::kHistogram;

bool IsSnakeCase(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

std::string CheckLabels(const MetricDef& def) {
  // Names that Prometheus or its users put on targets.
  static constexpr std::array<std::string_view, 6> kReserved = {"job", "instance", "cluster",
                                                                "env", "le",       "quantile"};
  for (const absl::string_view label : absl::StrSplit(Sv(def.labels), ',', absl::SkipEmpty())) {
    const std::string_view name(label.data(), label.size());
    if (!IsSnakeCase(name)) {
      return absl::StrCat("label \"", label, "\" is not snake_case");
    }
    if (std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end()) {
      return absl::StrCat("label \"", label, "\" is taken by scrape targets");
    }
  }
  return "";
}

// "" when the row keeps the rules.
std::string CheckDef(const MetricDef& def) {
  const absl::string_view name = Sv(def.name);
  if (!IsSnakeCase(def.name) ||
      !(absl::StartsWith(name, "hearth_") || absl::StartsWith(name, "process_"))) {
    return "the name must be snake_case with the prefix hearth_";
  }
  if (absl::EndsWith(name, "_total") != (def.type == MetricType::kCounter)) {
    return "counters, and only counters, end in _total";
  }
  for (const absl::string_view suffix : {"_count", "_sum", "_bucket"}) {
    if (absl::EndsWith(name, suffix)) {
      return absl::StrCat("the suffix ", suffix, " belongs to histograms' own series");
    }
  }
  for (const absl::string_view unit : {"_ms", "_us", "_percent", "_kb", "_mb", "_mib", "_gib",
                                       "_milliseconds", "_millijoules", "_milliwatts"}) {
    if (absl::EndsWith(name, unit) || absl::EndsWith(name, absl::StrCat(unit, "_total"))) {
      return absl::StrCat(unit, " is not a base unit");
    }
  }
  if (def.help.empty()) {
    return "the help text is missing";
  }
  return CheckLabels(def);
}

}  // namespace

std::string_view TypeName(MetricType type) {
  static constexpr EnumNames<MetricType, MetricType::kHistogram> kNames = {"counter", "gauge",
                                                                           "histogram"};
  return kNames[type];
}

std::string_view StabilityName(Stability stability) {
  static constexpr EnumNames<Stability, Stability::kStable> kNames = {"alpha", "beta", "stable"};
  return kNames[stability];
}

const prometheus::Histogram::BucketBoundaries& LatencyBuckets() {
  static const auto* const buckets = new prometheus::Histogram::BucketBoundaries{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  return *buckets;
}

const prometheus::Histogram::BucketBoundaries& WaitBuckets() {
  static const auto* const buckets = new prometheus::Histogram::BucketBoundaries{
      0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200, 86400};
  return *buckets;
}

template <typename T>
MetricOf<T>::MetricOf(MetricTable& table,
                      std::string_view name,
                      std::string_view help,
                      std::string_view labels,
                      const prometheus::Histogram::BucketBoundaries& buckets)
    : buckets_(buckets),
      family_(&prometheus::detail::Builder<T>()
                   .Name(std::string(name))
                   .Help(std::string(help))
                   .Register(*table.registry_)) {
  table.defs_.push_back({name, kTypeOf<T>, help, labels, Stability::kBeta});
  if (labels.empty()) {
    only_ = &With({});
  }
}

template <typename T>
T& MetricOf<T>::With(const std::map<std::string, std::string>& labels) {
  if constexpr (std::is_same_v<T, prometheus::Histogram>) {
    return family_->Add(labels, buckets_);
  } else {
    return family_->Add(labels);
  }
}

template class MetricOf<prometheus::Counter>;
template class MetricOf<prometheus::Gauge>;
template class MetricOf<prometheus::Histogram>;

Series::Series(const MetricDef& def)
    : label_names_(absl::StrSplit(Sv(def.labels), ',', absl::SkipEmpty())) {
  family_.name = std::string(def.name);
  family_.help = std::string(def.help);
  family_.type = def.type == MetricType::kCounter     ? prometheus::MetricType::Counter
                 : def.type == MetricType::kHistogram ? prometheus::MetricType::Histogram
                                                      : prometheus::MetricType::Gauge;
}

prometheus::ClientMetric& Series::NewSeries(const std::vector<std::string>& labels) {
  HEARTH_CHECK(labels.size() == label_names_.size(),
               "a series has a value for every label of its row");
  prometheus::ClientMetric& metric = family_.metric.emplace_back();
  for (size_t i = 0; i < labels.size(); ++i) {
    metric.label.push_back({label_names_[i], labels[i]});
  }
  return metric;
}

void Series::Add(double value, const std::vector<std::string>& labels) {
  prometheus::ClientMetric& metric = NewSeries(labels);
  (family_.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) =
      value;
}

void Series::AddHistogram(const std::vector<uint64_t>& cumulative,
                          uint64_t count,
                          double sum,
                          const std::vector<std::string>& labels) {
  prometheus::ClientMetric::Histogram& histogram = NewSeries(labels).histogram;
  histogram.sample_count = count;
  histogram.sample_sum = sum;
  const auto& bounds = LatencyBuckets();
  for (size_t i = 0; i < bounds.size(); ++i) {
    histogram.bucket.push_back({cumulative[i], bounds[i]});
  }
  histogram.bucket.push_back({count, std::numeric_limits<double>::infinity()});
}

std::vector<std::string> CheckDefs(absl::Span<const MetricDef> defs) {
  std::vector<std::string> problems;
  std::set<std::string_view> names;
  for (const MetricDef& def : defs) {
    const std::string problem = CheckDef(def);
    if (!problem.empty()) {
      problems.push_back(absl::StrCat(Sv(def.name), ": ", problem));
    }
    if (!names.insert(def.name).second) {
      problems.push_back(absl::StrCat(Sv(def.name), ": listed twice"));
    }
  }
  return problems;
}

std::string ToMarkdown(absl::Span<const MetricDef> defs) {
  std::string out = "| name | type | labels | stability | meaning |\n|---|---|---|---|---|\n";
  for (const MetricDef& def : defs) {
    absl::StrAppend(&out, "| `", Sv(def.name), "` | ", Sv(TypeName(def.type)), " | ",
                    Sv(def.labels), " | ", Sv(StabilityName(def.stability)), " | ", Sv(def.help),
                    " |\n");
  }
  return out;
}

std::string Serialize(absl::Span<const prometheus::Collectable* const> collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const prometheus::Collectable* const collectable : collectables) {
    std::vector<prometheus::MetricFamily> some = collectable->Collect();
    std::move(some.begin(), some.end(), std::back_inserter(families));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace hearth::metrics
