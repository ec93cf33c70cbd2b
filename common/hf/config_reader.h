// Reads keys of a JSON object of config.json.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace hearth::hf {

using Json = nlohmann::json;

// Keeps the first error. A null counts as absent, as in transformers. `json` outlives the object.
// Not thread-safe.
class ConfigReader {
 public:
  ConfigReader(const Json& json, std::string_view file_name) : json_(json), file_(file_name) {}

  const absl::Status& status() const { return status_; }

  void Fail(absl::StatusCode code, std::string_view key, std::string_view what) {
    if (status_.ok()) {
      status_ =
          absl::Status(code, absl::StrCat(file_, ": ", std::string(key), ": ", std::string(what)));
    }
  }

  bool Has(const char* key) const { return Find(key) != nullptr; }
  // It is there and null, which some classes tell from absent.
  bool IsNull(const char* key) const { return json_.contains(key) && Find(key) == nullptr; }
  // The value equals that JSON text; numbers by value.
  bool Is(const char* key, std::string_view json) const {
    return Has(key) && *Find(key) == Json::parse(json, nullptr, /*allow_exceptions=*/false);
  }
  // The value as JSON text, "" when absent.
  std::string Text(const char* key) const { return Has(key) ? Find(key)->dump() : std::string(); }

  int64_t Int(const char* key, std::optional<int64_t> absent = std::nullopt) {
    const Json* value = Find(key);
    if (value == nullptr) {
      if (!absent.has_value()) {
        Fail(absl::StatusCode::kInvalidArgument, key, "missing");
      }
      return absent.value_or(1);
    }
    // The file may be anybody's: a count that is absurd must not become an allocation.
    if (!value->is_number_integer() || value->get<double>() < 1 || value->get<double>() > 1e9) {
      Fail(absl::StatusCode::kInvalidArgument, key, "must be a positive integer");
      return 1;
    }
    return value->get<int64_t>();
  }

  double Double(const char* key, double absent) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return absent;
    }
    if (!value->is_number() || !std::isfinite(value->get<double>())) {
      Fail(absl::StatusCode::kInvalidArgument, key, "must be a number");
      return absent;
    }
    return value->get<double>();
  }

  bool Bool(const char* key, bool absent) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return absent;
    }
    if (!value->is_boolean()) {
      Fail(absl::StatusCode::kInvalidArgument, key, "must be true or false");
      return absent;
    }
    return value->get<bool>();
  }

  std::string String(const char* key, std::string_view absent) {
    const Json* value = Find(key);
    if (value == nullptr) {
      return std::string(absent);
    }
    if (!value->is_string()) {
      Fail(absl::StatusCode::kInvalidArgument, key, "must be a string");
      return std::string(absent);
    }
    return value->get<std::string>();
  }

  // The object at `key`, or nullptr.
  const Json* Object(const char* key) const {
    const Json* value = Find(key);
    return value != nullptr && value->is_object() ? value : nullptr;
  }

 private:
  const Json* Find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  const Json& json_;
  const std::string file_;
  absl::Status status_;
};

}  // namespace hearth::hf
