#include "common/spec/fields/idle.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/model_shape.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/parameter_table.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/violations/checker.h"
#include "common/spec/violations/text.h"
#include "google/protobuf/util/message_differencer.h"

namespace hearth::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

v1::JobSpec Resolved(v1::JobSpec job_spec) {
  std::vector<FieldViolation> ignored;  // found by whoever resolves the spec itself
  Resolve(job_spec, ignored);
  return job_spec;
}

// Whether all that a section gives are the defaults of its rows.
bool HasOnlyDefaults(const Message& section) {
  std::vector<const FieldDescriptor*> given;
  section.GetReflection()->ListFields(section, &given);
  return std::all_of(given.begin(), given.end(), [&section](const FieldDescriptor* field) {
    return HasRows(*field) ? HasOnlyDefaults(section.GetReflection()->GetMessage(section, field))
                           : IsRowDefault(section, *field);
  });
}

// Whether it is the default of the row, or the job would have the same value without the key: by
// default, or from its preset.
bool IsDefault(const v1::JobSpec& given, const v1::JobSpec& resolved, const std::string& path) {
  const Place place = FindPlace(given, path);
  const FieldDescriptor& row = *place.field;
  if (HasRows(row)
          ? HasOnlyDefaults(place.message->GetReflection()->GetMessage(*place.message, &row))
          : IsRowDefault(*place.message, row)) {
    return true;
  }
  v1::JobSpec without = given;
  Message* message = MutablePlace(without, path);
  const FieldDescriptor* field = place.field;
  message->GetReflection()->ClearField(message, field);
  without = Resolved(std::move(without));
  const Place a = FindPlace(resolved, path);
  const Place b = FindPlace(without, path);
  if (a.message == nullptr || b.message == nullptr) {
    return a.message == b.message;
  }
  // CompareWithFields takes a field that is not set for one of value 0.
  const auto set = [field](const Message& at) {
    return field->is_repeated() || at.GetReflection()->HasField(at, field);
  };
  if (set(*a.message) != set(*b.message)) {
    return false;
  }
  google::protobuf::util::MessageDifferencer differencer;
  return differencer.CompareWithFields(*a.message, *b.message, {field}, {field});
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  return field.is_repeated() ? message.GetReflection()->FieldSize(message, &field) > 0
                             : message.GetReflection()->HasField(message, &field);
}

void CheckRow(const v1::JobSpec& given,
              const v1::JobSpec& resolved,
              const std::string& path,
              const FieldDescriptor& field,
              Checker& check) {
  const std::string& condition = RowOf(field).applies_when();
  const std::string& neutral = RowOf(field).neutral();
  const Place place = FindPlace(given, path);
  if (condition.empty() || place.message == nullptr || !IsGiven(*place.message, field) ||
      Evaluate(condition, resolved) != Truth::kNo ||
      (!neutral.empty() && ValueText(given, path) == neutral) || IsDefault(given, resolved, path)) {
    return;
  }
  check.Add(path, Text("changes nothing: ", WhyNot(condition, resolved)));
}

// The fields of the entries of a list, `path`.
void CheckEntries(const v1::JobSpec& given,
                  const v1::JobSpec& resolved,
                  const std::string& path,
                  const FieldDescriptor& list,
                  Checker& check) {
  const Place place = FindPlace(given, path);
  const Place in_resolved = FindPlace(resolved, path);
  if (!list.is_repeated() || list.is_map() || list.message_type() == nullptr ||
      place.message == nullptr || in_resolved.message == nullptr) {
    return;
  }
  const int entries = place.message->GetReflection()->FieldSize(*place.message, &list);
  for (int i = 0; i < entries; ++i) {
    const Message& entry =
        place.message->GetReflection()->GetRepeatedMessage(*place.message, &list, i);
    const ListEntry about{
        path, entries,
        &in_resolved.message->GetReflection()->GetRepeatedMessage(*in_resolved.message, &list, i)};
    for (int k = 0; k < list.message_type()->field_count(); ++k) {
      const FieldDescriptor& field = *list.message_type()->field(k);
      const std::string& condition = RowOf(field).applies_when();
      if (!condition.empty() && IsGiven(entry, field) && !IsRowDefault(entry, field) &&
          Evaluate(condition, resolved, &about) == Truth::kNo) {
        check.Add(Text(path, '[', i, "].", field.name()),
                  Text("changes nothing: ", WhyNot(condition, resolved, &about)));
      }
    }
  }
}

