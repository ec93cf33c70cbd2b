// A parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/jinja/builtins.h"
#include "common/jinja/lexer.h"
#include "common/jinja/value.h"

namespace hearth::jinja {

struct Expression {
  enum class Kind {
    kConstant,
    kName,         // text
    kList,         // parts
    kDict,         // parts: key, value, key, value ...
    kAttribute,    // parts[0].text
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; null where one is left out
    kCall,         // builtin: a function, method, filter or test; parts: what it is called on (not
                   // of functions), arguments; `keywords` name the last ones
    kNot,          // parts[0]
    kNegative,     // parts[0]
    kAnd,          // parts[0], parts[1]
    kOr,           // the same
    kBinary,       // parts[0] text parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConditional,  // parts[1] if parts[0] else parts[2], which may be null
  };
  Kind kind = Kind::kConstant;
  Place place;
  std::string text;
  Value constant;
  const Builtin* builtin = nullptr;
  bool negated = false;                // kCall of a test: "is not"
  std::vector<std::string> operators;  // "==", "!=", "<", "<=", ">", ">=", "in", "not in"
  std::vector<std::string> keywords;
  std::vector<std::unique_ptr<Expression>> parts;
  int depth = 1;  // of the tree
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct Statement {
  enum class Kind {
    kText,        // text
    kPrint,       // value
    kIf,          // branches; the condition of `else` is null
    kFor,         // names in value if condition; body; else_body
    kSet,         // names[0] = value
    kSetMember,   // names[0].names[1] = value
    kSetBlock,    // names[0] = what body prints
    kGeneration,  // body
    kBreak,
    kContinue,
  };
  struct Branch {
    ExpressionPtr condition;
    std::vector<Statement> body;
  };
  Kind kind = Kind::kText;
  Place place;
  std::string text;
  ExpressionPtr value;
  ExpressionPtr condition;  // may be null
  std::vector<std::string> names;
  std::vector<Branch> branches;
  std::vector<Statement> body;
  std::vector<Statement> else_body;
};

struct Program {
  std::string name;  // of the template, for errors
  std::vector<Statement> body;
  bool marks_generation = false;
};

// Expressions and statements are nested at most kMaxNesting deep.
inline constexpr int kMaxNesting = 100;

// Errors: kInvalidArgument: no template; kUnimplemented: of Jinja, but not of the subset that
// docs/fine-tuning.md lists. Both with name, line and column.
absl::StatusOr<Program> ParseProgram(std::string_view text, std::string_view name);

}  // namespace hearth::jinja
