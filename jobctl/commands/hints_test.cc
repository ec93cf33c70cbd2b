// What people type instead of what is right, and what they are told: keys and values of the job
// file, commands, options, devices.
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/config/config.h"
#include "common/spec/fields/idle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "jobctl/commands/arguments.h"
#include "jobctl/commands/command_row.h"
#include "jobctl/commands/job_file/load_job_file.h"
#include "jobctl/commands/settings.h"
#include "jobctl/commands/usage.h"
#include "jobctl/views/plots/metrics_plot.h"
#include "tests/support/common/valid_job.h"

namespace hearth::jobctl {
namespace {

// What a job with `assignment` is refused with, without the list of all names.
std::string Refusal(const std::string& assignment) {
  v1::JobSpec job = spec::ValidJob();
  const absl::Status applied = config::ApplyOverride(job, assignment);
  const absl::Status resolved = spec::ResolveSubmitted(job);
  const std::string text((applied.ok() ? resolved : applied).message());
  return text.substr(0, text.find(" (one of"));
}

struct Slip {
  const char* typed;
  const char* told;
};

TEST(Hints, WrongKeys_NameTheRightOne) {
  constexpr Slip kSlips[] = {
      {"train.stesp=1", "did you mean steps?"},
      {"train.max_steps=1", "did you mean steps?"},
      {"max_steps=1", "did you mean train.steps?"},
      {"train.iterations=1", "did you mean steps?"},
      {"optimizer.learning_rate=1e-3", "did you mean lr?"},
      {"learning_rate=1e-3", "did you mean optimizer.lr?"},
      {"train.lr=1e-3", "did you mean optimizer.lr?"},
      {"optimizer.wd=0", "did you mean weight_decay?"},
      {"optimizer.max_grad_norm=1", "did you mean grad_clip?"},
      {"max_grad_norm=1", "did you mean optimizer.grad_clip?"},
      {"resources.gpus=2", "did you mean workers?"},
      {"resources.gpu=2", "did you mean workers?"},
      {"gpus=2", "did you mean resources.workers?"},
      {"resources.timeout=1h", "did you mean time_limit?"},
      {"batch_size=8", "did you mean batch.micro_batch_size or evaluate.batch?"},
      {"batch.batch_size=8", "did you mean micro_batch_size?"},
      {"batch.Micro_Batch_Size=8", "did you mean micro_batch_size?"},
      {"data.block_size=512", "did you mean sequence_length?"},
      {"data.seq_len=512", "did you mean sequence_length?"},
      {"data.val=/x", "did you mean validation?"},
      {"dataset=/x", "did you mean data?"},
      {"scheduler.name=cosine", "did you mean schedule?"},
      {"schedule.warmup=5", "did you mean warmup_steps?"},
      {"warmup_steps=5", "did you mean precision.warmup_steps or schedule.warmup_steps?"},
      {"schedule.min_lr=0.1", "did you mean min_lr_ratio?"},
      {"checkpoint.save_every=5", "did you mean every_steps?"},
      {"checkpoint.save_total_limit=5", "did you mean keep_last?"},
      {"train.eval_interval=5", "did you mean eval_every?"},
      {"train.gradient_checkpointing=true", "did you mean recompute?"},
      {"mixed_precision=bf16", "did you mean precision.recipe?"},
      {"model.n_layer=2", "did you mean layers?"},
      {"model.hidden_size=64", "did you mean hidden?"},
      {"model.num_attention_heads=2", "did you mean heads?"},
      {"model.vocab_size=512", "did you mean vocab?"},
      {"model.intermediate_size=512", "did you mean ffn_hidden?"},
      {"model.tie_word_embeddings=true", "did you mean tied?"},
      {"train.deterministc=true", "did you mean deterministic?"},
      {"seed=1", "did you mean train.seed?"},
  };
  for (const Slip& slip : kSlips) {
    const std::string path = std::string(slip.typed).substr(0, std::string(slip.typed).find('='));
    EXPECT_EQ(Refusal(slip.typed), path + ": unknown key; " + slip.told);
  }
  EXPECT_EQ(Refusal("zzz=1"), "zzz: unknown key");
}

TEST(Hints, WrongValues_NameTheRightOne) {
  constexpr Slip kSlips[] = {
      {"resources.device=gpu", "\"gpu\" is not a device; did you mean cuda?"},
      {"resources.device=CUDA", "\"CUDA\" is not a device; did you mean cuda?"},
      {"precision.recipe=bf61", "\"bf61\" is not a recipe; did you mean bf16?"},
      {"precision.recipe=bfloat16", "\"bfloat16\" is not a recipe; did you mean bf16?"},
      {"precision.recipe=FP8", "\"FP8\" is not a recipe; did you mean fp8?"},
      {"optimizer.name=adam", "\"adam\" is not an optimizer; did you mean adamw?"},
      {"schedule.name=cos", "\"cos\" is not a schedule; did you mean cosine?"},
      {"model.activation=silu", "\"silu\" is not an activation; did you mean swiglu?"},
      {"model.norm=layer_norm", "\"layer_norm\" is not a norm; did you mean layernorm?"},
      {"model.position=rotary", "\"rotary\" is not a position encoding; did you mean rope?"},
      {"recompute=full", "\"full\" is not a recomputation; did you mean block?"},
      {"task=causal_lm", "\"causal_lm\" is not a task; did you mean pretrain?"},
      {"train.steps=0", "0 is out of range; must be 1..1099511627776"},
      {"optimizer.lr=-1", "-1 is out of range; must be > 0"},
      {"batch.micro_batch_size=-1", "-1 is out of range; must be auto or 1..65536"},
  };
  for (const Slip& slip : kSlips) {
    const std::string path = std::string(slip.typed).substr(0, std::string(slip.typed).find('='));
    EXPECT_EQ(Refusal(slip.typed), path + ": " + slip.told);
  }
}

TEST(Hints, AllMistakesOfSet_AreToldAtOnce) {
  v1::JobSpec job = spec::ValidJob();
  const absl::Status status = ApplyAssignments(
      {"train.stesp=1", "optimizer.lr=-1", "train.steps=many", "resources.device=gpu"}, job);
  const std::vector<std::string> lines = absl::StrSplit(std::string(status.message()), '\n');
  ASSERT_EQ(lines.size(), 4U) << status;
  EXPECT_EQ(lines[0], "--set train.stesp=1: train.stesp: unknown key; did you mean steps?");
  EXPECT_EQ(lines[1], "--set train.steps=many: train.steps: expected an integer, got \"many\"");
  EXPECT_EQ(lines[2], "optimizer.lr: -1 is out of range; must be > 0");
  EXPECT_EQ(lines[3].substr(0, lines[3].find(" (one of")),
            "resources.device: \"gpu\" is not a device; did you mean cuda?");
  EXPECT_EQ(ApplyAssignments({"train.stesp=1"}, job).message(),
            absl::StrCat(lines[0], "\n", lines[2], "\n", lines[3]))
      << "what was set stays set";
  job = spec::ValidJob();
  EXPECT_TRUE(ApplyAssignments({"optimizer.lr=-1"}, job).ok()) << "for the rules to judge";
}

// What jobctl says to the words.
std::string Said(const std::string& line) {
  Context context;
  CLI::App app("", "jobctl");
  app.require_subcommand(1);
  app.fallthrough();
  AddSettings(app, context);
  std::string format;
  app.add_option("-o,--output", format);
  std::vector<Action> actions;
  for (const CommandDef& def : Commands()) {
    actions.push_back(def.setup(*app.add_subcommand(def.name, def.help)));
  }
  const std::vector<std::string> args = absl::StrSplit(line, ' ');
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::ParseError& error) {
    return UsageText(app, args, error);
  }
  return "taken";
}

// The paths of `app`'s commands and theirs: "list", "dataset mix".
std::vector<std::string> PathsOf(const CLI::App& app, const std::string& before) {
  std::vector<std::string> paths;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    paths.push_back(before + command->get_name());
    const std::vector<std::string> below = PathsOf(*command, paths.back() + " ");
    paths.insert(paths.end(), below.begin(), below.end());
  }
  return paths;
}

