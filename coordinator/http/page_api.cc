#include "coordinator/http/page_api.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/version.h"
#include "common/spec/evaluation/evaluation_table.h"
#include "common/spec/feasibility/measured_plan.h"
#include "common/spec/feasibility/step_parts.h"
#include "common/spec/objective/objective_table.h"
#include "coordinator/core/event_bounds.h"
#include "coordinator/http/log_tail.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace hearth::coordinator {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kRoot = "/api/v1/";

metrics::HttpResponse Answer(int status, const Json& body) {
  // Names and reasons come from users and workers: bytes that are not UTF-8 are replaced; without
  // that the JSON library would throw.
  return {status,
          "application/json",
          body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
          {{"Cache-Control", "no-store"}, {"Content-Security-Policy", "default-src 'none'"}}};
}

metrics::HttpResponse Error(int status, const std::string& message) {
  return Answer(status, {{"error", {{"code", status}, {"message", message}}}});
}

// JOB_STATE_RUNNING -> running.
template <typename Name>
std::string Lower(const Name& name, absl::string_view prefix) {
  absl::string_view text(name.data(), name.size());
  absl::ConsumePrefix(&text, prefix);
  return absl::AsciiStrToLower(text);
}

// Seconds since 1970; null when unset.
Json Time(bool has, const google::protobuf::Timestamp& time) {
  return has ? Json(static_cast<double>(time.seconds()) + time.nanos() * 1e-9) : Json();
}

// JSON has no NaN; the page draws a hole there.
Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

// For numbers that are 0 when they were not measured or are not known yet.
Json Measured(double value) {
  return value == 0.0 ? Json() : Number(value);
}
Json Known(int64_t value) {
  return value == 0 ? Json() : Json(value);
}

Json Summary(const v1::Job& job) {
  const v1::StepReport& last = job.last_report();
  const bool has_loss = job.has_last_report() && spec::Trains(job.spec());
  Json out = {{"job_id", job.job_id()},
              {"name", job.spec().name()},
              {"owner", job.owner()},
              {"labels", Json::object()},
              {"state", Lower(v1::JobState_Name(job.state()), "JOB_STATE_")},
              {"reason", job.reason()},
              {"reason_code", job.reason_code()},
              {"epoch", job.epoch()},
              {"restarts", job.restarts()},
              {"unit", std::string(spec::StepUnit(job.spec()))},
              {"step", job.step()},
              {"steps", spec::TotalSteps(job)},
              {"create_time", Time(job.has_create_time(), job.create_time())},
              {"start_time", Time(job.has_start_time(), job.start_time())},
              {"end_time", Time(job.has_end_time(), job.end_time())},
              {"running_seconds", job.running_seconds()},
              {"workers", Json::array()},
              {"device", job.spec().resources().device()},
              {"recipe", job.spec().precision().recipe()},
              {"parameters", Known(job.run_info().parameters())},
              {"checkpoint_step", Known(job.checkpoint().step())},
              {"checkpoint_path", job.checkpoint().path()},
              {"hottest_celsius", Measured(job.devices().hottest_celsius())},
              {"warnings", Json::array()},
              {"evaluations", Json::array()},
              {"sources", Json::array()},
              {"loss", has_loss ? Number(last.loss()) : Json()},
              {"tokens", last.tokens()},
              {"tokens_per_second", Measured(last.tokens_per_second())}};
  const std::map<std::string, std::string> labels(job.spec().labels().begin(),
                                                  job.spec().labels().end());
  for (const auto& [key, value] : labels) {
    out["labels"][key] = value;
  }
  for (const std::string& worker : job.workers()) {
    out["workers"].push_back(worker);
  }
  for (const std::string& warning : job.warnings()) {
    out["warnings"].push_back(warning);
  }
  for (const std::string& text : spec::ResultTexts(job)) {
    out["evaluations"].push_back(text);
  }
  for (const v1::SourceReport& source : last.sources()) {
    out["sources"].push_back(spec::SourceText(source));
  }
  return out;
}

