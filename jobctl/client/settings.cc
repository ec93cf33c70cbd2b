#include "jobctl/client/settings.h"

#include <array>
#include <cmath>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

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
  const char* key;       // in the context file
  const char* help;
  std::string* target;
};

std::array<TextSetting, 5> TextSettings(Context& context) {
  ConnectOptions& connect = context.connect;
  return {{{"--coordinator", "HEARTH_COORDINATOR", "coordinator",
            "host:port, or several separated by commas (default 127.0.0.1:7070)",
            &connect.coordinators},
           {"--tls-ca", "", "tls_ca", "CA certificate (PEM); turns TLS on", &connect.tls_ca},
           {"--tls-cert", "", "tls_cert", "Client certificate (PEM)", &connect.tls_cert},
           {"--tls-key", "", "tls_key", "Client key (PEM)", &connect.tls_key},
           {"--currency", "HEARTH_CURRENCY", "currency", "Symbol or code of the prices (default $)",
            &context.prices.currency}}};
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

absl::StatusOr<nlohmann::json> ParseContextFile(const std::string& path, const std::string& text) {
  nlohmann::json json = text.empty()
                            ? nlohmann::json::object()
                            : nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a JSON object, e.g. {\"coordinator\": \"host:7070\"}"));
  }
  return json;
}

absl::Status ApplyText(const CLI::App& app,
                       const Environment& environment,
                       const std::string& path,
                       const nlohmann::json& json,
                       const TextSetting& setting) {
  if (!app.get_option(setting.flag)->empty()) {
    return absl::OkStatus();
  }
  const std::string text = *setting.variable == '\0' ? "" : environment(setting.variable);
  if (!text.empty()) {
    *setting.target = text;
  } else if (json.contains(setting.key)) {
    if (!json[setting.key].is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": \"", setting.key, "\" is ", json[setting.key].dump(), ", not a text in quotes"));
    }
    *setting.target = json[setting.key].get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ApplyNumber(const CLI::App& app,
                         const Environment& environment,
                         const std::string& path,
                         const nlohmann::json& json,
                         const NumberSetting& setting) {
  if (!app.get_option(setting.flag)->empty()) {
    return absl::OkStatus();
  }
  const std::string text = environment(setting.variable);
  if (!text.empty()) {
    return Parse(setting, text, *setting.target)
               ? absl::OkStatus()
               : Refused(setting.variable, absl::StrCat("'", text, "'"), setting);
  }
  if (!json.contains(setting.key)) {
    return absl::OkStatus();
  }
  const nlohmann::json& value = json[setting.key];
  if (!value.is_number() || !Accepts(setting, value.get<double>())) {
    return Refused(absl::StrCat(path, ": \"", setting.key, "\""), value.dump(), setting);
  }
  *setting.target = value.get<double>();
  return absl::OkStatus();
}

}  // namespace

void AddSettings(CLI::App& app, Context& context) {
  for (const TextSetting& setting : TextSettings(context)) {
    app.add_option(setting.flag, *setting.target, Help(setting.help, setting.variable));
  }
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
  HEARTH_ASSIGN_OR_RETURN(const nlohmann::json json, ParseContextFile(path, text));
  for (const NumberSetting& setting : NumberSettings(context)) {
    HEARTH_RETURN_IF_ERROR(ApplyNumber(app, environment, path, json, setting));
  }
  for (const TextSetting& setting : TextSettings(context)) {
    HEARTH_RETURN_IF_ERROR(ApplyText(app, environment, path, json, setting));
  }
  if (context.connect.coordinators.empty()) {
    context.connect.coordinators = "127.0.0.1:7070";
  }
  return absl::OkStatus();
}

}  // namespace hearth::jobctl
