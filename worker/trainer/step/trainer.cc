#include "worker/trainer/step/trainer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "common/fault/fault.h"
#include "worker/trainer/step/gradient_dump.h"
#include "worker/trainer/step/injection.h"

namespace hearth::trainer {

Trainer::Trainer(const Parts& parts, int64_t step)
    : engine_(*parts.engine),
      comm_(*parts.comm),
      train_(*parts.train),
      validation_(parts.validation),
      clock_(*parts.clock),
      batch_(parts.batch),
      spec_(parts.engine->options().spec),
      schedule_(spec::MakeSchedule(spec_)),
      dump_gradients_(parts.dump_gradients),
      program_(*parts.engine,
               parts.comm,
               1.0 / static_cast<double>(parts.batch.global_tokens()),
               parts.batch.CountForRank(parts.comm->rank()),
               Exchanged::kGradients,
               parts.batch.CountForRank(parts.comm->rank()) < parts.batch.rounds()),
      prefetcher_(*parts.train, parts.batch, parts.comm->rank(), step + 1, *parts.clock),
      guard_({spec_.train().spike_sigma(), spec_.train().spike_grad_sigma(),
              spec_.train().spike_window(), lag()}),
      ladder_(MakeLadderOptions(spec_)),
      step_(step),
      watch_(comm_, clock_),
      pulse_(parts.pulse == nullptr ? unwatched_ : *parts.pulse) {}

Trainer::~Trainer() {
  // Graphs and staging memory must not go while the device uses them; a device that has failed says
  // so again.
  static_cast<void>(kernels::Synchronize(engine_.exec()));
}

absl::Status Trainer::Prepare() {
  for (auto* events : {&uploaded_, &finished_}) {
    for (std::unique_ptr<kernels::Event>& event : *events) {
      HEARTH_ASSIGN_OR_RETURN(event, kernels::Event::New(engine_.exec()));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(drained_, kernels::Event::New(engine_.exec()));
  return PrepareAlike();
}

absl::StatusOr<bool> Trainer::TakePlansOfRank0() {
  kernels::CudaContext& cuda = *engine_.options().cuda;
  HEARTH_ASSIGN_OR_RETURN(const std::string plans, BroadcastString(comm_, cuda.ExportPlans(), 0));
  HEARTH_ASSIGN_OR_RETURN(const bool changed, cuda.ImportPlans(plans));
  // What follows a change, recording graphs, contains collectives: all ranks do it or none.
  int32_t any = changed ? 1 : 0;
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(absl::MakeSpan(&any, 1)));
  return any != 0;
}

absl::Status Trainer::PrepareAlike() {
  if (!engine_.on_gpu() || comm_.world_size() == 1) {
    return program_.Prepare();
  }
  // All ranks take the plans that rank 0 knows from earlier runs and time none of them again. They
  // time new products themselves and may choose different plans for those: the second exchange
  // settles it, and graphs that were recorded with other plans are recorded again.
  HEARTH_RETURN_IF_ERROR(TakePlansOfRank0().status());
  HEARTH_RETURN_IF_ERROR(program_.Prepare());
  HEARTH_ASSIGN_OR_RETURN(const bool differed, TakePlansOfRank0());
  return differed ? program_.Prepare() : absl::OkStatus();
}

absl::Status Trainer::StartPrecision(bool restored) {
  const QuantState& quant = engine_.quant();
  if (quant.empty()) {
    return absl::OkStatus();
  }
  if (restored) {
    return quant.QuantizeWeights(engine_.exec(), nullptr, nullptr);
  }
  // Delayed scales come from earlier magnitudes, of which there are none yet: the first step runs
  // in BF16 and measures them.
  plain_step_ = quant.ScalesAreOfEarlierSteps() ? step_ + 1 : 0;
  return program_.StartWeights();
}

bool Trainer::Plain(int64_t step) const {
  return !engine_.precision().QuantisedStep(step) || step == plain_step_;
}

int Trainer::Rung(int64_t step) const {
  // BF16 by plan is the end of every ladder that begins with a quantised recipe.
  return engine_.precision().quantised() && Plain(step) ? ladder_.last_rung()
                                                        : ladder_.At(step).rung;
}

spec::StepFormat Trainer::Format(int64_t step) const {
  if (Plain(step)) {
    return {};
  }
  const StepSettings settings = ladder_.At(step);
  return engine_.precision().Format(settings.rung, settings.layer_remedy);
}

bool Trainer::Counts(int64_t step) const {
  const int64_t every = spec_.precision().stats_every();
  return every > 0 && step % every == 0 && comm_.rank() == 0 && engine_.precision().stats &&
         !engine_.quant().empty();
}

kernels::StepInputs Trainer::MakeInputs(int64_t step,
                                        const StepLimits& limits,
                                        const ControlRequests& asked) const {
  const StepSettings settings = ladder_.At(step);
  kernels::StepInputs inputs;
  inputs.loss_limit = limits.loss;
  inputs.grad_norm_limit = limits.grad_norm;
  inputs.tokens = static_cast<double>(batch_.global_tokens());
  inputs.max_norm = spec_.optimizer().grad_clip() * settings.clip;
  inputs.learning_rate = spec::LearningRate(schedule_, step) * settings.learning_rate;
  engine_.optimizer().Scalars(step, absl::MakeSpan(inputs.optimizer));
  inputs.norm_before = restored_norm_;
  inputs.step = step;
  inputs.control[0] = asked.save ? 1 : 0;
  inputs.control[1] = asked.pause ? 1 : 0;
  inputs.control[2] = asked.stop ? 1 : 0;
  return inputs;
}

bool Trainer::IsFirst(const StepKind& kind) {
  const bool first = std::find(kinds_.begin(), kinds_.end(), kind) == kinds_.end();
  if (first) {
    kinds_.push_back(kind);
  }
  return first;
}

void Trainer::TellStep(bool slow) {
  for (int i = 0; i < in_flight_; ++i) {
    slow = slow || flights_[static_cast<size_t>((step_ + 1 + i) % spec::kStagingSlots)].slow;
  }
  pulse_.Begin(slow ? Activity::kPreparing : Activity::kStep,
               slow ? "a step that may take long" : "computing a step");
}

absl::Status Trainer::Launch(const ControlRequests& asked) {
  if (finished_[0] == nullptr) {
    HEARTH_RETURN_IF_ERROR(Prepare());
    HEARTH_RETURN_IF_ERROR(StartPrecision(false));
  }
  if (in_flight_ > lag()) {
    return absl::FailedPreconditionError("too many steps are in flight");
  }
  const int64_t step = launched() + 1;
  const int slot = static_cast<int>(step % spec::kStagingSlots);
  Flight flight;
  flight.start = clock_.Monotonic();
  flight.result.step = step;
  flight.result.format = Format(step);
  flight.result.rung = Rung(step);
  flight.result.counted = Counts(step);
  // Leaves out the newest lag() steps, in flight or not: a replay must judge alike.
  flight.limits = guard_.Limits(lag() - in_flight_);
  // A request made in a step that was refused and dropped is made again.
  const ControlRequests again = std::exchange(again_, ControlRequests{});
  flight.asked = {asked.save || again.save, asked.pause || again.pause, asked.stop || again.stop};
  flight.follows = in_flight_ > 0;
  if (!flight.follows) {
    NothingAhead();
  }

  flight.slow = IsFirst({flight.result.format, flight.result.counted}) || hold_ != nullptr;
  TellStep(flight.slow);
  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.step"));
  const kernels::StepInputs inputs = MakeInputs(step, flight.limits, flight.asked);
  flight.result.report.set_learning_rate(inputs.learning_rate);
  if (WaitsForPeersOnGpu() && !flight.slow) {
    // A launch waits while the GPU's queue is full, and the GPU may wait for peers.
    pulse_.Begin(Activity::kPeers, "launching a step, which may wait for peers");
  }
  // With fused updates backward updates.
  HEARTH_RETURN_IF_ERROR(engine_.fused() ? AwaitHold() : absl::OkStatus());
  HEARTH_RETURN_IF_ERROR(AccumulateGradients(step, inputs));
  if (!fault::Check("trainer.illegal_access").ok()) {
    HEARTH_RETURN_IF_ERROR(kernels::ProvokeIllegalAccess(engine_.exec()));
  }
  flight.result.report.set_data_wait_seconds(prefetcher_.TakeWaitSeconds());

  HEARTH_RETURN_IF_ERROR(fault::Check("trainer.after_allreduce"));

  HEARTH_RETURN_IF_ERROR(dump_gradients_.empty() ? absl::OkStatus() : DumpGradients());
  if (flight.result.counted) {
    HEARTH_RETURN_IF_ERROR(
        engine_.quant().FinishCounts(engine_.exec(), flight.result.format.own()));
  }

  HEARTH_RETURN_IF_ERROR(AwaitHold());
  // Guard, clip, optimizer. The weights are quantised for the step that reads them, the next one.
  HEARTH_RETURN_IF_ERROR(program_.Update(Format(step + 1).own()));
  // The next step overwrites the state before the host reads it: each step has a slot of its own.
  HEARTH_RETURN_IF_ERROR(kernels::Copy(engine_.exec(), engine_.StagedState(slot),
                                       engine_.step_state(), sizeof(kernels::StepState)));
  HEARTH_RETURN_IF_ERROR(finished_[static_cast<size_t>(slot)]->Record(engine_.exec()));
  flights_[static_cast<size_t>(slot)] = flight;
  ++in_flight_;
  return absl::OkStatus();
}

absl::Status Trainer::DumpGradients() {
  if (program_.sharded() || engine_.parameters().gradients_in_slots()) {
    return absl::FailedPreconditionError(
        "gradients are written whole: use parallel.shard: off, optimizer.fused: false and "
        "gradients.store: dtype");
  }
  return WriteGradients(engine_, std::exchange(dump_gradients_, ""));
}

absl::Status Trainer::AwaitHold() {
  // A checkpoint is still being copied from what the update overwrites.
  return hold_ == nullptr ? absl::OkStatus()
                          : kernels::StreamWait(engine_.exec(), *std::exchange(hold_, nullptr));
}

absl::StatusOr<StepResult> Trainer::Collect() {
  if (in_flight_ == 0) {
    return absl::FailedPreconditionError("no step is in flight");
  }
  // The oldest step in flight: steps end in the order of their launches.
  const int slot = static_cast<int>((step_ + 1) % spec::kStagingSlots);
  const Flight& flight = flights_[static_cast<size_t>(slot)];
  TellStep(false);
  HEARTH_RETURN_IF_ERROR(Await(*finished_[static_cast<size_t>(slot)], flight.result.step));
  const kernels::StepState& state = *engine_.StagedState(slot);
  StepResult result = flight.result;
  result.facts = {state.loss, state.grad_norm, state.nonfinite,
                  engine_.fused() && state.begun != 0};
  result.verdict = static_cast<Verdict>(state.verdict);
  result.report.set_weight_quantizations(state.weight_quantizations);
  result.control = {state.control[0] != 0, state.control[1] != 0, state.control[2] != 0};
  if (comm_.world_size() > 1) {
    result.report.set_comm_seconds(static_cast<double>(state.reduced_ns - state.backward_ns) *
                                   1e-9);
    result.report.set_comm_bytes(program_.comm_bytes());
  }
  AddSources(state, result);
  AddTimes(flight, state, result);
  watch_.Took(absl::Seconds(result.report.step_seconds()));
  --in_flight_;
  // Only accepted steps count for the guard's window: a refused one would widen its limits.
  if (result.verdict == Verdict::kGood) {
    step_ = result.step;
    last_norm_ = result.facts.grad_norm;
    guard_.Record(result.facts);
    ladder_.Applied(step_, result.decisions);
  } else {
    result.stops = !ladder_.Refused(result.step, result.rung, result.verdict, result.facts,
                                    flight.limits, result.decisions);
    HEARTH_RETURN_IF_ERROR(Rewind());
  }
  pulse_.StepDone(step_, absl::Seconds(result.report.step_seconds()));
  result.report.set_tokens(tokens());
  result.report.set_data_pass(
      static_cast<int32_t>(train_.PassesBegun(step_ * batch_.global_sequences())));
  return result;
}

void Trainer::AddSources(const kernels::StepState& state, StepResult& result) const {
  const int64_t samples = result.step * batch_.global_sequences();
  for (int i = 0; i < engine_.sources(); ++i) {
    const auto& [loss, weight] = state.source_sums[i];
    v1::SourceReport& source = *result.report.add_sources();
    source.set_source(train_.source(i).path());
    source.set_passes(train_.PassesOf(i, samples));
    if (weight > 0) {
      source.set_loss(loss / weight);
    }
  }
}

absl::Status Trainer::Rewind() {
  // What was launched behind the refused step changed nothing and has no result.
  HEARTH_RETURN_IF_ERROR(Drain());
  for (int i = 0; i < in_flight_; ++i) {
    // step_ + 1 was refused; what follows was launched behind it.
    const auto slot = static_cast<size_t>((step_ + 2 + i) % spec::kStagingSlots);
    const ControlRequests& lost = flights_[slot].asked;
    again_ = {again_.save || lost.save, again_.pause || lost.pause, again_.stop || lost.stop};
  }
  in_flight_ = 0;
  // The same samples come again. `skip` has kept every update since the refusal from writing; the
  // step that is done again may write.
  prefetcher_.Rewind(step_ + 1);
  return kernels::Zero(engine_.exec(), &engine_.step_state()->skip,
                       sizeof(engine_.step_state()->skip));
}

absl::Status Trainer::Await(kernels::Event& event, int64_t step) {
  if (!WaitsForPeersOnGpu()) {
    return event.Wait();
  }
  const Pulse::Scope waits(pulse_, Activity::kPeers,
                           "waiting for the GPU, which may wait for peers");
  return watch_.Await(step, [&event] { return event.Done(); });
}

absl::Status Trainer::Drain() {
  watch_.Paused();
  HEARTH_RETURN_IF_ERROR(drained_->Record(engine_.exec()));
  return Await(*drained_, launched());
}

absl::Status Trainer::TakeWholeWeights() {
  HEARTH_RETURN_IF_ERROR(program_.TakeWholeWeights());
  // Drained, so that what reads the whole weights from the host or another stream finds them.
  return program_.weights_are_taken() ? Drain() : absl::OkStatus();
}

absl::Status Trainer::OnRankZero(const std::function<void()>& work) {
  watch_.Paused();
  HEARTH_RETURN_IF_ERROR(TakeWholeWeights());
  if (comm_.rank() == 0) {
    work();
  }
  // On a GPU those who went on would wait in the next step, where waiting has a shorter limit.
  int32_t there = 0;
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(absl::MakeSpan(&there, 1)));
  last_collect_ = clock_.Monotonic();
  return absl::OkStatus();
}

void Trainer::NothingAhead() {
  if (last_collect_ != -absl::InfiniteDuration()) {
    watch_.Paused();
  }
  pulse_.TakeWaited();  // that was between steps
}

void Trainer::AddTimes(const Flight& flight, const kernels::StepState& state, StepResult& result) {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration since = now - std::max(flight.start, std::exchange(last_collect_, now));
  const uint64_t ended_before = std::exchange(last_ended_ns_, state.ended_ns);
  const absl::Duration waited = pulse_.TakeWaited();
  double step = absl::ToDoubleSeconds(since);
  double compute = absl::ToDoubleSeconds(since - waited);
  if (engine_.on_gpu()) {
    // The host's clock would see when it looked, not when the GPU was done. Up to the last backward
    // pass the ops' stream waits for no peer, unless weights or gradients are divided.
    const uint64_t begin = flight.follows ? ended_before : state.started_ns;
    const double before = flight.follows ? 0 : flight.result.report.data_wait_seconds();
    step = before + static_cast<double>(state.ended_ns - begin) * 1e-9;
    compute = before + static_cast<double>(state.backward_ns - begin) * 1e-9;
  }
  result.report.set_step_seconds(step);
  const int64_t micro_batches = batch_.CountForRank(comm_.rank());
  if (comm_.world_size() > 1 && !flight.slow && micro_batches > 0) {
    result.compute_seconds = compute / static_cast<double>(micro_batches);
  }
}

absl::StatusOr<StepResult> Trainer::Step(const ControlRequests& asked) {
  HEARTH_RETURN_IF_ERROR(Launch(asked));
  return Collect();
}

absl::Status Trainer::StageInputs(const kernels::StepInputs& inputs, int slot) {
  const kernels::Exec& exec = engine_.exec();
  kernels::StepInputs* staged = engine_.StagedInputs(slot);
  *staged = inputs;
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, engine_.step_inputs(), staged, sizeof(*staged)));
  return uploaded_[static_cast<size_t>(slot)]->Record(exec);
}

