#include "common/tokenizer/checked_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace hearth::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr int32_t kMaxVocab = 1 << 22;  // as in common/dataset/format.cc

// The byte at which the nesting gets too deep; text.size() if it does not.
size_t TooDeepAt(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) {
        return i;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text.size();
}

}  // namespace

absl::StatusOr<Json> ParseCheckedJson(std::string_view text, std::string_view file_name) {
  const std::string file(file_name);
  if (const size_t bad = FirstInvalidUtf8(text); bad != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": byte ", bad, " is not UTF-8"));
  }
  if (const size_t deep = TooDeepAt(text); deep != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": byte ", deep, ": nested deeper than ", kMaxDepth, " levels"));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": byte ", error.byte, ": not JSON"));
  } catch (const Json::exception& error) {  // a number that is out of range
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", error.what()));
  }
}

absl::Status JsonPlace::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(Prefix(), std::string(what)));
}

absl::Status JsonPlace::Refuse(std::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(Prefix(), std::string(what), " is not supported"));
}

absl::Status JsonPlace::OnlyKeys(std::initializer_list<std::string_view> known) const {
  HEARTH_RETURN_IF_ERROR(CheckObject());
  for (const auto& item : value_.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      return Refuse(absl::StrCat("\"", item.key(), "\""));
    }
  }
  return absl::OkStatus();
}

JsonPlace JsonPlace::At(std::string_view key) const {
  static const Json& null = *new Json;
  const auto it = value_.is_object() ? value_.find(std::string(key)) : value_.end();
  std::string place = absl::StrCat(place_, place_.empty() ? "" : ".", std::string(key));
  return {it == value_.end() ? null : *it, std::move(place)};
}

JsonPlace JsonPlace::At(size_t index) const {
  return {value_[index], absl::StrCat(place_, "[", index, "]")};
}

absl::StatusOr<bool> JsonPlace::Bool(bool missing) const {
  if (IsNull()) {
    return missing;
  }
  if (!value_.is_boolean()) {
    return Error("must be true or false");
  }
  return value_.get<bool>();
}

absl::StatusOr<std::string> JsonPlace::String() const {
  if (!value_.is_string()) {
    return Error(IsNull() ? "missing" : "must be a string");
  }
  return value_.get<std::string>();
}

absl::StatusOr<int32_t> JsonPlace::Id() const {
  if (!value_.is_number_unsigned() || value_.get<uint64_t>() >= uint64_t{kMaxVocab}) {
    return Error(absl::StrCat("must be an integer 0..", kMaxVocab - 1));
  }
  return static_cast<int32_t>(value_.get<uint64_t>());
}

absl::Status JsonPlace::CheckArray() const {
  return value_.is_array() ? absl::OkStatus() : Error(IsNull() ? "missing" : "must be a list");
}

absl::Status JsonPlace::CheckObject() const {
  return value_.is_object() ? absl::OkStatus() : Error(IsNull() ? "missing" : "must be an object");
}

}  // namespace hearth::tokenizer
