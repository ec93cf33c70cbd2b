#include "jobctl/views/output/columns.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/spec/violations/names.h"
#include "google/protobuf/timestamp.pb.h"
#include "jobctl/views/output/table.h"

namespace hearth::jobctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Timestamp;
using Json = nlohmann::ordered_json;

bool IsTime(const FieldDescriptor& field) {
  return field.message_type() == Timestamp::descriptor();
}

bool IsSection(const FieldDescriptor& field) {
  return field.message_type() != nullptr && !field.is_map() && !IsTime(field);
}

std::string FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.push_back(type.field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

// The field of that name in a section: last_report.loss for loss.
std::string InSection(const std::string& name, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& section = *type.field(i);
    const FieldDescriptor* field = IsSection(section) && !section.is_repeated()
                                       ? section.message_type()->FindFieldByName(name)
                                       : nullptr;
    if (field != nullptr && !IsSection(*field)) {
      return absl::StrCat(section.name(), ".", name);
    }
  }
  return "";
}

absl::Status NoField(const std::string& path, const std::string& part, const Descriptor& type) {
  std::vector<std::string_view> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.emplace_back(type.field(i)->name());
  }
  std::string meant = InSection(part, type);
  if (meant.empty()) {
    meant = std::string(spec::NearestName(part, names));
  }
  const bool of_job = &type == v1::Job::descriptor();
  if (meant.empty() && of_job) {  // a field of the job file, by its name or one from elsewhere
    const std::vector<std::string> text =
        absl::StrSplit(config::UnknownKeyText(part, *v1::JobSpec::descriptor()), "did you mean ");
    meant = text.size() > 1 ? std::string(absl::StripSuffix(text[1], "?")) : "";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": no field ", part,
                   meant.empty() ? absl::StrCat("; there are ", FieldNames(type))
                                 : absl::StrCat("; did you mean ", meant, "?")));
}

// JOB_STATE_RUNNING -> running.
std::string EnumText(const EnumValueDescriptor& value) {
  std::string prefix;  // of all values: JOB_STATE_ of JobState
  for (const char c : value.type()->name()) {
    absl::StrAppend(
        &prefix, absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty() ? "_" : "",
        std::string(1, absl::ascii_toupper(static_cast<unsigned char>(c))));
  }
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix + "_"));
}

Json TimeJson(const Message& message) {
  Timestamp time;
  time.CopyFrom(message);
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

// One value of a field: the whole of a single one, or entry `index` of a list.
Json ValueOf(const Message& message, const FieldDescriptor& field, int index) {
  const auto& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return get(&R::GetString, &R::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&R::GetBool, &R::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&R::GetInt32, &R::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&R::GetInt64, &R::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&R::GetUInt32, &R::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&R::GetUInt64, &R::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&R::GetFloat, &R::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double value = get(&R::GetDouble, &R::GetRepeatedDouble);
      return std::isfinite(value) ? Json(value) : Json();
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*get(&R::GetEnum, &R::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return TimeJson(index < 0 ? reflection.GetMessage(message, &field)
                                : reflection.GetRepeatedMessage(message, &field, index));
  }
  return Json();
}

// The map as an object, by key.
Json MapJson(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  Json out = Json::object();
  std::vector<std::pair<std::string, Json>> entries;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
    entries.emplace_back(entry.GetReflection()->GetString(entry, &key),
                         value.message_type() == nullptr ? ValueOf(entry, value, -1) : Json());
  }
  std::sort(entries.begin(), entries.end());
  for (auto& [name, one] : entries) {
    out[name] = std::move(one);
  }
  return out;
}

Json FieldJson(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (field.is_map()) {
    return MapJson(message, field);
  }
  if (field.is_repeated()) {
    Json out = Json::array();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      out.push_back(ValueOf(message, field, i));
    }
    return out;
  }
  return field.has_presence() && !reflection.HasField(message, &field)
             ? Json()
             : ValueOf(message, field, -1);
}

std::string Plain(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number_float()) {
    return absl::StrCat(value.get<double>());
  }
  return value.is_null() ? "-" : value.dump();
}

}  // namespace

absl::StatusOr<JobColumn> JobColumn::Parse(const std::string& path) {
  JobColumn column;
  column.path_ = path;
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  const Descriptor* type = v1::Job::descriptor();
  const Descriptor* spec = v1::JobSpec::descriptor();
  // `spec.` may be left out. A field of the job comes first, so that its name always means it.
  if (type->FindFieldByName(parts[0]) == nullptr && spec->FindFieldByName(parts[0]) != nullptr) {
    column.fields_.push_back(type->FindFieldByName("spec"));
    type = spec;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const FieldDescriptor* field = type->FindFieldByName(parts[i]);
    if (field == nullptr) {
      return NoField(path, parts[i], *type);
    }
    column.fields_.push_back(field);
    const bool last = i + 1 == parts.size();
    if (field->is_map() && !last) {  // the rest is a key, which may have dots
      column.key_ =
          absl::StrJoin(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1, parts.end(), ".");
      return column;
    }
    if (IsSection(*field) == last || (field->is_repeated() && !last)) {
      const std::string what =
          field->message_type() == nullptr
              ? " has no fields"
              : absl::StrCat(" is a ", field->is_repeated() ? "list" : "section", " of ",
                             FieldNames(*field->message_type()));
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", parts[i], what));
    }
    type = field->message_type();
  }
  return column;
}

