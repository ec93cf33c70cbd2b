#include "common/spec/fields/conditions.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/table_rows.h"
#include "common/spec/fields/rows.h"
#include "common/spec/model/dtype_alias.h"
#include "common/spec/model/presets.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/optimizer/optimizer_table.h"
#include "common/spec/plan/batch.h"
#include "common/spec/recipe/precision.h"
#include "common/spec/recipe/recipe.h"
#include "common/spec/recipe/techniques.h"
#include "common/spec/violations/names.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

Truth FromBool(bool value) {
  return value ? Truth::kYes : Truth::kNo;
}

const Recipe* RecipeOfJob(const v1::JobSpec& job_spec) {
  return FindRecipe(ValueText(job_spec, "precision.recipe").value_or(""));
}

Truth Quantised(const v1::JobSpec& job_spec) {
  const Recipe* recipe = RecipeOfJob(job_spec);
  return recipe == nullptr ? Truth::kUnknown : FromBool(recipe->quantised());
}

// Whether weights are narrower than the masters that a job may keep beside them.
Truth NarrowWeights(const v1::JobSpec& job_spec) {
  const Recipe* const recipe = RecipeOfJob(job_spec);
  return recipe == nullptr ? Truth::kUnknown : FromBool(recipe->parameters.storage != DType::kF32);
}

// Whether the device may have to emulate the recipe, or one that the job can fall back to.
Truth CanBeEmulated(const v1::JobSpec& job_spec) {
  const std::string device = ValueText(job_spec, "resources.device").value_or("");
  std::vector<const Recipe*> recipes = {RecipeOfJob(job_spec)};
  // Techniques may have changed it.
  if (const Recipe* const changed = RecipeFor(job_spec.precision()); changed != nullptr) {
    recipes.push_back(changed);
  }
  for (const std::string& name : job_spec.precision().fallback()) {
    recipes.push_back(FindRecipe(name));
  }
  if (std::find(recipes.begin(), recipes.end(), nullptr) != recipes.end()) {
    return Truth::kUnknown;
  }
  return FromBool(std::any_of(recipes.begin(), recipes.end(), [&device](const Recipe* recipe) {
    return RecipeExecution(*recipe, device) == Execution::kEmulated;
  }));
}

Truth CanFallBack(const v1::JobSpec& job_spec) {
  return FromBool(FallsBack(job_spec.precision()));
}

// Whether the shape of the model follows from the spec alone, without a folder that only workers
// see.
Truth ShapeKnown(const v1::JobSpec& job_spec) {
  const v1::ModelSpec& model = job_spec.model();
  const bool unknown_preset = model.has_preset() && FindPreset(model.preset()) == nullptr;
  const bool whole =
      model.has_layers() && model.has_hidden() && model.has_heads() && model.has_ffn_hidden();
  return FromBool(!unknown_preset && (whole || !model.has_from()));
}

// Whether there are two paths whose tokenizers could differ.
Truth ComparesTokenizers(const v1::JobSpec& job_spec) {
  const int datasets = job_spec.data().train_size() + job_spec.data().validation_size();
  return FromBool(job_spec.model().has_from() || datasets > 1);
}

Truth OneMicroBatch(const v1::JobSpec& job_spec) {
  return FromBool(HasOneMicroBatch(job_spec));
}

Truth TaskTrains(const v1::JobSpec& job_spec) {
  return FromBool(Trains(job_spec));
}

Truth TaskEvaluates(const v1::JobSpec& job_spec) {
  return FromBool(!Trains(job_spec));
}

// A call may ask for such a thing, a job file may not.
Truth OnRequest(const v1::JobSpec&) {
  return Truth::kNo;
}

std::string TaskText(const v1::JobSpec& job_spec) {
  return Text("task is ", job_spec.task());
}

std::string RecipeText(const v1::JobSpec& job_spec) {
  return Text("precision.recipe is ", ValueText(job_spec, "precision.recipe").value_or("not set"));
}

struct Predicate {
  std::string_view name;
  Truth (*holds)(const v1::JobSpec& job_spec);
  std::string_view needs;                             // completes "it acts only "
  std::string (*found)(const v1::JobSpec& job_spec);  // what is there instead
};

