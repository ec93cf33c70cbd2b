// Metrics as tables, and their exposition in Prometheus text format 0.0.4.
#pragma once

#include <memory>
#include <string>
#include <string_view>
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

// Families of a row, registered (once; later calls return the same). Owned by `registry`.
prometheus::Family<prometheus::Counter>& CounterFamily(prometheus::Registry& registry,
                                                       const MetricDef& def);
prometheus::Family<prometheus::Gauge>& GaugeFamily(prometheus::Registry& registry,
                                                   const MetricDef& def);
prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry,
                                                           const MetricDef& def);

// 1 ms to 60 s.
const prometheus::Histogram::BucketBoundaries& LatencyBuckets();
// 0.1 s to 1 d.
const prometheus::Histogram::BucketBoundaries& WaitBuckets();

// Lists what is wrong with the rows (naming rules of the header); empty when all is well. For
// tests.
std::vector<std::string> CheckDefs(absl::Span<const MetricDef> defs);

// A Markdown table of the rows.
std::string ToMarkdown(absl::Span<const MetricDef> defs);

// hearth_build_info and process_* (cpu seconds, resident bytes, open fds, start time): the rows
// that every program has.
absl::Span<const MetricDef> ProcessDefs();

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
