// Metrics as tables, and their exposition in Prometheus text format 0.0.4.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace hearth::metrics {

enum class MetricType { kCounter, kGauge, kHistogram };
enum class Stability { kAlpha, kBeta, kStable };

// One row of a component's metric table; docs/metrics.md is made of these rows.
struct MetricDef {
  std::string_view name;  // hearth_..., base unit last, counters end in _total
  MetricType type;
  std::string_view help;
  std::string_view labels;  // comma-separated label names, "" for none
  Stability stability;
};

std::string_view TypeName(MetricType type);           // "counter" ...
std::string_view StabilityName(Stability stability);  // "alpha" ...

// 1 ms to 60 s.
const prometheus::Histogram::BucketBoundaries& LatencyBuckets();
// 0.1 s to 1 d.
const prometheus::Histogram::BucketBoundaries& WaitBuckets();

// The metrics that a component counts itself: a struct whose first member is a MetricTable and
// whose other members are its rows, each declared and named once:
//
//   struct Own {
//     MetricTable table;
//     Counter connects{table, "hearth_connects_total", "Streams opened."};
//     Histogram seconds{table, "hearth_call_seconds", "Duration of calls.", "method"};
//   };
//
// Not copied or moved: rows belong to their table. Thread-safe once made.
class MetricTable {
 public:
  MetricTable() : registry_(std::make_shared<prometheus::Registry>()) {}
  MetricTable(const MetricTable&) = delete;
  MetricTable& operator=(const MetricTable&) = delete;

  const prometheus::Registry& registry() const { return *registry_; }
  // In the order in which the rows were declared.
  const std::vector<MetricDef>& defs() const { return defs_; }

 private:
  template <typename T>
  friend class MetricOf;
  std::shared_ptr<prometheus::Registry> registry_;
  std::vector<MetricDef> defs_;
};

// One family. T is prometheus::Counter, Gauge or Histogram.
template <typename T>
class MetricOf {
 public:
  // A row without labels has its one series from the start, at 0. Texts must outlive the table.
  MetricOf(MetricTable& table,
           std::string_view name,
           std::string_view help,
           std::string_view labels = "",
           const prometheus::Histogram::BucketBoundaries& buckets = LatencyBuckets());

  // The series with these labels, made by the first call.
  T& With(const std::map<std::string, std::string>& labels);
  // The one series of a row without labels.
  T* operator->() { return only_; }
  const T* operator->() const { return only_; }

 private:
  const prometheus::Histogram::BucketBoundaries& buckets_;
  prometheus::Family<T>* family_;
  T* only_ = nullptr;
};
using Counter = MetricOf<prometheus::Counter>;
using Gauge = MetricOf<prometheus::Gauge>;
using Histogram = MetricOf<prometheus::Histogram>;

// The series of one family in a scrape, made from what is known at that moment.
class Series {
 public:
  explicit Series(const MetricDef& def);

  // `labels`: a value for each label of the row, in its order.
  void Add(double value, const std::vector<std::string>& labels = {});
  // A histogram: `cumulative` counts of LatencyBuckets(), the count and the sum of all.
  void AddHistogram(const std::vector<uint64_t>& cumulative,
                    uint64_t count,
                    double sum,
                    const std::vector<std::string>& labels);
  bool empty() const { return family_.metric.empty(); }
  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  prometheus::ClientMetric& NewSeries(const std::vector<std::string>& labels);

  std::vector<std::string> label_names_;
  prometheus::MetricFamily family_;
};

// For tables of rows {MetricDef def; void (*add)(..., Series& out)}: their defs,
template <typename Rows>
std::vector<MetricDef> DefsOf(const Rows& rows) {
  std::vector<MetricDef> defs;
  for (const auto& row : rows) {
    defs.push_back(row.def);
  }
  return defs;
}
// and the families of those that `add` gives a series, made of `values`.
template <typename Rows, typename... Values>
std::vector<prometheus::MetricFamily> FamiliesOf(const Rows& rows, const Values&... values) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& row : rows) {
    Series series(row.def);
    row.add(values..., series);
    if (!series.empty()) {
      families.push_back(series.Take());
    }
  }
  return families;
}

// Lists what is wrong with the rows (naming rules of the header); empty when all is well. For
// tests.
std::vector<std::string> CheckDefs(absl::Span<const MetricDef> defs);

// A Markdown table of the rows.
std::string ToMarkdown(absl::Span<const MetricDef> defs);

// hearth_build_info and process_* (cpu seconds, resident bytes, open fds, start time): the rows
// that every program has.
std::vector<MetricDef> ProcessDefs();

// Registers hearth_build_info{version, commit, program} and process_*; values are read from /proc
// at collection. Keep the returned object as long as `registry` is served.
class ProcessMetrics : public prometheus::Collectable {
 public:
  explicit ProcessMetrics(std::string program) : program_(std::move(program)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  std::string program_;
};

// All families of the collectables in order, in text format 0.0.4.
std::string Serialize(absl::Span<const prometheus::Collectable* const> collectables);

inline constexpr std::string_view kTextContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace hearth::metrics