// The newest texts of train.samples.
Json Samples(const v1::StepReport& last) {
  Json samples = Json::array();
  for (const v1::SampleText& sample : last.samples()) {
    samples.push_back({{"step", sample.step()},
                       {"prompt", sample.prompt()},
                       {"text", sample.text()},
                       {"tokens", sample.tokens()},
                       {"end", std::string(spec::TextEndName(sample.end()))}});
  }
  return samples;
}

metrics::HttpResponse Jobs(const View& view) {
  Json list = Json::array();
  const auto page = view.List(JobFilter(), "", kMaxApiJobs);
  if (!page.ok()) {
    return Error(500, std::string(page.status().message()));
  }
  for (const JobPtr& job : page->jobs) {
    list.push_back(Summary(job->job()));
  }
  return Answer(200, {{"jobs", std::move(list)},
                      {"more", !page->next_token.empty()},
                      {"version", std::string(Version())}});
}

// What was planned for the job as it runs, beside what is measured; null without a plan.
Json Plan(const v1::JobRecord& record) {
  if (!record.has_plan()) {
    return Json();
  }
  const v1::JobPlan& plan = record.plan();
  Json parts;
  for (const spec::StepPart& part : spec::kStepParts) {
    parts[part.brief] = (plan.step().*part.get)();
  }
  return {{"gpu", plan.gpu()},
          {"gpus", plan.gpus()},
          {"unknown", plan.unknown()},
          {"calibrated", plan.calibrated()},
          {"planned",
           {{"tokens_per_second", Measured(plan.tokens_per_second())},
            {"watts", Measured(plan.watts())},
            {"memory_bytes", Known(plan.memory_bytes())}}},
          {"measured",
           {{"tokens_per_second", Measured(spec::MeasuredTokS(plan))},
            {"watts", Measured(spec::MeasuredWatts(plan))},
            {"memory_bytes", Known(plan.measured().memory_bytes())},
            {"steps", plan.measured().steps()}}},
          {"step_seconds", std::move(parts)}};
}

metrics::HttpResponse OneJob(const v1::JobRecord& record) {
  const v1::Job& job = record.job();
  google::protobuf::util::JsonPrintOptions options;  // as jobctl prints it
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(job, &text, options);
  Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!printed.ok() || whole.is_discarded()) {
    return Error(500, absl::StrCat("cannot print job ", job.job_id(), " as JSON"));
  }
  Json out = Summary(job);
  out["samples"] = Samples(job.last_report());
  out["plan"] = Plan(record);
  out["job"] = std::move(whole);
  return Answer(200, out);
}

metrics::HttpResponse Checkpoints(const v1::JobRecord& record) {
  Json list = Json::array();
  for (const v1::Checkpoint& checkpoint : record.checkpoints()) {  // newest first
    list.push_back({{"step", checkpoint.step()},
                    {"epoch", checkpoint.epoch()},
                    {"path", checkpoint.path()},
                    {"bytes", checkpoint.bytes()},
                    {"create_time", Time(checkpoint.has_create_time(), checkpoint.create_time())},
                    {"validation_loss", Measured(checkpoint.validation_loss())}});
  }
  return Answer(200, {{"job_id", record.job().job_id()}, {"checkpoints", std::move(list)}});
}

// What was found of a model, and by which job.
struct Found {
  int64_t step = 0;
  std::string by;
  std::string text;
};

// What other jobs, of task: eval, found of the job's checkpoints.
void AddFoundByOthers(const View& view, const std::string& job_id, std::vector<Found>& found) {
  for (const JobPtr& other : view.AllJobs()) {
    for (const v1::EvaluatedModel& model : other->job().models()) {
      if (model.checkpoint().job_id() != job_id) {
        continue;
      }
      const auto add = [&](std::string text) {
        found.push_back({model.checkpoint().step(), other->job().job_id(), std::move(text)});
      };
      for (const v1::HeldOutLoss& loss : model.held_out()) {
        add(spec::HeldOutText(loss));
      }
      for (const v1::EvaluationResult& result : model.evaluations()) {
        add(spec::EvaluationText(result));
      }
    }
  }
}

