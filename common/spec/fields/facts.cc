#include "common/spec/fields/facts.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/resume.h"
#include "common/spec/fields/rows.h"
#include "google/protobuf/descriptor.pb.h"

namespace hearth {
// The protos with their comments (common/spec/CMakeLists.txt), in a generated file.
// NOLINTBEGIN(readability-identifier-naming)
extern const unsigned char job_file_protos[];
extern const std::size_t job_file_protos_size;
// NOLINTEND(readability-identifier-naming)
}  // namespace hearth

namespace hearth::spec {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kMessageTag = 4;  // of FileDescriptorProto.message_type, in the paths of locations
constexpr int kFieldTag = 2;    // of DescriptorProto.field

// The comment as one line.
std::string OneLine(const std::string& comment) {
  std::vector<std::string> words =
      absl::StrSplit(comment, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// Full name of a message ("hearth.v1.TrainSpec") or field -> comment.
std::map<std::string, std::string> ReadComments() {
  google::protobuf::FileDescriptorSet protos;
  HEARTH_CHECK(protos.ParseFromArray(job_file_protos, static_cast<int>(job_file_protos_size)),
               "the build embeds a FileDescriptorSet");
  std::map<std::string, std::string> comments;
  for (const auto& file : protos.file()) {
    for (const auto& location : file.source_code_info().location()) {
      const auto& path = location.path();
      const bool message = path.size() == 2 && path[0] == kMessageTag;
      const bool field = path.size() == 4 && path[0] == kMessageTag && path[2] == kFieldTag;
      if (!message && !field) {
        continue;
      }
      const auto& type = file.message_type(path[1]);
      const std::string name = file.package() + '.' + type.name();
      const std::string text =
          OneLine(location.leading_comments() + ' ' + location.trailing_comments());
      comments[field ? name + '.' + type.field(path[3]).name() : name] = text;
    }
  }
  return comments;
}

// Takes the sentence about the default out of `comment`: "Peak, > 0. Default 3e-4." leaves "Peak,
// > 0." and gives "3e-4".
std::string TakeDefault(std::string& comment) {
  const size_t begin = comment.rfind("Default");
  if (begin == std::string::npos || (begin > 0 && comment[begin - 1] != ' ')) {
    return "";
  }
  // A default that is the last sentence ends with the comment's own full stop.
  const size_t stop = std::min(comment.find(". ", begin), comment.size() - 1);
  std::string text = comment.substr(begin + 7, stop - begin - 7);
  text = std::string(absl::StripAsciiWhitespace(absl::StripPrefix(text, ":")));
  comment.erase(begin, stop + 1 - begin);
  comment = OneLine(comment);
  return absl::StrReplaceAll(text, {{"\"", ""}});
}

bool IsSectionType(const Descriptor* type) {
  return type != nullptr && type->file()->package() == v1::JobSpec::descriptor()->file()->package();
}

// The type of one value of the field.
std::string ScalarType(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "boolean";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_STRING:
      return "string";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return IsSectionType(field.message_type())                                ? "section"
             : field.message_type()->full_name() == "google.protobuf.Timestamp" ? "time"
                                                                                : "duration";
    default:
      return "integer";
  }
}

std::string TypeText(const FieldDescriptor& field) {
  if (field.is_map()) {
    return "map of " + ScalarType(*field.message_type()->map_value());
  }
  return (field.is_repeated() ? "list of " : "") + ScalarType(field);
}

// What the fields of an element are the fields of; null: it has none.
const Descriptor* ElementType(const FieldDescriptor& field) {
  const Descriptor* type =
      field.is_map() ? field.message_type()->map_value()->message_type() : field.message_type();
  return IsSectionType(type) ? type : nullptr;
}

class Collector {
 public:
  std::vector<FieldFacts> Collect() {
    Visit(*v1::JobSpec::descriptor(), "");
    return std::move(facts_);
  }

 private:
  void Visit(const Descriptor& type, const std::string& prefix) {
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string path = prefix + field.name();
      facts_.push_back(FactsOf(field, path));
      if (const Descriptor* element = ElementType(field); element != nullptr) {
        Visit(*element, path + (field.is_map() ? ".NAME." : field.is_repeated() ? "[]." : "."));
      }
    }
  }

  FieldFacts FactsOf(const FieldDescriptor& field, const std::string& path) {
    const v1::FieldRow& row = RowOf(field);
    FieldFacts facts;
    facts.path = path;
    facts.field = &field;
    facts.type = TypeText(field);
    facts.unit = row.unit();
    facts.comment = comments_[field.full_name()];
    facts.comment_default = TakeDefault(facts.comment);
    facts.default_text = facts.comment_default;
    if (const Descriptor* element = ElementType(field); element != nullptr) {
      const std::string more = comments_[element->full_name()];
      facts.comment += (facts.comment.empty() || more.empty() ? "" : " ") + more;
    }
    facts.required = row.required();
    if (!row.default_value().empty()) {
      facts.default_text =
          !row.zero().empty() && row.default_value() == "0" ? row.zero() : row.default_value();
      if (!row.default_when().empty()) {
        facts.default_text += ", " + Needs(row.default_when());
        // The comment says what holds elsewhere: "25; on cpu all at once".
        const size_t elsewhere = facts.comment_default.find(';');
        if (elsewhere != std::string::npos) {
          facts.default_text += facts.comment_default.substr(elsewhere);
        }
      }
    }
    if (row.has_min() || row.has_max()) {
      facts.range = RangeText(field);
    }
    facts.names = NamesOf(row);
    facts.needs = row.applies_when().empty() ? "" : Needs(row.applies_when());
    // Elements of a list are under the rule of the list.
    const ResumeRule rule = FindResumeRule(path.substr(0, path.find('[')));
    facts.resumable = rule.allowed;
    facts.resume_why = std::string(rule.why);
    return facts;
  }

  std::map<std::string, std::string> comments_ = ReadComments();
  std::vector<FieldFacts> facts_;
};

std::string WithoutIndex(std::string_view part) {
  return std::string(part.substr(0, part.find('[')));
}

std::vector<std::string> Parts(std::string_view path) {
  std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(path.data(), path.size()), '.', absl::SkipEmpty());
  for (std::string& part : parts) {
    part = WithoutIndex(part);
  }
  return parts;
}

