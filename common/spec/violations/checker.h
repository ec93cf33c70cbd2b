// Collects violations; shared by the validation files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/spec/violations/field_violation.h"
#include "common/spec/violations/names.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {

class Checker {
 public:
  // `violations` outlives the checker.
  explicit Checker(std::vector<FieldViolation>& violations) : violations_(violations) {}

  void Add(std::string_view field, std::string description) {
    violations_.push_back({std::string(field), std::move(description)});
  }

  // Violations so far.
  size_t size() const { return violations_.size(); }

  // lo <= value <= hi. A NaN is out of every range.
  template <typename T>
  void Range(std::string_view field, T value, T lo, T hi) {
    if (!(value >= lo && value <= hi)) {
      Add(field, Text(value, " is out of range; must be ", lo, "..", hi));
    }
  }

  // `ok` is the whole condition; `rule` completes "<value> ".
  template <typename T>
  void Rule(std::string_view field, bool ok, const T& value, std::string_view rule) {
    if (!ok) {
      Add(field, Text(value, ' ', rule));
    }
  }

  // `value` is one of `names`; false if not.
  bool Name(std::string_view field,
            std::string_view value,
            std::string_view what,
            const std::vector<std::string_view>& names) {
    for (std::string_view name : names) {
      if (name == value) {
        return true;
      }
    }
    Add(field, UnknownNameText(value, what, names));
    return false;
  }

 private:
  std::vector<FieldViolation>& violations_;
};

}  // namespace hearth::spec
