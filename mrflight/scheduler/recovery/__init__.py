"""Recovers a stage after a data server, a worker or committed rows are lost.

A task set (`mrflight.scheduler.task_set`) is RUNNING. Two events lead out of that state:

      an attempt fails                     the monitor sees a newer placement of a shuffle
             |                             (the task set asks `is_stale` every 0.25 s)
             v                                          |
      +-------------+  the error is not about a         |
      |   REPORT    |  server of these shuffles, or     |
      |             |  the server is alive              |
      +-------------+-----------------------------+     |
             |  reported as lost, or a server     |     |
             |  itself said that output is lost   |     |
             v                                    |     |
      +-------------+  no version has changed     |     |
      |    LOOK     |---------------------------> |     |
      |             | <---------------------------|-----+
      +-------------+                             v
             |  a placement version          ORDINARY FAILURE: it counts against the task,
             |  has changed                  which gets another attempt until its limit;
             |                               without a failed attempt: back to RUNNING
             v
      +-------------+  none came within `reconnect_s`
      |    WAIT     |--------------------------------> the job fails, NoDataServersError
      |             |
      +-------------+
             |  every partition has a server
             v
      +-------------+  the output cannot be written again as it was
      |   REPAIR    |--------------------------------> InconsistentMapOutputError:
      |             |                                  the job runs all of its stages again
      +-------------+
             |  the outputs that the stage reads are whole again
             v
      +-------------+
      |  RESUBMIT   |--> back to RUNNING; the failure does not count against its task
      +-------------+

What each step does, and where:

REPORT    `fetch_failures.FetchFailureReporter` tells the metadata server which server or partition
          the error is about. That server looks for itself before it declares anything lost.
LOOK      `writers.PlacementRecovery` asks the metadata server for the placement of each shuffle.
          What it says decides; the error of an attempt is only a reason to ask.
WAIT      A restarted or another data server must register first.
REPAIR    `writers.ShuffleOutput.repair` runs the maps again whose rows are lost. Those maps may
          read the output of earlier stages, which is repaired first, by this state machine again.
RESUBMIT  depends on the kind of the stage:
          `writers.MapRecovery`      all unfinished maps, and finished ones whose rows are lost;
          `readers.SampleRecovery`   all unfinished samples;
          `readers.ReduceRecovery`   unfinished reduces whose partitions have moved, and all slices
                                     of a skewed partition that was written again;
          `protocol.NO_RECOVERY`     nothing: the stage uses no shuffle.

A lost worker needs none of these steps: its attempt fails with WorkerLostError, which is an
ordinary failure. Read `protocol`, `fetch_failures`, `writers` and `readers` in this order.
"""
