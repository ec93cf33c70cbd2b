#include "common/metrics/step_metrics.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "google/protobuf/timestamp.pb.h"

namespace hearth::metrics {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Timestamp;

bool IsTime(const FieldDescriptor& field) {
  return field.message_type() == Timestamp::descriptor();
}

absl::Time TimeOf(const Message& holder, const FieldDescriptor& field) {
  const auto& time =
      static_cast<const Timestamp&>(holder.GetReflection()->GetMessage(holder, &field));
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

double Seconds(const Message& holder, const FieldDescriptor& field) {
  const auto& time =
      static_cast<const Timestamp&>(holder.GetReflection()->GetMessage(holder, &field));
  return static_cast<double>(time.seconds()) + static_cast<double>(time.nanos()) * 1e-9;
}

double NumberOf(const Message& holder, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *holder.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(holder, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(holder, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(holder, &field));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(holder, &field);
    default:
      HEARTH_CHECK(IsTime(field), "a metric is a double, an integer or a time");
      return Seconds(holder, field);
  }
}

// Depth first, in the order of declaration.
void AddRows(const Descriptor& message,
             const std::vector<const FieldDescriptor*>& path,
             const FieldDescriptor* by,
             std::vector<StepMetric>& rows) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor* const field = message.field(i);
    const bool has_row = field->options().HasExtension(v1::metric);
    std::vector<const FieldDescriptor*> longer = path;
    longer.push_back(field);
    if (field->message_type() == nullptr || IsTime(*field)) {
      if (has_row) {
        rows.emplace_back(longer, by);
      }
    } else if (!field->is_repeated()) {
      AddRows(*field->message_type(), longer, by, rows);
    } else if (has_row) {
      const FieldDescriptor* const its_label =
          field->message_type()->FindFieldByName(field->options().GetExtension(v1::metric).label());
      HEARTH_CHECK(its_label != nullptr, "the label of a repeated message is a field of it");
      AddRows(*field->message_type(), longer, its_label, rows);
    }
  }
}

// "" when the row is sound.
std::string Problem(const StepMetric& row) {
  const v1::Metric& option = row.option();
  if ((option.kind() == v1::Metric::NONE) == !option.name().empty()) {
    return "name and kind go together";
  }
  const bool shown = option.column() != v1::Metric::NO_COLUMN || !option.plot().empty();
  if (option.help().empty() && shown) {
    return "the help text is missing";
  }
  if (row.family().empty() && !shown) {
    return "the row shows nothing";
  }
  if (option.sparse() && option.plot().empty()) {
    return "sparse is about plots";
  }
  if (row.of_entries() &&
      (option.column() == v1::Metric::TABLE || option.kind() != v1::Metric::GAUGE)) {
    return "a field of entries is a gauge, and has no column in the table";
  }
  if (row.is_text() &&
      !(row.family().empty() && option.plot().empty() && option.curve() == v1::Metric::NO_CURVE)) {
    return "text has a column and nothing else";
  }
  return "";
}

}  // namespace

StepMetric::StepMetric(std::vector<const FieldDescriptor*> path, const FieldDescriptor* by)
    : path_(std::move(path)), by_(by), option_(&path_.back()->options().GetExtension(v1::metric)) {
  const bool counter = option_->kind() == v1::Metric::SUM || option_->kind() == v1::Metric::COUNT ||
                       option_->kind() == v1::Metric::POSITION;
  if (!option_->name().empty()) {
    family_ = absl::StrCat("hearth_job_", option_->name(), option_->unit().empty() ? "" : "_",
                           option_->unit(), counter ? "_total" : "");
  }
  labels_ = "job_id";
  if (by_ != nullptr) {
    absl::StrAppend(&labels_, ",", by_->name());
  } else if (const size_t equals = option_->label().find('='); equals != std::string::npos) {
    absl::StrAppend(&labels_, ",", option_->label().substr(0, equals));
    label_value_ = option_->label().substr(equals + 1);
  }
}

std::string StepMetric::path() const {
  return of_entries() ? absl::StrCat(path_.front()->name(), ".", field()) : field();
}

const Message& StepMetric::Holder(const v1::StepReport& report) const {
  const Message* message = &report;
  for (size_t i = 0; i + 1 < path_.size(); ++i) {
    message = &message->GetReflection()->GetMessage(*message, path_[i]);
  }
  return *message;
}

std::optional<double> StepMetric::Value(const v1::StepReport& report) const {
  const Message& holder = Holder(report);
  const FieldDescriptor& field = *path_.back();
  if (optional() && !holder.GetReflection()->HasField(holder, &field)) {
    return std::nullopt;
  }
  const double value = NumberOf(holder, field);
  return option_->zero_is_absent() && value == 0.0 ? std::nullopt : std::optional<double>(value);
}

