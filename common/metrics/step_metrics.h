// The numbers of a job's steps as rows, read once from the (metric) options of hearth.v1.StepReport
// (proto/hearth/v1/metric_options.proto says what is in a row). Whatever shows these numbers loops
// over the rows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "hearth/v1/job.pb.h"
#include "hearth/v1/metric_options.pb.h"

namespace hearth::metrics {

// One field of StepReport, or of a message in it. Immutable.
class StepMetric {
 public:
  // `path` leads from StepReport to the field; only its first field may be repeated, and then
  // `by` is the string field whose values tell its entries apart.
  StepMetric(std::vector<const google::protobuf::FieldDescriptor*> path,
             const google::protobuf::FieldDescriptor* by);

  const v1::Metric& option() const { return *option_; }
  // The field's name, which is the column's.
  const std::string& field() const { return path_.back()->name(); }
  // What tells a field of entries from one of the report: "sources.loss"; else the field's name.
  std::string path() const;
  // "hearth_job_data_wait_seconds_total"; empty = not exported.
  const std::string& family() const { return family_; }
  // Names of the labels in its series: "job_id", or "job_id,cause".
  const std::string& labels() const { return labels_; }
  // `optional` in the proto: a report without it says nothing about it.
  bool optional() const {
    return path_.back()->has_presence() && path_.back()->message_type() == nullptr;
  }

  // A field of a repeated message: one series for each value of the label that tells entries apart.
  bool of_entries() const { return by_ != nullptr; }

  bool is_text() const {
    return path_.back()->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING;
  }

  // The number, times as seconds since 1970. Nothing: the report does not have it, or it is 0 where
  // 0 means that it was not measured. Not for text, nor for fields of entries.
  std::optional<double> Value(const v1::StepReport& report) const;
  // Calls `see` with each number of the report and the value of its label ("" without one); of a
  // row with a `by` with the largest number of each value.
  void ForEach(const v1::StepReport& report,
               const std::function<void(const std::string& label, double value)>& see) const;
  // Labels of the report's entries, in order, whether or not an entry has the number. Empty without
  // a `by`.
  std::vector<std::string> Labels(const v1::StepReport& report) const;
  // As a cell of a table: integers in full, other numbers with nine digits, times in RFC 3339;
  // empty when the report does not have it. Not for rows with a `by`.
  std::string Text(const v1::StepReport& report) const;

 private:
  // The message that has the field.
  const google::protobuf::Message& Holder(const v1::StepReport& report) const;

  std::vector<const google::protobuf::FieldDescriptor*> path_;
  const google::protobuf::FieldDescriptor* by_;
  const v1::Metric* option_;
  std::string family_;
  std::string labels_;
  std::string label_value_;
};

// A number as Text() writes it.
std::string MetricText(double value);

// All rows, in the order in which the fields are declared. Rows of one family are neighbours.
// Lives as long as the program.
const std::vector<StepMetric>& StepMetrics();

// The row of a field of StepReport itself: StepMetricOf("loss"). Aborts when there is none.
const StepMetric& StepMetricOf(std::string_view field);

// What is wrong with the rows: a counter without a name, a column that cannot be one, and so on.
// Empty when all is well. For tests.
std::vector<std::string> CheckStepMetrics();

// A Markdown table of the rows with a column or a plot.
std::string StepMetricsMarkdown();

}  // namespace hearth::metrics
