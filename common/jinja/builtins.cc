#include "common/jinja/builtins.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/jinja/characters.h"

namespace hearth::jinja {
namespace {

using Kind = Value::Kind;

absl::Status WrongKind(std::string_view wanted, const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", std::string(wanted), ", got ", std::string(value.KindName())));
}

// Argument `i` or the one called `name`; undefined where it is not given.
Value ArgumentOf(const Arguments& call, size_t i, std::string_view name) {
  if (i < call.given.size()) {
    return call.given[i];
  }
  for (const auto& [key, value] : call.named) {
    if (key == name) {
      return value;
    }
  }
  return Value();
}

absl::StatusOr<std::string> StringArgument(const Arguments& call, size_t i) {
  const Value& value = call.given[i];
  if (!value.Is(Kind::kString)) {
    return WrongKind("a string", value);
  }
  HEARTH_RETURN_IF_ERROR(call.budget.Charge(value.string().size()));
  return value.string();
}

// What filters take for text: numbers too.
absl::StatusOr<std::string> TextArgument(const Arguments& call, size_t i) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, call.given[i].ToText());
  HEARTH_RETURN_IF_ERROR(call.budget.Charge(text.size()));
  return text;
}

// ---- Functions ----

absl::StatusOr<Value> RaiseException(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, TextArgument(call, 0));
  return absl::FailedPreconditionError(absl::StrCat("the template says: ", text));
}

absl::StatusOr<Value> Namespace(const Arguments& call) {
  return Value::NewNamespace(call.named);
}

absl::StatusOr<Value> Range(const Arguments& call) {
  int64_t numbers[] = {0, 0, 1};
  for (size_t i = 0; i < call.given.size(); ++i) {
    if (!call.given[i].Is(Kind::kInt)) {
      return WrongKind("an int", call.given[i]);
    }
    // range(n) gives the end alone; it begins at 0.
    numbers[call.given.size() == 1 ? 1 : i] = call.given[i].integer();
  }
  const auto [begin, end, step] = numbers;
  if (step == 0) {
    return absl::InvalidArgumentError("range with a step of 0");
  }
  Value::List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    // The list is made whole: the budget ends a long one before memory is full.
    HEARTH_RETURN_IF_ERROR(call.budget.Step());
    list.push_back(Value::Int(i));
    // The next number does not fit in 64 bits, so it is beyond `end` too.
    if (__builtin_add_overflow(i, step, &i)) {
      break;
    }
  }
  return Value::OfList(std::move(list));
}

absl::StatusOr<Value> StrftimeNow(const Arguments&) {
  return absl::InvalidArgumentError(
      "strftime_now is not supported: the text would change every day");
}

// ---- Text: methods and filters ----

template <bool kLeft, bool kRight>
absl::StatusOr<Value> StripMethod(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, StringArgument(call, 0));
  if (call.given.size() < 2 || call.given[1].Is(Kind::kNone)) {
    return Value::String(std::string(Strip(text, nullptr, kLeft, kRight)));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string characters, StringArgument(call, 1));
  HEARTH_RETURN_IF_ERROR(call.budget.Charge(characters.size() * 8));
  if (characters.size() > 256) {
    return absl::InvalidArgumentError("strip of more than 256 characters");
  }
  return Value::String(std::string(Strip(text, &characters, kLeft, kRight)));
}

absl::StatusOr<Value> Trim(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, TextArgument(call, 0));
  return Value::String(std::string(Strip(text, nullptr, true, true)));
}

// The case of other letters is not known here, and a wrong one would pass unseen.
absl::Status CheckAscii(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return ascii ? absl::OkStatus()
               : absl::InvalidArgumentError("upper or lower case of letters beyond ASCII");
}