Json JobColumn::Value(const v1::Job& job) const {
  const Message* message = &job;
  for (size_t i = 0; i + 1 < fields_.size(); ++i) {
    // An absent section would be read as its defaults, which nobody has set.
    if (!message->GetReflection()->HasField(*message, fields_[i])) {
      return Json();
    }
    message = &message->GetReflection()->GetMessage(*message, fields_[i]);
  }
  const Json value = FieldJson(*message, *fields_.back());
  if (key_.empty()) {
    return value;
  }
  return value.contains(key_) ? value[key_] : Json();
}

std::string JobColumn::Text(const v1::Job& job) const {
  const Json value = Value(job);
  if (IsTime(*fields_.back()) && value.is_number()) {
    Timestamp time;
    time.set_seconds(static_cast<int64_t>(value.get<double>()));
    return TimeText(time);
  }
  std::vector<std::string> parts;
  if (value.is_object()) {
    for (const auto& [key, one] : value.items()) {
      parts.push_back(absl::StrCat(key, "=", Plain(one)));
    }
  } else if (value.is_array()) {
    for (const Json& one : value) {
      parts.push_back(Plain(one));
    }
  } else {
    parts.push_back(Plain(value));
  }
  const std::string text = absl::StrJoin(parts, ",");
  return text.empty() ? "-" : text;
}

absl::StatusOr<std::vector<JobColumn>> ParseJobColumns(std::string_view text) {
  std::vector<JobColumn> columns;
  const std::vector<std::string> paths = absl::StrSplit(std::string(text), ',', absl::SkipEmpty());
  for (const std::string& path : paths) {
    HEARTH_ASSIGN_OR_RETURN(JobColumn column, JobColumn::Parse(path));
    columns.push_back(std::move(column));
  }
  return columns;
}

std::string RenderColumns(const std::vector<JobColumn>& columns,
                          const std::vector<v1::Job>& jobs,
                          int width) {
  std::vector<std::string> header;
  for (const JobColumn& column : columns) {
    header.push_back(column.path());
  }
  Table table(header);
  for (const v1::Job& job : jobs) {
    std::vector<std::string> row;
    for (const JobColumn& column : columns) {
      row.push_back(column.Text(job));
    }
    table.Add(std::move(row));
  }
  return table.Render(width);
}

std::string ColumnsJson(const std::vector<JobColumn>& columns, const std::vector<v1::Job>& jobs) {
  Json out = Json::array();
  for (const v1::Job& job : jobs) {
    Json row = Json::object();
    for (const JobColumn& column : columns) {
      row[column.path()] = column.Value(job);
    }
    out.push_back(std::move(row));
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<bool> PrintColumns(const OutputFormat& format,
                                  const std::vector<JobColumn>& columns,
                                  const std::vector<v1::Job>& jobs) {
  if (columns.empty() || format == OutputFormat::kName) {
    return false;
  }
  if (format == OutputFormat::kJsonPath) {
    return absl::InvalidArgumentError("--columns and -o jsonpath both choose fields; give one");
  }
  const int width = format == OutputFormat::kWide ? 0 : FitColumns();
  const bool data = format == OutputFormat::kJson || format == OutputFormat::kYaml;  // JSON is YAML
  WriteOut(data ? ColumnsJson(columns, jobs) : RenderColumns(columns, jobs, width));
  return true;
}

absl::Status SortJobs(const std::string& by, std::vector<v1::Job>& jobs) {
  const bool reverse = absl::StartsWith(by, "-");
  HEARTH_ASSIGN_OR_RETURN(const JobColumn column, JobColumn::Parse(by.substr(reverse ? 1 : 0)));
  std::stable_sort(jobs.begin(), jobs.end(), [&](const v1::Job& a, const v1::Job& b) {
    const Json left = column.Value(a);
    const Json right = column.Value(b);
    // Jobs without a value come last in both directions.
    if (left.is_null() || right.is_null()) {
      return !left.is_null() && right.is_null();
    }
    return reverse ? right < left : left < right;
  });
  return absl::OkStatus();
}

bool JobMentions(const v1::Job& job, const std::string& text) {
  std::vector<std::string> places = {job.job_id(), job.spec().name(), job.owner(),
                                     job.spec().precision().recipe(), job.reason()};
  for (const auto& [key, value] : job.spec().labels()) {
    places.push_back(absl::StrCat(key, "=", value));
  }
  return std::any_of(places.begin(), places.end(), [&](const std::string& place) {
    return absl::StrContains(absl::AsciiStrToLower(place), absl::AsciiStrToLower(text));
  });
}

}  // namespace hearth::jobctl
