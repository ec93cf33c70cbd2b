// Why a job is in its state: the codes of Job.reason_code and of its events. The scheduler and the
// coordinator's core give them; clients and metrics read them.
#pragma once

#include <string_view>

#include "common/base/table_rows.h"

namespace hearth::reasons {

inline constexpr char kSubmitted[] = "submitted";
inline constexpr char kInsufficientWorkers[] = "insufficient_workers";
inline constexpr char kCheckpointRoot[] = "checkpoint_root";
inline constexpr char kNoSharedRoot[] = "no_shared_root";
inline constexpr char kSpanHosts[] = "span_hosts";
inline constexpr char kBatch[] = "batch";
inline constexpr char kWorkersBusy[] = "workers_busy";
inline constexpr char kWaitsForStop[] = "waits_for_stop";
inline constexpr char kReserved[] = "reserved";
inline constexpr char kReattaching[] = "reattaching";
inline constexpr char kStartTime[] = "start_time";
inline constexpr char kAfterJob[] = "after_job";
inline constexpr char kAfterNotSucceeded[] = "after_not_succeeded";
inline constexpr char kCheckingPaths[] = "checking_paths";
inline constexpr char kScheduled[] = "scheduled";
inline constexpr char kFirstStep[] = "first_step";
inline constexpr char kFinished[] = "finished";
inline constexpr char kWorkerLost[] = "worker_lost";
inline constexpr char kTaskVanished[] = "task_vanished";
inline constexpr char kTrainerFailed[] = "trainer_failed";
inline constexpr char kTrainerStopped[] = "trainer_stopped";
inline constexpr char kPeersLost[] = "peers_lost";
inline constexpr char kDeviceFailed[] = "device_failed";
inline constexpr char kIoFailed[] = "io_failed";
inline constexpr char kGangNotFormed[] = "gang_not_formed";
inline constexpr char kTrainerKilled[] = "trainer_killed";
inline constexpr char kTrainerHung[] = "trainer_hung";
inline constexpr char kBadSpec[] = "bad_spec";
inline constexpr char kBadData[] = "bad_data";
inline constexpr char kNumerical[] = "numerical";
inline constexpr char kMaxRestarts[] = "max_restarts";
inline constexpr char kTimeLimit[] = "time_limit";
inline constexpr char kPreempted[] = "preempted";
inline constexpr char kDrained[] = "drained";
inline constexpr char kResized[] = "resized";
inline constexpr char kUserPause[] = "user_pause";
inline constexpr char kUserCancel[] = "user_cancel";
inline constexpr char kUserResume[] = "user_resume";

struct ReasonRow {
  std::string_view code;
  std::string_view meaning;  // for people
};

inline constexpr ReasonRow kReasons[] = {
    {kSubmitted, "accepted, not yet looked at by the scheduler"},
    {kInsufficientWorkers, "fewer suitable workers exist than the job needs"},
    {kCheckpointRoot, "too few workers see the root that holds the job's checkpoint"},
    {kNoSharedRoot, "too few workers share one checkpoint root"},
    {kSpanHosts, "no single host has enough workers and the job may not span hosts"},
    {kBatch, "more ranks are demanded than a global batch has micro-batches"},
    {kWorkersBusy, "suitable workers exist but are busy"},
    {kWaitsForStop, "other jobs are being stopped to make room"},
    {kReserved, "free workers are reserved for jobs ahead in the queue"},
    {kReattaching, "the coordinator has just started and waits for its workers"},
    {kStartTime, "its start time (start.not_before) has not come yet"},
    {kAfterJob, "the job that has to succeed first (start.after) has not ended yet"},
    {kAfterNotSucceeded,
     "the job that had to succeed first (start.after) failed, was cancelled or was deleted"},
    {kCheckingPaths, "datasets and models are being checked on a worker"},
    {kScheduled, "a gang was placed"},
    {kFirstStep, "the first step of the epoch was reported"},
    {kFinished, "all steps are done"},
    {kWorkerLost, "a worker fell silent, restarted or left"},
    {kTaskVanished, "a worker no longer knows the task it was given"},
    {kTrainerFailed, "the trainer ended with an error"},
    {kTrainerStopped, "the trainer was asked to leave by somebody else (SIGTERM)"},
    {kPeersLost, "the trainers lost each other"},
    {kDeviceFailed, "device failure or out of memory"},
    {kIoFailed, "a checkpoint could not be written"},
    {kGangNotFormed, "the ranks did not load or find one another in time"},
    {kTrainerKilled, "the trainer was killed by a signal"},
    {kTrainerHung, "a step made no progress, or the trainer was stopped or gave no sign of life"},
    {kBadSpec, "the job cannot run as written; not retried"},
    {kBadData, "a dataset or checkpoint cannot be read; not retried"},
    {kNumerical, "loss or gradients are not finite, or the loss spiked; not retried"},
    {kMaxRestarts, "more consecutive failures without a new checkpoint than max_restarts"},
    {kTimeLimit, "resources.time_limit is used up"},
    {kPreempted, "makes room for a job of higher priority"},
    {kDrained, "a worker of the gang is being drained"},
    {kResized, "the gang grows"},
    {kUserPause, "paused by the user"},
    {kUserCancel, "cancelled by the user"},
    {kUserResume, "resumed by the user"},
};

constexpr bool IsReasonCode(std::string_view code) {
  return FindRow(kReasons, &ReasonRow::code, code) != nullptr;
}

}  // namespace hearth::reasons