absl::Status Trainer::StageTurn(int64_t step,
                                const MicroBatchKind& kind,
                                kernels::StepInputs inputs,
                                Pass& pass) {
  const int slot = static_cast<int>(uploads_++ % spec::kStagingSlots);
  // The slot's last upload must have been read from before the host writes it again; with several
  // slots that was micro-batches ago and rarely waits.
  HEARTH_RETURN_IF_ERROR(Await(*uploaded_[static_cast<size_t>(slot)], step));
  if (kind.idle) {
    return StageInputs(inputs, slot);
  }
  int64_t of_step = 0;
  int64_t micro_batch = 0;
  {
    const Pulse::Scope waits(pulse_, Activity::kData, "waiting for data");
    HEARTH_RETURN_IF_ERROR(prefetcher_.Next(engine_.StagedBatch(slot), &of_step, &micro_batch));
  }
  // A rewind that the prefetcher has missed would train on other samples, and nobody would see it.
  if (of_step != step) {
    return absl::InternalError("the data is not that of the step");
  }
  if (SpoilsTargets(step, ladder_.Attempt(step))) {
    SpoilTargets(engine_.model_rows(), engine_.shape().vocab, engine_.StagedBatch(slot));
  }
  // Step and micro-batch travel with the batch: the kernels' random numbers are drawn from them,
  // and a recorded graph cannot take them as arguments.
  inputs.micro_batch = static_cast<uint32_t>(micro_batch);
  pass.step = static_cast<uint32_t>(step);
  pass.micro_batch = inputs.micro_batch;
  pass.documents = program_.DocumentBound(slot);
  HEARTH_RETURN_IF_ERROR(engine_.UploadBatch(slot));
  return StageInputs(inputs, slot);
}

