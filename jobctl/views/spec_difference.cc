#include "jobctl/views/spec_difference.h"

#include "common/config/yaml_writer.h"
#include "common/spec/fields/conditions.h"
#include "common/spec/fields/rows.h"

namespace hearth::jobctl {
namespace {

std::string ValueOf(const v1::JobSpec& spec, const std::string& path) {
  const spec::Place place = spec::FindPlace(spec, path);
  return place.message == nullptr ? "unset" : config::WriteFlow(*place.message, *place.field);
}

}  // namespace

std::vector<KeyDifference> SpecDifferences(const v1::JobSpec& a, const v1::JobSpec& b) {
  std::vector<KeyDifference> differences;
  spec::ForEachField([&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
    if (spec::HasRows(field)) {
      return;
    }
    const std::string left = ValueOf(a, path);
    const std::string right = ValueOf(b, path);
    if (left != right) {
      differences.push_back({path, left, right});
    }
  });
  return differences;
}

}  // namespace hearth::jobctl
