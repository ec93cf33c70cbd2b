// What the coordinator counts of itself, one row each.
#pragma once

#include "common/metrics/metrics.h"

namespace hearth::coordinator {

struct OwnMetrics {
  metrics::MetricTable table;

  metrics::Histogram commit_seconds{
      table, "hearth_coordinator_commit_duration_seconds",
      "Time to make a batch of changes durable (files and database)."};
  metrics::Counter commit_commands{
      table, "hearth_coordinator_commit_commands_total",
      "Commands whose effects were committed; over the count of commits it gives the batch size."};
  metrics::Histogram plan_seconds{table, "hearth_coordinator_schedule_duration_seconds",
                                  "Time of the event loop's passes in which the scheduler planned: "
                                  "who starts, who stops, why the rest waits."};
  metrics::Histogram turn_seconds{
      table, "hearth_coordinator_turn_duration_seconds",
      "Time of the event loop's turns: commands, time's work, the commit and the answers."};
  metrics::Counter commands{table, "hearth_coordinator_commands_total",
                            "Commands applied by the event loop.", "command"};
  metrics::Gauge queue_length{table, "hearth_coordinator_queue_commands",
                              "Commands waiting for the event loop when it took the last batch."};
  metrics::Gauge agents{table, "hearth_coordinator_agents", "Open worker streams."};
  metrics::Counter agent_violations{
      table, "hearth_agent_violations_total",
      "Worker streams ended because a field of a message was outside its bounds: a defect, a "
      "version that does not fit, or a stranger."};
  metrics::Gauge isolated{
      table, "hearth_coordinator_isolated",
      "1 while the coordinator assumes that it is cut off from its workers and replaces none."};
  metrics::Gauge generation{table, "hearth_coordinator_generation",
                            "Starts of the coordinator on this data dir."};
  metrics::Gauge set_aside{table, "hearth_coordinator_store_set_aside",
                           "Damaged rows and unknown files that the last start found in the data "
                           "dir and set aside; its log names them."};
  metrics::Gauge healthy{table, "hearth_coordinator_healthy", "1 while the coordinator serves."};
  metrics::Counter series_dropped{
      table, "hearth_series_dropped_total",
      "Series of jobs left out of scrapes because of the bound on jobs."};
  metrics::Counter log_lines_dropped{
      table, "hearth_log_lines_dropped_total",
      "Log lines lost to bounds: of workers' buffers, of a job's rate at the worker or here."};
  metrics::Counter workers_lost{table, "hearth_worker_lost_total", "Workers declared lost."};
  metrics::Histogram queue_wait{table, "hearth_queue_wait_seconds", "Time from QUEUED to STARTING.",
                                "", metrics::WaitBuckets()};
  metrics::Histogram first_step_wait{table, "hearth_ready_to_first_step_seconds",
                                     "Time from STARTING to the first step.", "",
                                     metrics::WaitBuckets()};
  metrics::Histogram recovery_seconds{table, "hearth_recovery_seconds",
                                      "Time from the loss of a rank to the next step.", "cause",
                                      metrics::WaitBuckets()};
  metrics::Histogram checkpoint_seconds{
      table, "hearth_checkpoint_write_seconds",
      "Time that checkpoints of all jobs took to write, mostly while steps went on."};
  metrics::Counter evictions{table, "hearth_evictions_total",
                             "Gangs taken off their workers before the end, by reason.", "reason"};
  metrics::Counter notifications{
      table, "hearth_coordinator_notifications_total",
      "Notifications by outcome: delivered; failed, which counts attempts that are followed by "
      "another; abandoned after the last attempt.",
      "outcome"};
  metrics::Gauge notifications_pending{table, "hearth_coordinator_notifications_pending",
                                       "Notifications that no receiver has taken yet."};
  metrics::Counter rpc_started{table, "hearth_grpc_server_started_total", "RPCs begun.",
                               "grpc_service,grpc_method"};
  metrics::Counter rpc_handled{table, "hearth_grpc_server_handled_total",
                               "RPCs ended, by status code.", "grpc_service,grpc_method,grpc_code"};
  metrics::Gauge rpc_in_flight{table, "hearth_grpc_server_in_flight",
                               "RPCs in progress: for Connect the workers' streams, for Stream "
                               "and Watch methods the clients that follow.",
                               "grpc_service,grpc_method"};
  metrics::Histogram rpc_seconds{table, "hearth_grpc_server_handling_seconds", "Duration of RPCs.",
                                 "grpc_service,grpc_method"};
};

}  // namespace hearth::coordinator
