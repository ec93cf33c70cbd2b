// A user of a benchmark's coordinator: calls, one after another, with their latencies by name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/client_context.h"
#include "hearth/v1/job.grpc.pb.h"

namespace hearth::coordinator {

// 0 when there are no values.
double Percentile(std::vector<double> values, double fraction);
void PrintPercentiles(const std::string& what, const std::vector<double>& ms);
// A line with the ratio to the target; true when it is met.
bool PrintTarget(const std::string& what, double ms, double target_ms);

// Not thread-safe.
class LoadUser {
 public:
  // Dials.
  explicit LoadUser(const std::string& address);

  // A small job of a million steps; its id, empty when the call failed.
  std::string Submit(int workers = 1);
  void Cancel(const std::string& job_id);
  void Get(const std::string& job_id);
  // A page of 50.
  void List();

  // Latencies by the name of the call.
  const std::map<std::string, std::vector<double>>& latencies_ms() const { return latencies_ms_; }
  int failures() const { return failures_; }
  void Forget() { latencies_ms_.clear(); }

 private:
  template <typename Call>
  void Time(const std::string& name, const Call& call);

  std::unique_ptr<v1::JobService::Stub> stub_;
  std::map<std::string, std::vector<double>> latencies_ms_;
  int failures_ = 0;
};

}  // namespace hearth::coordinator
