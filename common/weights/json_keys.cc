#include "common/weights/json_keys.h"

#include <cstdint>

namespace hearth::weights {

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

absl::StatusOr<nlohmann::json> ParseJsonFile(std::string_view text,
                                             std::string_view file_name,
                                             std::string_view format,
                                             int newest_version) {
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string file(file_name);
  if (json.is_discarded() || !json.is_object()) {
    return absl::DataLossError(absl::StrCat(file, ": not a JSON object"));
  }
  const auto found = json.find("format");
  if (found == json.end() || !found->is_string() || found->get<std::string>() != format) {
    return absl::DataLossError(absl::StrCat(file, ": format is not ", std::string(format)));
  }
  const auto version = json.find("version");
  if (version == json.end() || !version->is_number_integer() || version->get<int64_t>() < 1 ||
      version->get<int64_t>() > newest_version) {
    return absl::DataLossError(absl::StrCat(file, ": version is not one of 1 to ", newest_version));
  }
  return json;
}

}  // namespace hearth::weights