template <typename Change>
absl::StatusOr<Value> ChangeCase(const Arguments& call, const Change& change) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, TextArgument(call, 0));
  HEARTH_RETURN_IF_ERROR(CheckAscii(text));
  bool begins = true;  // a word
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(change(c, i == 0, begins));
    begins = !absl::ascii_isalpha(c);
  }
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Upper(const Arguments& call) {
  return ChangeCase(call, [](unsigned char c, bool, bool) { return absl::ascii_toupper(c); });
}

absl::StatusOr<Value> Lower(const Arguments& call) {
  return ChangeCase(call, [](unsigned char c, bool, bool) { return absl::ascii_tolower(c); });
}

absl::StatusOr<Value> Capitalize(const Arguments& call) {
  return ChangeCase(call, [](unsigned char c, bool first, bool) {
    return first ? absl::ascii_toupper(c) : absl::ascii_tolower(c);
  });
}

absl::StatusOr<Value> Title(const Arguments& call) {
  return ChangeCase(call, [](unsigned char c, bool, bool begins) {
    return begins ? absl::ascii_toupper(c) : absl::ascii_tolower(c);
  });
}

absl::StatusOr<Value> Split(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, StringArgument(call, 0));
  Value::List list;
  if (call.given.size() < 2 || call.given[1].Is(Kind::kNone)) {
    if (call.given.size() > 2) {
      return absl::InvalidArgumentError("split by white space, up to a number of times");
    }
    for (const std::string_view word : Words(text)) {
      HEARTH_RETURN_IF_ERROR(call.budget.Step());
      list.push_back(Value::String(std::string(word)));
    }
    return Value::OfList(std::move(list));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string separator, StringArgument(call, 1));
  if (separator.empty() || (call.given.size() > 2 && !call.given[2].Is(Kind::kInt))) {
    return absl::InvalidArgumentError("split: empty separator, or a count that is not an integer");
  }
  // A count below 0 is never 0 at the test below, so it means no limit, as in Python.
  int64_t left = call.given.size() > 2 ? call.given[2].integer() : -1;
  size_t at = 0;
  while (true) {
    HEARTH_RETURN_IF_ERROR(call.budget.Step());
    const size_t end = left-- == 0 ? std::string::npos : Find(text, separator, at);
    list.push_back(Value::String(text.substr(at, end - at)));
    if (end == std::string::npos) {
      return Value::OfList(std::move(list));
    }
    at = end + separator.size();
  }
}

// Whether the text begins or ends with one of the given ones.
template <bool kStart>
absl::StatusOr<Value> HasEnd(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, StringArgument(call, 0));
  const Value::List one = {call.given[1]};
  for (const Value& part : call.given[1].Is(Kind::kList) ? call.given[1].list() : one) {
    if (!part.Is(Kind::kString)) {
      return WrongKind("a string", part);
    }
    HEARTH_RETURN_IF_ERROR(call.budget.Charge(part.string().size() + 1));
    if (kStart ? absl::StartsWith(text, part.string()) : absl::EndsWith(text, part.string())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> Replace(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, TextArgument(call, 0));
  HEARTH_ASSIGN_OR_RETURN(const std::string from, StringArgument(call, 1));
  HEARTH_ASSIGN_OR_RETURN(const std::string to, StringArgument(call, 2));
  if (from.empty()) {
    return absl::InvalidArgumentError("replace of nothing");
  }
  std::string out;
  size_t at = 0;
  for (size_t next = Find(text, from, 0); next != std::string::npos; next = Find(text, from, at)) {
    // One more than is added: replacing by nothing is work too.
    HEARTH_RETURN_IF_ERROR(call.budget.Charge(to.size() + 1));
    absl::StrAppend(&out, text.substr(at, next - at), to);
    at = next + from.size();
  }
  absl::StrAppend(&out, text.substr(at));
  return Value::String(std::move(out));
}

absl::StatusOr<Value> Join(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const Value::List list, ItemsOf(call.given[0], call.budget));
  HEARTH_ASSIGN_OR_RETURN(const std::string separator, ArgumentOf(call, 1, "d").ToText());
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const std::string part, list[i].ToText());
    HEARTH_RETURN_IF_ERROR(call.budget.Charge(part.size() + separator.size()));
    absl::StrAppend(&out, i == 0 ? "" : separator, part);
  }
  return Value::String(std::move(out));
}

