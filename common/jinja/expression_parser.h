// Expressions out of a template's tokens.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/jinja/ast.h"

namespace hearth::jinja {

// Goes through the tokens once. Errors as of ParseProgram.
class ExpressionParser {
 public:
  // `tokens` ends in a kEnd.
  ExpressionParser(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  const Token& here() const { return tokens_[at_]; }
  void Skip();  // not past the last one
  bool TakeOperator(std::string_view op);
  bool TakeName(std::string_view name);
  absl::Status Expect(Token::Kind kind, std::string_view what);

  absl::StatusOr<ExpressionPtr> Parse();
  // Up to an `if`, as a loop needs it.
  absl::StatusOr<ExpressionPtr> ParseWithoutCondition() { return Or(); }

 private:
  using Rule = absl::StatusOr<ExpressionPtr> (ExpressionParser::*)();

  absl::StatusOr<ExpressionPtr> Or();
  absl::StatusOr<ExpressionPtr> And();
  absl::StatusOr<ExpressionPtr> Not();
  absl::StatusOr<ExpressionPtr> Comparison();
  absl::StatusOr<ExpressionPtr> Sum();
  absl::StatusOr<ExpressionPtr> Concat();
  absl::StatusOr<ExpressionPtr> Product();
  absl::StatusOr<ExpressionPtr> Unary();
  absl::StatusOr<ExpressionPtr> Signed();
  absl::StatusOr<ExpressionPtr> Primary();
  absl::StatusOr<ExpressionPtr> Parenthesis(const Token& open);
  absl::StatusOr<ExpressionPtr> DictLiteral(const Token& open);
  absl::StatusOr<ExpressionPtr> Postfix(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> Member(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> Subscript(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> Filters(ExpressionPtr base);
  absl::StatusOr<ExpressionPtr> Test(ExpressionPtr base);

  // Takes the operator that is next and the operand behind it: `joined` gets both sides.
  absl::StatusOr<ExpressionPtr> Join(ExpressionPtr left, Rule operand, ExpressionPtr joined);
  absl::StatusOr<ExpressionPtr> Joined(Rule operand, std::initializer_list<std::string_view> ops);
  absl::StatusOr<ExpressionPtr> Logical(Rule operand, std::string_view word, Expression::Kind kind);
  absl::StatusOr<std::string> CompareOperator();  // empty: there is none
  // A call of a built-in; the arguments come if a parenthesis is next.
  absl::StatusOr<ExpressionPtr> Call(BuiltinKind kind, const Token& named, ExpressionPtr self);
  absl::Status ReadArguments(Expression& call);
  absl::Status CheckArguments(const Expression& call, std::string_view what, size_t first) const;
  absl::StatusOr<ExpressionPtr> Finish(ExpressionPtr expression) const;  // its depth
  absl::StatusOr<ExpressionPtr> Deeper(Rule rule);
  absl::Status Error(std::string_view what) const;

  std::vector<Token> tokens_;
  const std::string_view name_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace hearth::jinja
