// The verbs of hearth-trainer, one file each. Options are filled by CLI11 in main.cc; each returns
// the process exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/verified_files.h"
#include "common/weights/model_files.h"
#include "hearth/v1/job.pb.h"
#include "kernels/sample_tokens/sample_tokens.h"

namespace hearth::trainer {

struct JobOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // --set path=value
};

struct RunOptions {
  JobOptions job;
  std::string device;  // cpu | cuda:N; empty = the job's
  std::string out;
  std::string
      resume;  // checkpoint folder, or a folder of checkpoints (the newest that is whole is taken)
  int threads = 0;  // 0 = all cores
  bool quiet = false;
  bool verify = true;          // false: data.verify is false, whatever the job says
  std::string dump_gradients;  // folder for the first step's gradients; empty = none
};

struct PlanOptions {
  JobOptions job;
  int64_t memory_bytes = 0;  // of the GPU planned for; 0 = this machine's
  bool verbose = false;
  int threads = 1;
};

struct EvalOptions {
  std::string checkpoint;
  weights::WeightChoice choice = weights::WeightChoice::kStep;
  std::vector<std::string> data;  // each measured by itself; empty: a task
  std::string task;               // a row of spec::Evaluations(); empty: data
  std::string items;              // of the task
  int64_t limit = 0;              // first items; 0 = all
  int shots = 0;                  // examples before each question
  std::string examples;           // file of them
  std::string details;            // file for the log-likelihoods of each item; empty = none
  std::string device = "cpu";     // cpu | cuda:N
  std::string recipe;             // empty: fp32 on the CPU, bf16 on a GPU
  // 0 = that of training where the checkpoint says; else 256, for tasks 2048.
  int sequence_length = 0;
  int micro_batch = 0;  // sequences; 0 = 8, for tasks what keeps the device busy
  int batches = 0;      // micro-batches of each dataset; 0 = all
  int threads = 0;
  bool json = false;
  bool verify = true;  // data and checkpoint against the hashes recorded for them
};

// Where log-probabilities come from (cli/generate/log_probs.h).
struct LogProbsOptions {
  std::string from = "auto";  // auto | one of LogProbsNames()
  // The shape of training's forward pass; 0: that of the checkpoint's job.
  int64_t micro_batch = 0;
  int64_t sequence_length = 0;
};

struct SampleOptions {
  std::string checkpoint;
  weights::WeightChoice choice = weights::WeightChoice::kStep;
  std::string prompt;
  std::string prompts;  // file with a prompt a line, instead of `prompt`
  int64_t tokens = 100;
  std::vector<std::string> stops;
  kernels::SamplingRule rule = {.temperature = 0.8, .top_k = 40};
  std::string device = "cpu";  // cpu | cuda:N
  std::string weights;         // as GeneratingModelOptions::weights
  int64_t batch = 64;          // prompts at a time, at most
  int threads = 0;
  bool json = false;
  LogProbsOptions log_probs;
  bool verify = true;  // the checkpoint against the hashes recorded for it
};

struct ChatOptions {
  std::string checkpoint;
  weights::WeightChoice choice = weights::WeightChoice::kStep;
  std::string system;         // first message; empty = none
  std::string chat_template;  // chat::NamedTemplates or a file; empty = the folder's
  int64_t tokens = 512;       // of an answer, at most
  int64_t context = 0;        // tokens of the conversation; 0 = 4096, or what the model learned
  kernels::SamplingRule rule = {.temperature = 0.8, .top_k = 40};
  std::string device = "cpu";  // as SampleOptions
  std::string weights;
  int threads = 0;
  bool verify = true;
};

struct WriteTextOptions {
  std::string device = "cpu";   // cpu | cuda:N
  std::string checkpoint_root;  // nothing is read elsewhere
  int threads = 0;
};

struct SampleBenchOptions {
  JobOptions job;
  std::string device;   // cpu | cuda:N; empty = the job's
  std::string weights;  // as above
  std::vector<int64_t> batches = {64};
  int64_t prompt = 256;  // tokens
  int64_t tokens = 256;  // to add
  int rounds = 3;        // after one that does not count
  kernels::SamplingRule rule = {.temperature = 1.0};
  int threads = 0;
  bool graph = true;
  bool json = false;
};

struct CalibrateOptions {
  std::string device;  // cuda:N; empty = the first GPU
  std::string scheme;  // of LoadSchemes(); empty = the first
  // Measures with every scheme, and says to stderr what each gave and the GPU's clock meanwhile.
  bool verbose = false;
};