absl::Status Trainer::AccumulateGradients(int64_t step, const kernels::StepInputs& inputs) {
  const bool spoil_gradient = SpoilsGradient(step, ladder_.Attempt(step));
  if (Counts(step)) {
    HEARTH_RETURN_IF_ERROR(engine_.quant().BeginCounts(engine_.exec()));
  }
  for (int64_t turn = 0; turn < program_.turns(); ++turn) {
    const MicroBatchKind kind = program_.Kind(turn, Format(step));
    Pass pass;
    HEARTH_RETURN_IF_ERROR(StageTurn(step, kind, inputs, pass));
    HEARTH_RETURN_IF_ERROR(kind.last ? fault::Check("trainer.before_allreduce") : absl::OkStatus());
    const MicroBatchExtra extra = {kind.last && spoil_gradient, kind.last && Counts(step)};
    HEARTH_RETURN_IF_ERROR(program_.MicroBatch(kind, pass, extra));
  }
  return absl::OkStatus();
}

absl::Status Trainer::BeginEvaluation() {
  // The weights are in the precision of the next step, or after the last one in that of the last.
  watch_.Paused();
  HEARTH_RETURN_IF_ERROR(
      kernels::BeginStep(engine_.exec(), engine_.step_inputs(), engine_.step_state()));
  return program_.CompleteWeights();
}

