// Overrides: "path=value" for --set and for resuming.
#include <algorithm>
#include <exception>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/config.h"
#include "common/config/reader.h"
#include "common/config/scalars.h"
#include "common/config/yaml_writer.h"
#include "common/spec/fields/idle.h"
#include "common/spec/fields/resume.h"
#include "common/spec/fields/rows.h"
#include "common/spec/resolve/resolve.h"
#include "common/spec/violations/checker.h"
#include "google/rpc/error_details.pb.h"

namespace hearth::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Where a path leads: a field of a message, or an entry of its map.
struct Target {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
  bool is_entry = false;
  std::string key;  // of the entry
};

absl::Status Refuse(std::string_view path, std::string text) {
  return spec::ViolationsToStatus({{std::string(path), std::move(text)}});
}

struct Assignment {
  std::string path;
  std::string value;
};

absl::StatusOr<Assignment> Split(std::string_view assignment) {
  if (assignment.size() > kMaxYamlBytes) {
    return absl::InvalidArgumentError("an override is larger than 256 KiB");
  }
  // Strings of protobuf, in specs and in errors, must be UTF-8.
  if (!IsUtf8(assignment)) {
    return absl::InvalidArgumentError("an override is not UTF-8 text");
  }
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(Shown(assignment) + " is not of the form path=value");
  }
  return Assignment{std::string(assignment.substr(0, equals)),
                    std::string(assignment.substr(equals + 1))};
}

bool HasFields(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated() &&
         field.message_type()->file()->package() == v1::JobSpec::descriptor()->file()->package();
}

// The message of entry `key` of a map field, made if it is not there.
Message* MutableEntryValue(Message& message, const FieldDescriptor& field, const std::string& key) {
  const auto* reflection = message.GetReflection();
  const Descriptor& type = *field.message_type();
  for (int i = 0; i < reflection->FieldSize(message, &field); ++i) {
    Message* entry = reflection->MutableRepeatedMessage(&message, &field, i);
    if (entry->GetReflection()->GetString(*entry, type.map_key()) == key) {
      return entry->GetReflection()->MutableMessage(entry, type.map_value());
    }
  }
  Message* entry = reflection->AddMessage(&message, &field);
  entry->GetReflection()->SetString(entry, type.map_key(), key);
  return entry->GetReflection()->MutableMessage(entry, type.map_value());
}

// Follows `path` from `root`, making the messages on the way.
absl::StatusOr<Target> Follow(Message& root, const std::string& path) {
  Message* message = &root;
  std::string_view rest = path;
  while (true) {
    const size_t dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    const FieldDescriptor* field = spec::FindField(*message->GetDescriptor(), name);
    if (field == nullptr) {
      return Refuse(path, UnknownKeyText(name, *message->GetDescriptor()));
    }
    if (dot == std::string_view::npos) {
      return Target{message, field, false, ""};
    }
    rest = rest.substr(dot + 1);
    if (rest.empty()) {
      return Refuse(path, "ends in a dot");
    }
    if (field->is_map()) {
      const bool of_messages =
          field->message_type()->map_value()->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
      const size_t next = of_messages ? rest.find('.') : std::string_view::npos;
      // Keys of string maps may hold dots themselves.
      const std::string key(rest.substr(0, next));
      if (next == std::string_view::npos) {
        return Target{message, field, true, key};
      }
      message = MutableEntryValue(*message, *field, key);
      rest = rest.substr(next + 1);
    } else if (HasFields(*field)) {
      message = message->GetReflection()->MutableMessage(message, field);
    } else {
      return Refuse(path, name + " has no fields of its own; set it as a whole");
    }
  }
}

// Removes an entry from a map field.
void EraseEntry(Message& message, const FieldDescriptor& field, const std::string& key) {
  const auto* reflection = message.GetReflection();
  const int size = reflection->FieldSize(message, &field);
  for (int i = 0; i < size; ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, &field, i);
    if (entry.GetReflection()->GetString(entry, field.message_type()->map_key()) == key) {
      // Reflection can remove the last one only.
      reflection->SwapElements(&message, &field, i, size - 1);
      reflection->RemoveLast(&message, &field);
      return;
    }
  }
}

std::string FlowOf(const Target& target) {
  return target.is_entry ? WriteFlowEntry(*target.message, *target.field, target.key)
                         : WriteFlow(*target.message, *target.field);
}

absl::Status Assign(const Target& target, const Assignment& assignment) {
  if (assignment.value.empty()) {
    return Refuse(assignment.path, "has no value; write null to unset it, \"\" for empty text");
  }
  std::vector<ReadError> errors;
  const absl::StatusOr<YAML::Node> node = LoadYaml(assignment.value, errors);
  if (node.ok()) {
    // yaml-cpp throws also while nodes are read, and nothing may get out of here.
    try {
      if (node->IsNull() && target.is_entry) {
        EraseEntry(*target.message, *target.field, target.key);
      } else if (node->IsNull()) {
        target.message->GetReflection()->ClearField(target.message, target.field);
      } else if (target.is_entry) {
        Reader(errors).ReadMapEntry(*node, assignment.path, *target.message, *target.field,
                                    target.key);
      } else {
        Reader(errors).ReadField(*node, assignment.path, *target.message, *target.field);
      }
    } catch (const std::exception& e) {
      errors.push_back({0, "", std::string("not valid YAML: ") + e.what()});
    }
  }
  std::vector<spec::FieldViolation> violations;
  for (const ReadError& error : errors) {
    violations.push_back({error.path.empty() ? assignment.path : error.path, error.text});
  }
  return spec::ViolationsToStatus(violations);
}

