// Operators and subscripts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/jinja/builtins.h"
#include "common/jinja/characters.h"

namespace hearth::jinja {
namespace {

using Kind = Value::Kind;

absl::Status NotFor(std::string_view op, const Value& a, const Value& b) {
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(op), "\" of ",
                                                 std::string(a.KindName()), " and ",
                                                 std::string(b.KindName()), " is not supported"));
}

// As Python divides: towards minus infinity.
int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

absl::StatusOr<Value> OfIntegers(std::string_view op, const Value& a, const Value& b) {
  const int64_t x = a.integer();
  const int64_t y = b.integer();
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(x, y, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(x, y, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(x, y, &result);
  } else if (y == 0) {
    return absl::InvalidArgumentError("a division by zero");
  } else if (op == "/") {
    return Value::Float(a.number() / b.number());
  } else if (x == std::numeric_limits<int64_t>::min()) {
    // -2^63 divided by -1 overflows, which ends the process on x86.
    overflow = true;
  } else {
    result = op == "//" ? FloorDivide(x, y) : x - FloorDivide(x, y) * y;
  }
  return overflow ? absl::StatusOr<Value>(absl::InvalidArgumentError("a number that is too large"))
                  : Value::Int(result);
}

absl::StatusOr<Value> OfNumbers(std::string_view op, const Value& a, const Value& b) {
  const double x = a.number();
  const double y = b.number();
  if (op == "+") {
    return Value::Float(x + y);
  }
  if (op == "-") {
    return Value::Float(x - y);
  }
  if (op == "*") {
    return Value::Float(x * y);
  }
  if (y == 0) {
    return absl::InvalidArgumentError("a division by zero");
  }
  return op == "/"    ? Value::Float(x / y)
         : op == "//" ? Value::Float(std::floor(x / y))
                      : Value::Float(x - std::floor(x / y) * y);
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.Is(Kind::kString)) {
        return NotFor("in", item, container);
      }
      HEARTH_RETURN_IF_ERROR(budget.Charge(container.string().size() + item.string().size()));
      return Find(container.string(), item.string(), 0) != std::string_view::npos;
    case Kind::kDict:
      HEARTH_RETURN_IF_ERROR(budget.Charge(container.dict().size()));
      return item.Is(Kind::kString) && !container.Get(item.string()).IsUndefined();
    case Kind::kList:
      for (const Value& one : container.list()) {
        HEARTH_ASSIGN_OR_RETURN(const bool same, one.Equals(item, budget));
        if (same) {
          return true;
        }
      }
      return false;
    case Kind::kUndefined:
      return false;
    default:
      return NotFor("in", item, container);
  }
}

// begin, end and step of a slice of `size` items, as Python clips them.
struct Cut {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
};

absl::StatusOr<Cut> CutOf(const Value& begin, const Value& end, const Value& step, size_t size) {
  for (const Value* bound : {&begin, &end, &step}) {
    if (!bound->IsUndefined() && !bound->Is(Kind::kInt) && !bound->Is(Kind::kNone)) {
      return absl::InvalidArgumentError("slice bounds must be integers");
    }
  }
  const auto n = static_cast<int64_t>(size);
  Cut cut;
  cut.step = step.Is(Kind::kInt) ? step.integer() : 1;
  if (cut.step == 0 || cut.step == std::numeric_limits<int64_t>::min()) {
    return absl::InvalidArgumentError("a slice with a step of 0");
  }
  const bool back = cut.step < 0;
  const auto clip = [n, back](const Value& bound, int64_t missing) {
    if (!bound.Is(Kind::kInt)) {
      return missing;
    }
    const int64_t at = bound.integer() < 0 ? bound.integer() + n : bound.integer();
    return std::clamp<int64_t>(at, back ? -1 : 0, back ? n - 1 : n);
  };
  cut.begin = clip(begin, back ? n - 1 : 0);
  cut.end = clip(end, back ? -1 : n);
  // A longer step ends a loop as well, and i + step cannot overflow.
  cut.step = std::clamp<int64_t>(cut.step, -n - 1, n + 1);
  return cut;
}

}  // namespace

absl::StatusOr<Value> BinaryOperation(std::string_view op,
                                      const Value& a,
                                      const Value& b,
                                      Budget& budget) {
  if (op == "~") {
    HEARTH_ASSIGN_OR_RETURN(std::string text, a.ToText());
    HEARTH_ASSIGN_OR_RETURN(const std::string more, b.ToText());
    HEARTH_RETURN_IF_ERROR(budget.Charge(text.size() + more.size()));
    return Value::String(text + more);
  }
  // Charged before it is made, here and below: a template that doubles a text in a loop must end
  // before the memory does.
  if (op == "+" && a.Is(Kind::kString) && b.Is(Kind::kString)) {
    HEARTH_RETURN_IF_ERROR(budget.Charge(a.string().size() + b.string().size()));
    return Value::String(a.string() + b.string());
  }
  if (op == "+" && a.Is(Kind::kList) && b.Is(Kind::kList)) {
    HEARTH_RETURN_IF_ERROR(budget.Charge((a.list().size() + b.list().size()) * sizeof(Value)));
    Value::List both = a.list();
    both.insert(both.end(), b.list().begin(), b.list().end());
    return Value::OfList(std::move(both));
  }
  if (a.IsNumber() && b.IsNumber()) {
    return a.Is(Kind::kFloat) || b.Is(Kind::kFloat) ? OfNumbers(op, a, b) : OfIntegers(op, a, b);
  }
  return NotFor(op, a, b);
}

