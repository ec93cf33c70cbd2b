#include "coordinator/service/checks/spec_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/units.h"
#include "common/rpc/grpc_status.h"
#include "common/spec/fields/idle.h"
#include "common/spec/gpus/gpus.h"
#include "common/spec/objective/objective_table.h"
#include "common/spec/plan/offload.h"
#include "common/spec/plan/plan_inputs.h"
#include "common/spec/resolve/resolve.h"
#include "google/protobuf/util/message_differencer.h"

namespace hearth::coordinator {
namespace {

bool IsOnline(v1::WorkerState state) {
  return state == v1::WORKER_STATE_IDLE || state == v1::WORKER_STATE_BUSY;
}

bool Suits(const v1::Worker& worker, const v1::JobSpec& spec) {
  if (worker.device().kind() != spec.resources().device()) {
    return false;
  }
  for (const auto& [key, value] : spec.resources().selector()) {
    const auto found = worker.labels().find(key);
    if (found == worker.labels().end() || found->second != value) {
      return false;
    }
  }
  return true;
}

// `spec` completed with what `other` knows of the same paths; unchanged if that does not fit it.
v1::JobSpec CompletedAs(const v1::JobSpec& spec, const v1::JobSpec& other) {
  if (spec.model().has_vocab() || !other.model().has_vocab()) {
    return spec;
  }
  v1::JobSpec completed = spec;
  spec::DataFacts facts;
  facts.vocab = other.model().vocab();
  std::vector<spec::FieldViolation> violations;
  spec::ResolveWithFacts(completed, facts, spec.model().has_from() ? &other.model() : nullptr,
                         violations);
  return violations.empty() ? completed : spec;
}

// A host and its workers that the job may run on.
struct Host {
  std::string worker_id;  // of one of them
  int64_t memory_bytes = 0;
  int workers = 0;

  // Bytes for each of `ranks` ranks, of which at most one per worker runs here. The trainer divides
  // by the host's GPUs, which are no fewer (worker/trainer/device/rank_device.h).
  int64_t Share(int ranks) const { return memory_bytes / std::min(ranks, workers); }
};

// The most that a rank may get.
struct Largest {
  std::string who;           // "the largest worker that the job may run on (w1)"
  int64_t memory_bytes = 0;  // of its device, all of it
  int threads = 1;
  std::vector<Host> hosts = {};  // empty: nothing is known of their memory
};

// Bytes; no device has more. A job that needs more is refused even before there is any worker.
constexpr int64_t kLargestGpuBytes = int64_t{512} << 30;  // twice the largest GPU of today
constexpr int64_t kLargestHostBytes = int64_t{64} << 40;  // twice the largest host of today
constexpr int kLeastVocab = 2;  // while the datasets have not been asked for theirs

// Whether some host has what a rank keeps there. `of_fewer` is said of the ranks.
absl::Status CheckHosts(const spec::TrainingPlanOptions& options,
                        const spec::MemoryPlan& plan,
                        const std::vector<Host>& hosts,
                        int ranks,
                        const std::string& of_fewer) {
  const auto most = std::max_element(
      hosts.begin(), hosts.end(),
      [ranks](const Host& a, const Host& b) { return a.Share(ranks) < b.Share(ranks); });
  const int64_t needed = plan.arena_bytes(spec::MemoryTier::kPinnedHost);
  if (!options.offload.any() || most == hosts.end() || needed <= most->Share(ranks)) {
    return absl::OkStatus();
  }
  return rpc::MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("offload needs ", FormatBytes(needed), " of the host's memory a worker",
                   of_fewer, ", no worker that the job may run on has more than ",
                   FormatBytes(most->Share(ranks)), " for it (", most->worker_id, "); ",
                   spec::LessOnHostAdvice(options.offload)),
      "DOES_NOT_FIT");
}

// Whether a gang of `ranks` fits into what each of them may take.
absl::Status CheckGang(const v1::JobSpec& spec, const Largest& largest, int ranks) {
  const int64_t memory =
      spec::PlannableBytes(spec.resources().device(), largest.memory_bytes, ranks);
  const int threads =
      spec.resources().threads() > 0 ? spec.resources().threads() : std::max(1, largest.threads);
  const int wanted = spec.resources().workers();
  const std::string of_fewer =
      ranks == wanted
          ? ""
          : absl::StrCat(" when ", ranks, " of ", wanted,
                         " workers are left (resources.min_workers), where optimizer state is "
                         "divided among fewer");
  HEARTH_ASSIGN_OR_RETURN(
      const spec::ShardLevel shard,
      spec::ResolveShardLevel(spec, ranks, threads, memory, spec.batch().micro_batch_size()));
  const absl::StatusOr<int64_t> micro_batch =
      spec::ResolveMicroBatch(spec, ranks, threads, memory, shard);
  if (!micro_batch.ok()) {
    return of_fewer.empty() ? micro_batch.status()
                            : absl::Status(micro_batch.status().code(),
                                           absl::StrCat(micro_batch.status().message(), of_fewer));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<spec::PlanInputs> inputs,
                          spec::MakePlanInputs(spec, *micro_batch, threads, true, ranks, shard));
  HEARTH_ASSIGN_OR_RETURN(const spec::MemoryPlan memory_plan, spec::PlanTraining(inputs->options));
  if (memory_plan.arena_bytes() <= memory) {
    return CheckHosts(inputs->options, memory_plan, largest.hosts, ranks, of_fewer);
  }
  return rpc::MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("batch.micro_batch_size ", *micro_batch, " needs ",
                   FormatBytes(memory_plan.arena_bytes()), " a worker", of_fewer, ", ", largest.who,
                   " has ", FormatBytes(memory), " for it; a smaller one or \"auto\"",
                   of_fewer.empty() ? "" : ", or more min_workers,", " may fit"),
      "DOES_NOT_FIT");
}

