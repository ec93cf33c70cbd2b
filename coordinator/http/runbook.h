// The runbook as a page of the coordinator, to which the alerts' runbook_url leads.
#pragma once

#include <string>
#include <string_view>

namespace hearth::coordinator {

// docs/runbook.md as an HTML page. Knows the Markdown that is used there: headings, each with the
// id that GitHub gives it, paragraphs, `code`, blocks between ``` and [links](to). Links within the
// repository become plain text, because they lead nowhere from here. Everything else is shown as
// written, escaped.
std::string RunbookHtml(std::string_view markdown);

}  // namespace hearth::coordinator