// Applies to a copy, so that a refused override changes nothing. `change` gets "path: old -> new",
// or "" when both are equal.
absl::Status Apply(v1::JobSpec& job_spec, std::string_view text, std::string& change) {
  const absl::StatusOr<Assignment> assignment = Split(text);
  if (!assignment.ok()) {
    return assignment.status();
  }
  v1::JobSpec changed = job_spec;
  const absl::StatusOr<Target> target = Follow(changed, assignment->path);
  if (!target.ok()) {
    return target.status();
  }
  const std::string before = FlowOf(*target);
  if (absl::Status status = Assign(*target, *assignment); !status.ok()) {
    return status;
  }
  const std::string after = FlowOf(*target);
  change = before == after ? "" : assignment->path + ": " + before + " -> " + after;
  job_spec.Swap(&changed);
  return absl::OkStatus();
}

absl::Status CheckOverridable(v1::JobSpec job_spec, const std::string& path) {
  const spec::ResumeRule rule = spec::FindResumeRule(path);
  if (rule.allowed) {
    return absl::OkStatus();
  }
  // A typing error deserves the text for an unknown key.
  const absl::StatusOr<Target> target = Follow(job_spec, path);
  if (!target.ok()) {
    return target.status();
  }
  return Refuse(path, absl::StrCat("cannot be changed on resume", rule.why.empty() ? "" : ": ",
                                   std::string(rule.why)));
}

// Appends what `status` says of the fields.
void Append(const absl::Status& status, std::vector<spec::FieldViolation>& violations) {
  google::rpc::BadRequest details;
  const auto payload = status.GetPayload(spec::kBadRequestUrl);
  if (!payload.has_value() || !details.ParseFromString(std::string(*payload))) {
    violations.push_back({"overrides", std::string(status.message())});
  }
  for (const auto& violation : details.field_violations()) {
    violations.push_back({violation.field(), violation.description()});
  }
}

// gRPC drops an error whose text and details have more than 8 KiB, and each violation is in it
// three times.
void KeepShort(std::vector<spec::FieldViolation>& violations) {
  constexpr size_t kMaxBytes = 2000;
  size_t bytes = 0;
  for (size_t i = 0; i < violations.size(); ++i) {
    bytes += violations[i].field.size() + violations[i].description.size();
    if (i > 0 && bytes > kMaxBytes) {
      const size_t left_out = violations.size() - i;
      violations.resize(i);
      violations.push_back({"overrides", absl::StrCat("there are ", left_out, " more mistakes")});
      return;
    }
  }
}

// Appends the keys of `job_spec` that change nothing, of those that `changes` ("path: old -> new")
// have set. The others stay: an older version may have accepted them, or a change made them idle.
void AppendIdle(const v1::JobSpec& job_spec,
                const std::vector<std::string>& changes,
                std::vector<spec::FieldViolation>& violations) {
  std::vector<spec::FieldViolation> idle;
  spec::CheckIdleKeys(job_spec, idle);
  for (spec::FieldViolation& violation : idle) {
    const std::string& field = violation.field;
    const bool set =
        std::any_of(changes.begin(), changes.end(), [&field](const std::string& change) {
          const std::string path = change.substr(0, change.find(": "));
          return field == path || absl::StartsWith(field, path + ".") ||
                 absl::StartsWith(field, path + "[") || absl::StartsWith(path, field + ".");
        });
    if (set) {
      violations.push_back(std::move(violation));
    }
  }
}

}  // namespace

absl::Status ApplyOverride(v1::JobSpec& job_spec, std::string_view assignment) {
  std::string change;
  return Apply(job_spec, assignment, change);
}

absl::Status ApplyResumeOverride(v1::JobSpec& job_spec,
                                 std::string_view assignment,
                                 std::vector<std::string>& changes) {
  const absl::StatusOr<Assignment> parts = Split(assignment);
  if (!parts.ok()) {
    return parts.status();
  }
  if (absl::Status status = CheckOverridable(job_spec, parts->path); !status.ok()) {
    return status;
  }
  const v1::ResourceSpec before = job_spec.resources();
  std::string change;
  if (absl::Status status = Apply(job_spec, assignment, change); !status.ok()) {
    return status;
  }
  if (!change.empty()) {
    changes.push_back(change);
  }
  // min_workers defaults to workers: where the two were equal they stay so.
  v1::ResourceSpec& after = *job_spec.mutable_resources();
  if (parts->path == "resources.workers" && before.has_min_workers() &&
      before.min_workers() == before.workers() && after.has_workers() &&
      after.workers() != before.workers()) {
    after.set_min_workers(after.workers());
    changes.push_back("resources.min_workers: " + std::to_string(before.min_workers()) + " -> " +
                      std::to_string(after.min_workers()));
  }
  return absl::OkStatus();
}

absl::Status ApplyResumeOverrides(v1::JobSpec& job_spec,
                                  absl::Span<const std::string> assignments,
                                  std::vector<std::string>& changes) {
  v1::JobSpec changed = job_spec;
  std::vector<std::string> said;
  std::vector<spec::FieldViolation> violations;
  for (const std::string& assignment : assignments) {
    const absl::Status status = ApplyResumeOverride(changed, assignment, said);
    if (!status.ok()) {
      Append(status, violations);
    }
  }
  if (violations.empty()) {
    AppendIdle(changed, said, violations);
  }
  if (!violations.empty()) {
    // The rules never see this spec, so its values are judged here.
    spec::Checker check(violations);
    spec::CheckRows(changed, "", check);
    KeepShort(violations);
    return spec::ViolationsToStatus(violations);
  }
  job_spec.Swap(&changed);
  changes.insert(changes.end(), said.begin(), said.end());
  return absl::OkStatus();
}

}  // namespace hearth::config