TEST(Formats, EveryCommand_StatesItsOwn) {
  CLI::App app("", "jobctl");
  std::vector<Action> actions;
  for (const CommandDef& def : Commands()) {
    actions.push_back(def.setup(*app.add_subcommand(def.name, def.help)));
  }
  const std::vector<std::string> paths = PathsOf(app, "");
  EXPECT_GT(paths.size(), Commands().size());
  for (const std::string& path : paths) {
    EXPECT_TRUE(FormatsOf(path).has_value()) << path << ": kSubcommandFormats has no row";
    EXPECT_TRUE(CheckFormat(path, OutputFormat::kTable).ok()) << path;
  }
  EXPECT_FALSE(FormatsOf("dataset").value() & (1U << OutputFormat::kJson));
  EXPECT_TRUE(CheckFormat("dataset mix", OutputFormat::kYaml).ok());
}

TEST(Formats, AnotherOne_IsRefused) {
  EXPECT_EQ(CheckFormat("diff", *ParseOutputFormat("jsonpath={.a}")).message(),
            "jobctl diff does not take -o jsonpath; give wide, json, yaml or leave -o out");
  EXPECT_EQ(CheckFormat("dataset mix", OutputFormat::kWide).message(),
            "jobctl dataset mix does not take -o wide; give json, yaml or leave -o out");
  EXPECT_EQ(CheckFormat("init", OutputFormat::kJson).message(),
            "jobctl init does not take -o json; it prints text only");
}

