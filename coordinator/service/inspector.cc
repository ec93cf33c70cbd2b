#include "coordinator/service/inspector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {
namespace {

// Answers kept at most; beyond it the cache starts again.
constexpr size_t kCacheMax = 4096;

}  // namespace

std::string Inspector::Scope(const v1::JobSpec& spec) {
  std::string scope = spec.resources().device();
  const std::map<std::string, std::string> selector(spec.resources().selector().begin(),
                                                    spec.resources().selector().end());
  for (const auto& [key, value] : selector) {
    absl::StrAppend(&scope, ";", key, "=", value);
  }
  return scope;
}

bool Inspector::Cached(const std::string& scope,
                       const std::vector<std::string>& paths,
                       std::vector<v1::PathInfo>& answers) const {
  const absl::Duration now = clock_.Monotonic();
  absl::MutexLock lock(&mu_);
  std::vector<v1::PathInfo> found;
  for (const std::string& path : paths) {
    const auto entry = cache_.find({scope, path});
    if (entry == cache_.end() || now - entry->second.time > kInspectCacheAge) {
      return false;
    }
    found.push_back(entry->second.info);
  }
  answers = std::move(found);
  return true;
}

void Inspector::Inspect(uint64_t connection_id,
                        const std::string& scope,
                        std::vector<std::string> paths,
                        Done done) {
  v1::CoordinatorMessage message;
  message.set_generation(generation_);
  int64_t id = 0;
  {
    absl::MutexLock lock(&mu_);
    id = next_id_++;
    message.mutable_inspect()->set_request_id(id);
    message.mutable_inspect()->mutable_paths()->Assign(paths.begin(), paths.end());
    pending_[id] = Pending{connection_id, scope, std::move(paths),
                           clock_.Monotonic() + kInspectTimeout, std::move(done)};
  }
  if (!hub_.Send(connection_id, std::move(message))) {
    OnDisconnected(connection_id);
  }
}

void Inspector::OnResult(uint64_t connection_id, const v1::InspectPathsResult& result) {
  Pending pending;
  std::vector<v1::PathInfo> answers;
  const absl::Duration now = clock_.Monotonic();
  {
    absl::MutexLock lock(&mu_);
    const auto found = pending_.find(result.request_id());
    if (found == pending_.end() || found->second.connection_id != connection_id) {
      return;  // too late
    }
    pending = std::move(found->second);
    pending_.erase(found);
    if (cache_.size() > kCacheMax) {
      cache_.clear();
    }
    for (const std::string& path : pending.paths) {
      const auto info = std::find_if(result.paths().begin(), result.paths().end(),
                                     [&path](const v1::PathInfo& p) { return p.path() == path; });
      if (info == result.paths().end()) {
        answers.emplace_back().set_path(path);
        answers.back().set_error("the worker did not say");
        continue;
      }
      answers.push_back(*info);
      if (info->error().empty()) {
        cache_[{pending.scope, path}] = Answer{*info, now};
      }
    }
  }
  pending.done(std::move(answers));
}

void Inspector::OnDisconnected(uint64_t connection_id) {
  std::vector<Done> failed;
  {
    absl::MutexLock lock(&mu_);
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      if (entry->second.connection_id == connection_id) {
        failed.push_back(std::move(entry->second.done));
        entry = pending_.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  for (const Done& done : failed) {
    done(absl::UnavailableError("the worker that was asked about the paths has gone"));
  }
}

void Inspector::Expire() {
  std::vector<Done> failed;
  const absl::Duration now = clock_.Monotonic();
  {
    absl::MutexLock lock(&mu_);
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      if (entry->second.deadline <= now) {
        failed.push_back(std::move(entry->second.done));
        entry = pending_.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  for (const Done& done : failed) {
    done(absl::DeadlineExceededError("the worker that was asked about the paths did not answer"));
  }
}

}  // namespace hearth::coordinator