absl::StatusOr<Value> ToStringValue(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, TextArgument(call, 0));
  return Value::String(std::move(text));
}

absl::StatusOr<Value> ToJsonText(const Arguments& call) {
  const Value indent = ArgumentOf(call, 1, "indent");
  if (indent.Is(Kind::kInt) && (indent.integer() < 0 || indent.integer() > 64)) {
    return absl::InvalidArgumentError("tojson with an indent beyond 0..64");
  }
  const int spaces = indent.Is(Kind::kInt) ? static_cast<int>(indent.integer()) : -1;
  HEARTH_ASSIGN_OR_RETURN(std::string text, call.given[0].ToJson(spaces, call.budget));
  return Value::String(std::move(text));
}

// ---- Values and lists ----

absl::StatusOr<Value> Length(const Arguments& call) {
  const Value& value = call.given[0];
  if (value.Is(Kind::kString)) {
    HEARTH_RETURN_IF_ERROR(call.budget.Charge(value.string().size()));
    return Value::Int(static_cast<int64_t>(CharacterCount(value.string())));
  }
  HEARTH_ASSIGN_OR_RETURN(const Value::List list, ItemsOf(value, call.budget));
  return Value::Int(static_cast<int64_t>(list.size()));
}

absl::StatusOr<Value> Default(const Arguments& call) {
  // default(x, true) also replaces what counts as false, such as an empty text.
  const bool falsy = ArgumentOf(call, 2, "boolean").Truthy();
  const bool missing = call.given[0].IsUndefined() || (falsy && !call.given[0].Truthy());
  if (!missing) {
    return call.given[0];
  }
  return call.given.size() > 1 ? call.given[1] : Value::String("");
}

absl::StatusOr<Value> First(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(Value::List list, ItemsOf(call.given[0], call.budget));
  return list.empty() ? Value() : std::move(list.front());
}

absl::StatusOr<Value> Last(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(Value::List list, ItemsOf(call.given[0], call.budget));
  return list.empty() ? Value() : std::move(list.back());
}

absl::StatusOr<Value> ToList(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(Value::List list, ItemsOf(call.given[0], call.budget));
  return Value::OfList(std::move(list));
}

absl::StatusOr<Value> Items(const Arguments& call) {
  const Value& value = call.given[0];
  // The filter of Jinja does not refuse an undefined value either.
  if (value.IsUndefined()) {
    return Value::OfList({});
  }
  if (!value.Is(Kind::kDict)) {
    return WrongKind("a dict", value);
  }
  Value::List list;
  for (const auto& [key, item] : value.dict()) {
    HEARTH_RETURN_IF_ERROR(call.budget.Step());
    HEARTH_ASSIGN_OR_RETURN(Value pair, Value::OfList({Value::String(key), item}));
    list.push_back(std::move(pair));
  }
  return Value::OfList(std::move(list));
}

absl::StatusOr<Value> Keys(const Arguments& call) {
  if (!call.given[0].Is(Kind::kDict)) {
    return WrongKind("a dict", call.given[0]);
  }
  return ToList(call);
}

absl::StatusOr<Value> GetMember(const Arguments& call) {
  if (!call.given[0].Is(Kind::kDict)) {
    return WrongKind("a dict", call.given[0]);
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string key, StringArgument(call, 1));
  const Value found = call.given[0].Get(key);
  const Value otherwise = call.given.size() > 2 ? call.given[2] : Value::None();
  return found.IsUndefined() ? otherwise : found;
}