struct BenchOptions {
  JobOptions job;
  std::string device;   // cpu | cuda:N; empty = the job's
  std::string devices;  // of ScalingBenchCommand
  bool json = false;
  bool floor = true;       // measure the speed of light too
  bool calibrate = false;  // CalibrateCommand instead
  CalibrateOptions calibration;
  int threads = 0;
  int steps = 0;        // measured; 0 = as BenchLength says
  int micro_batch = 0;  // 0 = the job's
};

struct CompareOptions {
  JobOptions job;
  std::vector<std::string> recipes;  // the first is what the others are compared with
  std::vector<std::string> vary;     // FIELD=VALUE,VALUE,...; several are combined
  std::vector<std::string> each;     // the same; each value alone, beside the job without one
  int seeds = 0;                     // runs of each; 0 = one, with the job's seed
  int64_t steps = 0;                 // 0 = the job's
  int64_t window = 0;                // steps of the final training loss; 0 = a tenth, at most 200
  std::string device;                // cpu | cuda:N; empty = the job's
  std::string out;                   // empty = runs/NAME-compare
  std::string program;               // that has `run`; empty = this one
  bool share = false;                // leave runs to other processes that have them under way
  int64_t minutes = 0;               // after which no run starts; 0 = no limit
  bool report = false;               // of what has ended, without a run
  int threads = 0;                   // 0 = all cores
  bool json = false;
  bool quiet = false;
};

struct TuneOptions {
  std::vector<std::string> jobs;  // job files
  std::vector<std::string> overrides;
  std::string device;  // cuda:N; empty = the jobs'
  std::string output;  // the file of plans; empty = this user's
  int threads = 0;     // 0 = all cores
};

struct WorkerRunOptions {
  double hang_seconds = 3.5;  // HangLimits::least; 0 = infinite
  std::string worker;         // its name, for errors
  // Folders that datasets and models may lie in, empty = anywhere; the checkpoint root is one more.
  std::vector<std::string> data_roots;
  std::string checkpoint_root;  // nothing is written elsewhere; "" = anywhere
};

struct ProbeOptions {
  std::string device;  // cpu | cuda:N; empty = the first GPU if there is one
  bool json = false;   // doctor
};

int RunCommand(const RunOptions& options);
int WorkerCommand(const WorkerRunOptions& options);
int PlanCommand(const PlanOptions& options);
// Loss of the checkpoint on datasets, or its answers to the items of a task.
int EvalCommand(const EvalOptions& options);
// Prints only its answers to the items of a task.
absl::Status EvaluateTask(const EvalOptions& options);
int SampleCommand(const SampleOptions& options);
// Started by hearth-worker: reads a WriteText from HEARTH_TRAINER_FD and answers there.
int WriteTextCommand(const WriteTextOptions& options);
// Reads messages from stdin, a line each.
int ChatCommand(const ChatOptions& options);
// Random weights and prompts. One line a batch.
int SampleBenchCommand(const SampleBenchOptions& options);
int BenchCommand(const BenchOptions& options);
// One rank on each of options.devices ("0,1,2,3": GPUs; "cpu,cpu"), after one alone on the first.
int ScalingBenchCommand(const BenchOptions& options);
// What single kernels reach on the GPU `device` ("cuda:0" if empty), as a file for
// configs/calibration on standard output. No job.
int CalibrateCommand(const CalibrateOptions& options);
// Exit status 1 if a job could not be tuned; the others are.
int TuneCommand(const TuneOptions& options);
// The job in one recipe after another. Exit status 1 if a recipe has no result, 20 if stopped by a
// signal; called again, it goes on.
int CompareCommand(const CompareOptions& options);
int ProbeCommand(const ProbeOptions& options);
// Exit status 1 if a check failed.
int DoctorCommand(const ProbeOptions& options);

// The job file with overrides and defaults in. kInvalidArgument lists every problem, with file and
// line or field.
absl::StatusOr<v1::JobSpec> LoadJob(const JobOptions& options);

// Compares `files` with the hashes recorded for them, each once a machine (FileVerifier).
absl::Status VerifyFiles(const std::vector<RecordedFile>& files);

// `given`, or all cores this process may use. Also sets the OpenMP default.
int ThreadsOrAll(int given);

// Prints "hearth-trainer: <message>" to stderr; returns the exit status of a failed command, 1.
int Fail(const absl::Status& status);
// The exit status of a command that ended so: 0, or Fail's.
inline int ExitCodeOf(const absl::Status& status) {
  return status.ok() ? 0 : Fail(status);
}

}  // namespace hearth::trainer