// Why a model has no parameter in the group; "" for groups in which each model has some.
std::string WhyEmpty(ParameterGroup group, const v1::ModelSpec& model) {
  switch (group) {
    case ParameterGroup::kHead:
      return "model.tied is true";
    case ParameterGroup::kBias:
      return Text("model.attention_bias is ", model.attention_bias(),
                  ", model.mlp_bias is false and model.norm is ", model.norm());
    default:
      return "";
  }
}

// Optimizer groups in which this model has no parameter.
void CheckGroups(const v1::JobSpec& resolved, Checker& check) {
  v1::ModelSpec model = resolved.model();
  if (!model.has_vocab()) {
    model.set_vocab(kVocabMultiple);  // no group depends on how many tokens there are
  }
  const absl::StatusOr<ModelShape> shape =
      ResolveModelShape(model, resolved.data().sequence_length());
  if (resolved.optimizer().groups().empty() || !shape.ok()) {
    return;
  }
  const std::vector<Parameter> table = BuildParameterTable(*shape);
  v1::OptimizerSpec without = resolved.optimizer();
  without.clear_groups();
  const auto& names = ParameterGroupNames();
  for (const auto& [name, options] : resolved.optimizer().groups()) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      continue;  // refused by the row of optimizer.groups
    }
    const auto group = static_cast<ParameterGroup>(it - names.begin());
    const bool used = std::any_of(table.begin(), table.end(), [group](const Parameter& parameter) {
      return parameter.group == group;
    });
    if (!used &&
        ResolveGroupOptions(resolved.optimizer(), group) != ResolveGroupOptions(without, group)) {
      const std::string why = WhyEmpty(group, resolved.model());
      check.Add("optimizer.groups." + name,
                Text("changes nothing: this model has no parameter in the group ", name,
                     why.empty() ? "" : "; ", why));
    }
  }
}

// A quantised recipe in whose formats no step would run.
void CheckSteps(const v1::JobSpec& resolved, Checker& check) {
  const v1::PrecisionSpec& precision = resolved.precision();
  const Recipe* recipe = FindRecipe(precision.recipe());
  const int64_t steps = resolved.train().steps();
  if (recipe == nullptr || !recipe->quantised() || steps < 1 || precision.warmup_steps() < 0) {
    return;
  }
  if (precision.warmup_steps() >= steps) {
    check.Add("precision.warmup_steps",
              Text(precision.warmup_steps(), " of ", steps, " steps run in BF16: none is left to ",
                   recipe->name, "; lower it, or set precision.recipe: bf16"));
    return;
  }
  // One layer will do: only the phases' steps are asked for.
  const PrecisionPlan plan = ResolvePrecision(resolved, *recipe, 1);
  if (precision.bf16_tail() > 0.0 && plan.tail_step <= plan.warmup_steps + 1) {
    check.Add("precision.bf16_tail",
              Text("with ", precision.bf16_tail(), " every step runs in BF16: none is left to ",
                   recipe->name, "; lower it, or set precision.recipe: bf16"));
  }
}

}  // namespace

void ResolveSubmitted(v1::JobSpec& job_spec, std::vector<FieldViolation>& violations) {
  CheckIdleKeys(job_spec, violations);
  Resolve(job_spec, violations);
}

absl::Status ResolveSubmitted(v1::JobSpec& job_spec) {
  std::vector<FieldViolation> violations;
  ResolveSubmitted(job_spec, violations);
  return ViolationsToStatus(violations);
}

void ClearIdlePrecision(v1::JobSpec& given) {
  const v1::JobSpec resolved = Resolved(given);
  ForEachField([&](const std::string& path, const FieldDescriptor& field) {
    const std::string& condition = RowOf(field).applies_when();
    const Place place = FindPlace(given, path);
    if (!absl::StartsWith(path, "precision.") || condition.empty() || place.message == nullptr ||
        Evaluate(condition, resolved) != Truth::kNo) {
      return;
    }
    Message* message = MutablePlace(given, path);
    message->GetReflection()->ClearField(message, &field);
  });
  if (given.precision().techniques().ByteSizeLong() == 0) {
    given.mutable_precision()->clear_techniques();
  }
}

void CheckIdleKeys(const v1::JobSpec& given, std::vector<FieldViolation>& violations) {
  Checker check(violations);
  const v1::JobSpec resolved = Resolved(given);
  ForEachField([&](const std::string& path, const FieldDescriptor& field) {
    CheckRow(given, resolved, path, field, check);
    CheckEntries(given, resolved, path, field, check);
  });
  CheckGroups(resolved, check);
  CheckSteps(resolved, check);
}

}  // namespace hearth::spec
