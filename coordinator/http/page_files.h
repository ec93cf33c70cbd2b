// The files of coordinator/web and docs/runbook.md as they were when the program was built;
// cmake/EmbedFiles.cmake writes the definitions.
#pragma once

#include <string_view>

namespace hearth::coordinator::page {

std::string_view IndexHtml();
std::string_view AppJs();
std::string_view CurvesJs();
std::string_view JobJs();
std::string_view TextJs();
std::string_view StyleCss();
std::string_view RunbookMd();

}  // namespace hearth::coordinator::page