// With all of resources.workers and with min_workers alone.
absl::Status CheckGangs(const v1::JobSpec& spec, const Largest& largest) {
  HEARTH_RETURN_IF_ERROR(CheckGang(spec, largest, spec.resources().workers()));
  const int fewest = spec.resources().min_workers();
  return fewest > 0 && fewest < spec.resources().workers() ? CheckGang(spec, largest, fewest)
                                                           : absl::OkStatus();
}

// Where the workers online are that the job may run on. Empty if one of them does not tell its
// host's memory.
std::vector<Host> HostsOf(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers) {
  std::map<std::string, Host> hosts;
  for (const WorkerPtr& worker : workers) {
    if (!IsOnline(worker->state()) || !Suits(*worker, spec)) {
      continue;
    }
    if (worker->device().host_memory_bytes() == 0) {
      return {};
    }
    Host& host = hosts[worker->host()];
    host.worker_id = host.workers == 0 ? worker->worker_id() : host.worker_id;
    host.memory_bytes = worker->device().host_memory_bytes();
    ++host.workers;
  }
  std::vector<Host> all;
  for (auto& [name, host] : hosts) {
    all.push_back(std::move(host));
  }
  return all;
}

// The largest of those online that the job may run on; nothing when there is none.
std::optional<Largest> LargestOf(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers) {
  const v1::Worker* largest = nullptr;
  for (const WorkerPtr& worker : workers) {
    if (IsOnline(worker->state()) && Suits(*worker, spec) && worker->device().memory_bytes() > 0 &&
        (largest == nullptr ||
         worker->device().memory_bytes() > largest->device().memory_bytes())) {
      largest = worker.get();
    }
  }
  if (largest == nullptr) {
    return std::nullopt;
  }
  return Largest{
      absl::StrCat("the largest worker that the job may run on (", largest->worker_id(), ")"),
      largest->device().memory_bytes(), largest->device().threads(), HostsOf(spec, workers)};
}

enum class Holds : uint8_t { kTraining, kHeldOut, kModel };

struct NamedPath {
  std::string field;
  std::string path;
  Holds holds;
};

// The paths of PathsOf, in its order.
std::vector<NamedPath> NamedPathsOf(const v1::JobSpec& spec) {
  std::vector<NamedPath> named;
  const auto add_sources = [&](const auto& sources, const char* list, Holds holds) {
    for (int i = 0; i < sources.size(); ++i) {
      named.push_back({absl::StrCat(list, "[", i, "].path"), sources[i].path(), holds});
    }
  };
  const auto add_texts = [&](const auto& paths, const char* list, Holds holds) {
    for (int i = 0; i < paths.size(); ++i) {
      named.push_back({absl::StrCat(list, "[", i, "]"), paths[i], holds});
    }
  };
  add_sources(spec.data().train(), "data.train", Holds::kTraining);
  add_sources(spec.data().validation(), "data.validation", Holds::kHeldOut);
  if (!spec.model().from().empty()) {
    named.push_back({"model.from", spec.model().from(), Holds::kModel});
  }
  add_texts(spec.evaluate().data(), "evaluate.data", Holds::kHeldOut);
  add_texts(spec.evaluate().models(), "evaluate.models", Holds::kModel);
  return named;
}

