/* SplitKV's C API for tuning: measuring which schedules are fastest, and better kernels made in the
 * background and taken when it suits. Conventions as in splitkv.h, of which this is the third part.
 *
 * Nothing here begins by itself: no call of splitkv.h or splitkv_deploy.h measures, and no kernel
 * is replaced but by the caller, who takes another one and releases the old.
 *
 * All functions are thread-safe but those that end a handle (splitkv_release_tuning,
 * splitkv_release_job). In a child of fork jobs of the parent count as cancelled.
 */
#ifndef SPLITKV_TUNE_H
#define SPLITKV_TUNE_H

#include "splitkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tuning now ------------------------------------------------------------------------------ */

typedef struct splitkv_tune_progress {
  size_t size;
  const char* stage;   /* "compiling and checking 3 of 40", "measuring 8x8192, 3 times each"; valid
                        * within the call */
  double done;         /* of the budget, 0 to 1 */
  double seconds_left; /* at most */
} splitkv_tune_progress;

typedef enum splitkv_tune_flags {
  SPLITKV_TUNE_NOT_KEPT = 1, /* records are added to no file: this runtime alone knows them */
  SPLITKV_TUNE_AGAIN = 2     /* measure also what the file has records of */
} splitkv_tune_flags;

typedef struct splitkv_tune_options {
  size_t size;
  uint32_t flags;
  double seconds;     /* for everything; 0: 20 */
  int32_t candidates; /* schedules a workload, at most; 0: 64 */
  /* That tensors of measurements may take of the device's memory; 0: as much as is free. Workloads
   * that do not fit stay untuned, and the result says so. */
  uint64_t memory_bytes;
  /* The program `splitkv` of the same version, in which candidates are compiled, checked and
   * measured: what crashes, hangs or spoils a GPU's context there does no harm here. NULL: looked
   * for beside this library and the running program, in bin/ beside the library's folder, and by
   * PATH. Candidates are never run in the caller's process: without the program nothing is tuned,
   * SPLITKV_LIBRARY_MISSING. */
  const char* worker;
  const char* file; /* that records are added to; NULL: the user's, see docs/tuning.md */
  /* On the caller's thread, before each step and about ten times a second. Not 0: it is given up.
   * The call then returns SPLITKV_NOT_PREPARED, and nothing is kept. */
  int32_t (*progress)(void* user, const splitkv_tune_progress* progress);
  void* user;
} splitkv_tune_options;

/* What came of it. */
typedef struct splitkv_tuning splitkv_tuning;

/* Measures the schedules of `problem` on the workloads, and keeps a record of the best of each
 * bucket (docs/tuning.md); splitkv_prepare takes it from then on, in this runtime and, where it was
 * added to the user's file, in every process of the user. A workload of several rows without
 * kv_len_mean is measured on equal and on ragged rows. Blocks for about options.seconds. Memory of
 * the device is taken by the program that measures; a caller's buffers take no part. options may be
 * NULL. SPLITKV_NOT_PREPARED where SPLITKV_NO_TUNING, SPLITKV_NO_JIT or SPLITKV_TUNING_FILE=off
 * forbids it. CPU: the runtime must use as many threads as the process may (options.threads = 0).
 */
SPLITKV_API splitkv_status splitkv_tune(splitkv_runtime* runtime, const char* device,
                                        const char* problem, const splitkv_workload* workloads,
                                        size_t count, const splitkv_tune_options* options,
                                        splitkv_tuning** tuning, splitkv_message* message);

typedef struct splitkv_tuning_info {
  size_t size;
  /* Owned by the result, valid while it lives. Lists are lines, each ended by '\n'; "" is none. */
  const char* records;  /* as a tuning file holds them; may be written into one */
  const char* failures; /* "SCHEDULE (STAGE): WHY" of each candidate that failed */
  const char* untuned;  /* "BUCKET: WHY" of each bucket without a record */
  const char* file;     /* that records were added to; "" where they were not */
  const char* worker;   /* that measured; "" where nothing was left to measure */
  int32_t known;        /* kinds of batches that were left out, as the file has records of them */
  int32_t candidates, compiled, checked, measured;
  int32_t kernels;     /* distinct ones in the records */
  int32_t processes;   /* that measured: one, and one more for each that a candidate ended */
  int32_t out_of_time; /* 1: the budget ended before all candidates were measured */
  double seconds;
} splitkv_tuning_info;

SPLITKV_API splitkv_status splitkv_get_tuning_info(const splitkv_tuning* tuning,
                                                   splitkv_tuning_info* info,
                                                   splitkv_message* message);
/* Ends the handle. NULL is allowed. */
SPLITKV_API void splitkv_release_tuning(splitkv_tuning* tuning);

/* ---- in the background ----------------------------------------------------------------------- */

/* A kernel that is made while the caller goes on. Jobs of a runtime run one after the other, in the
 * order they were started, on one thread of the runtime's that the first of them starts. */
typedef struct splitkv_job splitkv_job;

typedef enum splitkv_job_kind {
  SPLITKV_JOB_COMPILE = 1, /* splitkv_prepare */
  SPLITKV_JOB_TUNE = 2     /* splitkv_tune for the workload, then splitkv_prepare */
} splitkv_job_kind;