TEST(Hints, WrongCommands_NameTheRightOne) {
  constexpr Slip kSlips[] = {
      {"ls", "list"},
      {"ps", "list"},
      {"squeue -l a=b", "list"},
      {"status my-job", "describe"},
      {"show my-job", "describe"},
      {"stop my-job", "pause JOB, or jobctl cancel JOB"},
      {"kill my-job", "cancel --now"},
      {"rm my-job", "delete"},
      {"sumbit job.yaml", "submit"},
      {"run job.yaml", "submit"},
      {"restart my-job", "resume"},
      {"tail my-job", "logs -f"},
      {"compare a b", "diff"},
      {"tensorboard a", "metrics JOB --tensorboard DIR"},
      {"extend a", "resume JOB --set train.steps=STEPS"},
      {"nodes", "workers"},
      {"wrokers", "workers"},
      {"help", "--help"},
  };
  for (const Slip& slip : kSlips) {
    const std::string line = slip.typed;
    EXPECT_EQ(Said(line), "error: jobctl has no command \"" + line.substr(0, line.find(' ')) +
                              "\"; did you mean jobctl " + slip.told + "?\n");
  }
  for (const Slip& slip : std::vector<Slip>{{"token ls", "list"},
                                            {"token rm x", "revoke"},
                                            {"token add x", "create"},
                                            {"token lst", "list"},
                                            {"context ls", "list"},
                                            {"context rm x", "remove"},
                                            {"context switch x", "use"},
                                            {"context create x", "add"},
                                            {"dataset make x", "build"},
                                            {"dataset show x", "inspect"},
                                            {"dataset merge x", "mix"}}) {
    const std::vector<std::string> words = absl::StrSplit(slip.typed, ' ');
    EXPECT_EQ(Said(slip.typed),
              absl::StrCat("error: jobctl ", words[0], " has no command \"", words[1],
                           "\"; did you mean jobctl ", words[0], " ", slip.told, "?\n"));
  }
  EXPECT_EQ(Said("xyzzy"), "error: jobctl has no command \"xyzzy\"; jobctl --help lists them\n");
  EXPECT_EQ(Said("dataset buidl"),
            "error: jobctl dataset has no command \"buidl\"; did you mean jobctl dataset build?\n");
}