Pass Trainer::EvaluationPass(int64_t as_step) const {
  Pass pass;
  pass.format = Format(as_step);
  pass.weights = program_.weights();
  return pass;
}

void Trainer::TellEvaluation() {
  pulse_.Begin(std::exchange(evaluated_, true) ? Activity::kEvaluation : Activity::kPreparing,
               "evaluating");
}

absl::Status Trainer::CheckSameRequests(absl::Span<const ScoreRequest> requests) {
  if (comm_.world_size() == 1) {
    return absl::OkStatus();
  }
  // FNV-1a over what the ranks must agree on.
  uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001b3U;
  };
  for (const ScoreRequest& request : requests) {
    add(request.scored);
    add(static_cast<int64_t>(request.tokens.size()));
    std::for_each(request.tokens.begin(), request.tokens.end(), add);
  }
  // The largest and the smallest of all ranks' hashes.
  std::array<uint64_t, 2> ends = {hash, ~hash};
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceMax(absl::MakeSpan(ends)));
  return ends[0] == hash && ends[1] == ~hash
             ? absl::OkStatus()
             : absl::OutOfRangeError("the files of an evaluation differ between the ranks");
}

absl::StatusOr<std::vector<Score>> Trainer::ScoreAll(absl::Span<const ScoreRequest> requests) {
  const Pulse::Scope evaluates(pulse_, Activity::kEvaluation, "evaluating");
  HEARTH_ASSIGN_OR_RETURN(const ScoreBatches batches, ScoreBatches::Place(engine_, requests));
  HEARTH_RETURN_IF_ERROR(CheckSameRequests(requests));
  HEARTH_RETURN_IF_ERROR(BeginEvaluation());
  // The staging memory may still be on its way to the device.
  HEARTH_RETURN_IF_ERROR(Drain());
  const Pass pass = EvaluationPass(step_ + 1);
  std::vector<Score> scores(requests.size());
  // Each batch is scored by one rank; on the others its scores stay 0, so that the sum below hands
  // them round.
  for (int64_t round = 0; round < batches.size(); round += comm_.world_size()) {
    TellEvaluation();
    const int64_t i = round + comm_.rank();
    HEARTH_RETURN_IF_ERROR(i < batches.size()
                               ? batches.Run(engine_, pass, i, absl::MakeSpan(scores))
                               : engine_.model().IdleForward(engine_.exec(), pass));
  }
  std::vector<double> sums(2 * scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    sums[2 * i] = scores[i].log_likelihood;
    sums[2 * i + 1] = scores[i].greedy ? 1 : 0;
  }
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(absl::MakeSpan(sums)));
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = {sums[2 * i], sums[2 * i + 1] > 0.5};
  }
  // The next step's time must not contain the evaluation.
  last_collect_ = clock_.Monotonic();
  return scores;
}

