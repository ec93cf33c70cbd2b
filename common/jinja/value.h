// Values of templates, with Python's meaning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace hearth::jinja {

// What a rendering may still use. Every step and every byte of text that it makes or looks through
// is charged, so that a hostile template ends.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  // kResourceExhausted: used up.
  absl::Status Step();
  absl::Status Charge(size_t bytes);

 private:
  int64_t steps_;
  int64_t bytes_;
};

// Immutable except for namespaces; copies share what they hold. Lists and dicts are at most
// kMaxDepth deep, and no value holds a namespace, so values have no cycles.
class Value {
 public:
  static constexpr int kMaxDepth = 64;

  using List = std::vector<Value>;
  using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of insertion
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kDict, kNamespace };

  Value() = default;  // undefined
  static Value None();
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(std::string value);
  // kInvalidArgument: deeper than kMaxDepth, or a namespace in it.
  static absl::StatusOr<Value> OfList(List items);
  static absl::StatusOr<Value> OfDict(Dict items);
  static absl::StatusOr<Value> NewNamespace(Dict items);
  static absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsUndefined() const { return Is(Kind::kUndefined); }
  bool IsNumber() const { return Is(Kind::kInt) || Is(Kind::kFloat) || Is(Kind::kBool); }
  std::string_view KindName() const;  // as Python names it

  // The caller has checked the kind. A bool is an int too.
  bool boolean() const { return std::get<bool>(value_); }
  int64_t integer() const;
  double number() const;
  const std::string& string() const { return *std::get<Text>(value_); }
  const List& list() const { return std::get<std::shared_ptr<const ListData>>(value_)->items; }
  const Dict& dict() const;  // of a namespace too

  bool Truthy() const;
  absl::StatusOr<bool> Equals(const Value& other, Budget& budget) const;
  // The value of a key of a dict or namespace; undefined: it has none.
  Value Get(std::string_view key) const;
  // Changes a namespace. kInvalidArgument: `value` is one too.
  absl::Status Set(const std::string& key, Value value) const;

  // As Python's str prints it. kInvalidArgument: a list or dict, which templates print by tojson.
  absl::StatusOr<std::string> ToText() const;
  // As json.dumps(ensure_ascii=False) prints it; `indent` < 0: on one line. kInvalidArgument:
  // undefined, or a namespace.
  absl::StatusOr<std::string> ToJson(int indent, Budget& budget) const;

 private:
  using Text = std::shared_ptr<const std::string>;
  struct ListData {
    List items;
    int depth = 1;
  };
  struct DictData {
    Dict items;
    int depth = 1;
  };
  struct NamespaceData {
    Dict items;
  };
  struct NoneTag {};

  // A list or a dict whose parts were checked.
  template <typename Data, typename Items>
  static Value Holding(std::shared_ptr<Data> data, Items items);
  static absl::Status CheckPart(const Value& part, int* depth);
  int depth() const;
  absl::Status AppendJson(int indent, int level, Budget& budget, std::string* out) const;

  std::variant<std::monostate,
               NoneTag,
               bool,
               int64_t,
               double,
               Text,
               std::shared_ptr<const ListData>,
               std::shared_ptr<const DictData>,
               std::shared_ptr<NamespaceData>>
      value_;
};

}  // namespace hearth::jinja
