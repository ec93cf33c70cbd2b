// Receivers of notifications, and what a job waits for.
#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "common/base/clip_text.h"
#include "common/base/ids.h"
#include "common/spec/rules/rules.h"
#include "common/spec/violations/text.h"

namespace hearth::spec {
namespace {

constexpr int kReceiversMax = 16;
constexpr size_t kUrlBytes = 2048;

// Host and port of a URL, with a user if it names one.
std::string_view AuthorityOf(std::string_view url) {
  const size_t begin = url.find("://");
  if (begin == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = url.substr(begin + 3);
  return rest.substr(0, rest.find_first_of("/?#\\"));
}

// What is wrong with a URL; empty = nothing.
std::string UrlProblem(const std::string& url) {
  if (url.size() > kUrlBytes) {
    return Text("has ", url.size(), " bytes; at most ", kUrlBytes);
  }
  const bool plain = std::all_of(url.begin(), url.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!plain) {
    return "must be ASCII without spaces; write other characters as %XX";
  }
  if (!absl::StartsWith(url, "http://") && !absl::StartsWith(url, "https://")) {
    return "must begin with http:// or https://";
  }
  const std::string_view authority = AuthorityOf(url);
  if (authority.empty() || authority.front() == ':') {
    return "names no host";
  }
  if (authority.find('@') != std::string_view::npos) {
    return "must not hold a user or password: everyone who may see the job would see it";
  }
  // They are resolved on the way, so a URL could leave what url_prefixes allow.
  const std::string path =
      absl::AsciiStrToLower(url.substr(0, std::min(url.find_first_of("?#"), url.size())));
  const std::string whole = absl::StrReplaceAll(path, {{"%2e", "."}, {"%2f", "/"}}) + "/";
  if (absl::StrContains(whole, "/./") || absl::StrContains(whole, "/../") ||
      absl::StrContains(whole, "\\")) {
    return "must not have . or .. as a part of its path, nor a backslash";
  }
  return "";
}

}  // namespace

std::string UrlOrigin(const std::string& url) {
  const std::string_view authority = AuthorityOf(url);
  return Text(url.substr(0, url.find("://")), "://", authority);
}

void CheckReceivers(std::string_view list,
                    const google::protobuf::RepeatedPtrField<v1::NotifySpec>& receivers,
                    Checker& check) {
  if (receivers.size() > kReceiversMax) {
    check.Add(list, Text(receivers.size(), " receivers; at most ", kReceiversMax));
  }
  for (int i = 0; i < receivers.size(); ++i) {
    const v1::NotifySpec& receiver = receivers[i];
    const std::string path = Text(list, '[', i, ']');
    if (receiver.url().empty() == receiver.command().empty()) {
      check.Add(path, "give either url or command");
    }
    if (!receiver.url().empty()) {
      const std::string problem = UrlProblem(receiver.url());
      if (!problem.empty()) {
        check.Add(path + ".url", Text('"', ClipText(receiver.url(), 100), "\" ", problem));
      }
    }
    const std::set<std::string> events(receiver.on().begin(), receiver.on().end());
    if (static_cast<int>(events.size()) < receiver.on_size()) {
      check.Add(path + ".on", "names an event twice");
    }
  }
}

void CheckNotify(const v1::JobSpec& job, Checker& check) {
  CheckReceivers("notify", job.notify(), check);
}

void CheckStart(const v1::JobSpec& job, Checker& check) {
  if (!job.start().after().empty()) {
    const absl::Status valid = ValidateJobId(job.start().after());
    if (!valid.ok()) {
      check.Add("start.after", std::string(valid.message()));
    }
  }
}

}  // namespace hearth::spec
