#include "common/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::jinja {
namespace {

constexpr std::string_view kKindNames[] = {"undefined", "None", "bool", "int",      "float",
                                           "str",       "list", "dict", "namespace"};

// The shortest text that reads as the same number, as Python's repr gives it for ordinary ones.
std::string FloatText(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end.ptr);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string Quoted(const std::string& text) {
  return nlohmann::ordered_json(text).dump(-1, ' ', false,
                                           nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

absl::Status Budget::Step() {
  return --steps_ >= 0 ? absl::OkStatus()
                       : absl::ResourceExhaustedError("the template takes too many steps");
}

absl::Status Budget::Charge(size_t bytes) {
  bytes_ -= static_cast<int64_t>(bytes);
  return bytes_ >= 0 ? absl::OkStatus()
                     : absl::ResourceExhaustedError("the template makes too much text");
}

Value Value::None() {
  Value v;
  v.value_ = NoneTag();
  return v;
}

Value Value::Bool(bool value) {
  Value v;
  v.value_ = value;
  return v;
}

Value Value::Int(int64_t value) {
  Value v;
  v.value_ = value;
  return v;
}

Value Value::Float(double value) {
  Value v;
  v.value_ = value;
  return v;
}

Value Value::String(std::string value) {
  Value v;
  v.value_ = std::make_shared<const std::string>(std::move(value));
  return v;
}

int Value::depth() const {
  if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&value_)) {
    return (*list)->depth;
  }
  const auto* dict = std::get_if<std::shared_ptr<const DictData>>(&value_);
  return dict == nullptr ? 0 : (*dict)->depth;
}

absl::Status Value::CheckPart(const Value& part, int* depth) {
  // Only a namespace can change after it was made. As a part of others it could come to contain
  // itself, and printing it would never end.
  if (part.Is(Kind::kNamespace)) {
    return absl::InvalidArgumentError("a namespace cannot be part of another value");
  }
  *depth = std::max(*depth, part.depth() + 1);
  return *depth <= kMaxDepth
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("lists deeper than ", kMaxDepth, " levels"));
}

template <typename Data, typename Items>
Value Value::Holding(std::shared_ptr<Data> data, Items items) {
  data->items = std::move(items);
  Value v;
  v.value_ = std::shared_ptr<const Data>(std::move(data));
  return v;
}

absl::StatusOr<Value> Value::OfList(List items) {
  auto data = std::make_shared<ListData>();
  for (const Value& item : items) {
    HEARTH_RETURN_IF_ERROR(CheckPart(item, &data->depth));
  }
  return Holding(std::move(data), std::move(items));
}

absl::StatusOr<Value> Value::OfDict(Dict items) {
  auto data = std::make_shared<DictData>();
  for (const auto& [key, item] : items) {
    HEARTH_RETURN_IF_ERROR(CheckPart(item, &data->depth));
  }
  return Holding(std::move(data), std::move(items));
}

absl::StatusOr<Value> Value::NewNamespace(Dict items) {
  int depth = 0;
  for (const auto& [key, item] : items) {
    HEARTH_RETURN_IF_ERROR(CheckPart(item, &depth));
  }
  Value v;
  v.value_ = std::make_shared<NamespaceData>(NamespaceData{std::move(items)});
  return v;
}

absl::StatusOr<Value> Value::FromJson(const nlohmann::ordered_json& json) {
  if (json.is_object()) {
    Dict dict;
    for (const auto& [key, item] : json.items()) {
      HEARTH_ASSIGN_OR_RETURN(Value value, FromJson(item));
      dict.emplace_back(key, std::move(value));
    }
    return OfDict(std::move(dict));
  }
  if (json.is_array()) {
    List list;
    for (const nlohmann::ordered_json& item : json) {
      HEARTH_ASSIGN_OR_RETURN(Value value, FromJson(item));
      list.push_back(std::move(value));
    }
    return OfList(std::move(list));
  }
  if (json.is_string()) {
    return String(json.get<std::string>());
  }
  if (json.is_boolean()) {
    return Bool(json.get<bool>());
  }
  if (json.is_number_integer()) {
    return Int(json.get<int64_t>());
  }
  return json.is_number() ? Float(json.get<double>()) : None();
}

std::string_view Value::KindName() const {
  return kKindNames[value_.index()];
}

int64_t Value::integer() const {
  return Is(Kind::kBool) ? static_cast<int64_t>(boolean()) : std::get<int64_t>(value_);
}

double Value::number() const {
  return Is(Kind::kFloat) ? std::get<double>(value_) : static_cast<double>(integer());
}

const Value::Dict& Value::dict() const {
  if (Is(Kind::kNamespace)) {
    return std::get<std::shared_ptr<NamespaceData>>(value_)->items;
  }
  return std::get<std::shared_ptr<const DictData>>(value_)->items;
}