TEST(Hints, WrongOptions_NameTheRightOneInTheOrderTyped) {
  EXPECT_EQ(Said("submit job.yaml --wacth"),
            "error: jobctl submit has no option --wacth; did you mean --watch?\n");
  EXPECT_EQ(Said("submit job.yaml --wiat --coordinater h:1 --lr=1e-4"),
            "error: jobctl submit has no option --wiat; did you mean --wait?\n"
            "error: jobctl submit has no option --coordinater; did you mean --coordinator?\n"
            "error: jobctl submit has no option --lr; did you mean --set optimizer.lr=VALUE?\n");
  EXPECT_EQ(Said("submit job.yaml --gpus 4"),
            "error: jobctl submit has no option --gpus; did you mean --set "
            "resources.workers=VALUE?\n");
  EXPECT_EQ(Said("submit job.yaml --steps 10"),
            "error: jobctl submit has no option --steps; did you mean --set train.steps=VALUE or "
            "--set evaluate.steps=VALUE?\n");
  EXPECT_EQ(Said("list --qqqqqq"),
            "error: jobctl list has no option --qqqqqq; jobctl list --help lists them\n");
  EXPECT_EQ(Said("diff a b c d"),
            "error: jobctl diff does not take \"c\"\n"
            "error: jobctl diff does not take \"d\"\n");
  EXPECT_EQ(Said("pause a b c"), "taken");
  EXPECT_EQ(Said("submit job.yaml --watch"), "taken");
  // Other errors are CLI11's to explain.
  EXPECT_EQ(Said("submit"), "");
  EXPECT_EQ(Said("submit job.yaml --dry-run maybe"), "");
  EXPECT_EQ(Said("list -l team=blue -l run"), "taken");
  EXPECT_EQ(Said("list -l team!=blue"), "");
}

TEST(Hints, WrongStates_NameTheRightOne) {
  constexpr Slip kSlips[] = {
      {"runing", "\"runing\" is not a state of a job; did you mean running?"},
      {"running,done", "\"done\" is not a state of a job; did you mean succeeded?"},
      {"pending", "\"pending\" is not a state of a job; did you mean queued?"},
      {"Canceled", "\"canceled\" is not a state of a job; did you mean cancelled?"},
      {"crashed", "\"crashed\" is not a state of a job"},
  };
  for (const Slip& slip : kSlips) {
    const std::string text = WrongState(slip.typed);
    EXPECT_EQ(text.substr(0, text.find(" (one of")), slip.told);
  }
  EXPECT_EQ(WrongState("RUNNING,queued"), "");
  EXPECT_EQ(WrongState(""), "");
  EXPECT_EQ(Said("list --state runing"), "") << "CLI11 tells what the check says";
  EXPECT_EQ(Said("list --state running,failed"), "taken");
}

TEST(Hints, WrongMetrics_NameTheRightOne) {
  constexpr Slip kSlips[] = {
      {"los", "--plot: \"los\" is not a metric; did you mean loss?"},
      {"loss,toks", "--plot: \"toks\" is not a metric; did you mean tok_s?"},
      {"learning_rates", "--plot: \"learning_rates\" is not a metric; did you mean learning_rate?"},
      {"zzzzzz", "--plot: \"zzzzzz\" is not a metric"},
  };
  for (const Slip& slip : kSlips) {
    const std::string text(ParsePlotMetrics(slip.typed).status().message());
    EXPECT_EQ(text.substr(0, text.find(" (one of")), slip.told);
  }
}

TEST(Hints, CommandsAreNoAliases) {
  for (const Alias& alias : CommandAliases()) {
    for (const CommandDef& def : Commands()) {
      EXPECT_STRNE(alias.typed, def.name);
    }
  }
}

v1::ResourceSpec Wants(const std::string& device, int workers, int least) {
  v1::ResourceSpec resources;
  resources.set_device(device);
  resources.set_workers(workers);
  resources.set_min_workers(least);
  return resources;
}

v1::Worker Connected(const std::string& device) {
  v1::Worker worker;
  worker.set_state(v1::WORKER_STATE_IDLE);
  worker.mutable_device()->set_kind(device);
  return worker;
}

