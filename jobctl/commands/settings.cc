#include "jobctl/commands/settings.h"

#include <array>
#include <cmath>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "jobctl/client/context_file.h"
#include "jobctl/commands/command_context.h"

namespace hearth::jobctl {
namespace {

struct NumberSetting {
  const char* flag;
  const char* variable;
  const char* key;  // in the context file
  const char* help;
  const char* accepted;
  bool zero;  // is accepted; less never is
  double* target;
};

std::array<NumberSetting, 3> NumberSettings(Context& context) {
  constexpr const char* kPrice = "a number of at least 0, e.g. 0.10";
  return {{{"--price-per-kwh", "HEARTH_PRICE_PER_KWH", "price_per_kwh",
            "Price of electricity, for costs", kPrice, true, &context.prices.per_kwh},
           {"--price-per-gpu-hour", "HEARTH_PRICE_PER_GPU_HOUR", "price_per_gpu_hour",
            "Price of a worker's hour, for costs", kPrice, true, &context.prices.per_gpu_hour},
           {"--temperature-limit", "HEARTH_TEMPERATURE_LIMIT", "temperature_limit",
            "Degrees Celsius above which a device counts as too hot (default 85)",
            "degrees Celsius, a number above 0, e.g. 85", false, &context.temperature_limit}}};
}

struct TextSetting {
  const char* flag;
  const char* variable;  // "" = none
  const char* key;       // in the context file; "" = none
  const char* help;
  bool is_path;
  std::string* target;
};

constexpr const char* kCoordinatorKey = "coordinator";
constexpr const char* kTokenFileKey = "token_file";

// The coordinator comes first: which token counts depends on it.
std::array<TextSetting, 7> TextSettings(Context& context) {
  ConnectOptions& connect = context.connect;
  return {
      {{"--coordinator", "HEARTH_COORDINATOR", kCoordinatorKey,
        "host:port, or several separated by commas (default 127.0.0.1:7070)", false,
        &connect.coordinators},
       {"--token-file", "HEARTH_TOKEN_FILE", kTokenFileKey,
        "File with the token that says who you are (default: what a coordinator of this machine "
        "left in $HEARTH_HOME/tokens)",
        true, &connect.token_file},
       {"--as", "", "", "Act as this user (admins)", false, &connect.act_as},
       {"--tls-ca", "", "tls_ca", "CA certificate (PEM); turns TLS on", true, &connect.tls_ca},
       {"--tls-cert", "", "tls_cert", "Client certificate (PEM)", true, &connect.tls_cert},
       {"--tls-key", "", "tls_key", "Client key (PEM)", true, &connect.tls_key},
       {"--currency", "HEARTH_CURRENCY", "currency", "Symbol or code of the prices (default $)",
        false, &context.prices.currency}}};
}

constexpr const char* kInsecureFlag = "--insecure";
constexpr const char* kInsecureKey = "insecure";
constexpr const char* kContextFlag = "--context";

// Where the value of a setting without a flag comes from, in this order.
struct Sources {
  const CLI::App& app;
  const Environment& environment;
  const std::string& path;  // of the context file
  const nlohmann::json& context;
  const nlohmann::json& defaults;
  std::string context_name;    // "" = none
  bool context_first = false;  // --context: before the environment
};

// A value of the context file, and what errors call its place; null = none.
struct Place {
  const nlohmann::json* value = nullptr;
  std::string name;
};

Place InContext(const Sources& sources, const char* key) {
  const auto it = sources.context.find(key);
  return it == sources.context.end()
             ? Place{}
             : Place{&*it,
                     absl::StrCat(sources.path, ": \"", sources.context_name, "\": \"", key, "\"")};
}

Place InFile(const Sources& sources, const char* key) {
  if (Place place = InContext(sources, key); place.value != nullptr) {
    return place;
  }
  const auto it = sources.defaults.find(key);
  return it == sources.defaults.end() ? Place{}
                                      : Place{&*it, absl::StrCat(sources.path, ": \"", key, "\"")};
}

// The value of the variable; "" when it is not set or does not count.
std::string InEnvironment(const Sources& sources, const char* variable, const char* key) {
  const bool hidden = sources.context_first && InContext(sources, key).value != nullptr;
  return hidden || *variable == '\0' ? "" : sources.environment(variable);
}

std::string Help(const char* help, const char* variable) {
  return *variable == '\0' ? help : absl::StrCat(help, " [", variable, "]");
}

bool Accepts(const NumberSetting& setting, double value) {
  return std::isfinite(value) && (setting.zero ? value >= 0.0 : value > 0.0);
}

bool Parse(const NumberSetting& setting, const std::string& text, double& value) {
  return absl::SimpleAtod(text, &value) && Accepts(setting, value);
}

absl::Status Refused(const std::string& where,
                     const std::string& value,
                     const NumberSetting& setting) {
  return absl::InvalidArgumentError(absl::StrCat(where, " is ", value, ", not ", setting.accepted));
}

// True when the file's value of `key` is meant for a coordinator other than the one that is called.
bool IsForAnother(const Sources& sources, const char* key, const std::string& coordinator) {
  const bool in_context = sources.context.contains(key);
  const nlohmann::json& beside = in_context ? sources.context : sources.defaults;
  return beside.contains(kCoordinatorKey) && beside[kCoordinatorKey] != coordinator;
}

// `coordinator` is the one that is called, once that is known.
absl::Status ApplyText(const Sources& sources,
                       const TextSetting& setting,
                       const std::string& coordinator) {
  if (*setting.key == '\0' || !sources.app.get_option(setting.flag)->empty()) {
    return absl::OkStatus();
  }
  if (const std::string text = InEnvironment(sources, setting.variable, setting.key);
      !text.empty()) {
    *setting.target = text;
    return absl::OkStatus();
  }
  const Place place = InFile(sources, setting.key);
  // A token that stands beside another coordinator's address is not sent to this one.
  if (place.value == nullptr ||
      (setting.key == kTokenFileKey && IsForAnother(sources, kTokenFileKey, coordinator))) {
    return absl::OkStatus();
  }
  if (!place.value->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.name, " is ", place.value->dump(), ", not a text in quotes"));
  }
  *setting.target = place.value->get<std::string>();
  return absl::OkStatus();
}

