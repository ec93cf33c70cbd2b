#include "jobctl/client/paths.h"

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "common/spec/fields/rows.h"

namespace hearth::jobctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Normal(const std::filesystem::path& path) {
  std::string text = path.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') {
    text.pop_back();
  }
  return text;
}

}  // namespace

std::string FromHere(const std::string& path, const std::string& home, const std::string& folder) {
  if (!home.empty() && (path == "~" || absl::StartsWith(path, "~/"))) {
    return Normal(home + path.substr(1));
  }
  const bool relative =
      path == "." || path == ".." || absl::StartsWith(path, "./") || absl::StartsWith(path, "../");
  return relative ? Normal(std::filesystem::path(folder) / path) : path;
}

void MakePathsAbsolute(Message& message, const std::string& home, const std::string& folder) {
  const auto& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
        MakePathsAbsolute(*reflection.MutableRepeatedMessage(&message, field, i), home, folder);
      }
      if (!field->is_repeated()) {
        MakePathsAbsolute(*reflection.MutableMessage(&message, field), home, folder);
      }
    } else if (spec::RowOf(*field).worker_path() && field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        reflection.SetRepeatedString(
            &message, field, i,
            FromHere(reflection.GetRepeatedString(message, field, i), home, folder));
      }
    } else if (spec::RowOf(*field).worker_path()) {
      reflection.SetString(&message, field,
                           FromHere(reflection.GetString(message, field), home, folder));
    }
  }
}

}  // namespace hearth::jobctl
