// jobctl: the command line of Hearth.
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/base/version.h"
#include "common/io/env.h"
#include "google/rpc/error_details.pb.h"
#include "jobctl/command.h"
#include "nlohmann/json.hpp"

namespace {

using hearth::jobctl::Action;
using hearth::jobctl::CommandDef;
using hearth::jobctl::Context;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? "" : value;
}

// Prices of the context file, where neither a flag nor the environment (both parsed into `app`) has
// them.
void ApplyPrices(const CLI::App& app, const nlohmann::json& json, hearth::jobctl::Prices& prices) {
  const std::tuple<const char*, const char*, double*> fields[] = {
      {"--price-per-kwh", "price_per_kwh", &prices.per_kwh},
      {"--price-per-gpu-hour", "price_per_gpu_hour", &prices.per_gpu_hour}};
  for (const auto& [flag, name, target] : fields) {
    if (app.get_option(flag)->empty() && json.contains(name) && json[name].is_number() &&
        json[name].get<double>() >= 0.0) {
      *target = json[name].get<double>();
    }
  }
  if (app.get_option("--currency")->empty() && json.contains("currency") &&
      json["currency"].is_string()) {
    prices.currency = json["currency"].get<std::string>();
  }
}

// Flag > environment > context file > default. The context file is JSON: {"coordinator":
// "host:port", "tls_ca": "...", "price_per_kwh": 0.1}.
void ApplyContextFile(const CLI::App& app, Context& context) {
  hearth::jobctl::ConnectOptions& connect = context.connect;
  const std::string config_home = Environment("XDG_CONFIG_HOME");
  const std::string home = config_home.empty() ? Environment("HOME") + "/.config" : config_home;
  const auto text = hearth::Env::Real().ReadFile(home + "/hearth/context.json");
  if (text.ok()) {
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    const std::pair<const char*, std::string*> fields[] = {{"coordinator", &connect.coordinators},
                                                           {"tls_ca", &connect.tls_ca},
                                                           {"tls_cert", &connect.tls_cert},
                                                           {"tls_key", &connect.tls_key}};
    for (const auto& [name, target] : fields) {
      if (target->empty() && json.is_object() && json.contains(name) && json[name].is_string()) {
        *target = json[name].get<std::string>();
      }
    }
    if (json.is_object()) {
      ApplyPrices(app, json, context.prices);
    }
  }
  if (connect.coordinators.empty()) {
    connect.coordinators = "127.0.0.1:7070";
  }
}

int Fail(const absl::Status& status) {
  std::string text = absl::StrCat("error: ", status.message(), "\n");
  const auto payload = status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  google::rpc::BadRequest details;
  if (payload.has_value() && details.ParseFromString(std::string(*payload))) {
    for (const auto& violation : details.field_violations()) {
      // The text may list them already (a spec refused locally).
      if (text.find(violation.field()) == std::string::npos) {
        absl::StrAppend(&text, "  ", violation.field(), ": ", violation.description(), "\n");
      }
    }
  }
  hearth::jobctl::WriteErr(text);
  return hearth::jobctl::kExitError;
}

void AddPriceOptions(CLI::App& app, hearth::jobctl::Prices& prices) {
  app.add_option("--price-per-kwh", prices.per_kwh, "Price of electricity, for costs")
      ->envname("HEARTH_PRICE_PER_KWH")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--price-per-gpu-hour", prices.per_gpu_hour, "Price of a worker's hour, for costs")
      ->envname("HEARTH_PRICE_PER_GPU_HOUR")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--currency", prices.currency, "Symbol or code of the prices (default $)")
      ->envname("HEARTH_CURRENCY");
}

struct Bound {
  CLI::App* app;
  Action action;
};

int Dispatch(const std::vector<Bound>& commands, Context& context) {
  for (const Bound& command : commands) {
    if (command.app->parsed()) {
      const absl::StatusOr<int> code = command.action(context);
      if (code.ok()) {
        return *code;
      }
      const int failed = Fail(code.status());
      return absl::IsNotFound(code.status()) && command.app->get_name() == "wait"
                 ? static_cast<int>(hearth::jobctl::kExitNotFound)
                 : failed;
    }
  }
  return hearth::jobctl::kExitUsage;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): what escapes is a failed allocation, which may end it
int main(int argc, char** argv) {
  hearth::jobctl::BlockInterrupts();
  Context context;
  std::string format = "table";
  CLI::App app("jobctl drives Hearth: submit training jobs, watch, cancel and resume them.",
               "jobctl");
  app.set_version_flag("--version", absl::StrCat("jobctl ", std::string(hearth::Version())));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--coordinator", context.connect.coordinators,
                 "host:port, or several separated by commas (default 127.0.0.1:7070)")
      ->envname("HEARTH_COORDINATOR");
  app.add_option("--tls-ca", context.connect.tls_ca, "CA certificate (PEM); turns TLS on");
  app.add_option("--tls-cert", context.connect.tls_cert, "Client certificate (PEM)");
  app.add_option("--tls-key", context.connect.tls_key, "Client key (PEM)");
  app.add_option("-o,--output", format, "table, wide, json, yaml, name");
  app.add_flag("-q,--quiet", context.quiet, "Print names only");
  app.add_flag("--no-color", context.no_color, "No colours in plots (as NO_COLOR)");
  AddPriceOptions(app, context.prices);

  std::vector<Bound> commands;
  for (const CommandDef& def : hearth::jobctl::Commands()) {
    CLI::App* command = app.add_subcommand(def.name, def.help);
    commands.push_back({command, def.setup(*command)});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // CLI11 says only that a command is missing when the word given is none.
    const std::vector<std::string> rest = app.remaining();
    if (app.get_subcommands().empty() && !rest.empty() && rest.front().front() != '-') {
      hearth::jobctl::WriteErr(
          absl::StrCat("error: no command \"", rest.front(), "\"; jobctl --help lists them\n"));
    } else {
      app.exit(error);
    }
    return hearth::jobctl::kExitUsage;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(hearth::jobctl::kExitUsage);
  }
  ApplyContextFile(app, context);
  const auto parsed = hearth::jobctl::ParseOutputFormat(format);
  if (!parsed.ok()) {
    Fail(parsed.status());
    return hearth::jobctl::kExitUsage;
  }
  const bool names = context.quiet && *parsed == hearth::jobctl::OutputFormat::kTable;
  context.format = names ? hearth::jobctl::OutputFormat::kName : *parsed;
  return Dispatch(commands, context);
}