absl::StatusOr<double> Trainer::Evaluate() {
  if (validation_ == nullptr) {
    return absl::FailedPreconditionError("the job has no data.validation");
  }
  const Pulse::Scope evaluates(pulse_, Activity::kEvaluation, "evaluating");
  const kernels::Exec& exec = engine_.exec();
  const int64_t samples = std::min(spec_.train().eval_batches() * batch_.global_sequences(),
                                   validation_->samples_of_pass());
  kernels::StepState* state = engine_.step_state();
  HEARTH_RETURN_IF_ERROR(BeginEvaluation());
  // A rank without a micro-batch in the last round still hands its part of divided weights round.
  for (int64_t round = 0; round < samples; round += comm_.world_size() * batch_.micro_batch) {
    const int64_t first = round + comm_.rank() * batch_.micro_batch;
    HEARTH_RETURN_IF_ERROR(
        first < samples
            ? EvaluateMicroBatch(first, std::min(batch_.micro_batch, samples - first), step_ + 1)
            : engine_.model().IdleForward(exec, EvaluationPass(step_ + 1)));
  }
  kernels::StepState* staged = engine_.StagedState(0);
  HEARTH_RETURN_IF_ERROR(kernels::Copy(exec, staged, state, sizeof(*state)));
  HEARTH_RETURN_IF_ERROR(Drain());
  std::array<double, 2> totals = {staged->loss_sum, staged->weight_sum};
  HEARTH_RETURN_IF_ERROR(comm_.AllReduceSum(absl::MakeSpan(totals)));
  last_collect_ = clock_.Monotonic();
  // Sums over all ranks first, and only then the quotient: ranks may have held different numbers of
  // tokens that count.
  return totals[0] / totals[1];
}

