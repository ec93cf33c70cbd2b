#include "tests/sim/world.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/core/transitions.h"
#include "tests/sim/durable.h"

namespace hearth::sim {
namespace {

constexpr absl::Duration kFaultTime = absl::Seconds(150);
constexpr absl::Duration kRootsSettle = absl::Seconds(45);
constexpr absl::Duration kEndTime = absl::Minutes(40);
constexpr size_t kCommitMost = 64;

core::CoreOptions Options(int64_t generation, absl::Duration aging) {
  core::CoreOptions options;
  options.generation = generation;
  options.aging = aging;
  options.isolation_grace = absl::Seconds(90);
  options.resize_interval = absl::Seconds(20);
  return options;
}

template <typename Request>
Request OfWorker(const std::string& worker_id) {
  Request request;
  request.set_worker_id(worker_id);
  return request;
}

}  // namespace

core::RestoredState Store::Load() const {
  core::RestoredState state;
  for (const auto& [id, record] : jobs) {
    state.jobs.push_back(record);
  }
  for (const auto& [id, record] : workers) {
    state.workers.push_back(record);
  }
  for (const auto& [id, record] : requests) {
    state.requests.push_back(record);
  }
  for (const auto& [id, rows] : kv) {
    for (const auto& [key, record] : rows) {
      state.kv.push_back(record);
    }
  }
  state.last_revision = revision;
  return state;
}

World::World(uint64_t seed, Mode mode) : seed_(seed), mode_(mode), random_(seed) {
  // A network is told from its workers by three that fall silent at once.
  const int64_t workers = Pick(mode == Mode::kCutOff ? 3 : 2, 6);
  const bool two_roots = AllFaults() && Chance(0.2);
  for (int i = 0; i < workers; ++i) {
    auto daemon = std::make_unique<Daemon>();
    daemon->index = i;
    daemon->host = absl::StrCat("host", i / 3);
    daemon->name = absl::StrCat(daemon->host, "-cpu", i % 3);
    daemon->root_uuid = two_roots && i >= 3 ? "root-b" : "root-a";
    daemons_.push_back(std::move(daemon));
  }
  job_count_ = static_cast<int>(Pick(1, 5));
  // In half of the seeds with all faults more jobs wait, and go ahead after seconds. Not with the
  // disk, which takes long.
  aging_ = core::kDefaultAging;
  if (mode == Mode::kEverything && seed / 8 % 2 == 1) {
    aging_ = absl::Seconds(Pick(0, 12));
    job_count_ = static_cast<int>(Pick(3, 7));
  }
  if (mode == Mode::kDisk) {
    durable_ = std::make_unique<Durable>(seed);
  }
}

World::~World() = default;

void World::After(absl::Duration delay, std::function<void()> what) {
  events_.push({clock_.Monotonic() + delay, order_++, std::move(what)});
}

bool World::Chance(double p) {
  return std::uniform_real_distribution<>(0, 1)(random_) < p;
}

int64_t World::Pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

core::Now World::Now() {
  return {clock_.Now(), clock_.Monotonic() + offset_, boot_id_};
}

void World::Fail(const std::string& what) {
  if (failure_.empty()) {
    failure_ = absl::StrCat("seed ", seed_, " at ", absl::FormatDuration(clock_.Monotonic()), ": ",
                            what, "\n", Dump());
  }
}

void World::Say(const std::string& what) const {
  if (trace_) {
    std::cout << absl::FormatDuration(const_cast<FakeClock&>(clock_).Monotonic()) << " " << what
              << "\n";
  }
}

std::string World::Dump() const {
  std::string out;
  for (const auto& [id, record] : store_.jobs) {
    absl::StrAppend(&out, "  ", id, " ", core::StateName(record.job().state()), " epoch ",
                    record.job().epoch(), " step ", record.job().step(), " [",
                    record.job().reason_code(), "] ", record.job().reason(), "\n");
    for (const auto& rank : record.ranks()) {
      absl::StrAppend(&out, "    ", rank.ShortDebugString(), "\n");
    }
  }
  for (const auto& daemon : daemons_) {
    absl::StrAppend(&out, "  ", daemon->name, daemon->up ? " up" : " down",
                    daemon->mute ? " mute" : "", daemon->deaf ? " deaf" : "", " link ",
                    daemon->link, " tasks");
    for (const auto& [key, task] : daemon->tasks) {
      absl::StrAppend(&out, " ", key.first, "/", key.second, task.running ? " running" : " ended",
                      " step ", task.step, " unacked ", task.unacked.size());
    }
    absl::StrAppend(&out, "\n");
  }
  return out;
}

void World::StartCoordinator() {
  const bool first = boot_id_.empty();
  if (first || Chance(0.2)) {
    // Nothing may compare its monotonic times with those of a process before.
    offset_ = absl::Seconds(Pick(-100000, 100000));
    boot_id_ = absl::StrCat("boot at ", absl::FormatDuration(clock_.Monotonic()));
    booted_ = booted_ || !first;
  }
  Say(absl::StrCat("coordinator starts, ", boot_id_));
  const core::RestoredState state = Restore();
  core::CoreOptions options = Options(generation_, aging_);
  // The operator has changed the file; jobs are not submitted to receivers that it refuses.
  tightened_ = tightened_ ||
               (AllFaults() && submitted_.size() == static_cast<size_t>(job_count_) && Chance(0.2));
  AddReceivers(options);
  core_ = std::make_unique<core::Core>(options, state, Now());
  commits_ = std::make_unique<core::GroupCommit>(kCommitMost);
  Tick(generation_);
}

// What is on the disk is what was committed, and all or nothing of the commit that was under way.
core::RestoredState World::Restore() {
  if (durable_ == nullptr) {
    ++generation_;
    return store_.Load();
  }
  const absl::StatusOr<core::RestoredState> found = durable_->Start();
  if (!found.ok()) {
    Fail(absl::StrCat("the store cannot be opened: ", found.status().ToString()));
    return store_.Load();
  }
  std::string difference = durable_->Difference(store_, *found);
  if (const auto batch = std::exchange(in_the_making_, {}); !batch.empty() && !difference.empty()) {
    for (const core::Effects& effects : batch) {
      Commit(effects);
    }
    difference = durable_->Difference(store_, *found);
  }
  if (!difference.empty()) {
    Fail(difference);
  }
  if (durable_->generation() <= generation_) {
    Fail(absl::StrCat("generation ", durable_->generation(), " after ", generation_));
  }
  generation_ = durable_->generation();
  return *found;
}

std::optional<World::Committed> World::Persist() {
  const bool stored = commits_->AnyStored();
  Committed committed{commits_->Take(), {}};
  const std::vector<Waiting> waiting = std::exchange(waiting_, {});
  if (durable_ != nullptr && stored && !durable_->Commit(committed.effects)) {
    in_the_making_ = std::move(committed.effects);
    Say("the end comes within a commit");
    CrashCoordinator();
    return std::nullopt;
  }
  for (const core::Effects& effects : committed.effects) {
    Commit(effects);
  }
  if (stored) {
    commits_->Committed(Ms(0, 600));  // the next pause is up to four times as long
  }
  early_ = 0;
  for (const Waiting& one : waiting) {
    committed.answers.push_back(one.answer);
    if (const auto* done = one.command.As<core::DeliveryDone>(); done != nullptr) {
      TakeAnswer(*done);
    }
  }
  return committed;
}

void World::CommitIfDue(int64_t generation) {
  if (core_ == nullptr || generation != generation_ || commits_->DueAt() > clock_.Monotonic()) {
    return;
  }
  if (clock_.Monotonic() < stalled_until_) {
    After(stalled_until_ - clock_.Monotonic(), [this, generation] { CommitIfDue(generation); });
    return;
  }
  if (const std::optional<Committed> committed = Persist()) {
    Carry(*committed);
  }
}

void World::CrashCoordinator() {
  Say("coordinator crashes");
  core_.reset();
  commits_.reset();
  waiting_.clear();
  commit_at_ = -absl::InfiniteDuration();
  unbacked_ += std::exchange(early_, 0);
  if (durable_ != nullptr) {
    durable_->End(Chance(0.5));
  }
  backlog_.clear();
  under_way_.clear();
  handed_out_.clear();
  newest_handed_out_.clear();
  stalled_until_ = clock_.Monotonic();
  for (auto& [id, link] : links_) {
    if (link.open) {
      const uint64_t broken = id;
      After(Ms(0, 500), [this, broken] { BreakLink(broken); });
      link.to_agent = absl::InfiniteDuration();  // what was not delivered never will be
    }
  }
  After(Ms(100, 20000), [this] { StartCoordinator(); });
}

void World::Tick(int64_t generation) {
  if (core_ == nullptr || generation != generation_) {
    return;
  }
  if (clock_.Monotonic() >= stalled_until_) {
    Give(core::Tick{});
  }
  if (core_ == nullptr) {
    return;
  }
  const absl::Duration due = core_->NextDeadline() - Now().monotonic;
  After(std::max(due, absl::Milliseconds(5)), [this, generation] { Tick(generation); });
}

void World::Give(core::Command command, std::function<void(const core::Reply&)> answer) {
  if (core_ == nullptr) {
    return;
  }
  // A stopped process reads nothing: what arrives meanwhile waits, in order.
  if (clock_.Monotonic() < stalled_until_ || (!backlog_.empty() && !draining_)) {
    backlog_.push_back({std::move(command), std::move(answer)});
    return;
  }
  ++commands_;
  const bool tick = command.As<core::Tick>() != nullptr;
  core::Effects effects = core_->Apply(command, Now());
  LookAtTheClock();
  if (!healed_ && Chance(crash_chance_)) {
    CrashCoordinator();  // before the commit: nobody may ever see these effects
    return;
  }
  for (const v1::JobEvent& event : effects.events) {
    if (event.type() == "state" && event.from_state() == v1::JOB_STATE_UNSPECIFIED) {
      submit_times_[event.job_id()] = clock_.Monotonic();
    }
  }
  waiting_.push_back({command, std::move(answer)});
  for (const core::OutgoingMessage& out : commits_->Add(effects, clock_.Monotonic())) {
    ++early_;
    SendDown(out);
  }
  if (!healed_ && Chance(crash_chance_)) {
    CrashCoordinator();  // before the commit, but some messages have left
    return;
  }
  std::optional<Committed> committed;
  const absl::Duration due = commits_->DueAt();
  if (due <= clock_.Monotonic()) {
    committed = Persist();
    if (!committed.has_value()) {
      return;
    }
  } else if (due != commit_at_) {
    commit_at_ = due;
    After(due - clock_.Monotonic(), [this, generation = generation_] { CommitIfDue(generation); });
  }
  CheckCore(tick);
  CheckOrder(effects);
  CheckStarts(command, effects);
  if (!healed_ && Chance(crash_chance_)) {
    CrashCoordinator();  // after the commit, before anything was sent
    return;
  }
  if (committed.has_value()) {
    Carry(*committed);
  }
}

// Continues a process that stood still: what had arrived is worked off in order.
void World::Continue() {
  if (clock_.Monotonic() < stalled_until_) {
    return;  // stopped again meanwhile
  }
  draining_ = true;
  while (!backlog_.empty()) {
    auto [command, answer] = std::move(backlog_.front());
    backlog_.pop_front();
    Give(std::move(command), std::move(answer));
  }
  draining_ = false;
}

void World::Carry(const Committed& committed) {
  for (const core::Effects& effects : committed.effects) {
    Carry(effects);
  }
  for (size_t i = 0; i < committed.effects.size(); ++i) {
    if (committed.effects[i].reply.has_value() && committed.answers[i] != nullptr) {
      committed.answers[i](*committed.effects[i].reply);
    }
  }
}

void World::Carry(const core::Effects& effects) {
  for (const core::OutgoingMessage& out : effects.messages) {
    SendDown(out);
  }
  for (const core::CloseConnection& close : effects.closes) {
    const uint64_t id = close.connection_id;
    After(Ms(1, 50), [this, id] { BreakLink(id); });
  }
  for (const core::InspectionRequest& request : effects.inspections) {
    core::InspectionDone done;
    done.job_id = request.job_id;
    done.etag = request.etag;
    if (Chance(0.2)) {
      done.status = absl::UnavailableError("the worker did not answer");
    }
    const int64_t generation = generation_;
    After(Ms(5, 2000), [this, generation, done] {
      if (generation == generation_) {
        Give(done);
      }
    });
  }
  for (const core::DeliveryRequest& request : effects.deliveries) {
    Deliver(request);
  }
}

// A client that knows its request_id before it sends and repeats until it has an answer.
void World::Submit(int index) {
  core::CreateJob create;
  create.request_id = absl::StrCat("request-", index);
  create.id_suffix = absl::StrCat("abcde", index, "0123456789");
  create.paths_checked = index % 2 == 0;
  v1::JobSpec& spec = create.spec;
  std::mt19937_64 own(seed_ * 100 + static_cast<uint64_t>(index));  // the same spec at each try
  auto pick = [&own](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(own);
  };
  spec.set_name(absl::StrCat("job ", index));
  spec.mutable_train()->set_steps(pick(3, 60));
  spec.mutable_data()->set_sequence_length(8);
  spec.mutable_batch()->set_micro_batch_size(1);
  spec.mutable_batch()->set_global_batch_tokens(96);
  spec.mutable_checkpoint()->set_every_steps(pick(0, 3) == 0 ? 0 : pick(2, 12));
  spec.mutable_checkpoint()->set_grace_seconds(pick(1, 15));
  spec.mutable_checkpoint()->set_keep_last(pick(1, 3));
  v1::ResourceSpec& resources = *spec.mutable_resources();
  const int most = std::min<int>(3, static_cast<int>(daemons_.size()));
  resources.set_workers(pick(1, most));
  resources.set_min_workers(mode_ == Mode::kControlPlane || mode_ == Mode::kCutOff ||
                                    pick(0, 1) == 0
                                ? resources.workers()
                                : pick(1, resources.workers()));
  resources.set_device("cpu");
  resources.set_priority(AllFaults() ? pick(0, 2) : 0);
  resources.set_max_restarts(pick(1, 4));
  AskToBeTold(spec, pick);
  const bool may_go = AskToWait(index, spec, pick);
  const auto before = submitted_.find(index);
  if (before == submitted_.end() && !may_go) {
    After(Ms(1000, 4000), [this, index] { Submit(index); });
  } else if (before == submitted_.end()) {
    Give(create, [this, index](const core::Reply& reply) {
      if (absl::IsFailedPrecondition(reply.status)) {
        no_after_.insert(index);  // AFTER_ENDED: it would wait for ever
      } else if (!reply.status.ok()) {
        Fail(absl::StrCat("submit refused: ", reply.status.ToString()));
      } else if (submitted_.count(index) == 0 && Chance(0.8)) {  // else the answer is lost
        submitted_[index] = reply.job->job_id();
      }
    });
    After(Ms(1000, 4000), [this, index] { Submit(index); });
  }
}

void World::UserAction() {
  if (submitted_.empty() || core_ == nullptr) {
    return;
  }
  auto it = submitted_.begin();
  std::advance(it, Pick(0, static_cast<int64_t>(submitted_.size()) - 1));
  const std::string& id = it->second;
  const std::string& worker = daemons_[Pick(0, static_cast<int64_t>(daemons_.size()) - 1)]->name;
  switch (Pick(0, 7)) {
    case 0: {
      v1::CancelJobRequest cancel;
      cancel.set_job_id(id);
      cancel.set_now(Chance(0.3));
      return Chance(0.4) ? Send(cancel) : void();
    }
    case 1:
    case 2: {
      v1::PauseJobRequest pause;
      pause.set_job_id(id);
      return Send(pause);
    }
    case 3: {
      core::ResumeJob resume;
      resume.job_id = id;
      return Send(resume);
    }
    case 4:
      return Send(WithMoreSteps(id));
    case 5: {
      v1::UpdateJobRequest update;
      update.set_job_id(id);
      update.set_priority(static_cast<int>(Pick(0, 3)));
      return Send(update);
    }
    case 6:
      return Chance(0.5) ? Send(OfWorker<v1::DrainWorkerRequest>(worker))
                         : Send(OfWorker<v1::CordonWorkerRequest>(worker));
    default:
      return Send(OfWorker<v1::UncordonWorkerRequest>(worker));
  }
}

core::ResumeJob World::WithMoreSteps(const std::string& job_id) {
  core::ResumeJob resume;
  resume.job_id = job_id;
  if (const v1::JobRecord* const record = core_->FindJob(job_id)) {
    resume.spec = record->job().spec();
    v1::TrainSpec& train = *resume.spec->mutable_train();
    train.set_steps(train.steps() + Pick(1, 20));
    resume.etag = record->job().etag();
    resume.overrides.push_back({"train.steps", "", ""});
  }
  return resume;
}

void World::Send(const core::Command& command) {
  for (int copies = Chance(0.2) ? 2 : 1; copies > 0; --copies) {
    After(Ms(0, 3000), [this, command] {
      if (!healed_) {
        Give(command);
      }
    });
  }
}

void World::CutOff(Daemon& daemon, bool all, absl::Duration length) {
  for (auto& other : daemons_) {
    if (other.get() != &daemon && !all) {
      continue;
    }
    Daemon* target = other.get();
    const int64_t way = AllFaults() ? Pick(0, 3) : 0;
    target->mute = way != 1;
    target->deaf = way != 2;
    Say(absl::StrCat(target->name, target->mute ? " is mute" : "", target->deaf ? " is deaf" : "",
                     " for ", absl::FormatDuration(length)));
    const uint64_t link = target->link;
    // What was lost cannot come later on the same stream: the transport notices, now or when
    // packets flow again.
    After(length, [this, target, link] {
      target->mute = target->deaf = false;
      BreakLink(link);
    });
    if (Chance(0.7)) {
      After(Ms(100, 12000), [this, link] { BreakLink(link); });
    }
  }
}

void World::Fault() {
  if (healed_ || mode_ == Mode::kCalm) {
    return;
  }
  After(Ms(500, 12000), [this] { Fault(); });
  Daemon& daemon = *daemons_[Pick(0, static_cast<int64_t>(daemons_.size()) - 1)];
  const int64_t kind = AllFaults() ? Pick(0, mode_ == Mode::kDisk ? 11 : 10) : Pick(0, 2);
  if (mode_ == Mode::kCutOff && Chance(0.5)) {
    // One at a time, over before the grace is.
    if (!daemon.mute && core_ != nullptr) {
      CutOff(daemon, true, Ms(500, 60000));
    }
  } else if (kind == 0) {
    if (core_ != nullptr) {
      CrashCoordinator();
    }
  } else if (kind == 1) {
    BreakLink(daemon.link);
  } else if (kind == 2) {
    const absl::Duration length = Ms(1000, 20000);
    stalled_until_ = std::max(stalled_until_, clock_.Monotonic() + length);
    After(length, [this] { Continue(); });
    Say("coordinator stalls");
  } else if (kind <= 4) {
    if (Chance(0.5)) {
      CrashDaemon(daemon);
    } else {
      StopDaemon(daemon);
    }
  } else if (kind == 5) {
    CutOff(daemon, Chance(0.3), Ms(500, 60000));
  } else if (kind == 6) {
    for (auto& [key, task] : daemon.tasks) {
      if (task.running) {
        const TaskKey victim = key;
        Chance(0.5) ? Die(daemon, victim) : Exit(daemon, victim, v1::EXIT_REASON_KILLED, true);
        break;
      }
    }
  } else if (kind <= 9) {
    UserAction();
  } else if (kind == 10) {
    const absl::Duration jump = absl::Hours(24) * Pick(-1, 1);
    clock_.JumpWall(jump);
    jumped_ = true;
    Say(absl::StrCat("the wall clock jumps by ", absl::FormatDuration(jump)));
  } else {
    durable_->ArmEnd(400);
  }
}

void World::Heal() {
  healed_ = true;
  stalled_until_ = clock_.Monotonic();
  LetTimesCome();
  Continue();
  for (auto& daemon : daemons_) {
    if (daemon->mute || daemon->deaf) {
      daemon->mute = daemon->deaf = false;
      BreakLink(daemon->link);
    }
  }
  CheckDone();
}

void World::CheckDone() {
  bool all = store_.jobs.size() == static_cast<size_t>(job_count_) &&
             submitted_.size() == static_cast<size_t>(job_count_);
  for (const auto& daemon : daemons_) {
    Give(OfWorker<v1::UncordonWorkerRequest>(daemon->name));
  }
  for (const auto& [id, record] : store_.jobs) {
    all = all && core::IsTerminal(record.job().state());
    if (record.job().state() == v1::JOB_STATE_PAUSED) {
      core::ResumeJob resume;
      resume.job_id = id;
      // What it waits for may have failed meanwhile.
      Give(resume, [this, job_id = id](const core::Reply& reply) {
        v1::CancelJobRequest cancel;
        cancel.set_job_id(job_id);
        if (absl::IsFailedPrecondition(reply.status)) {
          Give(cancel);
        }
      });
    }
  }
  all = all && NoneIsPending();
  // Roots are looked at again after the last gang's end.
  all_since_ = all ? std::min(all_since_, clock_.Monotonic()) : absl::InfiniteDuration();
  done_ = clock_.Monotonic() - all_since_ >= kRootsSettle;
  After(absl::Seconds(2), [this] { CheckDone(); });
}

std::string World::Run() {
  crash_chance_ = mode_ == Mode::kCalm ? 0 : 0.0003;
  StartCoordinator();
  for (auto& daemon : daemons_) {
    Daemon* starting = daemon.get();
    After(Ms(0, 5000), [this, starting] { StartDaemon(*starting); });
  }
  for (int i = 0; i < job_count_; ++i) {
    After(Ms(0, 30000), [this, i] { Submit(i); });
  }
  // A cut-off is told by who was there before.
  After(mode_ == Mode::kCutOff ? Ms(8000, 20000) : Ms(1000, 10000), [this] { Fault(); });
  After(mode_ == Mode::kCalm ? absl::Seconds(40) : kFaultTime, [this] { Heal(); });
  while (!done_ && failure_.empty() && !events_.empty()) {
    // Events at one time come in the order in which they were added, so a seed plays the same
    // again.
    Event event = events_.top();
    events_.pop();
    if (event.at > clock_.Monotonic()) {
      clock_.Advance(event.at - clock_.Monotonic());
    }
    event.what();
    if (clock_.Monotonic() > kEndTime) {
      Fail("not all jobs have come to an end");
    }
  }
  end_ = clock_.Monotonic();
  if (failure_.empty()) {
    CheckEnd();
  }
  return failure_;
}

}  // namespace hearth::sim