const Predicate kPredicates[] = {
    {"trains", TaskTrains, "with a task that trains", TaskText},
    {"evaluates", TaskEvaluates, "with task eval", TaskText},
    {"on_request", OnRequest, "on request (jobctl sample)",
     [](const v1::JobSpec&) { return std::string("it is in a job file"); }},
    {"quantised", Quantised, "with a quantised recipe", RecipeText},
    {"narrow_weights", NarrowWeights, "with a recipe whose weights are narrower than FP32",
     RecipeText},
    {"can_be_emulated", CanBeEmulated, "with a recipe that the device may emulate",
     [](const v1::JobSpec& job_spec) {
       return Text(RecipeText(job_spec), " on ",
                   ValueText(job_spec, "resources.device").value_or("no device"));
     }},
    {"can_fall_back", CanFallBack, "with precision.fallback",
     [](const v1::JobSpec&) { return std::string("no other recipe to fall back to is named"); }},
    {"shape_known", ShapeKnown, "with the shape of the model in the spec",
     [](const v1::JobSpec&) { return std::string("it is in the folder of model.from"); }},
    {"one_micro_batch", OneMicroBatch, "with one micro-batch of each worker in a step",
     [](const v1::JobSpec&) { return std::string("a step may have several"); }},
    {"compares_tokenizers", ComparesTokenizers, "with model.from or several datasets",
     [](const v1::JobSpec&) { return std::string("there is one dataset and no model.from"); }},
};

// What "path has X" asks: of the row that the value at `path` names.
struct Trait {
  std::string_view path;
  // nullopt: there is no row of that name.
  std::optional<bool> (*has)(const std::string& row, std::string_view trait);
  std::vector<std::string_view> (*rows_with)(std::string_view trait);
  size_t (*rows)();  // all of them
};

const Trait kTraits[] = {
    {"precision.recipe",
     [](const std::string& row, std::string_view trait) -> std::optional<bool> {
       const Recipe* const recipe = FindRecipe(row);
       return recipe == nullptr ? std::nullopt : std::optional(HasTechnique(*recipe, trait));
     },
     RecipesWith, [] { return Recipes().size(); }},
    {"optimizer.name",
     [](const std::string& row, std::string_view trait) -> std::optional<bool> {
       const OptimizerRow* const optimizer = FindOptimizer(row);
       return optimizer == nullptr ? std::nullopt : std::optional(optimizer->Reads(trait));
     },
     OptimizersThatRead, [] { return Optimizers().size(); }},
};

const Trait& TraitOf(std::string_view path) {
  const Trait* const row = FindRow(kTraits, &Trait::path, path);
  HEARTH_CHECK(row != nullptr, Text("a row's condition asks what ", path, " has").c_str());
  return *row;
}

enum class Op { kPredicate, kIs, kIsNot, kMore, kSet, kUnset, kHas, kEntries };

struct Term {
  Op op = Op::kPredicate;
  std::string subject;               // a path, or a predicate's name
  std::vector<std::string> operand;  // values, or the number
};

Term ParseTerm(std::string_view text) {
  const std::vector<std::string> words =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
  if (words.size() == 1) {
    return {Op::kPredicate, words[0], {}};
  }
  HEARTH_CHECK(words.size() == 3, Text("a row's condition has the term \"", text, '"').c_str());
  if (words[1] == "is") {
    return {words[2] == "unset" ? Op::kUnset : Op::kSet, words[0], {}};
  }
  if (words[1] == "has") {
    HEARTH_CHECK(
        !TraitOf(words[0]).rows_with(words[2]).empty(),
        Text("a row's condition names ", words[2], ", which no ", words[0], " has").c_str());
    return {Op::kHas, words[0], {words[2]}};
  }
  if (words[0] == "list") {
    return {Op::kEntries, "", {words[2]}};
  }
  const Op op = words[1] == ">" ? Op::kMore : (words[1] == "!=" ? Op::kIsNot : Op::kIs);
  return {op, words[0], absl::StrSplit(words[2], '|')};
}

const Predicate& FindPredicate(const std::string& name) {
  for (const Predicate& row : kPredicates) {
    if (row.name == name) {
      return row;
    }
  }
  HEARTH_CHECK(
      false,
      Text("a row's condition names the predicate ", name, ", which does not exist").c_str());
  return kPredicates[0];
}

// What a condition is about.
struct Subject {
  const v1::JobSpec& job_spec;
  const ListEntry* entry = nullptr;
};

const ListEntry& EntryOf(const Subject& subject) {
  HEARTH_CHECK(subject.entry != nullptr, "a row's condition is about a list's entry outside one");
  return *subject.entry;
}