// Whether `given` is the path `stated`, with a key for each NAME or without.
bool Matches(std::vector<std::string> stated, const std::vector<std::string>& given) {
  if (stated.size() > given.size()) {
    stated.erase(std::remove(stated.begin(), stated.end(), "NAME"), stated.end());
  }
  return stated.size() == given.size() &&
         std::equal(
             stated.begin(), stated.end(), given.begin(),
             [](const std::string& a, const std::string& b) { return a == "NAME" || a == b; });
}

}  // namespace

const std::vector<FieldFacts>& JobFileFields() {
  static const auto& fields = *new std::vector<FieldFacts>(Collector().Collect());
  return fields;
}

const FieldFacts* FindFieldFacts(std::string_view path) {
  const std::vector<std::string> given = Parts(path);
  const FieldFacts* found = nullptr;
  for (const FieldFacts& facts : JobFileFields()) {
    std::vector<std::string> stated = Parts(facts.path);
    if (Matches(stated, given)) {
      return &facts;
    }
    if (facts.field->is_map() && stated.size() < given.size()) {
      stated.push_back("NAME");
      found = Matches(stated, given) ? &facts : found;
    }
  }
  return found;
}

std::vector<const FieldFacts*> FieldsIn(std::string_view path) {
  const FieldFacts* section = path.empty() ? nullptr : FindFieldFacts(path);
  const Descriptor* type =
      section == nullptr ? v1::JobSpec::descriptor() : ElementType(*section->field);
  std::vector<const FieldFacts*> fields;
  for (const FieldFacts& facts : JobFileFields()) {
    const bool below =
        section == nullptr || (facts.path.size() > section->path.size() &&
                               facts.path.compare(0, section->path.size(), section->path) == 0);
    if (below && facts.field->containing_type() == type) {
      fields.push_back(&facts);
    }
  }
  return fields;
}

std::string JoinedNames(const FieldFacts& facts) {
  std::string text;
  for (const std::string_view name : facts.names) {
    text.append(text.empty() ? "" : ", ").append(name);
  }
  return text;
}

bool HasFieldsOfItsOwn(const FieldFacts& facts) {
  return ElementType(*facts.field) != nullptr;
}

const FieldDescriptor* FindSynonym(std::string_view name, const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& synonyms = RowOf(*type.field(i)).synonyms();
    if (std::find(synonyms.begin(), synonyms.end(), name) != synonyms.end()) {
      return type.field(i);
    }
  }
  return nullptr;
}

}  // namespace hearth::spec