void StepMetric::ForEach(const v1::StepReport& report,
                         const std::function<void(const std::string&, double)>& see) const {
  if (by_ == nullptr) {
    if (const std::optional<double> value = Value(report)) {
      see(label_value_, *value);
    }
    return;
  }
  // Entries of one label are one series: the largest counts.
  std::map<std::string, double> largest;
  const google::protobuf::Reflection& reflection = *report.GetReflection();
  for (int i = 0; i < reflection.FieldSize(report, path_.front()); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(report, path_.front(), i);
    if (optional() && !entry.GetReflection()->HasField(entry, path_.back())) {
      continue;
    }
    const double value = NumberOf(entry, *path_.back());
    const auto [found, first] =
        largest.try_emplace(entry.GetReflection()->GetString(entry, by_), value);
    found->second = std::max(found->second, value);
  }
  for (const auto& [label, value] : largest) {
    see(label, value);
  }
}

std::vector<std::string> StepMetric::Labels(const v1::StepReport& report) const {
  std::set<std::string> labels;
  if (by_ != nullptr) {
    const google::protobuf::Reflection& reflection = *report.GetReflection();
    for (int i = 0; i < reflection.FieldSize(report, path_.front()); ++i) {
      const Message& entry = reflection.GetRepeatedMessage(report, path_.front(), i);
      labels.insert(entry.GetReflection()->GetString(entry, by_));
    }
  }
  return {labels.begin(), labels.end()};
}

std::string MetricText(double value) {
  return absl::StrFormat("%.9g", value);
}

std::string StepMetric::Text(const v1::StepReport& report) const {
  const Message& holder = Holder(report);
  const FieldDescriptor& field = *path_.back();
  if (IsTime(field)) {
    return absl::FormatTime(TimeOf(holder, field), absl::UTCTimeZone());
  }
  if (optional() && !holder.GetReflection()->HasField(holder, &field)) {
    return "";
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return holder.GetReflection()->GetString(holder, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return MetricText(NumberOf(holder, field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(holder.GetReflection()->GetInt64(holder, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(holder.GetReflection()->GetUInt64(holder, &field));
    default:
      return absl::StrCat(holder.GetReflection()->GetInt32(holder, &field));
  }
}

const std::vector<StepMetric>& StepMetrics() {
  static const auto* const rows = [] {
    auto* all = new std::vector<StepMetric>();
    AddRows(*v1::StepReport::descriptor(), {}, nullptr, *all);
    return all;
  }();
  return *rows;
}

const StepMetric& StepMetricOf(std::string_view field) {
  const auto found = std::find_if(
      StepMetrics().begin(), StepMetrics().end(),
      [field](const StepMetric& row) { return !row.of_entries() && row.field() == field; });
  HEARTH_CHECK(found != StepMetrics().end(), "a number of a step that is asked for has a row");
  return *found;
}

std::vector<std::string> CheckStepMetrics() {
  std::vector<std::string> problems;
  std::set<std::string> names;
  std::string family;
  for (const StepMetric& row : StepMetrics()) {
    std::string problem = Problem(row);
    const std::string& plot = row.option().plot();
    if (problem.empty() && !plot.empty() && !names.insert(plot).second) {
      problem = "another row is plotted under this name";
    }
    if (problem.empty() && !row.family().empty() && row.family() != family) {
      family = row.family();
      if (row.option().help().empty() || !names.insert(family).second) {
        problem = "the first field of a family has its help, and the others follow it";
      }
    }
    if (!problem.empty()) {
      problems.push_back(absl::StrCat(row.field(), ": ", problem));
    }
  }
  return problems;
}

std::string StepMetricsMarkdown() {
  std::string out =
      "| field | column of `jobctl metrics` | `--plot` | exported as | unit | meaning |\n"
      "|---|---|---|---|---|---|\n";
  static constexpr const char* kColumns[] = {"", "only csv", "table and csv"};  // by Metric.Column
  for (const StepMetric& row : StepMetrics()) {
    const v1::Metric& option = row.option();
    if (option.column() == v1::Metric::NO_COLUMN && option.plot().empty()) {
      continue;
    }
    const auto code = [](const std::string& text) {
      return text.empty() ? "" : absl::StrCat("`", text, "`");
    };
    absl::StrAppend(&out, "| `", row.path(), "` | ", kColumns[option.column()], " | ",
                    code(option.plot()), " | ", code(row.family()), " | ", option.unit(), " | ",
                    option.help(), " |\n");
  }
  return out;
}

}  // namespace hearth::metrics
