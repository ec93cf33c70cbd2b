#include "worker/trainer/rank/meeting.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status_macros.h"
#include "worker/trainer/pulse/watched_collective.h"

namespace hearth::trainer {

absl::Status Meeting::Meet() {
  if (rank_.task.world_size() <= 1) {
    comm_ = NewSoloCollective();
    return absl::OkStatus();
  }
  rank_.link.SendPhase("rendezvous");
  rank_.blame = v1::EXIT_REASON_COMM;
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Collective> connected, Connect());
  comm_ = Watched(std::move(connected), rank_.pulse, rank_.clock);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Collective>> Meeting::Connect() {
  KeyValueStore* store = &rank_.link;
  // The ranks of an epoch meet again after a trial. Keys of the first meeting are still in the
  // store, so each later one has a prefix of its own.
  if (meetings_++ > 0) {
    store_ = std::make_unique<PrefixedStore>(rank_.link, absl::StrCat("meeting/", meetings_, "/"));
    store = store_.get();
  }
  const auto seconds = [](double given) { return absl::Seconds(given > 0 ? given : 60); };
  const absl::Duration gather_timeout = seconds(rank_.task.gather_seconds());
  const absl::Duration timeout = seconds(rank_.task.rendezvous_seconds());
  if (rank_.cuda != nullptr) {
    NcclOptions options;
    options.rank = rank_.task.rank();
    options.world_size = rank_.task.world_size();
    options.cuda = rank_.cuda.get();
    options.host = rank_.task.advertise_host();
    options.gather_timeout = gather_timeout;
    options.rendezvous_timeout = timeout;
    return NewNcclCollective(options, *store);
  }
  GlooOptions options;
  options.rank = rank_.task.rank();
  options.world_size = rank_.task.world_size();
  options.advertise_host = rank_.task.advertise_host();
  options.gather_timeout = gather_timeout;
  options.rendezvous_timeout = timeout;
  options.on_stranger = [this](std::string_view text) {
    rank_.link.SendLog("warning", absl::StrCat("rendezvous: turned a stranger away: ",
                                               absl::string_view(text.data(), text.size())));
  };
  return NewGlooCollective(options, *store);
}

}  // namespace hearth::trainer