bool Value::Truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return number() != 0;
    case Kind::kString:
      return !string().empty();
    case Kind::kList:
      return !list().empty();
    case Kind::kDict:
      return !dict().empty();
    case Kind::kNamespace:
      return true;
  }
  return false;
}

absl::StatusOr<bool> Value::Equals(const Value& other, Budget& budget) const {
  HEARTH_RETURN_IF_ERROR(budget.Step());
  if (IsNumber() && other.IsNumber()) {
    return Is(Kind::kFloat) || other.Is(Kind::kFloat) ? number() == other.number()
                                                      : integer() == other.integer();
  }
  if (kind() != other.kind()) {
    return false;
  }
  switch (kind()) {
    case Kind::kString:
      HEARTH_RETURN_IF_ERROR(budget.Charge(string().size()));
      return string() == other.string();
    case Kind::kList: {
      bool same = list().size() == other.list().size();
      for (size_t i = 0; same && i < list().size(); ++i) {
        HEARTH_ASSIGN_OR_RETURN(same, list()[i].Equals(other.list()[i], budget));
      }
      return same;
    }
    case Kind::kDict: {
      bool same = dict().size() == other.dict().size();
      for (size_t i = 0; same && i < dict().size(); ++i) {
        const auto& [key, value] = dict()[i];
        // Get compares with one key after the other.
        HEARTH_RETURN_IF_ERROR(budget.Charge(dict().size()));
        HEARTH_ASSIGN_OR_RETURN(same, other.Get(key).Equals(value, budget));
      }
      return same;
    }
    case Kind::kNamespace:
      // Its items change, so it equals only itself.
      return &dict() == &other.dict();
    default:
      return true;  // undefined and None
  }
}

Value Value::Get(std::string_view key) const {
  for (const auto& [name, value] : dict()) {
    if (name == key) {
      return value;
    }
  }
  return Value();
}

absl::Status Value::Set(const std::string& key, Value value) const {
  int depth = 0;
  HEARTH_RETURN_IF_ERROR(CheckPart(value, &depth));
  Dict& items = std::get<std::shared_ptr<NamespaceData>>(value_)->items;
  for (auto& [name, old] : items) {
    if (name == key) {
      old = std::move(value);
      return absl::OkStatus();
    }
  }
  items.emplace_back(key, std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Value::ToText() const {
  switch (kind()) {
    case Kind::kUndefined:
      return std::string();
    case Kind::kNone:
      return std::string("None");
    case Kind::kBool:
      return std::string(boolean() ? "True" : "False");
    case Kind::kInt:
      return absl::StrCat(integer());
    case Kind::kFloat:
      return FloatText(number());
    case Kind::kString:
      return string();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a ", std::string(KindName()), " cannot be printed; tojson prints one"));
  }
}

absl::StatusOr<std::string> Value::ToJson(int indent, Budget& budget) const {
  std::string out;
  HEARTH_RETURN_IF_ERROR(AppendJson(indent, 0, budget, &out));
  return out;
}

absl::Status Value::AppendJson(int indent, int level, Budget& budget, std::string* out) const {
  HEARTH_RETURN_IF_ERROR(budget.Step());
  const bool is_list = Is(Kind::kList);
  if (is_list || Is(Kind::kDict)) {
    const size_t count = is_list ? list().size() : dict().size();
    const auto line = [&](int at) {
      return indent < 0 ? std::string()
                        : absl::StrCat("\n", std::string(static_cast<size_t>(indent * at), ' '));
    };
    out->push_back(is_list ? '[' : '{');
    for (size_t i = 0; i < count; ++i) {
      // As Python's json.dumps separates them: models were trained on its text.
      const std::string separator = i == 0 ? "" : indent < 0 ? ", " : ",";
      HEARTH_RETURN_IF_ERROR(budget.Charge(static_cast<size_t>(std::max(indent, 0) * level) + 2));
      absl::StrAppend(out, separator, line(level + 1));
      if (!is_list) {
        absl::StrAppend(out, Quoted(dict()[i].first), ": ");
      }
      const Value& part = is_list ? list()[i] : dict()[i].second;
      HEARTH_RETURN_IF_ERROR(part.AppendJson(indent, level + 1, budget, out));
    }
    absl::StrAppend(out, count > 0 ? line(level) : "", is_list ? "]" : "}");
    return absl::OkStatus();
  }
  const size_t before = out->size();
  switch (kind()) {
    case Kind::kNone:
      *out += "null";
      break;
    case Kind::kBool:
      *out += boolean() ? "true" : "false";
      break;
    case Kind::kString:
      *out += Quoted(string());
      break;
    case Kind::kInt:
    case Kind::kFloat: {
      HEARTH_ASSIGN_OR_RETURN(const std::string number_text, ToText());
      *out += number_text;
      break;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("tojson of a value that is ", std::string(KindName())));
  }
  return budget.Charge(out->size() - before);
}

}  // namespace hearth::jinja