// What the job itself found, as far as its events are kept, and others of its checkpoints.
metrics::HttpResponse Evaluations(const View& view, const std::string& job_id) {
  std::vector<Found> found;
  const View::Changes changes = view.ChangesSince(job_id, 0);
  for (const EventPtr& event : changes.events) {
    if (event->type() == "evaluation") {
      found.push_back({event->step(), job_id, event->message()});
    }
  }
  AddFoundByOthers(view, job_id, found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.step > b.step; });
  const bool more = found.size() > kMaxApiEvents || changes.compacted;
  found.resize(std::min(found.size(), kMaxApiEvents));
  Json list = Json::array();
  for (const Found& each : found) {
    list.push_back({{"step", each.step}, {"by", each.by}, {"text", each.text}});
  }
  return Answer(200, {{"job_id", job_id}, {"evaluations", std::move(list)}, {"more", more}});
}

metrics::HttpResponse Events(const View& view, const std::string& job_id) {
  const View::Changes changes = view.ChangesSince(job_id, 0);
  const size_t total = changes.events.size();
  const size_t first = total > kMaxApiEvents ? total - kMaxApiEvents : 0;
  Json list = Json::array();
  for (size_t i = total; i-- > 0;) {
    const v1::JobEvent& event = *changes.events[i];
    if (i < first && !IsNote(event)) {
      continue;
    }
    list.push_back({{"revision", event.revision()},
                    {"time", Time(event.has_time(), event.time())},
                    {"type", event.type()},
                    {"actor", event.actor()},
                    {"from_state", Lower(v1::JobState_Name(event.from_state()), "JOB_STATE_")},
                    {"to_state", Lower(v1::JobState_Name(event.to_state()), "JOB_STATE_")},
                    {"reason_code", event.reason_code()},
                    {"message", event.message()},
                    {"epoch", event.epoch()},
                    {"step", event.step()}});
  }
  return Answer(200, {{"job_id", job_id},
                      {"events", std::move(list)},  // newest first
                      {"more", changes.compacted || first > 0}});
}

metrics::HttpResponse Workers(const View& view) {
  std::vector<WorkerPtr> workers = view.Workers();
  const bool more = workers.size() > kMaxApiWorkers;
  workers.resize(std::min(workers.size(), kMaxApiWorkers));
  Json list = Json::array();
  for (const WorkerPtr& worker : workers) {
    const v1::DeviceInfo& device = worker->device();
    const v1::DeviceStatus& status = worker->device_status();
    list.push_back(
        {{"worker_id", worker->worker_id()},
         {"state", Lower(v1::WorkerState_Name(worker->state()), "WORKER_STATE_")},
         {"cordoned", worker->cordoned()},
         {"draining", worker->draining()},
         {"host", worker->host()},
         {"device", device.kind()},
         {"device_model", device.model()},
         {"job_id", worker->job_id()},
         {"rank", worker->job_id().empty() ? Json() : Json(worker->rank())},
         {"version", worker->version()},
         {"reason", worker->reason()},
         {"last_seen_time", Time(worker->has_last_seen_time(), worker->last_seen_time())},
         {"memory_bytes", Known(device.memory_bytes())},
         {"memory_used_bytes", Known(status.memory_used_bytes())},
         // An idle device uses 0.
         {"utilization_ratio",
          worker->has_device_status() ? Number(status.utilization_ratio()) : Json()},
         {"power_watts", Measured(status.power_watts())},
         {"temperature_celsius", Measured(status.temperature_celsius())}});
  }
  return Answer(200, {{"workers", std::move(list)}, {"more", more}});
}

// The value of `name` in a query of plain numbers; `fallback` when it is not there. False: not a
// number in min..max.
bool QueryNumber(const std::string& query,
                 absl::string_view name,
                 int64_t min,
                 int64_t max,
                 int64_t fallback,
                 int64_t& out) {
  out = fallback;
  for (const absl::string_view term : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    absl::string_view value = term;
    if (absl::ConsumePrefix(&value, absl::StrCat(name, "=")) &&
        (!absl::SimpleAtoi(value, &out) || out < min || out > max)) {
      return false;
    }
  }
  return true;
}

// The picture in which the page draws a row: that of the row whose name ends its own, or its own
// ("validation_loss" is a line beside "loss").
std::string ChartOf(const metrics::StepMetric& row) {
  for (const metrics::StepMetric* other : CurveRows()) {
    if (absl::EndsWith(row.field(), absl::StrCat("_", other->field()))) {
      return other->field();
    }
  }
  return row.field();
}

