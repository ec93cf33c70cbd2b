#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/jinja/ast.h"
#include "common/jinja/expression_parser.h"

namespace hearth::jinja {
namespace {

using Words = std::initializer_list<std::string_view>;

// Tags of Jinja that are not in the subset.
constexpr std::string_view kOtherTags[] = {"macro",   "call",  "include",   "import", "from",
                                           "extends", "block", "filter",    "with",   "raw",
                                           "do",      "trans", "autoescape"};

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens), name), name_(name) {}

  absl::StatusOr<Program> Run() {
    Program program;
    program.name = std::string(name_);
    std::string end;
    HEARTH_RETURN_IF_ERROR(Body({}, &program.body, &end));
    program.marks_generation = marks_generation_;
    return program;
  }

 private:
  // Statements up to a tag of `ends`, whose name is then in `end` and read; without `ends` up to
  // the end of the template.
  absl::Status Body(Words ends, std::vector<Statement>* body, std::string* end) {
    const Place begin = tokens_.here().place;
    // An error ends the parse, so nothing puts this counter back then, nor those below.
    if (++nesting_ > kMaxNesting) {
      return SyntaxError(name_, begin, absl::StrCat("deeper than ", kMaxNesting, " levels"));
    }
    while (true) {
      const Token& token = tokens_.here();
      if (token.kind == Token::Kind::kEnd) {
        if (ends.size() == 0) {
          --nesting_;
          return absl::OkStatus();
        }
        return SyntaxError(
            name_, begin,
            absl::StrCat("no {% ", std::string(*(ends.end() - 1)), " %} closes what begins here"));
      }
      if (token.kind == Token::Kind::kText) {
        Statement text;
        text.place = token.place;
        text.text = token.text;
        tokens_.Skip();
        body->push_back(std::move(text));
      } else if (token.kind == Token::Kind::kPrint) {
        HEARTH_RETURN_IF_ERROR(Print(body));
      } else {
        tokens_.Skip();                    // {%
        const Token tag = tokens_.here();  // a copy: here() moves on with the tokens
        if (tag.kind == Token::Kind::kName &&
            std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
          tokens_.Skip();
          *end = tag.text;
          --nesting_;
          return absl::OkStatus();
        }
        HEARTH_RETURN_IF_ERROR(Tag(tag, body));
      }
    }
  }

  absl::Status Print(std::vector<Statement>* body) {
    Statement print;
    print.kind = Statement::Kind::kPrint;
    print.place = tokens_.here().place;
    tokens_.Skip();
    HEARTH_ASSIGN_OR_RETURN(print.value, tokens_.Parse());
    body->push_back(std::move(print));
    return tokens_.Expect(Token::Kind::kPrintEnd, "}}");
  }

  absl::Status EndTag() { return tokens_.Expect(Token::Kind::kBlockEnd, "%}"); }

  absl::Status Tag(const Token& tag, std::vector<Statement>* body) {
    struct Row {
      std::string_view name;
      absl::Status (Parser::*parse)(Statement& statement);
    };
    static constexpr Row kTags[] = {{"if", &Parser::If},       {"for", &Parser::For},
                                    {"set", &Parser::Set},     {"generation", &Parser::Generation},
                                    {"break", &Parser::Break}, {"continue", &Parser::Continue}};
    if (tag.kind != Token::Kind::kName) {
      return SyntaxError(name_, tag.place, "a tag without name");
    }
    for (const Row& row : kTags) {
      if (row.name == tag.text) {
        tokens_.Skip();
        Statement statement;
        statement.place = tag.place;
        HEARTH_RETURN_IF_ERROR((this->*row.parse)(statement));
        body->push_back(std::move(statement));
        return absl::OkStatus();
      }
    }
    const std::string shown = absl::StrCat("{% ", tag.text, " %}");
    if (std::find(std::begin(kOtherTags), std::end(kOtherTags), tag.text) != std::end(kOtherTags)) {
      return Refusal(name_, tag.place, absl::StrCat(shown, " is not supported"));
    }
    return SyntaxError(name_, tag.place, absl::StrCat(shown, " does not belong here"));
  }

  absl::Status If(Statement& statement) {
    statement.kind = Statement::Kind::kIf;
    // Each turn reads one branch. `end` is the tag that ended the body before, and so says which
    // kind of branch begins: if, elif or else.
    std::string end = "if";
    while (end != "endif") {
      Statement::Branch branch;
      const bool last = end == "else";
      if (!last) {
        HEARTH_ASSIGN_OR_RETURN(branch.condition, tokens_.Parse());
      }
      HEARTH_RETURN_IF_ERROR(EndTag());
      HEARTH_RETURN_IF_ERROR(last ? Body({"endif"}, &branch.body, &end)
                                  : Body({"elif", "else", "endif"}, &branch.body, &end));
      statement.branches.push_back(std::move(branch));
    }
    return EndTag();
  }

  absl::StatusOr<std::string> Name() {
    const Token token = tokens_.here();
    if (token.kind != Token::Kind::kName) {
      return SyntaxError(name_, token.place, "expected a name");
    }
    tokens_.Skip();
    return token.text;
  }

  absl::Status For(Statement& statement) {
    statement.kind = Statement::Kind::kFor;
    do {
      HEARTH_ASSIGN_OR_RETURN(std::string target, Name());
      statement.names.push_back(std::move(target));
    } while (tokens_.TakeOperator(","));
    if (!tokens_.TakeName("in")) {
      return SyntaxError(name_, tokens_.here().place, "expected \"in\"");
    }
    // An `if` that follows filters the loop's items; Parse() would take it for `a if b else c`.
    HEARTH_ASSIGN_OR_RETURN(statement.value, tokens_.ParseWithoutCondition());
    if (tokens_.TakeName("if")) {
      HEARTH_ASSIGN_OR_RETURN(statement.condition, tokens_.Parse());
    }
    if (tokens_.here().text == "recursive") {
      return Refusal(name_, tokens_.here().place, "a recursive loop is not supported");
    }
    HEARTH_RETURN_IF_ERROR(EndTag());
    ++loops_;
    std::string end;
    HEARTH_RETURN_IF_ERROR(Body({"else", "endfor"}, &statement.body, &end));
    --loops_;  // before the else: that body is outside the loop and cannot leave it
    if (end == "else") {
      HEARTH_RETURN_IF_ERROR(EndTag());
      HEARTH_RETURN_IF_ERROR(Body({"endfor"}, &statement.else_body, &end));
    }
    return EndTag();
  }

  absl::Status Set(Statement& statement) {
    HEARTH_ASSIGN_OR_RETURN(std::string target, Name());
    statement.names.push_back(std::move(target));
    statement.kind = Statement::Kind::kSet;
    if (tokens_.TakeOperator(".")) {
      statement.kind = Statement::Kind::kSetMember;
      HEARTH_ASSIGN_OR_RETURN(std::string member, Name());
      statement.names.push_back(std::move(member));
    }
    if (tokens_.TakeOperator("=")) {
      HEARTH_ASSIGN_OR_RETURN(statement.value, tokens_.Parse());
      return EndTag();
    }
    if (tokens_.here().kind != Token::Kind::kBlockEnd ||
        statement.kind == Statement::Kind::kSetMember) {
      return Refusal(name_, tokens_.here().place,
                     "{% set %} of more than one name, or with a filter, is not supported");
    }
    statement.kind = Statement::Kind::kSetBlock;
    HEARTH_RETURN_IF_ERROR(EndTag());
    ++set_blocks_;
    std::string end;
    HEARTH_RETURN_IF_ERROR(Body({"endset"}, &statement.body, &end));
    --set_blocks_;
    return EndTag();
  }

  absl::Status Generation(Statement& statement) {
    // Ranges are positions in the rendered text and do not overlap; the body of a {% set %} goes
    // into a text of its own.
    if (in_generation_ || set_blocks_ > 0) {
      return Refusal(name_, statement.place,
                     "{% generation %} inside {% generation %} or {% set %} is not supported");
    }
    statement.kind = Statement::Kind::kGeneration;
    marks_generation_ = in_generation_ = true;
    HEARTH_RETURN_IF_ERROR(EndTag());
    std::string end;
    HEARTH_RETURN_IF_ERROR(Body({"endgeneration"}, &statement.body, &end));
    in_generation_ = false;
    return EndTag();
  }

  absl::Status Leave(Statement& statement, Statement::Kind kind) {
    if (loops_ == 0) {
      return SyntaxError(name_, statement.place, "there is no loop here to leave");
    }
    statement.kind = kind;
    return EndTag();
  }
  absl::Status Break(Statement& statement) { return Leave(statement, Statement::Kind::kBreak); }
  absl::Status Continue(Statement& statement) {
    return Leave(statement, Statement::Kind::kContinue);
  }

  ExpressionParser tokens_;
  const std::string_view name_;
  int nesting_ = 0;
  int loops_ = 0;
  int set_blocks_ = 0;
  bool in_generation_ = false;
  bool marks_generation_ = false;
};

}  // namespace

absl::StatusOr<Program> ParseProgram(std::string_view text, std::string_view name) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(text, name));
  return Parser(std::move(tokens), name).Run();
}

}  // namespace hearth::jinja
