#include "common/spec/feasibility/prices.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hearth::spec {
namespace {

constexpr double kJoulesPerKwh = 3.6e6;
constexpr double kSecondsPerHour = 3600.0;

}  // namespace

double EnergyCost(double joules, double price_per_kwh) {
  return joules / kJoulesPerKwh * price_per_kwh;
}

double DeviceCost(double seconds, double devices, double price_per_gpu_hour) {
  return seconds / kSecondsPerHour * devices * price_per_gpu_hour;
}

double CostPerBillionTokens(double tokens_per_second,
                            double watts,
                            double devices,
                            const Prices& prices) {
  if (!(tokens_per_second > 0.0)) {
    return 0.0;
  }
  const double seconds = 1e9 / tokens_per_second;
  return EnergyCost(watts * seconds, prices.per_kwh) +
         DeviceCost(seconds, devices, prices.per_gpu_hour);
}

std::string EnergyText(double joules) {
  static constexpr const char* kUnits[] = {"J", "kJ", "MJ", "GJ"};
  size_t unit = 0;
  double value = joules;
  while (value >= 1000.0 && unit + 1 < std::size(kUnits)) {
    value /= 1000.0;
    ++unit;
  }
  const std::string text = absl::StrFormat("%.3g %s", value, kUnits[unit]);
  return joules < 1e5 ? text : absl::StrFormat("%s (%.3g kWh)", text, joules / kJoulesPerKwh);
}

std::string MoneyText(double amount, const std::string& currency) {
  // Four significant digits below 100, cents above.
  const int digits =
      amount >= 100.0 || amount == 0.0
          ? 2
          : std::clamp(3 - static_cast<int>(std::floor(std::log10(std::abs(amount)))), 2, 9);
  const std::string number = absl::StrFormat("%.*f", digits, amount);
  const bool code = currency.size() > 1 && std::isalpha(static_cast<unsigned char>(currency[0]));
  return code ? absl::StrCat(number, " ", currency) : absl::StrCat(currency, number);
}

}  // namespace hearth::spec