// select, reject, selectattr, rejectattr: what passes the test that is named behind `attribute`.
template <bool kKeep, bool kAttribute>
absl::StatusOr<Value> Choose(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const Value::List list, ItemsOf(call.given[0], call.budget));
  const size_t named = kAttribute ? 2 : 1;
  const Builtin* test = nullptr;
  if (call.given.size() > named) {
    HEARTH_ASSIGN_OR_RETURN(const std::string name, StringArgument(call, named));
    test = FindBuiltin(BuiltinKind::kTest, name);
    // The name of the test is a value, which the parser does not know. So nobody has checked yet
    // how many arguments the test takes.
    const int arguments = static_cast<int>(call.given.size() - named) - 1;
    if (test == nullptr || arguments < test->least || arguments > test->most) {
      return absl::UnimplementedError(absl::StrCat("test \"", name, "\" is not supported here"));
    }
  }
  Value::List kept;
  for (const Value& item : list) {
    HEARTH_RETURN_IF_ERROR(call.budget.Step());
    Value tested = item;
    if (kAttribute) {
      HEARTH_ASSIGN_OR_RETURN(tested, ItemOf(item, call.given[1], call.budget));
    }
    bool passes = tested.Truthy();
    if (test != nullptr) {
      Value::List arguments = {tested};
      arguments.insert(arguments.end(), call.given.begin() + static_cast<int64_t>(named) + 1,
                       call.given.end());
      HEARTH_ASSIGN_OR_RETURN(const Value verdict, test->run({arguments, {}, call.budget}));
      passes = verdict.Truthy();
    }
    if (passes == kKeep) {
      kept.push_back(item);
    }
  }
  return Value::OfList(std::move(kept));
}

// map(attribute="name")
absl::StatusOr<Value> MapAttribute(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(Value::List list, ItemsOf(call.given[0], call.budget));
  const Value attribute = ArgumentOf(call, 1, "attribute");
  for (Value& item : list) {
    HEARTH_ASSIGN_OR_RETURN(item, ItemOf(item, attribute, call.budget));
  }
  return Value::OfList(std::move(list));
}

// ---- Tests ----

template <Kind... kKinds>
absl::StatusOr<Value> IsOf(const Arguments& call) {
  return Value::Bool((call.given[0].Is(kKinds) || ...));
}

absl::StatusOr<Value> IsDefined(const Arguments& call) {
  return Value::Bool(!call.given[0].IsUndefined());
}

template <bool kValue>
absl::StatusOr<Value> IsBool(const Arguments& call) {
  return Value::Bool(call.given[0].Is(Kind::kBool) && call.given[0].boolean() == kValue);
}

template <bool kOdd>
absl::StatusOr<Value> IsOdd(const Arguments& call) {
  if (!call.given[0].Is(Kind::kInt)) {
    return WrongKind("an int", call.given[0]);
  }
  return Value::Bool((call.given[0].integer() % 2 != 0) == kOdd);
}

absl::StatusOr<Value> IsEqual(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const bool same, call.given[0].Equals(call.given[1], call.budget));
  return Value::Bool(same);
}

absl::StatusOr<Value> IsUnequal(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const bool same, call.given[0].Equals(call.given[1], call.budget));
  return Value::Bool(!same);
}

absl::StatusOr<Value> IsIn(const Arguments& call) {
  HEARTH_ASSIGN_OR_RETURN(const bool is_in,
                          Compare("in", call.given[0], call.given[1], call.budget));
  return Value::Bool(is_in);
}

constexpr Builtin kFunctions[] = {
    {"raise_exception", 1, 1, "", RaiseException},
    {"namespace", 0, 0, "*", Namespace},
    {"range", 1, 3, "", Range},
    {"strftime_now", 1, 1, "", StrftimeNow},
};

