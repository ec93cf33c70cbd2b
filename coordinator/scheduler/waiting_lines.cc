#include "coordinator/scheduler/waiting_lines.h"

namespace hearth::coordinator {
namespace {

// Longer than anything waits; times of the range of priorities it is still an exact time.
constexpr absl::Duration kNever = absl::Hours(24 * 365 * 1000);

}  // namespace

QueuePlace PlaceInQueue(int64_t priority,
                        absl::Time queue_time,
                        std::string job_id,
                        absl::Duration aging) {
  const absl::Duration level = aging > absl::ZeroDuration() ? aging : kNever;
  // A level of priority is worth so much waiting: an earlier turn instead of a growing priority, so
  // the order of two jobs never changes and no line is ever sorted again.
  return {queue_time - priority * level, priority, std::move(job_id)};
}

void WaitingLines::Put(const Demand& demand, const QueuePlace& place) {
  const auto found = where_.find(place.job_id);
  if (found != where_.end()) {
    if (found->second.line->first == demand && found->second.place == place) {
      return;
    }
    Remove(place.job_id);
  }
  const auto line = lines_.try_emplace(demand).first;
  line->second.places_.insert(place);
  line->second.untold_.insert(place);
  where_.insert({place.job_id, {line, place}});
}

void WaitingLines::Remove(const std::string& job_id) {
  const auto found = where_.find(job_id);
  if (found == where_.end()) {
    return;
  }
  const auto line = found->second.line;
  line->second.places_.erase(found->second.place);
  line->second.untold_.erase(found->second.place);
  spoken_for_.erase(job_id);
  where_.erase(found);
  if (line->second.places_.empty()) {
    lines_.erase(line);
  }
}

void WaitingLines::BeginTexts() {
  for (const std::string& job_id : spoken_for_) {
    const Where& where = where_.at(job_id);
    where.line->second.untold_.insert(where.place);
  }
  spoken_for_.clear();
}

void WaitingLines::SpokenFor(const std::string& job_id) {
  const auto found = where_.find(job_id);
  if (found != where_.end()) {
    spoken_for_.insert(job_id);
    found->second.line->second.untold_.erase(found->second.place);
  }
}

void WaitingLines::SetText(const Demand& demand, const WaitText& text) {
  const auto line = lines_.find(demand);
  if (line != lines_.end()) {
    SetText(line->second, text);
  }
}

void WaitingLines::SetTextOfAll(const WaitText& text) {
  for (auto& [demand, line] : lines_) {
    SetText(line, text);
  }
}

void WaitingLines::SetText(Line& line, const WaitText& text) {
  if (line.text_ == text) {
    return;
  }
  line.text_ = text;
  // From the head again. Jobs that were untold come by on the way, so that list is void.
  line.next_ = *line.places_.begin();
  line.untold_.clear();
}

std::vector<std::pair<std::string, WaitText>> WaitingLines::TakeUntold(size_t most) {
  std::vector<std::pair<std::string, WaitText>> told;
  for (auto& [demand, line] : lines_) {
    if (line.text_.code.empty()) {
      continue;
    }
    while (told.size() < most && !line.untold_.empty()) {
      told.emplace_back(line.untold_.begin()->job_id, line.text_);
      line.untold_.erase(line.untold_.begin());
    }
    if (!line.next_.has_value() || told.size() >= most) {
      continue;
    }
    auto place = line.places_.lower_bound(*line.next_);
    for (; place != line.places_.end() && told.size() < most; ++place) {
      if (!spoken_for_.contains(place->job_id)) {
        told.emplace_back(place->job_id, line.text_);
      }
    }
    line.next_ = place == line.places_.end() ? std::nullopt : std::optional(*place);
  }
  return told;
}

}  // namespace hearth::coordinator
