#include "coordinator/http/runbook.h"

#include <string>

#include "coordinator/http/page_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hearth::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Runbook, HeadingsAndMarks_BecomeHtml) {
  const std::string page = RunbookHtml(
      "# Run book\n\nOne of [the rules](../rules/a.yml#b),\nsee [NVIDIA](https://x.org/?a=1&b=2) "
      "and [below](#hearthjobstuck).\n\n## HearthJobStuck\n\n`jobctl cancel <JOB>` & [that.\n\n"
      "```sh\nmv A <B>\ncp C D\n```\n");
  EXPECT_THAT(page, HasSubstr("<h1 id=\"run-book\">Run book</h1>\n<p>One of the rules,\nsee "
                              "<a href=\"https://x.org/?a=1&amp;b=2\">NVIDIA</a> and "
                              "<a href=\"#hearthjobstuck\">below</a>.</p>\n"
                              "<h2 id=\"hearthjobstuck\">HearthJobStuck</h2>\n"
                              "<p><code>jobctl cancel &lt;JOB&gt;</code> &amp; [that.</p>\n"
                              "<pre><code>mv A &lt;B&gt;\ncp C D</code></pre>\n"));
}

TEST(Runbook, EmptyBlock_IsEmpty) {
  EXPECT_THAT(RunbookHtml("```sh\n```\n\nEnd"), HasSubstr("<pre><code></code></pre>\n<p>End</p>"));
}

TEST(Runbook, ThatOfTheProgram_IsServedWithAllItsMarksTaken) {
  const auto handlers = PageHandlers();
  ASSERT_EQ(handlers.count("/runbook"), 1u);
  const metrics::HttpResponse response = handlers.at("/runbook")({"/runbook", ""});
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.content_type, HasSubstr("text/html"));
  EXPECT_THAT(response.body,
              HasSubstr("<h2 id=\"hearthcoordinatordown\">HearthCoordinatorDown</h2>"));
  // What RunbookHtml does not know would stand there as it is written.
  EXPECT_THAT(response.body, HasSubstr("<pre><code>hearth-coordinator --check --data-dir COPY\n"));
  for (const char* mark : {"`", "<code></code>", "](", "\n- ", "**", "\n|", "<p>    "}) {
    EXPECT_THAT(response.body, Not(HasSubstr(mark)));
  }
}

}  // namespace
}  // namespace hearth::coordinator