// Why a path cannot be used. Another worker may see it, so the text says who looked.
std::string PathError(const v1::PathInfo& info, const std::string& worker_id) {
  const bool names_path = absl::StrContains(info.error(), info.path());
  return absl::StrCat(worker_id.empty() ? "" : absl::StrCat("on worker ", worker_id, ": "),
                      names_path ? "" : absl::StrCat(info.path(), ": "), info.error());
}

bool IsPlanned(SpecChecker::Origin origin) {
  return origin == SpecChecker::Origin::kPlanned || origin == SpecChecker::Origin::kPlannedByViewer;
}

}  // namespace

std::vector<std::string> PathsOf(const v1::JobSpec& spec) {
  std::vector<std::string> paths;
  for (const NamedPath& named : NamedPathsOf(spec)) {
    paths.push_back(named.path);
  }
  return paths;
}

absl::Status ApplyFacts(v1::JobSpec& spec,
                        const std::vector<v1::PathInfo>& paths,
                        const std::string& worker_id) {
  std::vector<spec::FieldViolation> violations;
  spec::DataFacts facts;
  const v1::ModelSpec* from_model = nullptr;
  const std::vector<NamedPath> named = NamedPathsOf(spec);
  for (size_t i = 0; i < std::min(paths.size(), named.size()); ++i) {
    const v1::PathInfo& info = paths[i];
    const std::string& field = named[i].field;
    const bool is_model = named[i].holds == Holds::kModel;
    if (!info.error().empty()) {
      violations.push_back({field, PathError(info, worker_id)});
    } else if (is_model != (info.kind() == "model")) {
      violations.push_back(
          {field, absl::StrCat(info.path(),
                               is_model ? " is not a model folder but " : " is not a dataset but ",
                               info.kind())});
    } else if (is_model) {
      from_model = &info.model();
      facts.model = spec::PathTokenizer{field, info.path(), info.vocab(), info.tokenizer()};
    } else {
      facts.datasets.push_back({field, info.path(), info.vocab(), info.tokenizer()});
      facts.masks.push_back({field, info.path(), info.loss_mask()});
      facts.vocab = std::max(facts.vocab, info.vocab());
      facts.train_tokens += named[i].holds == Holds::kTraining ? info.tokens() : 0;
    }
  }
  if (violations.empty()) {
    spec::ResolveWithFacts(spec, facts, from_model, violations);
  }
  return spec::ViolationsToStatus(violations);
}

std::vector<std::string> SpecDifferences(const v1::JobSpec& kept, const v1::JobSpec& submitted) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(CompletedAs(kept, submitted), CompletedAs(submitted, kept))) {
    return {};
  }
  return absl::StrSplit(differences, '\n', absl::SkipEmpty());
}

absl::Status CheckMemory(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers) {
  const std::optional<Largest> largest = LargestOf(spec, workers);
  return largest.has_value() && spec.model().vocab() != 0 ? CheckGangs(spec, *largest)
                                                          : absl::OkStatus();
}

absl::Status CheckMemoryUnseen(const v1::JobSpec& spec, const std::vector<WorkerPtr>& workers) {
  if (spec.model().has_from() || !spec::Trains(spec)) {
    return absl::OkStatus();  // the model's size is in a folder
  }
  v1::JobSpec least = spec;
  if (least.model().vocab() == 0) {
    least.mutable_model()->set_vocab(kLeastVocab);
  }
  const bool cuda = spec.resources().device() == "cuda";
  const Largest any = {absl::StrCat("the largest ", cuda ? "GPU" : "host", " known"),
                       cuda ? kLargestGpuBytes : kLargestHostBytes};
  const absl::Status status = CheckGangs(least, LargestOf(spec, workers).value_or(any));
  // What else is wrong is said when the spec is complete.
  return absl::IsResourceExhausted(status) ? status : absl::OkStatus();
}

CheckedSpec SpecChecker::Unseen(v1::JobSpec spec, Origin origin, absl::string_view why) const {
  CheckedSpec result;
  result.status =
      IsPlanned(origin)
          ? rpc::MakeError(absl::StatusCode::kFailedPrecondition,
                           absl::StrCat("a plan needs what a worker sees in the job's paths: ", why,
                                        "; a job needs no worker if it has no model.from, and "
                                        "has model.vocab or a preset with a vocabulary"),
                           "PATHS_NOT_SEEN")
          : CheckMemoryUnseen(spec, view_.Workers());
  result.spec = std::move(spec);
  result.warnings.push_back(
      absl::StrCat("paths not checked: ", why, "; they will be checked before the job starts"));
  return result;
}

