// Fields of jobs that the user chose: `--columns job_id,step,optimizer.lr,labels.team`. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "hearth/v1/job.pb.h"
#include "jobctl/views/output/output.h"
#include "nlohmann/json.hpp"

namespace hearth::jobctl {

// A field of a job, by its names in the API, or in the job file without "spec.".
class JobColumn {
 public:
  // kInvalidArgument: there is no such field, or it is a section; the text says what there is.
  static absl::StatusOr<JobColumn> Parse(const std::string& path);

  const std::string& path() const { return path_; }
  // The value: states in lower case, times in seconds since 1970, lists and maps as such; null when
  // it is not set.
  nlohmann::ordered_json Value(const v1::Job& job) const;
  // The same for people: times as dates, lists and maps in one line, "-" when it is not set.
  std::string Text(const v1::Job& job) const;

 private:
  std::string path_;
  std::vector<const google::protobuf::FieldDescriptor*> fields_;  // from Job on
  std::string key_;                                               // of a map; "" = the whole field
};

// A comma-separated list of them.
absl::StatusOr<std::vector<JobColumn>> ParseJobColumns(std::string_view text);

std::string RenderColumns(const std::vector<JobColumn>& columns,
                          const std::vector<v1::Job>& jobs,
                          int width);
// A list of objects with the paths as keys.
std::string ColumnsJson(const std::vector<JobColumn>& columns, const std::vector<v1::Job>& jobs);
// Prints one or the other. False: no columns were chosen, or names alone are wanted, and nothing is
// printed. kInvalidArgument: columns and a template, which chooses fields as well.
absl::StatusOr<bool> PrintColumns(const OutputFormat& format,
                                  const std::vector<JobColumn>& columns,
                                  const std::vector<v1::Job>& jobs);

// How `list --sort` orders jobs: by any column, numbers by size; "-" before the path turns the
// order round. Jobs without the value come last. kInvalidArgument as JobColumn::Parse.
absl::Status SortJobs(const std::string& by, std::vector<v1::Job>& jobs);

// Whether the id, name, owner, recipe, a label or the reason of the job has `text` in it, without
// regard to case.
bool JobMentions(const v1::Job& job, const std::string& text);

}  // namespace hearth::jobctl
