#include "common/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace hearth::jinja {
namespace {

using Kind = Expression::Kind;

ExpressionPtr New(Kind kind, const Place& place) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->place = place;
  return expression;
}

struct BuiltinWord {
  BuiltinKind kind;
  std::string_view word;
};
constexpr BuiltinWord kBuiltinWords[] = {{BuiltinKind::kFunction, "function"},
                                         {BuiltinKind::kMethod, "method"},
                                         {BuiltinKind::kFilter, "filter"},
                                         {BuiltinKind::kTest, "test"}};

std::string WordOf(BuiltinKind kind) {
  return std::string(std::find_if(std::begin(kBuiltinWords), std::end(kBuiltinWords),
                                  [kind](const BuiltinWord& row) { return row.kind == kind; })
                         ->word);
}

bool ConstantOf(std::string_view name, Value* value) {
  if (name == "true" || name == "True") {
    *value = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    *value = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    *value = Value::None();
  } else {
    return false;
  }
  return true;
}

}  // namespace

void ExpressionParser::Skip() {
  ++at_;
}

bool ExpressionParser::TakeOperator(std::string_view op) {
  const bool found = here().kind == Token::Kind::kOperator && here().text == op;
  at_ += found ? 1 : 0;
  return found;
}

bool ExpressionParser::TakeName(std::string_view name) {
  const bool found = here().kind == Token::Kind::kName && here().text == name;
  at_ += found ? 1 : 0;
  return found;
}

absl::Status ExpressionParser::Error(std::string_view what) const {
  return SyntaxError(name_, here().place, what);
}

