// Jinja templates as far as chat templates use them; docs/fine-tuning.md lists the subset. Same
// text as Jinja2 with trim_blocks and lstrip_blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/jinja/value.h"

namespace hearth::jinja {

struct Program;

// What a rendering may use at most: an untrusted template may be written to run for ever.
struct Limits {
  int64_t steps = 4'000'000;           // expressions and statements that are evaluated
  int64_t bytes = int64_t{256} << 20;  // of text that is made or looked through
};

struct Rendered {
  struct Range {
    size_t begin = 0;  // bytes of `text`
    size_t end = 0;
  };
  std::string text;
  std::vector<Range> generation;  // what stood between {% generation %} and {% endgeneration %}
};

// Immutable, so thread-safe.
class Template {
 public:
  // `name` is for errors: "name:line:column: what". kInvalidArgument: not a template;
  // kUnimplemented: a construct outside of the subset, which the text names.
  static absl::StatusOr<Template> Parse(std::string_view text, std::string_view name);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // `globals`: the names that the template may use; others are undefined. kInvalidArgument: a value
  // of the wrong kind; kFailedPrecondition: the template called raise_exception;
  // kResourceExhausted: beyond `limits`. With name, line and column.
  absl::StatusOr<Rendered> Render(const Value::Dict& globals, const Limits& limits = {}) const;

  bool marks_generation() const;  // has {% generation %}

 private:
  explicit Template(std::unique_ptr<const Program> program);
  std::unique_ptr<const Program> program_;
};

}  // namespace hearth::jinja
