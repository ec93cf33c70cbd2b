// JSON files of a checkpoint: their format, version and typed keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace hearth::weights {

// Indented, with a line end after it. Text that is not UTF-8 is replaced.
std::string DumpJson(const nlohmann::ordered_json& json);

// Reads typed keys; the first mismatch is kept, as kDataLoss that names file and key. `json`
// outlives the object. Not thread-safe.
class KeyReader {
 public:
  KeyReader(const nlohmann::json& json, std::string_view file) : json_(json), file_(file) {}

  // For an integer, also a number with a fraction or outside T is a mismatch.
  template <typename T>
  void Number(const char* key, T* out) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_number()) {
      return Fail(key, "is not a number");
    }
    if constexpr (std::is_integral_v<T>) {
      if (!it->is_number_integer()) {
        return Fail(key, "is not an integer");
      }
      const bool fits = it->is_number_unsigned() ? std::in_range<T>(it->get<uint64_t>())
                                                 : std::in_range<T>(it->get<int64_t>());
      if (!fits) {
        return Fail(key, "is out of range");
      }
    }
    *out = it->get<T>();
  }

  void String(const char* key, std::string* out) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_string()) {
      return Fail(key, "is not a string");
    }
    *out = it->get<std::string>();
  }

  void Fail(const char* key, const char* what) {
    if (status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat(file_, ": ", key, " ", what));
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json& json_;
  const std::string file_;
  absl::Status status_;
};

// An object whose `format` is this and whose `version` is one of 1 to `newest_version`; else
// kDataLoss naming the file.
absl::StatusOr<nlohmann::json> ParseJsonFile(std::string_view text,
                                             std::string_view file_name,
                                             std::string_view format,
                                             int newest_version);

}  // namespace hearth::weights