absl::StatusOr<bool> Compare(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (op == "in" || op == "not in") {
    HEARTH_ASSIGN_OR_RETURN(const bool is_in, Contains(b, a, budget));
    return is_in == (op == "in");
  }
  if (op == "==" || op == "!=") {
    HEARTH_ASSIGN_OR_RETURN(const bool same, a.Equals(b, budget));
    return same == (op == "==");
  }
  int order = 0;
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    HEARTH_RETURN_IF_ERROR(budget.Charge(std::min(a.string().size(), b.string().size())));
    order = a.string().compare(b.string());
  } else if (a.IsNumber() && b.IsNumber()) {
    order = a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  } else {
    return NotFor(op, a, b);
  }
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

absl::StatusOr<Value> ItemOf(const Value& value, const Value& key, Budget& budget) {
  if (value.Is(Kind::kDict) || value.Is(Kind::kNamespace)) {
    HEARTH_RETURN_IF_ERROR(budget.Charge(value.dict().size()));
    return key.Is(Kind::kString) ? value.Get(key.string()) : Value();
  }
  if (value.IsUndefined()) {
    return absl::InvalidArgumentError("an item of an undefined value");
  }
  if (!key.Is(Kind::kInt)) {
    return Value();  // as in Jinja: what is not there is undefined and no error
  }
  const auto at = [&key](size_t size) {
    const auto n = static_cast<int64_t>(size);
    const int64_t i = key.integer() < 0 ? key.integer() + n : key.integer();
    return i >= 0 && i < n ? i : -1;
  };
  if (value.Is(Kind::kList)) {
    const int64_t i = at(value.list().size());
    return i < 0 ? Value() : value.list()[static_cast<size_t>(i)];
  }
  if (value.Is(Kind::kString)) {
    HEARTH_RETURN_IF_ERROR(budget.Charge(value.string().size()));
    const std::vector<size_t> offsets = CharacterOffsets(value.string());
    const int64_t i = at(offsets.size() - 1);  // the last offset is the end of the text
    const auto k = static_cast<size_t>(i);
    return i < 0 ? Value()
                 : Value::String(value.string().substr(offsets[k], offsets[k + 1] - offsets[k]));
  }
  return Value();
}

absl::StatusOr<Value> SliceOf(
    const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  const bool text = value.Is(Kind::kString);
  if (!text && !value.Is(Kind::kList)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slice of a value that is ", std::string(value.KindName())));
  }
  HEARTH_RETURN_IF_ERROR(
      budget.Charge(text ? value.string().size() : value.list().size() * sizeof(Value)));
  const std::vector<size_t> offsets =
      text ? CharacterOffsets(value.string()) : std::vector<size_t>();
  HEARTH_ASSIGN_OR_RETURN(const Cut cut,
                          CutOf(begin, end, step, text ? offsets.size() - 1 : value.list().size()));
  std::string characters;
  Value::List items;
  for (int64_t i = cut.begin; cut.step > 0 ? i < cut.end : i > cut.end; i += cut.step) {
    const auto k = static_cast<size_t>(i);
    if (text) {
      characters.append(value.string(), offsets[k], offsets[k + 1] - offsets[k]);
    } else {
      items.push_back(value.list()[k]);
    }
  }
  return text ? Value::String(std::move(characters)) : Value::OfList(std::move(items));
}

absl::StatusOr<Value::List> ItemsOf(const Value& value, Budget& budget) {
  Value::List items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;  // as in Jinja: templates loop over `tools` without asking whether there are any
    case Kind::kList:
      HEARTH_RETURN_IF_ERROR(budget.Charge(value.list().size() * sizeof(Value)));
      return value.list();
    case Kind::kDict:
      for (const auto& [key, item] : value.dict()) {
        HEARTH_RETURN_IF_ERROR(budget.Charge(key.size() + sizeof(Value)));
        items.push_back(Value::String(key));
      }
      return items;
    case Kind::kString: {
      const std::vector<size_t> offsets = CharacterOffsets(value.string());
      HEARTH_RETURN_IF_ERROR(budget.Charge(offsets.size() * 2 * sizeof(Value)));
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        items.push_back(
            Value::String(value.string().substr(offsets[i], offsets[i + 1] - offsets[i])));
      }
      return items;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a loop over a value that is ", std::string(value.KindName())));
  }
}

}  // namespace hearth::jinja
