// The coordinator's metric table.
#pragma once

#include "common/metrics/metrics.h"

namespace hearth::coordinator {

using metrics::MetricDef;
using metrics::MetricType;
using metrics::Stability;

inline constexpr MetricDef kCommitSeconds = {
    "hearth_coordinator_commit_duration_seconds", MetricType::kHistogram,
    "Time to make a batch of changes durable (files and database).", "", Stability::kBeta};
inline constexpr MetricDef kCommitCommands = {
    "hearth_coordinator_commit_commands_total", MetricType::kCounter,
    "Commands whose effects were committed; over the count of commits it gives the batch size.", "",
    Stability::kBeta};
inline constexpr MetricDef kPlanSeconds = {
    "hearth_coordinator_schedule_duration_seconds", MetricType::kHistogram,
    "Time of the event loop's passes in which the scheduler planned: who starts, who stops, why "
    "the rest waits.",
    "", Stability::kBeta};
inline constexpr MetricDef kCommands = {"hearth_coordinator_commands_total", MetricType::kCounter,
                                        "Commands applied by the event loop.", "command",
                                        Stability::kBeta};
inline constexpr MetricDef kQueueLength = {
    "hearth_coordinator_queue_commands", MetricType::kGauge,
    "Commands waiting for the event loop when it took the last batch.", "", Stability::kBeta};
inline constexpr MetricDef kAgents = {"hearth_coordinator_agents", MetricType::kGauge,
                                      "Open worker streams.", "", Stability::kBeta};
inline constexpr MetricDef kAgentViolations = {
    "hearth_agent_violations_total", MetricType::kCounter,
    "Worker streams ended because a field of a message was outside its bounds: a defect, a version "
    "that does not fit, or a stranger.",
    "", Stability::kBeta};
inline constexpr MetricDef kIsolated = {
    "hearth_coordinator_isolated", MetricType::kGauge,
    "1 while the coordinator takes itself to be cut off from its workers and replaces none.", "",
    Stability::kBeta};
inline constexpr MetricDef kGeneration = {"hearth_coordinator_generation", MetricType::kGauge,
                                          "Starts of the coordinator on this data dir.", "",
                                          Stability::kBeta};
inline constexpr MetricDef kSetAside = {
    "hearth_coordinator_store_set_aside", MetricType::kGauge,
    "Damaged rows and unknown files that the last start found in the data dir and set aside; its "
    "log names them.",
    "", Stability::kBeta};
inline constexpr MetricDef kHealthy = {"hearth_coordinator_healthy", MetricType::kGauge,
                                       "1 while the coordinator serves.", "", Stability::kBeta};
inline constexpr MetricDef kSeriesDropped = {
    "hearth_series_dropped_total", MetricType::kCounter,
    "Series of jobs left out of scrapes because of the bound on jobs.", "", Stability::kBeta};
inline constexpr MetricDef kLogLinesDropped = {
    "hearth_log_lines_dropped_total", MetricType::kCounter,
    "Log lines lost to bounds: of workers' buffers, of a job's rate at the worker or here.", "",
    Stability::kBeta};
inline constexpr MetricDef kWorkersLost = {"hearth_worker_lost_total", MetricType::kCounter,
                                           "Workers declared lost.", "", Stability::kBeta};
inline constexpr MetricDef kQueueWait = {"hearth_queue_wait_seconds", MetricType::kHistogram,
                                         "Time from QUEUED to STARTING.", "", Stability::kBeta};
inline constexpr MetricDef kFirstStepWait = {
    "hearth_ready_to_first_step_seconds", MetricType::kHistogram,
    "Time from STARTING to the first step.", "", Stability::kBeta};
inline constexpr MetricDef kRecoverySeconds = {"hearth_recovery_seconds", MetricType::kHistogram,
                                               "Time from the loss of a rank to the next step.",
                                               "cause", Stability::kBeta};
inline constexpr MetricDef kCheckpointSeconds = {
    "hearth_checkpoint_write_seconds", MetricType::kHistogram,
    "Time that checkpoints of all jobs took to write, mostly while steps went on.", "",
    Stability::kBeta};
inline constexpr MetricDef kEvictions = {"hearth_evictions_total", MetricType::kCounter,
                                         "Gangs taken off their workers before the end, by reason.",
                                         "reason", Stability::kBeta};
inline constexpr MetricDef kRpcStarted = {"hearth_grpc_server_started_total", MetricType::kCounter,
                                          "RPCs begun.", "grpc_service,grpc_method",
                                          Stability::kBeta};
inline constexpr MetricDef kRpcHandled = {"hearth_grpc_server_handled_total", MetricType::kCounter,
                                          "RPCs ended, by status code.",
                                          "grpc_service,grpc_method,grpc_code", Stability::kBeta};
inline constexpr MetricDef kRpcInFlight = {
    "hearth_grpc_server_in_flight", MetricType::kGauge,
    "RPCs begun and not ended: of Connect the workers' streams, of Stream and Watch methods those "
    "who look on.",
    "grpc_service,grpc_method", Stability::kBeta};
inline constexpr MetricDef kRpcSeconds = {"hearth_grpc_server_handling_seconds",
                                          MetricType::kHistogram, "Duration of RPCs.",
                                          "grpc_service,grpc_method", Stability::kBeta};
inline constexpr MetricDef kJobs = {"hearth_jobs", MetricType::kGauge, "Jobs by state.", "state",
                                    Stability::kBeta};
inline constexpr MetricDef kWorkers = {"hearth_workers", MetricType::kGauge, "Workers by state.",
                                       "state", Stability::kBeta};

// Per job.
inline constexpr MetricDef kJobInfo = {
    "hearth_job_info", MetricType::kGauge, "Facts about a job to join on; always 1.",
    "job_id,name,model,precision,device,world_size", Stability::kBeta};
inline constexpr MetricDef kJobState = {"hearth_job_state", MetricType::kGauge,
                                        "1 for the state that the job is in, 0 for the others.",
                                        "job_id,state", Stability::kBeta};
inline constexpr MetricDef kJobPhase = {
    "hearth_job_phase", MetricType::kGauge,
    "1 for what rank 0 does: loading, rendezvous, trial, training, evaluating or saving (its last "
    "checkpoint; others are written beside the training). No row while it does not run.",
    "job_id,phase", Stability::kBeta};
inline constexpr MetricDef kJobStep = {"hearth_job_step", MetricType::kGauge,
                                       "Last completed step.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobTargetStep = {"hearth_job_target_step", MetricType::kGauge,
                                             "train.steps of the job.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobLoss = {"hearth_job_loss", MetricType::kGauge,
                                       "Training loss of the last step, nats per token.", "job_id",
                                       Stability::kBeta};
inline constexpr MetricDef kJobValidationLoss = {
    "hearth_job_validation_loss", MetricType::kGauge,
    "Held-out loss of the last evaluation, nats per token.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobGradNorm = {
    "hearth_job_grad_norm", MetricType::kGauge,
    "Global L2 norm of the last step's gradient before clipping.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobLearningRate = {"hearth_job_learning_rate", MetricType::kGauge,
                                               "Learning rate of the last step.", "job_id",
                                               Stability::kBeta};
inline constexpr MetricDef kJobTokens = {"hearth_job_tokens_total", MetricType::kCounter,
                                         "Tokens processed, including steps that were done again.",
                                         "job_id", Stability::kBeta};
inline constexpr MetricDef kJobTokensPerSecond = {
    "hearth_job_tokens_per_second", MetricType::kGauge, "Throughput of the last step.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobMfu = {"hearth_job_mfu_ratio", MetricType::kGauge,
                                      "Fraction of the devices' dense BF16 peak in the last step; "
                                      "none where the peak is not known, as on CPUs.",
                                      "job_id", Stability::kBeta};
inline constexpr MetricDef kJobEnergy = {
    "hearth_job_energy_joules_total", MetricType::kCounter,
    "Energy that the gang's GPUs used in steps since the coordinator started.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobCommunicationSeconds = {
    "hearth_job_communication_exposed_seconds_total", MetricType::kCounter,
    "Time in which rank 0 did nothing but wait for other ranks' gradients.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobCommunicationBytes = {
    "hearth_job_communication_bytes_total", MetricType::kCounter,
    "Bytes that rank 0 sent for gradients and weights, by the ring algorithm's count.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobDataWait = {
    "hearth_job_data_wait_seconds_total", MetricType::kCounter,
    "Time in which rank 0 waited for training data.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobPrecision = {
    "hearth_job_precision_info", MetricType::kGauge,
    "The recipe in force at the last step, native or emulated; always 1.",
    "job_id,recipe,execution", Stability::kBeta};
inline constexpr MetricDef kJobSkipped = {
    "hearth_job_skipped_steps_total", MetricType::kCounter,
    "Attempts at a step that the guard refused, by cause: non_finite, spike, grad_spike.",
    "job_id,cause", Stability::kBeta};
inline constexpr MetricDef kJobRedone = {
    "hearth_job_redone_steps_total", MetricType::kCounter,
    "Steps that were applied after the guard had refused them in another recipe.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobMeasures = {
    "hearth_job_precision_measures_total", MetricType::kCounter,
    "What repeated numerical trouble led to, by kind: remedy, fallback.", "job_id,kind",
    Stability::kBeta};
inline constexpr MetricDef kJobTensorAmax = {
    "hearth_job_tensor_amax", MetricType::kGauge,
    "Largest magnitude among all quantised operands of a role (x, dy, w) when last measured.",
    "job_id,role", Stability::kBeta};
inline constexpr MetricDef kJobTensorUnderflow = {
    "hearth_job_tensor_underflow_ratio", MetricType::kGauge,
    "Elements that are zero in the narrow format, of the worst operand of a role.", "job_id,role",
    Stability::kBeta};
inline constexpr MetricDef kJobTensorSaturation = {
    "hearth_job_tensor_saturation_ratio", MetricType::kGauge,
    "Elements at the largest magnitude of the narrow format, of the worst operand of a role.",
    "job_id,role", Stability::kBeta};
inline constexpr MetricDef kJobCheckpointSeconds = {
    "hearth_job_checkpoint_stall_seconds_total", MetricType::kCounter,
    "Time for which steps stood still because of checkpoints.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobCheckpointDuration = {
    "hearth_job_checkpoint_duration_seconds", MetricType::kGauge,
    "Time that the newest checkpoint took to write, mostly while steps went on.", "job_id",
    Stability::kBeta};
inline constexpr MetricDef kJobLastProgress = {"hearth_job_last_progress_timestamp_seconds",
                                               MetricType::kGauge, "Time of the last step.",
                                               "job_id", Stability::kBeta};
inline constexpr MetricDef kJobLastCheckpoint = {
    "hearth_job_last_checkpoint_timestamp_seconds", MetricType::kGauge,
    "Time of the newest recorded checkpoint.", "job_id", Stability::kBeta};
inline constexpr MetricDef kJobStepSeconds = {"hearth_job_step_duration_seconds",
                                              MetricType::kHistogram, "Duration of steps.",
                                              "job_id", Stability::kBeta};
inline constexpr MetricDef kJobRestarts = {"hearth_job_restarts_total", MetricType::kCounter,
                                           "Recoveries since the coordinator started, by cause.",
                                           "job_id,cause", Stability::kBeta};

inline constexpr MetricDef kJobRecovery = {
    "hearth_job_recovery_seconds", MetricType::kGauge,
    "Last recovery: time from a rank's last sign of life to the next step.", "job_id",
    Stability::kBeta};

inline constexpr MetricDef kAllDefs[] = {kCommitSeconds,
                                         kCommitCommands,
                                         kPlanSeconds,
                                         kCommands,
                                         kQueueLength,
                                         kAgents,
                                         kAgentViolations,
                                         kIsolated,
                                         kGeneration,
                                         kSetAside,
                                         kHealthy,
                                         kSeriesDropped,
                                         kLogLinesDropped,
                                         kWorkersLost,
                                         kQueueWait,
                                         kFirstStepWait,
                                         kRecoverySeconds,
                                         kCheckpointSeconds,
                                         kEvictions,
                                         kRpcStarted,
                                         kRpcHandled,
                                         kRpcInFlight,
                                         kRpcSeconds,
                                         kJobs,
                                         kWorkers,
                                         kJobInfo,
                                         kJobState,
                                         kJobPhase,
                                         kJobStep,
                                         kJobTargetStep,
                                         kJobLoss,
                                         kJobValidationLoss,
                                         kJobGradNorm,
                                         kJobLearningRate,
                                         kJobTokens,
                                         kJobTokensPerSecond,
                                         kJobMfu,
                                         kJobEnergy,
                                         kJobCommunicationSeconds,
                                         kJobCommunicationBytes,
                                         kJobDataWait,
                                         kJobPrecision,
                                         kJobSkipped,
                                         kJobRedone,
                                         kJobMeasures,
                                         kJobTensorAmax,
                                         kJobTensorUnderflow,
                                         kJobTensorSaturation,
                                         kJobCheckpointSeconds,
                                         kJobCheckpointDuration,
                                         kJobLastProgress,
                                         kJobLastCheckpoint,
                                         kJobStepSeconds,
                                         kJobRestarts,
                                         kJobRecovery};

}  // namespace hearth::coordinator
