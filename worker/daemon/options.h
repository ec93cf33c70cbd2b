// The command line of hearth-worker.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/daemon/confine/cgroup.h"

namespace hearth::worker {

// Exit codes of hearth-worker, as --help lists them.
enum ExitCode {
  kExitOk = 0,         // stopped in order
  kExitError = 1,      // could not start, or the coordinator does not accept this worker
  kExitUsage = 2,      // bad flags
  kExitReplaced = 3,   // a newer daemon has our name (ABORTED); our trainers were killed
  kExitNameTaken = 4,  // another live daemon has our name or GPU (ALREADY_EXISTS)
  kExitKilled = 5,     // a second signal: trainers were killed without a checkpoint
};

struct WorkerOptions {
  std::string coordinator = "127.0.0.1:7070";  // comma-separated list
  std::string device = "cpu";
  std::string name;                     // "" = host-cpuK | host-gpuK
  std::string advertise;                // "" = our address as seen from the coordinator
  int threads = 0;                      // 0 = all, on a GPU worker the host's over its GPUs
  std::string home;                     // $HEARTH_HOME, or ~/.hearth
  std::string checkpoint_root;          // "" = <home>/checkpoints
  std::string data_dir;                 // "" = <home>/workers/<name>
  std::vector<std::string> data_roots;  // folders that datasets may lie in, empty = anywhere
  std::string http;                     // "" = 127.0.0.1, first free port from 7080
  std::map<std::string, std::string> labels;
  std::string cuda_visible_devices;  // as we were started with, "" = not set
  std::string nvml_library;          // "" = nvml::DefaultLibrary()
  // How long an ended trainer's processes and device memory may take to be gone.
  absl::Duration gone_bound = absl::Seconds(10);
  double trainer_silence_seconds = 15;  // without a sign of life; 0 = never kill one for that
  double trainer_hang_seconds = 3.5;    // of a step without progress; 0 = never stop one for that
  std::string trainer;                  // "" = hearth-trainer beside this program
  std::string trainer_user;             // account of trainers, "" = ours
  CgroupLimits trainer_limits;          // of all trainers of this worker together
  bool trainer_filter = true;           // of system calls
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  std::string token_file;  // "" = what a coordinator of this machine left in <home>/tokens
  bool insecure = false;
  std::string log_level;
  bool log_json = false;
};

// What the command line asks for. kCancelled: it was --help or --version, whose text is the
// message; kInvalidArgument: what is wrong with it. Reads HEARTH_COORDINATOR, HEARTH_HOME and HOME.
absl::StatusOr<WorkerOptions> ParseOptions(const std::vector<std::string>& arguments);

}  // namespace hearth::worker
