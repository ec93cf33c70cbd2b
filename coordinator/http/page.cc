#include <string>
#include <utility>

#include "coordinator/http/page_api.h"
#include "coordinator/http/page_files.h"
#include "coordinator/http/runbook.h"

namespace hearth::coordinator {
namespace {

// No content from elsewhere, no inline script or style, and no framing of the page.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

metrics::HttpHandler File(const char* content_type, std::string body) {
  return [content_type, body = std::move(body)](const metrics::HttpRequest&) {
    return metrics::HttpResponse{200,
                                 content_type,
                                 body,
                                 {{"Cache-Control", "no-store"},
                                  {"Content-Security-Policy", kPolicy},
                                  {"Referrer-Policy", "no-referrer"}}};
  };
}

}  // namespace

std::map<std::string, metrics::HttpHandler> PageHandlers() {
  static constexpr char kScript[] = "text/javascript; charset=utf-8";
  return {
      {"/", File("text/html; charset=utf-8", std::string(page::IndexHtml()))},
      {"/app.js", File(kScript, std::string(page::AppJs()))},
      {"/curves.js", File(kScript, std::string(page::CurvesJs()))},
      {"/job.js", File(kScript, std::string(page::JobJs()))},
      {"/text.js", File(kScript, std::string(page::TextJs()))},
      {"/style.css", File("text/css; charset=utf-8", std::string(page::StyleCss()))},
      {"/runbook", File("text/html; charset=utf-8", RunbookHtml(page::RunbookMd()))},
  };
}

}  // namespace hearth::coordinator