TEST(Hints, ADeviceThatNoWorkerHas_IsToldAtSubmit) {
  const v1::Worker cpu = Connected("cpu");
  const v1::Worker gpu = Connected("cuda");
  EXPECT_EQ(
      WorkersWarning(Wants("cuda", 1, 1), {cpu, cpu}),
      "no worker has resources.device cuda; the job waits until hearth-worker --device cuda:0 "
      "joins (on the CPU: --set resources.device=cpu)");
  EXPECT_EQ(WorkersWarning(Wants("cpu", 1, 1), {}),
            "there is no worker yet; the job waits until hearth-worker --device cpu joins");
  EXPECT_EQ(WorkersWarning(Wants("cuda", 1, 1), {cpu, gpu}), "");
  EXPECT_EQ(WorkersWarning(Wants("cpu", 1, 1), {cpu}), "");
}

TEST(Hints, MoreWorkersThanAreConnected_IsToldAtSubmit) {
  const v1::Worker cpu = Connected("cpu");
  const v1::Worker gpu = Connected("cuda");
  v1::Worker lost = cpu;
  lost.set_state(v1::WORKER_STATE_LOST);
  EXPECT_EQ(WorkersWarning(Wants("cpu", 4, 4), {cpu, gpu, cpu, lost}),
            "the job asks for 4 workers with resources.device cpu; 2 are connected; it waits until "
            "more join (hearth-worker --device cpu); --set resources.workers=2 uses those that are "
            "there");
  EXPECT_EQ(WorkersWarning(Wants("cuda", 4, 2), {cpu, gpu, cpu}),
            "the job asks for at least 2 workers with resources.device cuda; 1 is connected; it "
            "waits until more join (hearth-worker --device cuda:0); --set resources.workers=1 uses "
            "those that are there");
  EXPECT_EQ(WorkersWarning(Wants("cpu", 2, 2), {lost}),
            "the job asks for 2 workers with resources.device cpu; 0 are connected; it waits until "
            "more join (hearth-worker --device cpu)");
  EXPECT_EQ(WorkersWarning(Wants("cpu", 4, 2), {cpu, cpu}), "") << "it starts with two";
  EXPECT_EQ(WorkersWarning(Wants("cpu", 2, 2), {cpu, cpu}), "");
  EXPECT_EQ(WorkersWarning(Wants("cpu", 1, 1), {lost}), "");
}

TEST(Hints, LabelsThatTooFewWorkersHave_AreToldAtSubmit) {
  v1::ResourceSpec wants = Wants("cpu", 2, 2);
  (*wants.mutable_selector())["zone"] = "a";
  (*wants.mutable_selector())["disk"] = "ssd";
  const v1::Worker plain = Connected("cpu");
  v1::Worker labelled = plain;
  (*labelled.mutable_labels())["zone"] = "a";
  EXPECT_EQ(WorkersWarning(wants, {plain, labelled}),
            "no worker has resources.device cpu and resources.selector {disk: ssd, zone: a}; the "
            "job waits until hearth-worker --device cpu --label disk=ssd --label zone=a joins");
  (*labelled.mutable_labels())["disk"] = "ssd";
  EXPECT_EQ(WorkersWarning(wants, {plain, labelled}),
            "the job asks for 2 workers with resources.device cpu and resources.selector {disk: "
            "ssd, zone: a}; 1 is connected; it waits until more join (hearth-worker --device cpu "
            "--label disk=ssd --label zone=a); --set resources.workers=1 uses those that are "
            "there");
  EXPECT_EQ(WorkersWarning(wants, {plain, labelled, labelled}), "");
  wants.set_device("cuda");
  EXPECT_EQ(WorkersWarning(wants, {Connected("cuda")}),
            "no worker has resources.device cuda and resources.selector {disk: ssd, zone: a}; the "
            "job waits until hearth-worker --device cuda:0 --label disk=ssd --label zone=a joins")
      << "the CPU is no remedy for a missing label";
}

}  // namespace
}  // namespace hearth::jobctl
