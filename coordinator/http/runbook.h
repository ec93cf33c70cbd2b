// The runbook as a page of the coordinator, to which the alerts' runbook_url leads.
#pragma once

#include <string>
#include <string_view>

namespace hearth::coordinator {

// A page of docs/runbook.md, of whose Markdown it knows what is used there: headings, each with an
// id as GitHub makes it, paragraphs, `code` and [links](to). Links inside of the repository lead
// nowhere from here and become their text. Everything else is shown as it is written, escaped.
std::string RunbookHtml(std::string_view markdown);

}  // namespace hearth::coordinator
