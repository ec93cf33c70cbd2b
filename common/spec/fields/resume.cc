#include "common/spec/fields/resume.h"

#include <string>

#include "common/spec/fields/rows.h"

namespace hearth::spec {

ResumeRule FindResumeRule(std::string_view path) {
  ResumeRule rule;
  const google::protobuf::Descriptor* type = v1::JobSpec::descriptor();
  while (true) {
    const size_t dot = path.find('.');
    const auto* field = FindField(*type, path.substr(0, dot));
    if (field == nullptr) {
      return {};
    }
    const v1::FieldRow& row = RowOf(*field);
    if (!row.resume().empty() || !row.fixed().empty()) {
      rule.allowed = !row.resume().empty();
      rule.why = rule.allowed ? row.resume() : row.fixed();
    }
    // Entries of maps and elements of lists are under the rule of their field.
    if (dot == std::string_view::npos || !HasRows(*field)) {
      rule.known = dot == std::string_view::npos || field->is_map();
      return rule;
    }
    path = path.substr(dot + 1);
    type = field->message_type();
  }
}

}  // namespace hearth::spec
