// What the engine does by itself; common/chat compares whole templates with Jinja2.
#include "common/jinja/template.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::jinja {
namespace {

using ::testing::HasSubstr;

Value::Dict Globals() {
  return {{"name", Value::String("n\u00e9e")},
          {"number", Value::Int(7)},
          {"list", *Value::FromJson(nlohmann::ordered_json::parse(R"([{"a": 1}, {"a": 2}])"))},
          {"nothing", Value::None()}};
}

// The text, or the error.
std::string Rendering(std::string_view text) {
  const absl::StatusOr<Template> parsed = Template::Parse(text, "t");
  if (!parsed.ok()) {
    return parsed.status().ToString();
  }
  const absl::StatusOr<Rendered> rendered = parsed->Render(Globals());
  return rendered.ok() ? rendered->text : rendered.status().ToString();
}

TEST(TemplateTest, Render_Expressions_MeanWhatTheyMeanInPython) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"{{ name | length }}", "3"},  // characters
      {"{{ name[1] }}{{ name[-1:] }}{{ name[::-1] }}", "\u00e9ee\u00e9n"},
      {"{{ number + 1 * 2 }} {{ (number + 1) * 2 }}", "9 16"},
      {"{{ -number // 2 }} {{ -number % 3 }} {{ number / 2 }}", "-4 2 3.5"},
      {"{{ -number | string | length }} {{ -number is odd }} {{ - -number | string }}", "2 True 7"},
      {"{{ 1 ~ 'a' ~ none }}", "1aNone"},
      {"{{ not name == 'x' and number > 3 }}", "True"},
      {"{{ 'a' in 'cab' }} {{ 'z' not in ['a'] }} {{ 'a' in list[0] }}", "True True True"},
      {"{{ list[1].a }}{{ list[0]['a'] }}{{ list[9] is defined }}", "21False"},
      {"{{ nothing is none }} {{ other is defined }}[{{ other }}]", "True False[]"},
      {"{{ '\\u00e9\\x41\\n' }}",
       "\u00e9"
       "A\n"},
      {"{{ 'x' if number == 8 else 'y' }}", "y"},
      {"{{ [1, 'a', {'b': none}] | tojson }}", R"([1, "a", {"b": null}])"},
      {"{{ {'a': [1]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}"},
      {"{{ 'a-b'.split('-') | join('+') }}", "a+b"},
      {"{{ number is odd }} {{ number is equalto 7 }} {{ 7 is in [7] }}", "True True True"},
  };
  for (const auto& [text, wanted] : kCases) {
    EXPECT_EQ(Rendering(text), wanted) << text;
  }
}

TEST(TemplateTest, Render_Generation_GivesItsRanges) {
  const auto parsed = Template::Parse("ab{% generation %}{{ name }}{% endgeneration %}c", "t");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->marks_generation());
  const auto rendered = parsed->Render(Globals());
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  ASSERT_EQ(rendered->generation.size(), 1u);
  EXPECT_EQ(rendered->generation[0].begin, 2u);
  EXPECT_EQ(rendered->generation[0].end, 6u);
}

TEST(TemplateTest, Parse_OutsideOfTheSubset_IsRefusedWithItsPlace) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"a\n  {% macro f() %}{% endmacro %}", "t:2:6: {% macro %} is not supported"},
      {"{% include 'x' %}", "t:1:4: {% include %} is not supported"},
      {"{{ 'a' | groupby('x') }}", "t:1:10: filter \"groupby\" is not supported"},
      {"{{ 'a'.encode('x') }}", "t:1:8: method \"encode\" is not supported"},
      {"{{ cycler(1) }}", "t:1:4: function \"cycler\" is not supported"},
      {"{{ 1 is divisibleby 2 }}", "t:1:9: test \"divisibleby\" is not supported"},
      {"{{ 'a' | trim('x') }}", "t:1:10: filter \"trim\" with 1 arguments is not supported"},
      {"{{ 'a' | tojson(sort=1) }}", "filter \"tojson\" with sort= is not supported"},
      {"{% for a in b recursive %}{% endfor %}", "a recursive loop is not supported"},
      {"{{ 2 ** 3 }}", "t:1:6: ** is not supported"},
      {"{% set x %}{% generation %}{% endgeneration %}{% endset %}", "{% generation %} inside"},
  };
  for (const auto& [text, wanted] : kCases) {
    EXPECT_THAT(Rendering(text), HasSubstr(std::string("UNIMPLEMENTED: "))) << text;
    EXPECT_THAT(Rendering(text), HasSubstr(std::string(wanted))) << text;
  }
}

TEST(TemplateTest, Parse_NoTemplate_IsRefusedWithItsPlace) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"{{ 'a", "t:1:4: a string without end"},
      {"{{ a", "t:1:1: a tag without end"},
      {"\n{# a", "t:2:1: a comment without end"},
      {"{% if a %}b", "t:1:11: no {% endif %} closes what begins here"},
      {"{% endif %}", "t:1:4: {% endif %} does not belong here"},
      {"{{ a b }}", "t:1:6: expected }}"},
      {"{{ [1, }}", "expected a value"},
      {"{{ a. }}", "expected a name behind the dot"},
      {"{% break %}", "there is no loop here"},
      {"{{ ? }}", "t:1:4: an unexpected character"},
      {"{{ a[1:2:3:4] }}", "expected ]"},
  };
  for (const auto& [text, wanted] : kCases) {
    EXPECT_THAT(Rendering(text), HasSubstr(std::string("INVALID_ARGUMENT: "))) << text;
    EXPECT_THAT(Rendering(text), HasSubstr(std::string(wanted))) << text;
  }
}

TEST(TemplateTest, Render_WrongValues_AreErrorsWithTheirPlace) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"a\n{{ 'x' + 1 }}", "t:2:8: \"+\" of str and int is not supported"},
      {"{{ missing.a }}", "t:1:12: an item of an undefined value"},
      {"{{ list }}", "a list cannot be printed"},
      {"{{ raise_exception('no system role') }}", "the template says: no system role"},
      {"{{ strftime_now('%Y') }}", "would change every day"},
      {"{{ 1 / 0 }}", "a division by zero"},
      {"{{ 9223372036854775807 + 1 }}", "a number that is too large"},
      {"{{ name | upper }}", "letters beyond ASCII"},
      {"{% set name.a = 1 %}", "\"name\" is not a namespace"},
      {"{% for a, b in [1] %}{% endfor %}", "cannot be taken apart"},
  };
  for (const auto& [text, wanted] : kCases) {
    EXPECT_THAT(Rendering(text), HasSubstr(std::string(wanted))) << text;
  }
}

}  // namespace
}  // namespace hearth::jinja