constexpr Builtin kMethods[] = {
    {"strip", 0, 1, "", StripMethod<true, true>},
    {"lstrip", 0, 1, "", StripMethod<true, false>},
    {"rstrip", 0, 1, "", StripMethod<false, true>},
    {"split", 0, 2, "", Split},
    {"startswith", 1, 1, "", HasEnd<true>},
    {"endswith", 1, 1, "", HasEnd<false>},
    {"upper", 0, 0, "", Upper},
    {"lower", 0, 0, "", Lower},
    {"capitalize", 0, 0, "", Capitalize},
    {"title", 0, 0, "", Title},
    {"replace", 2, 2, "", Replace},
    {"items", 0, 0, "", Items},
    {"keys", 0, 0, "", Keys},
    {"get", 1, 2, "", GetMember},
};

constexpr Builtin kFilters[] = {
    {"trim", 0, 0, "", Trim},
    {"tojson", 0, 1, "indent", ToJsonText},
    {"length", 0, 0, "", Length},
    {"count", 0, 0, "", Length},
    {"default", 0, 2, "boolean", Default},
    {"d", 0, 2, "boolean", Default},
    {"upper", 0, 0, "", Upper},
    {"lower", 0, 0, "", Lower},
    {"capitalize", 0, 0, "", Capitalize},
    {"title", 0, 0, "", Title},
    {"replace", 2, 2, "", Replace},
    {"join", 0, 1, "d", Join},
    {"string", 0, 0, "", ToStringValue},
    {"safe", 0, 0, "", ToStringValue},
    {"first", 0, 0, "", First},
    {"last", 0, 0, "", Last},
    {"list", 0, 0, "", ToList},
    {"items", 0, 0, "", Items},
    {"map", 0, 0, "attribute", MapAttribute},
    {"select", 0, 2, "", Choose<true, false>},
    {"reject", 0, 2, "", Choose<false, false>},
    {"selectattr", 1, 3, "", Choose<true, true>},
    {"rejectattr", 1, 3, "", Choose<false, true>},
};

constexpr Builtin kTests[] = {
    {"defined", 0, 0, "", IsDefined},
    {"undefined", 0, 0, "", IsOf<Kind::kUndefined>},
    {"none", 0, 0, "", IsOf<Kind::kNone>},
    {"string", 0, 0, "", IsOf<Kind::kString>},
    {"mapping", 0, 0, "", IsOf<Kind::kDict>},
    {"iterable", 0, 0, "", IsOf<Kind::kString, Kind::kList, Kind::kDict, Kind::kUndefined>},
    {"sequence", 0, 0, "", IsOf<Kind::kString, Kind::kList, Kind::kDict, Kind::kUndefined>},
    {"number", 0, 0, "", IsOf<Kind::kInt, Kind::kFloat, Kind::kBool>},
    {"integer", 0, 0, "", IsOf<Kind::kInt>},
    {"float", 0, 0, "", IsOf<Kind::kFloat>},
    {"boolean", 0, 0, "", IsOf<Kind::kBool>},
    {"true", 0, 0, "", IsBool<true>},
    {"false", 0, 0, "", IsBool<false>},
    {"odd", 0, 0, "", IsOdd<true>},
    {"even", 0, 0, "", IsOdd<false>},
    {"equalto", 1, 1, "", IsEqual},
    {"eq", 1, 1, "", IsEqual},
    {"ne", 1, 1, "", IsUnequal},
    {"in", 1, 1, "", IsIn},
};

}  // namespace

bool Builtin::TakesKeyword(std::string_view keyword) const {
  for (const absl::string_view word :
       absl::StrSplit(absl::string_view(keywords.data(), keywords.size()), ' ')) {
    if (word == "*" || std::string_view(word.data(), word.size()) == keyword) {
      return true;
    }
  }
  return false;
}

const Builtin* FindBuiltin(BuiltinKind kind, std::string_view name) {
  absl::Span<const Builtin> rows = kFunctions;
  switch (kind) {
    case BuiltinKind::kFunction:
      break;
    case BuiltinKind::kMethod:
      rows = kMethods;
      break;
    case BuiltinKind::kFilter:
      rows = kFilters;
      break;
    case BuiltinKind::kTest:
      rows = kTests;
      break;
  }
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [name](const Builtin& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace hearth::jinja