Place Find(const Subject& subject, const std::string& path) {
  Place place;
  if (path.front() == '.') {
    place.message = EntryOf(subject).message;
    place.field = place.message->GetDescriptor()->FindFieldByName(path.substr(1));
  } else {
    place = FindPlace(subject.job_spec, path);
  }
  HEARTH_CHECK(place.field != nullptr,
               Text("a row's condition names ", path, ", which is no field").c_str());
  return place;
}

// ValueText of what `place` has.
std::optional<std::string> TextOf(const Place& place) {
  if (place.message == nullptr ||
      !place.message->GetReflection()->HasField(*place.message, place.field)) {
    const std::string& text = RowOf(*place.field).default_value();
    return text.empty() ? std::nullopt : std::optional<std::string>(text);
  }
  const Message& message = *place.message;
  const auto& reflection = *message.GetReflection();
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Text(reflection.GetInt32(message, place.field));
    case FieldDescriptor::CPPTYPE_INT64:
      return Text(reflection.GetInt64(message, place.field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Text(reflection.GetDouble(message, place.field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, place.field) ? "true" : "false";
    default:
      return reflection.GetString(message, place.field);
  }
}

bool IsSet(const Place& place) {
  if (place.message == nullptr) {
    return false;
  }
  const auto& reflection = *place.message->GetReflection();
  if (place.field->is_repeated()) {
    return reflection.FieldSize(*place.message, place.field) > 0;
  }
  return reflection.HasField(*place.message, place.field) &&
         (place.field->cpp_type() != FieldDescriptor::CPPTYPE_STRING ||
          !reflection.GetString(*place.message, place.field).empty());
}

Truth EvaluateTerm(const Term& term, const Subject& subject) {
  if (term.op == Op::kPredicate) {
    return FindPredicate(term.subject).holds(subject.job_spec);
  }
  if (term.op == Op::kEntries) {
    int bound = 0;
    HEARTH_CHECK(absl::SimpleAtoi(term.operand[0], &bound), "a row's condition counts entries");
    return FromBool(EntryOf(subject).entries > bound);
  }
  const Place place = Find(subject, term.subject);
  if (term.op == Op::kSet || term.op == Op::kUnset) {
    return FromBool(IsSet(place) == (term.op == Op::kSet));
  }
  const std::optional<std::string> value = TextOf(place);
  if (!value.has_value()) {
    return Truth::kUnknown;
  }
  if (term.op == Op::kMore) {
    double number = 0.0;
    double bound = 0.0;
    const bool numbers =
        absl::SimpleAtod(*value, &number) && absl::SimpleAtod(term.operand[0], &bound);
    return FromBool(numbers && number > bound);
  }
  if (term.op == Op::kHas) {
    const std::optional<bool> has = TraitOf(term.subject).has(*value, term.operand[0]);
    return has.has_value() ? FromBool(*has) : Truth::kUnknown;
  }
  const bool listed =
      std::find(term.operand.begin(), term.operand.end(), *value) != term.operand.end();
  return FromBool(listed == (term.op == Op::kIs));
}

// A path as errors show it: of an entry's own field its name.
std::string PathText(const Term& term) {
  return term.subject.front() == '.' ? term.subject.substr(1) : term.subject;
}

std::string NeedsText(const Term& term) {
  switch (term.op) {
    case Op::kPredicate:
      return std::string(FindPredicate(term.subject).needs);
    case Op::kSet:
      return "with " + PathText(term);
    case Op::kUnset:
      return "without " + PathText(term);
    case Op::kMore:
      return Text("with ", PathText(term), " > ", term.operand[0]);
    case Op::kHas: {
      const Trait& trait = TraitOf(term.subject);
      const std::vector<std::string_view> names = trait.rows_with(term.operand[0]);
      if (names.size() == trait.rows()) {
        return "";  // it always acts
      }
      return Text("with ", PathText(term), ' ',
                  absl::StrJoin(std::vector<std::string>(names.begin(), names.end()), " or "));
    }
    case Op::kIsNot:
      return Text("with ", PathText(term), " other than ", absl::StrJoin(term.operand, " and "));
    case Op::kEntries:
      return Text("in a list of more than ", term.operand[0]);
    case Op::kIs:
      return Text("with ", PathText(term), ' ', absl::StrJoin(term.operand, " or "));
  }
  return "";
}

std::string FoundText(const Term& term, const Subject& subject) {
  switch (term.op) {
    case Op::kPredicate:
      return FindPredicate(term.subject).found(subject.job_spec);
    case Op::kEntries:
      return Text(EntryOf(subject).list, " has ", EntryOf(subject).entries);
    case Op::kSet:
      return PathText(term) + " is not given";
    case Op::kUnset:
      return PathText(term) + " is given";
    default:
      return Text(PathText(term), " is ", TextOf(Find(subject, term.subject)).value_or("not set"));
  }
}

struct Terms {
  bool any = false;  // one suffices; else all must hold
  std::vector<Term> terms;
};

Terms Parse(std::string_view condition) {
  const absl::string_view text(condition.data(), condition.size());
  Terms out;
  out.any = text.find(" or ") != absl::string_view::npos;
  for (absl::string_view term : absl::StrSplit(text, out.any ? " or " : " and ")) {
    out.terms.push_back(ParseTerm({term.data(), term.size()}));
  }
  return out;
}

}  // namespace

Place FindPlace(const v1::JobSpec& job_spec, std::string_view path) {
  Place place{&job_spec, nullptr};
  const google::protobuf::Descriptor* type = v1::JobSpec::descriptor();
  const std::vector<std::string> names =
      absl::StrSplit(absl::string_view(path.data(), path.size()), '.');
  for (size_t i = 0; i < names.size(); ++i) {
    place.field = type->FindFieldByName(names[i]);
    if (place.field == nullptr || i + 1 == names.size()) {
      return place;
    }
    if (!HasRows(*place.field)) {
      return {nullptr, nullptr};
    }
    // Goes on by types where the message is not there: the field has its default all the same.
    type = place.field->message_type();
    const bool there = place.message != nullptr &&
                       place.message->GetReflection()->HasField(*place.message, place.field);
    place.message =
        there ? &place.message->GetReflection()->GetMessage(*place.message, place.field) : nullptr;
  }
  return place;
}

Message* MutablePlace(v1::JobSpec& job_spec, const std::string& path) {
  Message* message = &job_spec;
  for (size_t at = 0, dot = path.find('.'); dot != std::string::npos;
       at = dot + 1, dot = path.find('.', at)) {
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(path.substr(at, dot - at));
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return message;
}

void SetPlace(v1::JobSpec& job_spec, const std::string& path, std::string_view value) {
  Message& message = *MutablePlace(job_spec, path);
  const FieldDescriptor* const field = FindPlace(job_spec, path).field;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    message.GetReflection()->SetBool(&message, field, value == "true");
  } else {
    message.GetReflection()->SetString(&message, field, std::string(value));
  }
}

std::optional<std::string> ValueText(const v1::JobSpec& job_spec, std::string_view path) {
  return TextOf(Find({job_spec}, std::string(path)));
}

Truth Evaluate(std::string_view condition, const v1::JobSpec& job_spec, const ListEntry* entry) {
  const Terms parsed = Parse(condition);
  // A term that decides makes the others not matter; else one unknown term leaves all unknown.
  const Truth decisive = parsed.any ? Truth::kYes : Truth::kNo;
  bool unknown = false;
  for (const Term& term : parsed.terms) {
    const Truth truth = EvaluateTerm(term, {job_spec, entry});
    if (truth == decisive) {
      return decisive;
    }
    unknown |= truth == Truth::kUnknown;
  }
  return unknown ? Truth::kUnknown : FromBool(!parsed.any);
}

std::string Needs(std::string_view condition) {
  const Terms parsed = Parse(condition);
  std::vector<std::string> needs;
  needs.reserve(parsed.terms.size());
  for (const Term& term : parsed.terms) {
    if (std::string text = NeedsText(term); !text.empty()) {
      needs.push_back(std::move(text));
    }
  }
  return absl::StrJoin(needs, parsed.any ? " or " : " and ");
}

std::string WhyNot(std::string_view condition,
                   const v1::JobSpec& job_spec,
                   const ListEntry* entry) {
  const Terms parsed = Parse(condition);
  std::vector<std::string> needs;
  std::vector<std::string> found;
  for (const Term& term : parsed.terms) {
    if (EvaluateTerm(term, {job_spec, entry}) == Truth::kNo) {
      needs.push_back(NeedsText(term));
      found.push_back(FoundText(term, {job_spec, entry}));
    }
  }
  return Text("it acts only ", absl::StrJoin(needs, parsed.any ? " or " : " and "), "; here ",
              absl::StrJoin(found, " and "));
}

}  // namespace hearth::spec
