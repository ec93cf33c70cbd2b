// Functions, methods, filters and tests: one table each.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/jinja/value.h"

namespace hearth::jinja {

// The arguments of a call.
struct Arguments {
  absl::Span<const Value> given;  // of methods, filters and tests the first one is the value itself
  const Value::Dict& named;
  Budget& budget;
};

struct Builtin {
  std::string_view name;
  // Numbers of arguments without name; the value itself of methods, filters and tests is not
  // counted.
  int least = 0;
  int most = 0;
  std::string_view keywords;  // names of arguments, with spaces between them; "*": any
  // Errors: kInvalidArgument: a value of the wrong kind; kResourceExhausted.
  absl::StatusOr<Value> (*run)(const Arguments& arguments) = nullptr;

  bool TakesKeyword(std::string_view keyword) const;
};

enum class BuiltinKind { kFunction, kMethod, kFilter, kTest };

// Null: there is none of that name.
const Builtin* FindBuiltin(BuiltinKind kind, std::string_view name);

// a `op` b of + - * / // % ~ and of the comparisons of Expression.
absl::StatusOr<Value> BinaryOperation(std::string_view op,
                                      const Value& a,
                                      const Value& b,
                                      Budget& budget);
absl::StatusOr<bool> Compare(std::string_view op, const Value& a, const Value& b, Budget& budget);

// value[key]; undefined where there is no such item.
absl::StatusOr<Value> ItemOf(const Value& value, const Value& key, Budget& budget);
// value[begin:end:step] of a string (whose characters count) or list; undefined: left out.
absl::StatusOr<Value> SliceOf(
    const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);
// What a loop over the value goes through.
absl::StatusOr<Value::List> ItemsOf(const Value& value, Budget& budget);

}  // namespace hearth::jinja