absl::Status Trainer::EvaluateMicroBatch(int64_t first, int64_t count, int64_t as_step) {
  const int slot = static_cast<int>(uploads_++ % spec::kStagingSlots);
  TellEvaluation();
  HEARTH_RETURN_IF_ERROR(Await(*uploaded_[static_cast<size_t>(slot)], step_));
  const BatchBuffers batch = engine_.StagedBatch(slot);
  HEARTH_RETURN_IF_ERROR(validation_->Fill(first, count, batch));
  // Rows beyond the held-out data repeat nothing: they do not count.
  const int64_t filled = count * batch_.sequence_length;
  for (int64_t i = filled; i < engine_.model().rows(); ++i) {
    batch.tokens[i] = batch.targets[i] = 0;
    batch.loss_weight[i] = 0.0F;
    batch.position[i] = static_cast<int32_t>(i % batch_.sequence_length);
    batch.start[i] = 0;
  }
  HEARTH_RETURN_IF_ERROR(engine_.UploadBatch(slot));
  HEARTH_RETURN_IF_ERROR(uploaded_[static_cast<size_t>(slot)]->Record(engine_.exec()));
  const Pass pass = EvaluationPass(as_step);
  kernels::StepState* state = engine_.step_state();
  return engine_.model().ForwardLoss(engine_.exec(), pass, &state->loss_sum, &state->weight_sum);
}

}  // namespace hearth::trainer