CheckedSpec SpecChecker::Complete(v1::JobSpec spec,
                                  Origin origin,
                                  const std::vector<v1::PathInfo>& paths,
                                  const std::string& worker_id) const {
  CheckedSpec result;
  result.status = ApplyFacts(spec, paths, worker_id);
  if (result.status.ok() && !IsPlanned(origin)) {
    result.status = CheckMemory(spec, view_.Workers());
  }
  result.spec = std::move(spec);
  result.paths_checked = true;
  return result;
}

void SpecChecker::Check(v1::JobSpec spec, Origin origin, Done done) {
  // In the order of what an answer costs: what the spec alone says, what is known of its paths, and
  // last a question to a worker, whose answer comes later.
  std::vector<spec::FieldViolation> violations;
  if (origin == Origin::kStored) {
    // Not refused for a key that changes nothing: an older version may have accepted it.
    spec::Resolve(spec, violations);
  } else {
    spec::ResolveSubmitted(spec, violations);
  }
  if (!violations.empty()) {
    return done({spec::ViolationsToStatus(violations), std::move(spec), false, {}});
  }
  if (IsPlanned(origin) && !spec::Trains(spec)) {
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat("task: ", spec.task(), " trains nothing, so there is nothing to plan"));
    return done({status, std::move(spec), false, {}});
  }
  if (IsPlanned(origin) && spec.model().has_vocab() && !spec.model().has_from()) {
    spec::ResolveWithFacts(spec, spec::DataFacts(), nullptr, violations);
    return done({spec::ViolationsToStatus(violations), std::move(spec), false, {}});
  }
  if (origin == Origin::kPlannedByViewer) {
    return done(Unseen(std::move(spec), origin, "a viewer may not ask workers"));
  }
  std::vector<std::string> paths = PathsOf(spec);
  const std::string scope = Inspector::Scope(spec);
  std::vector<v1::PathInfo> known;
  if (inspector_.Cached(scope, paths, known)) {
    return done(Complete(std::move(spec), origin, known, /*worker_id=*/""));
  }
  const std::vector<WorkerPtr> workers = view_.Workers();
  const bool any = std::any_of(workers.begin(), workers.end(), [&spec](const WorkerPtr& worker) {
    return IsOnline(worker->state()) && Suits(*worker, spec);
  });
  const std::string no_worker =
      absl::StrCat("no worker with device ", spec.resources().device(), " is online");
  if (!any) {
    return done(Unseen(std::move(spec), origin, no_worker));
  }
  // Only the loop knows which stream a worker has now.
  loop_.Query([this, spec = std::move(spec), paths = std::move(paths), scope, no_worker, origin,
               done = std::move(done)](const Core* core) mutable {
    const auto eligible = core == nullptr ? std::nullopt : core->FindInspector(spec);
    if (!eligible.has_value()) {
      return done(Unseen(std::move(spec), origin, no_worker));
    }
    inspector_.Inspect(eligible->connection_id, scope, std::move(paths),
                       [this, spec = std::move(spec), origin, done = std::move(done),
                        worker_id = eligible->worker_id](
                           absl::StatusOr<std::vector<v1::PathInfo>> answers) mutable {
                         if (!answers.ok()) {
                           return done(Unseen(std::move(spec), origin, answers.status().message()));
                         }
                         done(Complete(std::move(spec), origin, *answers, worker_id));
                       });
  });
}

void SpecChecker::Inspect(const InspectionRequest& request) {
  inspector_.Inspect(
      request.connection_id, Inspector::Scope(request.spec), PathsOf(request.spec),
      [this, job_id = request.job_id, etag = request.etag, worker_id = request.worker_id,
       spec = request.spec](absl::StatusOr<std::vector<v1::PathInfo>> answers) mutable {
        InspectionDone command;
        command.job_id = job_id;
        command.etag = etag;
        if (answers.ok()) {
          CheckedSpec checked = Complete(std::move(spec), Origin::kStored, *answers, worker_id);
          command.status = checked.status;
          command.spec = std::move(checked.spec);
        } else {
          command.status = answers.status();
        }
        loop_.PostFromAgent(std::move(command), nullptr);
      });
}

}  // namespace hearth::coordinator
