// Templates made to run for ever, to fill the memory or to overflow the stack.
#include "absl/strings/str_cat.h"
#include "common/jinja/template.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::jinja {
namespace {

using ::testing::HasSubstr;

std::string Error(const std::string& text, const Limits& limits = {}) {
  const absl::StatusOr<Template> parsed = Template::Parse(text, "t");
  return (parsed.ok() ? parsed->Render({}, limits).status() : parsed.status()).ToString();
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

TEST(HostileTemplateTest, Render_EndlessWork_EndsWithinTheLimits) {
  // Small limits make the test fast; these templates would use up any.
  const Limits limits = {40'000, int64_t{4} << 20};
  const std::string loops =
      Repeated("{% for i in range(1000) %}", 20) + "x" + Repeated("{% endfor %}", 20);
  EXPECT_THAT(Error(loops, limits), HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Error("{% for i in range(100000000000) %}{% endfor %}", limits),
              HasSubstr("t:1:13: the template takes too many steps"));
  const std::string doubling =
      "{% set ns = namespace(x='0123456789') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}";
  EXPECT_THAT(Error(doubling, limits), HasSubstr("the template makes too much text"));
  const std::string shared =
      "{% set ns = namespace(x=['0']) %}{% for i in range(50) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  EXPECT_THAT(Error(shared + "{{ ns.x | tojson }}", limits), HasSubstr("RESOURCE_EXHAUSTED"));
  EXPECT_THAT(Error(shared + "{{ ns.x == ns.x }}", limits), HasSubstr("RESOURCE_EXHAUSTED"));
  // Found in linear time: a search that goes back takes hours.
  const std::string search =
      "{% set ns = namespace(x='a') %}{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}{{ (ns.x[: 500000] ~ 'b') in ns.x }}";
  EXPECT_EQ(Error(search), "OK");
}

TEST(HostileTemplateTest, Render_DeepValues_AreRefused) {
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_THAT(Error(deep), HasSubstr("lists deeper than 64 levels"));
  EXPECT_THAT(Error("{% set ns = namespace() %}{% set ns.x = ns %}"),
              HasSubstr("a namespace cannot be part of another value"));
}

TEST(HostileTemplateTest, Parse_DeepTemplates_AreRefused) {
  const std::string many = "deeper than 100 levels";
  EXPECT_THAT(Error("{{ " + Repeated("(", 100000) + " }}"), HasSubstr(many));
  EXPECT_THAT(Error("{{ " + Repeated("not ", 100000) + "1 }}"), HasSubstr(many));
  EXPECT_THAT(Error("{{ 1" + Repeated(" + 1", 100000) + " }}"), HasSubstr(many));
  EXPECT_THAT(Error("{{ a" + Repeated(".a", 100000) + " }}"), HasSubstr(many));
  EXPECT_THAT(Error("{{ a" + Repeated("|trim", 100000) + " }}"), HasSubstr(many));
  EXPECT_THAT(Error("{{ 1" + Repeated(" if 1 else 1", 50000) + " }}"), HasSubstr(many));
  EXPECT_THAT(Error(Repeated("{% if 1 %}", 50000)), HasSubstr(many));
  EXPECT_THAT(Error(std::string(size_t{2} << 20, 'x')), HasSubstr("more than 1048576 bytes"));
}

}  // namespace
}  // namespace hearth::jinja
