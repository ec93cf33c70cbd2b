#include "common/spec/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "common/base/clip_text.h"
#include "common/spec/checker.h"
#include "common/spec/objective.h"
#include "common/spec/optimizer_state.h"
#include "common/spec/precision.h"
#include "common/spec/recipe.h"
#include "common/spec/schedule.h"
#include "common/spec/text.h"

namespace hearth::spec {
namespace {

constexpr size_t kNameBytes = 63;
constexpr int kMaxLabels = 32;
constexpr int64_t kMaxSteps = int64_t{1} << 40;

const char kNameRule[] =
    "must be lower-case letters, digits, '-' and '.', begin and end with a letter or digit, and "
    "have at "
    "most 63 characters";

bool IsName(std::string_view name) {
  const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > kNameBytes || !alnum(name.front()) || !alnum(name.back())) {
    return false;
  }
  for (char c : name) {
    if (!alnum(c) && c != '-' && c != '.') {
      return false;
    }
  }
  return true;
}

// For a message: not long, and without what a terminal would obey.
std::string Quotable(std::string_view text) {
  std::string out = ClipText(text, 100);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return out;
}

template <typename Map>
void CheckLabels(std::string_view field, const Map& labels, Checker& check) {
  if (labels.size() > kMaxLabels) {
    check.Add(field, Text(labels.size(), " entries; at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    const std::string problem = LabelProblem(key, value);
    if (!problem.empty()) {
      check.Add(Text(field, '.', Quotable(key)), problem);
    }
  }
}

void CheckIdentity(const v1::JobSpec& job, Checker& check) {
  if (!job.has_name()) {
    check.Add("name", "required");
  } else {
    check.Rule("name", IsName(job.name()), Text('"', job.name(), '"'), kNameRule);
  }
  CheckLabels("labels", job.labels(), check);
  check.Name("task", job.has_task(), job.task(), "task", ObjectiveNames());
  check.Name("recompute", job.has_recompute(), job.recompute(), "recomputation",
             {"none", "norm_act", "ffn", "attention", "block"});
  check.Name("parallel.shard_optimizer", job.parallel().has_shard_optimizer(),
             job.parallel().shard_optimizer(), "choice", {"auto", "on", "off"});
  check.Range("parallel.bucket_mib", job.parallel().has_bucket_mib(), job.parallel().bucket_mib(),
              1, 4096);
}

template <typename Sources>
void CheckSources(std::string_view field, const Sources& sources, Checker& check) {
  for (int i = 0; i < sources.size(); ++i) {
    const v1::DataSource& source = sources[i];
    if (source.path().empty()) {
      check.Add(Text(field, '[', i, "].path"), "required");
    }
    check.Rule(Text(field, '[', i, "].weight"),
               !source.has_weight() || (source.weight() > 0.0 && std::isfinite(source.weight())),
               source.weight(), "is out of range; must be > 0");
  }
}

void CheckData(const v1::DataSpec& data, Checker& check) {
  if (data.train().empty()) {
    check.Add("data.train", "required: at least one dataset");
  }
  CheckSources("data.train", data.train(), check);
  CheckSources("data.validation", data.validation(), check);
  check.Range("data.sequence_length", data.has_sequence_length(), data.sequence_length(), 2,
              1048576);
}

void CheckBatch(const v1::JobSpec& job, Checker& check) {
  const v1::BatchSpec& batch = job.batch();
  const int64_t sequence = job.data().sequence_length();
  const int64_t micro = batch.micro_batch_size();
  if (batch.has_micro_batch_size() && (micro < 0 || micro > 65536)) {
    check.Add("batch.micro_batch_size", Text(micro, " is out of range; must be auto or 1..65536"));
    return;
  }
  const int64_t tokens = batch.global_batch_tokens();
  // Without a sound sequence length there is nothing to compare with, and the text would mislead.
  if (!batch.has_global_batch_tokens() || sequence < 2 || sequence > 1048576) {
    return;
  }
  const bool automatic = micro == 0;
  const int64_t unit = automatic ? sequence : micro * sequence;
  if (tokens < 1 || tokens % unit != 0) {
    const int64_t below = tokens < 1 ? 0 : tokens / unit * unit;
    const std::string product = automatic
                                    ? Text("data.sequence_length ", sequence)
                                    : Text("micro_batch_size * data.sequence_length = ", micro,
                                           " * ", sequence, " = ", unit);
    check.Add("batch.global_batch_tokens",
              Text(tokens, " is not a positive multiple of ", product,
                   "; nearest: ", below > 0 ? Text(below, " or ") : "",
                   below > std::numeric_limits<int64_t>::max() - unit ? below : below + unit));
    return;
  }
  const int64_t workers = job.resources().workers();
  if (workers >= 1 && workers <= 4096 && tokens / unit < workers) {
    check.Add(
        "batch.global_batch_tokens",
        Text(tokens, " make only ", tokens / unit, automatic ? " sequences" : " micro-batches",
             " for ", workers, " workers; each needs one: at least ", unit * workers,
             " tokens, or fewer resources.workers"));
  }
}

void CheckRecipe(const v1::JobSpec& job,
                 std::string_view field,
                 const std::string& name,
                 Checker& check) {
  const std::string& device = job.resources().device();
  if (!check.Name(field, true, name, "recipe", RecipeNames()) ||
      (device != "cpu" && device != "cuda")) {
    return;
  }
  const std::string refusal =
      RecipeRefusal(*FindRecipe(name), job.resources().device(), job.precision().emulate());
  if (!refusal.empty()) {
    check.Add(field, refusal);
  }
}

// Whether the device can run the recipe at all; an unknown one cannot.
bool Runs(const v1::JobSpec& job, const std::string& name) {
  const Recipe* recipe = FindRecipe(name);
  return recipe != nullptr &&
         RecipeExecution(recipe->kind, job.resources().device()) != Execution::kNone;
}

bool HasTensorScales(const Recipe& recipe) {
  return recipe.fprop.a.scaling == Scaling::kTensorDelayed ||
         recipe.fprop.a.scaling == Scaling::kTensorCurrent;
}

// What a run in the recipe can go on in on its device, as the end of a sentence.
std::string FollowersText(const v1::JobSpec& job, const Recipe& recipe) {
  std::vector<std::string_view> names;
  for (const Recipe& row : Recipes()) {
    if (CanFollow(recipe, row) && Runs(job, std::string(row.name))) {
      names.push_back(row.name);
    }
  }
  return names.empty() ? Text("nor in any other recipe; leave precision.fallback out")
                       : Text("only in ", NamesText(names));
}

void CheckFallback(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  if (p.fallback_size() == 1 && p.fallback(0) == "none") {
    return;
  }
  std::set<std::string> seen;
  bool wide = false;  // an unquantised one came before
  for (int i = 0; i < p.fallback_size(); ++i) {
    const std::string field = Text("precision.fallback[", i, ']');
    if (p.fallback(i) == "none") {
      check.Add(field, "none stands alone: it turns falling back off, so no recipe goes with it");
      continue;
    }
    if (p.fallback(i) == p.recipe()) {
      check.Add(field,
                Text(p.recipe(), " is precision.recipe itself, which cannot be its own fallback"));
      continue;
    }
    const size_t before = check.size();
    // One refusal is enough: where the recipe does not run, neither may the fallbacks of its row.
    if (Runs(job, p.recipe())) {
      CheckRecipe(job, field, p.fallback(i), check);
    } else {
      check.Name(field, true, p.fallback(i), "recipe", RecipeNames());
    }
    if (!seen.insert(p.fallback(i)).second) {
      check.Add(field, Text(p.fallback(i), " is named twice"));
    }
    if (check.size() == before && Runs(job, p.recipe()) &&
        !CanFollow(*FindRecipe(p.recipe()), *FindRecipe(p.fallback(i)))) {
      check.Add(field, Text("a run in ", p.recipe(), " cannot go on in ", p.fallback(i),
                            " in this version, ", FollowersText(job, *FindRecipe(p.recipe()))));
    }
    const Recipe* row = FindRecipe(p.fallback(i));
    if (row != nullptr && row->quantised() && wide) {
      check.Add(field, Text(p.fallback(i), " is narrower than the one before it"));
    }
    wide |= row != nullptr && !row->quantised();
  }
}

void CheckPrecision(const v1::JobSpec& job, Checker& check) {
  const v1::PrecisionSpec& p = job.precision();
  CheckRecipe(job, "precision.recipe", p.recipe(), check);
  CheckFallback(job, check);
  check.AtLeast("precision.warmup_steps", p.has_warmup_steps(), p.warmup_steps(), 0);
  if (check.Name("precision.lm_head", p.has_lm_head(), p.lm_head(),
                 "format of the output projection", {"bf16", "fp8"}) &&
      p.lm_head() == "fp8" && Runs(job, p.recipe()) && !HasTensorScales(*FindRecipe(p.recipe()))) {
    check.Add("precision.lm_head",
              Text("fp8 needs a recipe with FP8 operands (fp8 or fp8_current), not ", p.recipe()));
  }
  check.Range("precision.bf16_tail", p.has_bf16_tail(), p.bf16_tail(), 0.0, 1.0);
  CheckJobLayers(job, check);
  CheckSwitches(job, check);
  const std::vector<std::string_view> formats = {"fp32", "bf16"};
  check.Name("gradients.dtype", job.gradients().has_dtype(), job.gradients().dtype(),
             "gradient format", formats);
  check.Name("gradients.reduce_dtype", job.gradients().has_reduce_dtype(),
             job.gradients().reduce_dtype(), "gradient format", formats);
}

void CheckOptimizer(const v1::OptimizerSpec& o, Checker& check) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto finite_at_least_0 = [&](std::string_view field, bool has, double value) {
    check.Rule(field, !has || (value >= 0.0 && value < inf), value,
               "is out of range; must be >= 0");
  };
  check.Name("optimizer.name", o.has_name(), o.name(), "optimizer", OptimizerNames());
  check.Rule("optimizer.lr", !o.has_lr() || (o.lr() > 0.0 && o.lr() < inf), o.lr(),
             "is out of range; must be > 0");
  check.Rule("optimizer.beta1", !o.has_beta1() || (o.beta1() >= 0.0 && o.beta1() < 1.0), o.beta1(),
             "is out of range; must be >= 0 and < 1");
  check.Rule("optimizer.beta2", !o.has_beta2() || (o.beta2() >= 0.0 && o.beta2() < 1.0), o.beta2(),
             "is out of range; must be >= 0 and < 1");
  check.Rule("optimizer.eps", !o.has_eps() || (o.eps() > 0.0 && o.eps() < inf), o.eps(),
             "is out of range; must be > 0");
  finite_at_least_0("optimizer.weight_decay", o.has_weight_decay(), o.weight_decay());
  finite_at_least_0("optimizer.grad_clip", o.has_grad_clip(), o.grad_clip());
  for (const auto& [name, group] : o.groups()) {
    const std::string path = Text("optimizer.groups.", name);
    check.Name(path, true, name, "parameter group", ParameterGroupNames());
    finite_at_least_0(path + ".lr_scale", group.has_lr_scale(), group.lr_scale());
    finite_at_least_0(path + ".weight_decay", group.has_weight_decay(), group.weight_decay());
  }
}

void CheckSchedule(const v1::ScheduleSpec& s, int64_t steps, Checker& check) {
  check.Name("schedule.name", s.has_name(), s.name(), "schedule", ScheduleNames());
  check.Range("schedule.warmup_steps", s.has_warmup_steps(), s.warmup_steps(), int64_t{0},
              kMaxSteps);
  check.Range("schedule.decay_steps", s.has_decay_steps(), s.decay_steps(), int64_t{0}, kMaxSteps);
  check.Range("schedule.min_lr_ratio", s.has_min_lr_ratio(), s.min_lr_ratio(), 0.0, 1.0);
  check.Name("schedule.decay_shape", s.has_decay_shape(), s.decay_shape(), "shape of the decay",
             DecayShapeNames());
  if (steps < 1 || s.warmup_steps() < 0 || s.decay_steps() < 0) {
    return;
  }
  if (s.warmup_steps() > steps) {
    check.Add("schedule.warmup_steps", Text(s.warmup_steps(), " is more than train.steps ", steps));
  } else if (s.name() != "constant" && s.decay_steps() > steps - s.warmup_steps()) {
    check.Add("schedule.decay_steps",
              Text("warmup_steps ", s.warmup_steps(), " and decay_steps ", s.decay_steps(),
                   " are together more than train.steps ", steps));
  }
}

void CheckTrain(const v1::TrainSpec& t, Checker& check) {
  if (!t.has_steps()) {
    check.Add("train.steps", "required");
  }
  check.Range("train.steps", t.has_steps(), t.steps(), int64_t{1}, kMaxSteps);
  check.AtLeast("train.eval_every", t.has_eval_every(), t.eval_every(), int64_t{0});
  check.AtLeast("train.eval_batches", t.has_eval_batches(), t.eval_batches(), 1);
  check.Name("train.deterministic", t.has_deterministic(), t.deterministic(), "choice",
             {"auto", "true", "false"});
  check.Rule("train.spike_sigma",
             !t.has_spike_sigma() || (t.spike_sigma() >= 0.0 && std::isfinite(t.spike_sigma())),
             t.spike_sigma(), "is out of range; must be >= 0");
  check.Rule("train.spike_grad_sigma",
             !t.has_spike_grad_sigma() ||
                 (t.spike_grad_sigma() >= 0.0 && std::isfinite(t.spike_grad_sigma())),
             t.spike_grad_sigma(), "is out of range; must be >= 0");
  check.AtLeast("train.spike_window", t.has_spike_window(), t.spike_window(), 8);
}

void CheckCheckpoint(const v1::CheckpointSpec& c, Checker& check) {
  check.AtLeast("checkpoint.every_steps", c.has_every_steps(), c.every_steps(), int64_t{0});
  check.AtLeast("checkpoint.keep_last", c.has_keep_last(), c.keep_last(), 1);
  check.Range("checkpoint.grace_seconds", c.has_grace_seconds(), c.grace_seconds(), 0, 86400);
}

void CheckResources(const v1::ResourceSpec& r, Checker& check) {
  check.Range("resources.workers", r.has_workers(), r.workers(), 1, 4096);
  if (r.has_min_workers() && (r.min_workers() < 1 || r.min_workers() > r.workers())) {
    check.Add("resources.min_workers",
              Text(r.min_workers(), " is out of range; must be 1..workers = ", r.workers()));
  }
  check.Name("resources.device", r.has_device(), r.device(), "device", {"cpu", "cuda"});
  check.Range("resources.priority", r.has_priority(), r.priority(), -1000, 1000);
  check.AtLeast("resources.max_restarts", r.has_max_restarts(), r.max_restarts(), 0);
  check.Range("resources.threads", r.has_threads(), r.threads(), 0, 4096);
  if (r.has_time_limit()) {
    const double seconds =
        static_cast<double>(r.time_limit().seconds()) + 1e-9 * r.time_limit().nanos();
    // A century, so that sums of times stay in range everywhere.
    check.Rule("resources.time_limit", seconds > 0.0 && seconds <= 3.2e9, Text(seconds, " s"),
               "is out of range; must be > 0 and at most 100 years");
  }
  CheckLabels("resources.selector", r.selector(), check);
}

}  // namespace

std::string LabelProblem(std::string_view key, std::string_view value) {
  if (!IsName(key)) {
    return Text("key \"", Quotable(key), "\" ", kNameRule);
  }
  const bool printable = std::none_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return value.size() <= kNameBytes && printable
             ? ""
             : Text('"', Quotable(value),
                    "\" must have at most 63 characters, none of them a control character");
}

void ValidateJob(const v1::JobSpec& job_spec, std::vector<FieldViolation>& violations) {
  Checker check(violations);
  CheckIdentity(job_spec, check);
  CheckData(job_spec.data(), check);
  CheckBatch(job_spec, check);
  CheckPrecision(job_spec, check);
  CheckLadder(job_spec, check);
  CheckOptimizer(job_spec.optimizer(), check);
  CheckSchedule(job_spec.schedule(), job_spec.train().steps(), check);
  CheckTrain(job_spec.train(), check);
  CheckCheckpoint(job_spec.checkpoint(), check);
  CheckResources(job_spec.resources(), check);
}

}  // namespace hearth::spec
