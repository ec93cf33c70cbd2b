#include "worker/daemon/options.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/status_macros.h"
#include "common/base/system.h"
#include "common/base/units.h"
#include "common/base/version.h"
#include "common/fault/points.h"
#include "common/io/home.h"
#include "common/rpc/channel.h"
#include "common/rpc/security.h"

namespace hearth::worker {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 stopped in order; 1 error; 2 usage; 3 a newer daemon has this worker's name;\n"
    "4 another live daemon has its name or GPU; 5 killed by a second signal.\n"
    "SIGTERM: the task writes a checkpoint and stops, then the worker leaves. A second one kills.";

// As the coordinator accepts them (coordinator/service/agents/agent_rules.cc).
constexpr size_t kMaxLabels = 64;
constexpr size_t kMaxLabelBytes = 253;

std::string Environment(const char* name) {
  const char* value = GetEnv(name);
  return value == nullptr ? "" : value;
}

void AddConfinementFlags(CLI::App& app, WorkerOptions& options) {
  app.add_option(
      "--trainer-user", options.trainer_user,
      "Account under which trainers run; the worker itself must run as root. The account "
      "is given the checkpoint root and the groups of the GPUs' devices");
  app.add_option_function<std::string>(
         "--trainer-memory",
         [&options](const std::string& text) {
           options.trainer_limits.memory_bytes = ParseBytes(text).value_or(0);
         },
         "Memory that trainers may take, such as 64GiB; this and the next two need a cgroup v2 "
         "that is delegated to this worker")
      ->check([](const std::string& text) {
        return ParseBytes(text).value_or(0) > 0 ? "" : "expected a size, such as 64GiB";
      });
  app.add_option("--trainer-pids", options.trainer_limits.processes,
                 "Processes and threads that trainers may have")
      ->check(CLI::PositiveNumber);
  app.add_option("--trainer-cpus", options.trainer_limits.cpus,
                 "CPU time that trainers may take, in CPUs, such as 7.5")
      ->check(CLI::PositiveNumber);
  app.add_flag_callback(
      "--no-trainer-filter", [&options] { options.trainer_filter = false; },
      "Let trainers make all system calls, for example to profile them");
}

void AddFlags(CLI::App& app, WorkerOptions& options, std::vector<std::string>& labels) {
  app.add_option("--coordinator", options.coordinator,
                 "Coordinators to dial, host:port, comma-separated (env HEARTH_COORDINATOR)")
      ->capture_default_str();
  app.add_option("--device", options.device,
                 "cpu | cuda:N (as nvidia-smi counts, or as CUDA_VISIBLE_DEVICES renumbers) | "
                 "cuda:GPU-UUID")
      ->capture_default_str();
  app.add_option("--name", options.name,
                 "Unique name; default HOST-cpuK with the lowest free number K, or HOST-gpuK with "
                 "the GPU's number K");
  app.add_option("--advertise", options.advertise,
                 "Host or address at which other ranks reach this one; default: the address that "
                 "the coordinator sees");
  app.add_option(
         "--threads", options.threads,
         "CPU threads of a rank; 0 = all, or on a GPU worker all divided by the host's GPUs")
      ->capture_default_str();
  app.add_option("--checkpoint-root", options.checkpoint_root,
                 "Folder for checkpoints, the same for all workers of a host; default "
                 "$HEARTH_HOME/checkpoints");
  app.add_option("--data-dir", options.data_dir,
                 "Folder for this daemon's own files; default $HEARTH_HOME/workers/NAME");
  app.add_option(
         "--data-root", options.data_roots,
         "Folder in which the datasets and model.from of jobs must lie, if not in the checkpoint "
         "root; repeatable; default: anywhere")
      ->allow_extra_args(false);
  app.add_option(
      "--http", options.http,
      "host:port of /metrics and /healthz (clear text), port 0 = any; default: the first free "
      "port from 127.0.0.1:7080 on");
  app.add_option("--label", labels,
                 "key=value, repeatable; a job's resources.selector asks for labels");
  app.add_option("--trainer", options.trainer,
                 "hearth-trainer program; default: in the folder of this program");
  app.add_option("--trainer-silence", options.trainer_silence_seconds,
                 "Kill a trainer that shows no sign of life for this many seconds (a stopped one "
                 "after 3 s); 0 = never, for example to use a debugger")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--trainer-hang", options.trainer_hang_seconds,
                 "Stop a trainer whose step makes no progress for this many seconds, and for 3 "
                 "times the time of a step; its log shows what it was doing, and the job goes on "
                 "from its last checkpoint. 0 = never, for example to use a debugger")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  AddConfinementFlags(app, options);
  app.add_option("--tls-ca", options.tls_ca, "CA certificate (PEM) to trust; turns TLS on");
  app.add_option("--tls-cert", options.tls_cert, "Our certificate (PEM), for mutual TLS");
  app.add_option("--tls-key", options.tls_key, "Its key (PEM)");
  app.add_option(
      "--token-file", options.token_file,
      "File with this worker's token; default: the file that a coordinator on this machine left "
      "in $HEARTH_HOME/tokens. Read at each connection");
  app.add_flag("--insecure", options.insecure, "Allow clear text beyond this machine");
  app.add_option("--log-level", options.log_level,
                 "trace | debug | info | warning | error | off (env HEARTH_LOG_LEVEL)");
  app.add_flag("--log-json", options.log_json, "Log JSON objects, one a line");
}

