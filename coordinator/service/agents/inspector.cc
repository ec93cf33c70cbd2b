#include "coordinator/service/agents/inspector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hearth::coordinator {
namespace {

// Answers kept at most; beyond it the cache starts again.
constexpr size_t kCacheMax = 4096;

// A worker's word must not pass for the coordinator's, such as that the caller is refused.
absl::Status WorkersWord(int32_t number, const std::string& error) {
  switch (const auto code = static_cast<absl::StatusCode>(number)) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return {code, error};
    default:
      return absl::FailedPreconditionError(error);
  }
}

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

int64_t Inspector::Ask(Pending pending,
                       const std::function<void(int64_t, v1::CoordinatorMessage&)>& fill) {
  v1::CoordinatorMessage message;
  message.set_generation(generation_);
  const uint64_t connection_id = pending.connection_id;
  pending.deadline = clock_.Monotonic() + pending.timeout;
  int64_t id = 0;
  {
    absl::MutexLock lock(&mu_);
    id = next_id_++;
    fill(id, message);
    pending_[id] = std::move(pending);
  }
  if (!hub_.Send(connection_id, std::move(message))) {
    // The stream ended between the choice and here, so its own OnDisconnected came too early to
    // find this question.
    OnDisconnected(connection_id);
  }
  return id;
}

void Inspector::Inspect(uint64_t connection_id,
                        const std::string& scope,
                        std::vector<std::string> paths,
                        Done done) {
  const auto fill = [&paths](int64_t id, v1::CoordinatorMessage& message) {
    message.mutable_inspect()->set_request_id(id);
    message.mutable_inspect()->mutable_paths()->Assign(paths.begin(), paths.end());
  };
  Pending pending = {connection_id, "the paths", kInspectTimeout};
  pending.done = [this, scope, paths,
                  done = std::move(done)](absl::StatusOr<v1::AgentMessage> answer) {
    if (!answer.ok()) {
      return done(answer.status());
    }
    done(Keep(scope, paths, answer->inspect_result()));
  };
  Ask(std::move(pending), fill);
}

void Inspector::Read(uint64_t connection_id, v1::ReadCheckpointFile request, ReadDone done) {
  const auto fill = [&request](int64_t id, v1::CoordinatorMessage& message) {
    request.set_request_id(id);
    *message.mutable_read_checkpoint() = std::move(request);
  };
  Pending pending = {connection_id, "the checkpoint", kReadTimeout};
  pending.done = [done = std::move(done)](absl::StatusOr<v1::AgentMessage> answer) {
    if (!answer.ok()) {
      return done(answer.status());
    }
    v1::CheckpointFileBytes& bytes = *answer->mutable_checkpoint_bytes();
    if (bytes.code() == 0) {
      return done(std::move(bytes));
    }
    done(WorkersWord(bytes.code(), bytes.error()));
  };
  Ask(std::move(pending), fill);
}

int64_t Inspector::Write(uint64_t connection_id, v1::WriteText request, Piece piece) {
  Pending pending = {connection_id, "a text", kWriteTimeout};
  pending.more = [](const v1::AgentMessage& answer) {
    return answer.has_written() && answer.written().code() == 0 &&
           answer.written().end() == v1::TEXT_END_UNSPECIFIED;
  };
  pending.done = [piece = std::move(piece)](absl::StatusOr<v1::AgentMessage> answer) {
    if (!answer.ok()) {
      return piece(answer.status());
    }
    v1::WrittenText& written = *answer->mutable_written();
    if (written.code() == 0) {
      return piece(std::move(written));
    }
    piece(WorkersWord(written.code(), written.error()));
  };
  return Ask(std::move(pending), [&request](int64_t id, v1::CoordinatorMessage& message) {
    request.set_request_id(id);
    *message.mutable_write() = std::move(request);
  });
}

void Inspector::StopWriting(uint64_t connection_id, int64_t id) {
  {
    absl::MutexLock lock(&mu_);
    if (pending_.erase(id) == 0) {
      return;  // it was the last piece that came
    }
  }
  v1::CoordinatorMessage message;
  message.set_generation(generation_);
  message.mutable_stop_writing()->set_request_id(id);
  hub_.Send(connection_id, std::move(message));
}

std::vector<v1::PathInfo> Inspector::Keep(const std::string& scope,
                                          const std::vector<std::string>& paths,
                                          const v1::InspectPathsResult& result) {
  std::vector<v1::PathInfo> answers;
  const absl::Duration now = clock_.Monotonic();
  absl::MutexLock lock(&mu_);
  if (cache_.size() > kCacheMax) {
    cache_.clear();
  }
  for (const std::string& path : paths) {
    const auto info = std::find_if(result.paths().begin(), result.paths().end(),
                                   [&path](const v1::PathInfo& p) { return p.path() == path; });
    if (info == result.paths().end()) {
      answers.emplace_back().set_path(path);
      answers.back().set_error("the worker did not say");
      continue;
    }
    answers.push_back(*info);
    if (info->error().empty()) {
      cache_[{scope, path}] = Answer{*info, now};
    }
  }
  return answers;
}

void Inspector::OnAnswer(uint64_t connection_id, int64_t id, v1::AgentMessage&& message) {
  Answered done;
  {
    absl::MutexLock lock(&mu_);
    const auto found = pending_.find(id);
    // Ids are counted, so other workers could guess them: only the one that was asked may answer.
    if (found == pending_.end() || found->second.connection_id != connection_id) {
      return;  // too late
    }
    Pending& pending = found->second;
    if (pending.more != nullptr && pending.more(message)) {
      // Each piece of a text gives the next one its own time.
      pending.deadline = clock_.Monotonic() + pending.timeout;
      done = pending.done;
    } else {
      done = std::move(pending.done);
      pending_.erase(found);
    }
  }
  done(std::move(message));
}

void Inspector::OnDisconnected(uint64_t connection_id) {
  Fail([connection_id](const Pending& pending) { return pending.connection_id == connection_id; },
       [](std::string_view about) {
         return absl::UnavailableError(
             absl::StrCat("the worker that was asked about ", std::string(about), " has gone"));
       });
}

void Inspector::Expire() {
  const absl::Duration now = clock_.Monotonic();
  Fail([now](const Pending& pending) { return pending.deadline <= now; },
       [](std::string_view about) {
         return absl::DeadlineExceededError(absl::StrCat("the worker that was asked about ",
                                                         std::string(about), " did not answer"));
       });
}

void Inspector::Fail(const std::function<bool(const Pending&)>& fails,
                     const std::function<absl::Status(std::string_view about)>& why) {
  std::vector<Pending> failed;
  {
    absl::MutexLock lock(&mu_);
    for (auto entry = pending_.begin(); entry != pending_.end();) {
      if (fails(entry->second)) {
        failed.push_back(std::move(entry->second));
        entry = pending_.erase(entry);
      } else {
        ++entry;
      }
    }
  }
  // Outside the lock: `done` may ask the next question.
  for (const Pending& pending : failed) {
    pending.done(why(pending.about));
  }
}

}  // namespace hearth::coordinator
