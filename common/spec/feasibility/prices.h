// What time and energy cost.
#pragma once

#include <string>

namespace hearth::spec {

// If both are given, both count; 0 = costs nothing.
struct Prices {
  double per_kwh = 0.0;
  double per_gpu_hour = 0.0;  // an hour of one worker's device
  std::string currency = "$";

  bool any() const { return per_kwh > 0.0 || per_gpu_hour > 0.0; }
};

// Joules at `price_per_kwh`.
double EnergyCost(double joules, double price_per_kwh);
// `devices` devices for `seconds`.
double DeviceCost(double seconds, double devices, double price_per_gpu_hour);
// The cost of a billion tokens at this speed and power (tokens a second and watts of all devices
// together). 0 when the speed is 0.
double CostPerBillionTokens(double tokens_per_second,
                            double watts,
                            double devices,
                            const Prices& prices);

// "1.52 MJ (0.42 kWh)", "512 J".
std::string EnergyText(double joules);
// "$0.7086": four significant digits; symbols stand before the number, codes ("EUR") after it.
std::string MoneyText(double amount, const std::string& currency);

}  // namespace hearth::spec