absl::Status ParseLabels(const std::vector<std::string>& labels, WorkerOptions& options) {
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--label ", label, ": expected key=value"));
    }
    const absl::string_view key = absl::string_view(label).substr(0, equals);
    const absl::string_view value = absl::string_view(label).substr(equals + 1);
    if (key.size() > kMaxLabelBytes || value.size() > kMaxLabelBytes ||
        std::any_of(label.begin(), label.end(),
                    [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); })) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label: key and value have at most ", kMaxLabelBytes,
                       " characters each, none of them a control character"));
    }
    if (!options.labels.emplace(label.substr(0, equals), label.substr(equals + 1)).second) {
      return absl::InvalidArgumentError(absl::StrCat("--label ", label, ": key given twice"));
    }
  }
  if (options.labels.size() > kMaxLabels) {
    return absl::InvalidArgumentError(
        absl::StrCat("--label: ", options.labels.size(), " are given; at most ", kMaxLabels));
  }
  return absl::OkStatus();
}

absl::Status CheckAddresses(const WorkerOptions& options) {
  const auto coordinators = rpc::CoordinatorList::Parse(options.coordinator);
  if (!coordinators.ok()) {
    return Annotate(coordinators.status(), "--coordinator");
  }
  const rpc::TlsFiles files{options.tls_cert, options.tls_key, options.tls_ca};
  for (const std::string& address : coordinators->addresses()) {
    HEARTH_ASSIGN_OR_RETURN(const rpc::HostPort host_port, rpc::ParseHostPort(address));
    if (!rpc::IsLoopback(host_port.host) && !files.any() && !options.insecure) {
      return absl::InvalidArgumentError(
          absl::StrCat("--coordinator ", address,
                       " is not on this machine: give --tls-ca, or --insecure for clear text"));
    }
  }
  if (!options.http.empty()) {
    return Annotate(rpc::CheckListenAddress(options.http, /*tls=*/false, options.insecure),
                    "--http");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerOptions> ParseOptions(const std::vector<std::string>& arguments) {
  WorkerOptions options;
  if (const std::string value = Environment("HEARTH_COORDINATOR"); !value.empty()) {
    options.coordinator = value;
  }
  CLI::App app("hearth-worker: runs ranks of training jobs for a coordinator", "hearth-worker");
  app.footer(kFooter);
  std::vector<std::string> labels;
  AddFlags(app, options, labels);
  bool list_fault_points = false;
  app.add_flag(
      "--list-fault-points", list_fault_points,
      "Print the fault points for HEARTH_FAULTS, which makes a program fail in tests, and exit");
  app.set_version_flag("--version", absl::StrCat("hearth-worker ", VersionString()));
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return absl::CancelledError(app.help());
  } catch (const CLI::CallForVersion&) {
    return absl::CancelledError(absl::StrCat("hearth-worker ", VersionString(), "\n"));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (list_fault_points) {
    return absl::CancelledError(fault::PointList());
  }
  HEARTH_RETURN_IF_ERROR(ParseLabels(labels, options));
  if (!options.name.empty()) {
    HEARTH_RETURN_IF_ERROR(Annotate(ValidateWorkerId(options.name), "--name"));
  }
  HEARTH_RETURN_IF_ERROR(CheckAddresses(options));
  options.cuda_visible_devices = Environment("CUDA_VISIBLE_DEVICES");
  options.home = HearthHome();
  if (options.home.empty()) {
    return absl::InvalidArgumentError("neither HEARTH_HOME nor HOME is set");
  }
  return options;
}

}  // namespace hearth::worker
