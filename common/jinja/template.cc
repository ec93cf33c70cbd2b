#include "common/jinja/template.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/jinja/ast.h"

namespace hearth::jinja {
namespace {

// How a statement ended.
enum class Flow { kOn, kBreak, kContinue };

class Renderer {
 public:
  Renderer(const Program& program, const Value::Dict& globals, const Limits& limits)
      : program_(program), budget_(limits.steps, limits.bytes), scopes_(1) {
    for (const auto& [name, value] : globals) {
      scopes_[0][name] = value;
    }
  }

  absl::StatusOr<Rendered> Run() {
    HEARTH_RETURN_IF_ERROR(Body(program_.body).status());
    return std::move(rendered_);
  }

 private:
  using Scope = std::map<std::string, Value, std::less<>>;

  // `status` with the place, unless it has one already.
  absl::Status At(const Place& place, const absl::Status& status) {
    if (status.ok() || placed_) {
      return status;
    }
    placed_ = true;
    return absl::Status(status.code(), absl::StrCat(program_.name, ":", place.line, ":",
                                                    place.column, ": ", status.message()));
  }

  Value Find(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) {
        return found->second;
      }
    }
    return Value();
  }

  absl::Status Put(std::string_view text) {
    HEARTH_RETURN_IF_ERROR(budget_.Charge(text.size()));
    rendered_.text += text;
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> Body(const std::vector<Statement>& body) {
    for (const Statement& statement : body) {
      HEARTH_RETURN_IF_ERROR(At(statement.place, budget_.Step()));
      absl::StatusOr<Flow> flow = Run(statement);
      if (!flow.ok()) {
        return At(statement.place, flow.status());
      }
      if (*flow != Flow::kOn) {
        return flow;
      }
    }
    return Flow::kOn;
  }

  absl::StatusOr<Flow> Run(const Statement& statement) {
    using Kind = Statement::Kind;
    switch (statement.kind) {
      case Kind::kText:
        HEARTH_RETURN_IF_ERROR(Put(statement.text));
        return Flow::kOn;
      case Kind::kPrint: {
        HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
        HEARTH_ASSIGN_OR_RETURN(const std::string text, value.ToText());
        HEARTH_RETURN_IF_ERROR(Put(text));
        return Flow::kOn;
      }
      case Kind::kIf:
        return If(statement);
      case Kind::kFor:
        return For(statement);
      case Kind::kSet: {
        // In the innermost scope: as in Jinja, the name is gone after this turn of a loop.
        HEARTH_ASSIGN_OR_RETURN(scopes_.back()[statement.names[0]], Evaluate(*statement.value));
        return Flow::kOn;
      }
      case Kind::kSetMember: {
        HEARTH_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
        const Value target = Find(statement.names[0]);
        if (!target.Is(Value::Kind::kNamespace)) {
          return absl::InvalidArgumentError(
              absl::StrCat("\"", statement.names[0], "\" is not a namespace"));
        }
        HEARTH_RETURN_IF_ERROR(budget_.Charge(target.dict().size()));
        HEARTH_RETURN_IF_ERROR(target.Set(statement.names[1], std::move(value)));
        return Flow::kOn;
      }
      case Kind::kSetBlock: {
        std::string outside = std::exchange(rendered_.text, std::string());
        const absl::StatusOr<Flow> flow = Body(statement.body);
        scopes_.back()[statement.names[0]] =
            Value::String(std::exchange(rendered_.text, std::move(outside)));
        return flow;
      }
      case Kind::kGeneration: {
        const size_t begin = rendered_.text.size();
        const absl::StatusOr<Flow> flow = Body(statement.body);
        rendered_.generation.push_back({begin, rendered_.text.size()});
        return flow;
      }
      case Kind::kBreak:
        return Flow::kBreak;
      case Kind::kContinue:
        return Flow::kContinue;
    }
    return absl::InternalError("unknown statement");
  }

  absl::StatusOr<Flow> If(const Statement& statement) {
    for (const Statement::Branch& branch : statement.branches) {
      bool taken = branch.condition == nullptr;
      if (!taken) {
        HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*branch.condition));
        taken = value.Truthy();
      }
      if (taken) {
        return Body(branch.body);
      }
    }
    return Flow::kOn;
  }

  absl::Status Assign(const Statement& statement, const Value& item, Scope& scope) {
    if (statement.names.size() == 1) {
      scope[statement.names[0]] = item;
      return absl::OkStatus();
    }
    if (!item.Is(Value::Kind::kList) || item.list().size() != statement.names.size()) {
      return absl::InvalidArgumentError("an item that cannot be taken apart into these names");
    }
    for (size_t i = 0; i < statement.names.size(); ++i) {
      scope[statement.names[i]] = item.list()[i];
    }
    return absl::OkStatus();
  }

  // The items for which the loop's condition holds.
  absl::StatusOr<Value::List> LoopItems(const Statement& statement) {
    HEARTH_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
    HEARTH_ASSIGN_OR_RETURN(Value::List items, ItemsOf(value, budget_));
    if (statement.condition == nullptr) {
      return items;
    }
    Value::List kept;
    for (Value& item : items) {
      scopes_.emplace_back();
      HEARTH_RETURN_IF_ERROR(Assign(statement, item, scopes_.back()));
      HEARTH_ASSIGN_OR_RETURN(const Value holds, Evaluate(*statement.condition));
      scopes_.pop_back();
      if (holds.Truthy()) {
        kept.push_back(std::move(item));
      }
    }
    return kept;
  }

  static absl::StatusOr<Value> LoopValue(const Value::List& items, size_t i) {
    const auto n = static_cast<int64_t>(items.size());
    const auto at = static_cast<int64_t>(i);
    return Value::OfDict({{"index", Value::Int(at + 1)},
                          {"index0", Value::Int(at)},
                          {"revindex", Value::Int(n - at)},
                          {"revindex0", Value::Int(n - at - 1)},
                          {"first", Value::Bool(i == 0)},
                          {"last", Value::Bool(at + 1 == n)},
                          {"length", Value::Int(n)},
                          {"previtem", i > 0 ? items[i - 1] : Value()},
                          {"nextitem", at + 1 < n ? items[i + 1] : Value()}});
  }

  absl::StatusOr<Flow> For(const Statement& statement) {
    // The condition chooses the items before the loop begins: loop.length and loop.last are about
    // those that are left. An error ends the rendering, so scopes need not be taken off then.
    HEARTH_ASSIGN_OR_RETURN(const Value::List items, LoopItems(statement));
    for (size_t i = 0; i < items.size(); ++i) {
      scopes_.emplace_back();
      HEARTH_RETURN_IF_ERROR(Assign(statement, items[i], scopes_.back()));
      HEARTH_ASSIGN_OR_RETURN(scopes_.back()["loop"], LoopValue(items, i));
      HEARTH_ASSIGN_OR_RETURN(const Flow flow, Body(statement.body));
      scopes_.pop_back();
      if (flow == Flow::kBreak) {
        break;
      }
    }
    return items.empty() ? Body(statement.else_body) : Flow::kOn;
  }

  absl::StatusOr<Value> Evaluate(const Expression& expression) {
    HEARTH_RETURN_IF_ERROR(At(expression.place, budget_.Step()));
    absl::StatusOr<Value> value = EvaluateHere(expression);
    return value.ok() ? std::move(value) : At(expression.place, value.status());
  }

  absl::StatusOr<Value> EvaluateHere(const Expression& expression) {
    using Kind = Expression::Kind;
    switch (expression.kind) {
      case Kind::kConstant:
        return expression.constant;
      case Kind::kName:
        return Find(expression.text);
      case Kind::kList: {
        HEARTH_ASSIGN_OR_RETURN(Value::List parts, Parts(expression, 0));
        return Value::OfList(std::move(parts));
      }
      case Kind::kDict:
        return DictOf(expression);
      case Kind::kAttribute: {
        HEARTH_ASSIGN_OR_RETURN(const Value base, Evaluate(*expression.parts[0]));
        return ItemOf(base, Value::String(expression.text), budget_);
      }
      case Kind::kItem: {
        HEARTH_ASSIGN_OR_RETURN(const Value::List parts, Parts(expression, 0));
        return ItemOf(parts[0], parts[1], budget_);
      }
      case Kind::kSlice: {
        HEARTH_ASSIGN_OR_RETURN(const Value::List parts, Parts(expression, 0));
        return SliceOf(parts[0], parts[1], parts[2], parts[3], budget_);
      }
      case Kind::kCall:
        return Call(expression);
      case Kind::kBinary: {
        HEARTH_ASSIGN_OR_RETURN(const Value::List parts, Parts(expression, 0));
        return BinaryOperation(expression.text, parts[0], parts[1], budget_);
      }
      default:
        return Logical(expression);
    }
  }

  absl::StatusOr<Value> Logical(const Expression& expression) {
    using Kind = Expression::Kind;
    HEARTH_ASSIGN_OR_RETURN(Value first, Evaluate(*expression.parts[0]));
    switch (expression.kind) {
      case Kind::kNot:
        return Value::Bool(!first.Truthy());
      case Kind::kNegative:
        return BinaryOperation("-", Value::Int(0), first, budget_);
      case Kind::kAnd:
        return first.Truthy() ? Evaluate(*expression.parts[1]) : std::move(first);
      case Kind::kOr:
        return first.Truthy() ? std::move(first) : Evaluate(*expression.parts[1]);
      case Kind::kConditional: {
        const ExpressionPtr& chosen = expression.parts[first.Truthy() ? 1 : 2];
        return chosen == nullptr ? Value() : Evaluate(*chosen);
      }
      default:
        return Comparison(expression, std::move(first));
    }
  }

  absl::StatusOr<Value> Comparison(const Expression& expression, Value left) {
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.parts[i + 1]));
      HEARTH_ASSIGN_OR_RETURN(const bool holds,
                              Compare(expression.operators[i], left, right, budget_));
      if (!holds) {
        return Value::Bool(false);
      }
      left = std::move(right);
    }
    return Value::Bool(true);
  }

  // The values of the parts from `first` on; undefined for a part that is left out.
  absl::StatusOr<Value::List> Parts(const Expression& expression, size_t first) {
    Value::List values;
    for (size_t i = first; i < expression.parts.size(); ++i) {
      values.emplace_back();
      if (expression.parts[i] != nullptr) {
        HEARTH_ASSIGN_OR_RETURN(values.back(), Evaluate(*expression.parts[i]));
      }
    }
    return values;
  }

  absl::StatusOr<Value> DictOf(const Expression& expression) {
    HEARTH_ASSIGN_OR_RETURN(Value::List parts, Parts(expression, 0));
    Value::Dict dict;
    for (size_t i = 0; i < parts.size(); i += 2) {
      if (!parts[i].Is(Value::Kind::kString)) {
        return absl::InvalidArgumentError("a key that is no string");
      }
      dict.emplace_back(parts[i].string(), std::move(parts[i + 1]));
    }
    return Value::OfDict(std::move(dict));
  }

  absl::StatusOr<Value> Call(const Expression& call) {
    HEARTH_ASSIGN_OR_RETURN(Value::List values, Parts(call, 0));
    Value::Dict named;
    const size_t given = values.size() - call.keywords.size();
    for (size_t i = 0; i < call.keywords.size(); ++i) {
      named.emplace_back(call.keywords[i], std::move(values[given + i]));
    }
    values.resize(given);
    HEARTH_ASSIGN_OR_RETURN(Value result, call.builtin->run({values, named, budget_}));
    return call.negated ? Value::Bool(!result.Truthy()) : std::move(result);
  }

  const Program& program_;
  Budget budget_;
  std::vector<Scope> scopes_;
  Rendered rendered_;
  bool placed_ = false;  // the error has its place
};

}  // namespace

Template::Template(std::unique_ptr<const Program> program) : program_(std::move(program)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

absl::StatusOr<Template> Template::Parse(std::string_view text, std::string_view name) {
  HEARTH_ASSIGN_OR_RETURN(Program program, ParseProgram(text, name));
  return Template(std::make_unique<const Program>(std::move(program)));
}

absl::StatusOr<Rendered> Template::Render(const Value::Dict& globals, const Limits& limits) const {
  return Renderer(*program_, globals, limits).Run();
}

bool Template::marks_generation() const {
  return program_->marks_generation;
}

}  // namespace hearth::jinja