typedef struct splitkv_job_options {
  size_t size;
  splitkv_job_kind kind; /* 0: SPLITKV_JOB_COMPILE */
  const char* schedule;  /* SPLITKV_JOB_COMPILE: words, as of splitkv_prepare; else NULL */
  const splitkv_tune_options* tune; /* SPLITKV_JOB_TUNE: NULL is allowed; its progress is NULL, as
                                     * splitkv_poll_job tells it */
} splitkv_job_options;

/* Returns at once; what is pointed to is copied. options may be NULL. SPLITKV_NOT_PREPARED where
 * SPLITKV_NO_JIT is set, or SPLITKV_NO_TUNING for a job that tunes; with SPLITKV_NO_DISK jobs are
 * done as ever, and what they compile lives in memory alone. */
SPLITKV_API splitkv_status splitkv_background_start(splitkv_runtime* runtime, const char* device,
                                                    const char* problem,
                                                    const splitkv_workload* workload,
                                                    const splitkv_job_options* options,
                                                    splitkv_job** job, splitkv_message* message);

typedef enum splitkv_job_stage {
  SPLITKV_JOB_WAITING = 0, /* for jobs before it */
  SPLITKV_JOB_TUNING = 1,
  SPLITKV_JOB_COMPILING = 2,
  SPLITKV_JOB_DONE = 3, /* its kernel may be taken, or was */
  SPLITKV_JOB_FAILED = 4,
  SPLITKV_JOB_CANCELLED = 5 /* by splitkv_cancel_job, or because its runtime was closed */
} splitkv_job_stage;

typedef struct splitkv_job_state {
  size_t size;
  splitkv_job_stage stage;
  double done;         /* 0 to 1: of the budget while it tunes, 1 when it has ended, else 0 */
  double seconds_left; /* at most, of the tuning; else 0 */
  int32_t taken;       /* 1: splitkv_adopt has given its kernel out */
} splitkv_job_state;

/* Where the job stands. SPLITKV_OK while it goes on and when it is done; of one that failed its
 * status, with the whole message (a compiler's log); of one that was cancelled
 * SPLITKV_NOT_PREPARED. state is filled in each of these cases. */
SPLITKV_API splitkv_status splitkv_poll_job(const splitkv_job* job, splitkv_job_state* state,
                                            splitkv_message* message);
/* The same, once the job has ended or so many seconds have gone by; below 0: however long. */
SPLITKV_API splitkv_status splitkv_wait_job(const splitkv_job* job, double seconds,
                                            splitkv_job_state* state, splitkv_message* message);
/* Asks it to end, and returns. One that waits ends at once, one that tunes within some tenths of a
 * second; a compile is finished and dropped. NULL and jobs that have ended are allowed. */
SPLITKV_API void splitkv_cancel_job(splitkv_job* job);
/* Ends the handle: cancels the job and waits until it has ended. Before or after its runtime is
 * closed. NULL is allowed.
 */
SPLITKV_API void splitkv_release_job(splitkv_job* job);

/* Takes the kernel of a job that is done, as a handle of its own beside `kernel`, which stays what
 * it is: runs of it, and graphs that captured it, go on with its code for as long as the caller
 * keeps it. From when on the new one is run is the caller's to decide, between two runs; the old
 * one is released when its last run is over and its last graph is destroyed.
 *
 * Both are of one problem on one device, so bindings of `kernel` are good for the new one. Scratch
 * and state as well, where they are large enough: state that splitkv_state_init zeroed whole is at
 * zero after every complete run, whichever kernel ran. buffers: scratch_bytes and state_bytes that
 * the caller has for batches up to max_batch; where the new kernel needs more it is refused, naming
 * both, and stays in the job. NULL: not looked at, nor is max_batch.
 *
 * SPLITKV_NOT_PREPARED where the job has not ended, was cancelled, or its kernel was taken; of one
 * that failed its status and message; SPLITKV_INVALID_ARGUMENT for another problem or device. */
SPLITKV_API splitkv_status splitkv_adopt(const splitkv_kernel* kernel, splitkv_job* job,
                                         int64_t max_batch, const splitkv_buffer_sizes* buffers,
                                         splitkv_kernel** adopted, splitkv_message* message);

/* As splitkv_sizes, and enough as well for every kernel that tuning on this device may come to, for
 * workloads of the buckets of these (batch and kv_len, rounded up to powers of two): buffers of
 * these sizes fit what a job of such a workload gives. Without workloads (count 0) for tuning of
 * any workload: far more, as a kernel for one long row cuts it finely, and is then run on max_batch
 * rows. Not covered: schedules that the caller names, and records of other devices. module_bytes is
 * that of `kernel`. */
SPLITKV_API splitkv_status splitkv_sizes_adoptable(const splitkv_kernel* kernel,
                                                   const splitkv_workload* workloads, size_t count,
                                                   int64_t max_batch, splitkv_buffer_sizes* sizes,
                                                   splitkv_message* message);

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_TUNE_H */