absl::Status ApplyNumber(const Sources& sources, const NumberSetting& setting) {
  if (!sources.app.get_option(setting.flag)->empty()) {
    return absl::OkStatus();
  }
  const std::string text = InEnvironment(sources, setting.variable, setting.key);
  if (!text.empty()) {
    return Parse(setting, text, *setting.target)
               ? absl::OkStatus()
               : Refused(setting.variable, absl::StrCat("'", text, "'"), setting);
  }
  const Place place = InFile(sources, setting.key);
  if (place.value == nullptr) {
    return absl::OkStatus();
  }
  if (!place.value->is_number() || !Accepts(setting, place.value->get<double>())) {
    return Refused(place.name, place.value->dump(), setting);
  }
  *setting.target = place.value->get<double>();
  return absl::OkStatus();
}

absl::Status ApplyInsecure(const Sources& sources, const std::string& coordinator, bool& insecure) {
  const Place place = InFile(sources, kInsecureKey);
  if (insecure || place.value == nullptr || IsForAnother(sources, kInsecureKey, coordinator)) {
    return absl::OkStatus();
  }
  if (!place.value->is_boolean()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.name, " is ", place.value->dump(), ", not true or false"));
  }
  insecure = place.value->get<bool>();
  return absl::OkStatus();
}

}  // namespace

void AddSettings(CLI::App& app, Context& context) {
  for (const TextSetting& setting : TextSettings(context)) {
    app.add_option(setting.flag, *setting.target, Help(setting.help, setting.variable));
  }
  app.add_option(kContextFlag, context.context_name,
                 "Name of a set of settings in the context file (jobctl context) [HEARTH_CONTEXT]");
  app.add_flag(kInsecureFlag, context.connect.insecure,
               "Send the token in clear text beyond this machine");
  for (const NumberSetting& setting : NumberSettings(context)) {
    app.add_option(setting.flag, *setting.target, Help(setting.help, setting.variable))
        ->check([setting](const std::string& text) -> std::string {
          double value = 0.0;
          return Parse(setting, text, value)
                     ? ""
                     : absl::StrCat("'", text, "' is not ", setting.accepted);
        });
  }
}

absl::Status ApplySettings(const CLI::App& app,
                           const Environment& environment,
                           const std::string& path,
                           const std::string& text,
                           Context& context) {
  HEARTH_ASSIGN_OR_RETURN(const ContextFile file, ContextFile::Parse(path, text));
  const bool asked = !app.get_option(kContextFlag)->empty();
  std::string name = asked ? context.context_name : environment("HEARTH_CONTEXT");
  name = name.empty() ? file.current() : name;
  nlohmann::json chosen = nlohmann::json::object();
  if (!name.empty()) {
    HEARTH_ASSIGN_OR_RETURN(chosen, file.Get(name));
  }
  context.context_name = name;
  const Sources sources{app, environment, path, chosen, file.defaults(), name, asked};
  for (const NumberSetting& setting : NumberSettings(context)) {
    HEARTH_RETURN_IF_ERROR(ApplyNumber(sources, setting));
  }
  for (const TextSetting& setting : TextSettings(context)) {
    HEARTH_RETURN_IF_ERROR(ApplyText(sources, setting, context.connect.coordinators));
  }
  HEARTH_RETURN_IF_ERROR(
      ApplyInsecure(sources, context.connect.coordinators, context.connect.insecure));
  if (context.connect.coordinators.empty()) {
    context.connect.coordinators = "127.0.0.1:7070";
  }
  return absl::OkStatus();
}

bool NamesCoordinator(const CLI::App& app) {
  return !app.get_option("--coordinator")->empty() || !app.get_option(kContextFlag)->empty();
}

nlohmann::json SettingsGiven(const CLI::App& app, const std::string& folder) {
  nlohmann::json given = nlohmann::json::object();
  Context context;
  for (const TextSetting& setting : TextSettings(context)) {
    const CLI::Option& option = *app.get_option(setting.flag);
    if (*setting.key != '\0' && !option.empty()) {
      const std::string text = option.as<std::string>();
      given[setting.key] = setting.is_path
                               ? (std::filesystem::path(folder) / text).lexically_normal().string()
                               : text;
    }
  }
  for (const NumberSetting& setting : NumberSettings(context)) {
    if (const CLI::Option& option = *app.get_option(setting.flag); !option.empty()) {
      given[setting.key] = option.as<double>();
    }
  }
  if (!app.get_option(kInsecureFlag)->empty()) {
    given[kInsecureKey] = true;
  }
  return given;
}

}  // namespace hearth::jobctl