// One line of the page: `column` has its numbers, `chart` is its picture. `label` tells the lines
// of one row apart; empty: the row has one line.
Json CurveOf(const metrics::StepMetric& row,
             const std::string& column,
             const std::string& chart,
             const std::string& label) {
  const v1::Metric& option = row.option();
  return {{"column", column},      {"chart", chart},        {"label", label},
          {"plot", option.plot()}, {"unit", option.unit()}, {"sparse", option.sparse()},
          {"help", option.help()}};
}

// What the page draws, and how: the page knows no metric by its name. Positions only ever grow, and
// are left out.
Json DrawnCurves() {
  Json out = Json::array();
  for (const metrics::StepMetric* row : CurveRows()) {
    const v1::Metric& option = row->option();
    if (!option.plot().empty() && option.kind() != v1::Metric::POSITION) {
      out.push_back(CurveOf(*row, row->field(), ChartOf(*row), ""));
    }
  }
  return out;
}

// Adds a column and a curve for each label of the rows of entries.
void AddEntryCurves(const std::vector<CurvePoint>& points, Json& columns, Json& curves) {
  for (size_t i = 0; i < EntryCurveRows().size(); ++i) {
    const metrics::StepMetric& row = *EntryCurveRows()[i];
    std::set<std::string> labels;
    for (const CurvePoint& point : points) {
      for (const auto& [label, number] : point.entries[i]) {
        labels.insert(label);
      }
    }
    for (const std::string& label : labels) {
      const std::string name = absl::StrCat(row.path(), " ", label);
      Json& column = columns[name] = Json::array();
      for (const CurvePoint& point : points) {
        const auto found = point.entries[i].find(label);
        column.push_back(found == point.entries[i].end() ? Json() : Number(found->second.value));
      }
      curves.push_back(CurveOf(row, name, row.option().plot(), label));
    }
  }
}

metrics::HttpResponse Metrics(CurveCache& curves,
                              const std::string& job_id,
                              const std::string& query) {
  int64_t since = 0;
  int64_t limit = 0;
  if (!QueryNumber(query, "since_step", 0, INT64_MAX, 0, since)) {
    return Error(400, "since_step is not a number of at least 0");
  }
  if (!QueryNumber(query, "points", 1, kMaxApiPoints, kMaxApiPoints, limit)) {
    return Error(400, absl::StrCat("points is not a number of 1 to ", kMaxApiPoints));
  }
  const auto sampled = curves.Get(job_id, since, static_cast<size_t>(limit));
  if (!sampled.ok()) {
    return Error(absl::IsNotFound(sampled.status()) ? 404 : 500,
                 absl::StrCat("job ", job_id, ": ", sampled.status().message()));
  }
  Json columns = Json::object();
  const auto add = [&](const std::string& name, const auto& value_of) {
    Json& column = columns[name] = Json::array();
    for (const CurvePoint& point : sampled->points) {
      column.push_back(value_of(point));
    }
  };
  add("first_step", [](const CurvePoint& point) { return Json(point.first_step); });
  add("step", [](const CurvePoint& point) { return Json(point.last_step); });
  add("steps", [](const CurvePoint& point) { return Json(point.count); });
  add("epoch", [](const CurvePoint& point) { return Json(point.epoch); });
  for (size_t i = 0; i < CurveRows().size(); ++i) {
    add(CurveRows()[i]->field(), [i](const CurvePoint& point) {
      const CurveNumber& number = point.numbers[i];
      return number.count == 0 ? Json() : Number(number.value);
    });
  }
  Json drawn = DrawnCurves();
  AddEntryCurves(sampled->points, columns, drawn);
  return Answer(200, {{"job_id", job_id},
                      {"rewinds", sampled->rewinds},
                      {"complete", sampled->complete},
                      {"columns", std::move(columns)},
                      {"curves", std::move(drawn)}});
}