absl::Status ExpressionParser::Expect(Token::Kind kind, std::string_view what) {
  if (here().kind != kind) {
    return Error(absl::StrCat("expected ", std::string(what)));
  }
  Skip();
  return absl::OkStatus();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Finish(ExpressionPtr expression) const {
  // The loops of this parser make a deep tree of a + b + c ... without any recursion, but the
  // evaluation recurses. So the depth of the tree is limited as well as the nesting.
  for (const ExpressionPtr& part : expression->parts) {
    expression->depth = std::max(expression->depth, part == nullptr ? 1 : part->depth + 1);
  }
  if (expression->depth > kMaxNesting) {
    return SyntaxError(name_, expression->place,
                       absl::StrCat("an expression deeper than ", kMaxNesting, " levels"));
  }
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Deeper(Rule rule) {
  if (++nesting_ > kMaxNesting) {
    return Error(absl::StrCat("an expression deeper than ", kMaxNesting, " levels"));
  }
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr expression, (this->*rule)());
  --nesting_;
  return expression;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Parse() {
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Deeper(&ExpressionParser::Or));
  while (here().kind == Token::Kind::kName && here().text == "if") {
    ExpressionPtr conditional = New(Kind::kConditional, here().place);
    Skip();
    // Not Parse: it would take the `else`, which belongs to this conditional.
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr condition, Or());
    ExpressionPtr otherwise;
    if (TakeName("else")) {
      HEARTH_ASSIGN_OR_RETURN(otherwise, Deeper(&ExpressionParser::Parse));
    }
    conditional->parts.push_back(std::move(condition));
    conditional->parts.push_back(std::move(value));
    conditional->parts.push_back(std::move(otherwise));
    HEARTH_ASSIGN_OR_RETURN(value, Finish(std::move(conditional)));
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Join(ExpressionPtr left,
                                                     Rule operand,
                                                     ExpressionPtr joined) {
  Skip();
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
  joined->parts.push_back(std::move(left));
  joined->parts.push_back(std::move(right));
  return Finish(std::move(joined));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Logical(Rule operand,
                                                        std::string_view word,
                                                        Kind kind) {
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (here().kind == Token::Kind::kName && here().text == word) {
    HEARTH_ASSIGN_OR_RETURN(left, Join(std::move(left), operand, New(kind, here().place)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Or() {
  return Logical(&ExpressionParser::And, "or", Kind::kOr);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::And() {
  return Logical(&ExpressionParser::Not, "and", Kind::kAnd);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Not() {
  const Place place = here().place;
  if (!TakeName("not")) {
    return Comparison();
  }
  ExpressionPtr negation = New(Kind::kNot, place);
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Deeper(&ExpressionParser::Not));
  negation->parts.push_back(std::move(value));
  return Finish(std::move(negation));
}

absl::StatusOr<std::string> ExpressionParser::CompareOperator() {
  for (const std::string_view op : {"==", "!=", "<", "<=", ">", ">="}) {
    if (TakeOperator(op)) {
      return std::string(op);
    }
  }
  if (TakeName("in")) {
    return std::string("in");
  }
  // `not` by itself begins no comparison. There is a next token, because the last one is an end.
  if (here().kind == Token::Kind::kName && here().text == "not" && tokens_[at_ + 1].text == "in") {
    at_ += 2;
    return std::string("not in");
  }
  return std::string();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Comparison() {
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr left, Sum());
  ExpressionPtr compare = New(Kind::kCompare, here().place);
  compare->parts.push_back(std::move(left));
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(std::string op, CompareOperator());
    if (op.empty()) {
      break;
    }
    // a < b < c compares neighbours, as in Python: all of them stay in one expression, and b is
    // evaluated once.
    compare->operators.push_back(std::move(op));
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr right, Sum());
    compare->parts.push_back(std::move(right));
  }
  return compare->operators.empty() ? std::move(compare->parts[0]) : Finish(std::move(compare));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Joined(
    Rule operand, std::initializer_list<std::string_view> ops) {
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (here().kind == Token::Kind::kOperator &&
         std::find(ops.begin(), ops.end(), here().text) != ops.end()) {
    ExpressionPtr joined = New(Kind::kBinary, here().place);
    joined->text = here().text;
    HEARTH_ASSIGN_OR_RETURN(left, Join(std::move(left), operand, std::move(joined)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Sum() {
  return Joined(&ExpressionParser::Concat, {"+", "-"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Concat() {
  return Joined(&ExpressionParser::Product, {"~"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Product() {
  return Joined(&ExpressionParser::Unary, {"*", "/", "//", "%"});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Unary() {
  // As in Jinja, filters and tests see the value with its sign: -1|abs is 1.
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Signed());
  HEARTH_ASSIGN_OR_RETURN(value, Filters(std::move(value)));
  if (here().kind == Token::Kind::kOperator && here().text == "**") {
    return Refusal(name_, here().place, "** is not supported");
  }
  return value;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Signed() {
  const Place place = here().place;
  if (TakeOperator("-")) {
    ExpressionPtr negative = New(Kind::kNegative, place);
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Deeper(&ExpressionParser::Signed));
    negative->parts.push_back(std::move(value));
    return Finish(std::move(negative));
  }
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Primary());
  return Postfix(std::move(value));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Primary() {
  const Token token = here();
  ExpressionPtr value = New(Kind::kConstant, token.place);
  switch (token.kind) {
    case Token::Kind::kName:
      Skip();
      if (ConstantOf(token.text, &value->constant)) {
        return value;
      }
      if (here().kind == Token::Kind::kOperator && here().text == "(") {
        return Call(BuiltinKind::kFunction, token, nullptr);
      }
      value->kind = Kind::kName;
      value->text = token.text;
      return value;
    case Token::Kind::kString: {
      std::string text;
      for (; here().kind == Token::Kind::kString; Skip()) {  // strings side by side are one
        text += here().text;
      }
      value->constant = Value::String(std::move(text));
      return value;
    }
    case Token::Kind::kInteger: {
      int64_t number = 0;
      if (!absl::SimpleAtoi(token.text, &number)) {
        return Error("a number that is too large");
      }
      Skip();
      value->constant = Value::Int(number);
      return value;
    }
    case Token::Kind::kFloat: {
      double number = 0;
      // Not strtod, which reads by the locale.
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
      Skip();
      value->constant = Value::Float(number);
      return value;
    }
    case Token::Kind::kOperator:
      if (token.text == "(" || token.text == "[") {
        Skip();
        return Parenthesis(token);
      }
      if (token.text == "{") {
        Skip();
        return DictLiteral(token);
      }
      break;
    default:
      break;
  }
  return Error("expected a value");
}

// A tuple is taken for a list.
absl::StatusOr<ExpressionPtr> ExpressionParser::Parenthesis(const Token& open) {
  const std::string_view close = open.text == "(" ? ")" : "]";
  ExpressionPtr list = New(Kind::kList, open.place);
  bool comma = false;
  while (!TakeOperator(close)) {
    if (!list->parts.empty() && !comma) {
      return Error(absl::StrCat("expected ", std::string(close)));
    }
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr part, Parse());
    list->parts.push_back(std::move(part));
    comma = TakeOperator(",");
  }
  const bool plain = open.text == "(" && list->parts.size() == 1 && !comma;
  return plain ? std::move(list->parts[0]) : Finish(std::move(list));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::DictLiteral(const Token& open) {
  ExpressionPtr dict = New(Kind::kDict, open.place);
  bool comma = true;
  while (!TakeOperator("}")) {
    if (!comma) {
      return Error("expected }");
    }
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr key, Parse());
    if (!TakeOperator(":")) {
      return Error("expected :");
    }
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    dict->parts.push_back(std::move(key));
    dict->parts.push_back(std::move(value));
    comma = TakeOperator(",");
  }
  return Finish(std::move(dict));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Postfix(ExpressionPtr base) {
  while (true) {
    if (TakeOperator(".")) {
      HEARTH_ASSIGN_OR_RETURN(base, Member(std::move(base)));
    } else if (TakeOperator("[")) {
      HEARTH_ASSIGN_OR_RETURN(base, Subscript(std::move(base)));
    } else if (here().kind == Token::Kind::kOperator && here().text == "(") {
      return Refusal(name_, here().place, "a call of anything but a known name is not supported");
    } else {
      return base;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Member(ExpressionPtr base) {
  const Token member = here();
  if (member.kind != Token::Kind::kName) {
    return Error("expected a name behind the dot");
  }
  Skip();
  if (here().kind == Token::Kind::kOperator && here().text == "(") {
    return Call(BuiltinKind::kMethod, member, std::move(base));
  }
  ExpressionPtr attribute = New(Kind::kAttribute, member.place);
  attribute->text = member.text;
  attribute->parts.push_back(std::move(base));
  return Finish(std::move(attribute));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Subscript(ExpressionPtr base) {
  ExpressionPtr item = New(Kind::kItem, here().place);
  // begin, end and step; each may be missing. Without a colon the first is an index.
  std::vector<ExpressionPtr> bounds(3);
  size_t at = 0;
  while (!TakeOperator("]")) {
    if (TakeOperator(":")) {
      if (++at == bounds.size()) {
        return Error("expected ]");
      }
      continue;
    }
    if (bounds[at] != nullptr) {
      return Error("expected ]");
    }
    HEARTH_ASSIGN_OR_RETURN(bounds[at], Parse());
  }
  if (at == 0 && bounds[0] == nullptr) {
    return Error("an empty subscript");
  }
  item->kind = at == 0 ? Kind::kItem : Kind::kSlice;
  bounds.resize(at == 0 ? 1 : 3);
  item->parts.push_back(std::move(base));
  std::move(bounds.begin(), bounds.end(), std::back_inserter(item->parts));
  return Finish(std::move(item));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Filters(ExpressionPtr base) {
  while (true) {
    if (TakeOperator("|")) {
      const Token filter = here();
      if (filter.kind != Token::Kind::kName) {
        return Error("expected the name of a filter");
      }
      Skip();
      HEARTH_ASSIGN_OR_RETURN(base, Call(BuiltinKind::kFilter, filter, std::move(base)));
      HEARTH_ASSIGN_OR_RETURN(base, Postfix(std::move(base)));
    } else if (TakeName("is")) {
      HEARTH_ASSIGN_OR_RETURN(base, Test(std::move(base)));
    } else {
      return base;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Test(ExpressionPtr base) {
  const bool negated = TakeName("not");
  const Token test = here();
  if (test.kind != Token::Kind::kName) {
    return Error("expected the name of a test");
  }
  Skip();
  HEARTH_ASSIGN_OR_RETURN(ExpressionPtr call, Call(BuiltinKind::kTest, test, std::move(base)));
  call->negated = negated;
  return call;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::Call(BuiltinKind kind,
                                                     const Token& named,
                                                     ExpressionPtr self) {
  ExpressionPtr call = New(Kind::kCall, named.place);
  call->text = named.text;
  call->builtin = FindBuiltin(kind, named.text);
  const std::string what = absl::StrCat(WordOf(kind), " \"", named.text, "\"");
  if (call->builtin == nullptr) {
    return Refusal(name_, named.place, absl::StrCat(what, " is not supported"));
  }
  const size_t first = self == nullptr ? 0 : 1;
  if (self != nullptr) {
    call->parts.push_back(std::move(self));
  }
  if (TakeOperator("(")) {
    HEARTH_RETURN_IF_ERROR(ReadArguments(*call));
  } else if (kind == BuiltinKind::kTest && call->builtin->least == 1) {  // x is equalto y
    // Not a whole expression: an `and` behind it joins the test, not the argument.
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr argument, Primary());
    HEARTH_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    call->parts.push_back(std::move(argument));
  }
  HEARTH_RETURN_IF_ERROR(CheckArguments(*call, what, first));
  return Finish(std::move(call));
}

absl::Status ExpressionParser::ReadArguments(Expression& call) {
  bool comma = true;
  while (!TakeOperator(")")) {
    if (!comma) {
      return Error("expected )");
    }
    const Token token = here();
    const bool named = token.kind == Token::Kind::kName && tokens_[at_ + 1].text == "=" &&
                       tokens_[at_ + 1].kind == Token::Kind::kOperator;
    if (named) {
      call.keywords.push_back(token.text);
      at_ += 2;
    } else if (!call.keywords.empty() || token.text == "*" || token.text == "**") {
      // As in Python, no positional argument follows a named one.
      return Error("an argument of this form is not supported");
    }
    HEARTH_ASSIGN_OR_RETURN(ExpressionPtr argument, Parse());
    call.parts.push_back(std::move(argument));
    comma = TakeOperator(",");
  }
  return absl::OkStatus();
}

absl::Status ExpressionParser::CheckArguments(const Expression& call,
                                              std::string_view what,
                                              size_t first) const {
  for (const std::string& keyword : call.keywords) {
    if (!call.builtin->TakesKeyword(keyword)) {
      return Refusal(name_, call.place,
                     absl::StrCat(std::string(what), " with ", keyword, "= is not supported"));
    }
  }
  const int given = static_cast<int>(call.parts.size() - first - call.keywords.size());
  if (given < call.builtin->least || given > call.builtin->most) {
    return Refusal(name_, call.place,
                   absl::StrCat(std::string(what), " with ", given, " arguments is not supported"));
  }
  return absl::OkStatus();
}

}  // namespace hearth::jinja
