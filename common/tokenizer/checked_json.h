// JSON from files of others, read with errors that name the file and the place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hearth::tokenizer {

// kInvalidArgument with file and byte: not JSON, not UTF-8, deeper than 64 levels.
absl::StatusOr<nlohmann::json> ParseCheckedJson(std::string_view text, std::string_view file_name);

// One value of a file, with the place that errors name. `value` must outlive it.
class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string place)
      : value_(value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return value_; }
  const std::string& place() const { return place_; }

  absl::Status Error(std::string_view what) const;   // kInvalidArgument
  absl::Status Refuse(std::string_view what) const;  // kUnimplemented

  // Errors: not an object, or one with a key that `known` lacks.
  absl::Status OnlyKeys(std::initializer_list<std::string_view> known) const;
  // The value of `key`, null if it is missing.
  JsonPlace At(std::string_view key) const;
  JsonPlace At(size_t index) const;

  bool IsNull() const { return value_.is_null(); }
  // Errors: of another type. A missing or null value is `missing`.
  absl::StatusOr<bool> Bool(bool missing) const;
  absl::StatusOr<std::string> String() const;  // must be there
  absl::StatusOr<int32_t> Id() const;          // must be there, 0 .. 2^22 - 1
  absl::Status CheckArray() const;
  absl::Status CheckObject() const;

 private:
  const nlohmann::json& value_;
  std::string Prefix() const { return place_.empty() ? "" : place_ + ": "; }

  std::string place_;  // empty: the whole file
};

}  // namespace hearth::tokenizer