metrics::HttpResponse Logs(const CurveCache::FindLog& find_log,
                           const std::string& job_id,
                           const std::string& query) {
  LogQuery wanted;
  int64_t tail = 0;
  int64_t rank = 0;
  if (!QueryNumber(query, "after", 0, INT64_MAX, 0, wanted.after) ||
      !QueryNumber(query, "tail", 1, kMaxApiLines, static_cast<int64_t>(wanted.tail), tail) ||
      !QueryNumber(query, "rank", 0, INT32_MAX, -1, rank) ||
      !QueryNumber(query, "epoch", 1, INT64_MAX, 0, wanted.epoch)) {
    return Error(400, absl::StrCat("after and rank are numbers of at least 0, epoch of at least 1, "
                                   "tail of 1 to ",
                                   kMaxApiLines));
  }
  wanted.tail = static_cast<size_t>(tail);
  if (rank >= 0) {
    wanted.rank = static_cast<int32_t>(rank);
  }
  const std::shared_ptr<const SegmentLog> log = find_log(job_id);
  const absl::StatusOr<LogTail> read =
      log == nullptr ? LogTail{{}, wanted.after, false} : ReadLogTail(*log, wanted);
  if (!read.ok()) {
    return Error(absl::IsNotFound(read.status()) ? 404 : 500,
                 absl::StrCat("job ", job_id, ": ", read.status().message()));
  }
  Json lines = Json::array();
  for (const v1::LogLine& line : read->lines) {
    lines.push_back({{"cursor", line.cursor()},
                     {"time", Time(line.has_time(), line.time())},
                     {"epoch", line.epoch()},
                     {"rank", line.rank()},
                     {"level", line.level()},
                     {"text", line.text()}});
  }
  return Answer(200, {{"job_id", job_id},
                      {"lines", std::move(lines)},  // oldest first
                      {"cursor", read->cursor},
                      {"more", read->more}});
}

// What there is of a job.
struct JobPart {
  absl::string_view name;
  metrics::HttpResponse (*serve)(const ApiParts& parts,
                                 const v1::JobRecord& record,
                                 const std::string& query);
};

constexpr JobPart kJobParts[] = {
    {"checkpoints",
     [](const ApiParts&, const v1::JobRecord& record, const std::string&) {
       return Checkpoints(record);
     }},
    {"evaluations",
     [](const ApiParts& parts, const v1::JobRecord& record, const std::string&) {
       return Evaluations(parts.view, record.job().job_id());
     }},
    {"events",
     [](const ApiParts& parts, const v1::JobRecord& record, const std::string&) {
       return Events(parts.view, record.job().job_id());
     }},
    {"logs",
     [](const ApiParts& parts, const v1::JobRecord& record, const std::string& query) {
       return Logs(parts.find_log, record.job().job_id(), query);
     }},
    {"metrics",
     [](const ApiParts& parts, const v1::JobRecord& record, const std::string& query) {
       return Metrics(parts.curves, record.job().job_id(), query);
     }},
};

metrics::HttpResponse NoSuchPath() {
  std::string text = "there are workers, jobs, jobs/ID";
  for (const JobPart& part : kJobParts) {
    absl::StrAppend(&text, ", jobs/ID/", part.name);
  }
  return Error(404, text);
}

}  // namespace

metrics::HttpResponse ServeApi(const ApiParts& api, const metrics::HttpRequest& request) {
  absl::string_view rest = request.path;
  absl::ConsumePrefix(&rest, kRoot);
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  if (parts.size() == 1 && parts[0] == "workers") {
    return Workers(api.view);
  }
  if (parts.size() == 1 && parts[0] == "jobs") {
    return Jobs(api.view);
  }
  if (parts[0] != "jobs" || parts.size() > 3 || parts[1].empty()) {
    return NoSuchPath();
  }
  const auto* const part =
      parts.size() < 3 ? nullptr
                       : std::find_if(std::begin(kJobParts), std::end(kJobParts),
                                      [&](const JobPart& each) { return each.name == parts[2]; });
  if (part == std::end(kJobParts)) {
    return NoSuchPath();
  }
  const JobPtr job = api.view.FindJob(parts[1]);
  if (job == nullptr) {
    return Error(404, absl::StrCat("no job ", parts[1]));
  }
  return part == nullptr ? OneJob(*job) : part->serve(api, *job, request.query);
}

}  // namespace hearth::coordinator
