/* SplitKV's C API. It reads as a manual, from simple to advanced:
 *
 *   splitkv_open      a runtime: options, kernels kept in memory and on disk, the CPU thread pool
 *   splitkv_supports  can this problem be had on this target, and if not, why not
 *   splitkv_prepare   compile and load the kernels of one problem on one device, now
 *   splitkv_sizes     bytes of the two work buffers for a largest batch
 *   splitkv_bind      K and V of one layer: pointers and strides, checked
 *   splitkv_run       one decode step: launches, and nothing else
 *
 * Conventions
 *  - Problems, schedules and targets are their one-line text forms, for example
 *    "attention q=bf16 kv=bf16 heads=32/8 dim=128 kv_layout=paged:16:nhd lse=natural".
 *  - Every function that can fail returns a splitkv_status and, where `message` is not NULL, writes
 *    what went wrong there: the field, its value and what would work.
 *  - Every struct begins with its size in bytes, so that newer libraries read older structs. Start
 *    from SPLITKV_INIT(type): all zero but the size; zero is the default of every field.
 *  - Strides are in elements of their tensor, 64-bit. Nothing here uses thread-local state; nothing
 *    prints, aborts or throws.
 *
 * Threads
 *  - "Thread-safe" below means: with the same runtime, kernel or merger, from any threads at once.
 *    All functions are that but those that end a handle (splitkv_close, splitkv_release,
 *    splitkv_release_merger): no other call with the handle may be under way or follow.
 *  - Structs are the caller's: one that a call writes is its thread's alone for as long.
 *  - Runs at once have scratch, state and outputs of their own each.
 *  - After fork a child may go on with the CPU target, with kernels that it inherited too, where no
 *    other thread was inside the library at the fork. CUDA does not outlive a fork: where the
 *    parent had opened it, calls for it give SPLITKV_DEVICE_ERROR in the child.
 */
#ifndef SPLITKV_H
#define SPLITKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SPLITKV_API __attribute__((visibility("default")))
#else
#define SPLITKV_API
#endif

#define SPLITKV_VERSION_MAJOR 0
#define SPLITKV_VERSION_MINOR 1
#define SPLITKV_VERSION_PATCH 0

typedef enum splitkv_status {
  SPLITKV_OK = 0,
  SPLITKV_INVALID_ARGUMENT = 1, /* a text does not parse, a pointer is missing, a size is wrong */
  SPLITKV_UNSUPPORTED = 2,      /* a rule refuses the problem or schedule on this target */
  SPLITKV_NOT_PREPARED = 3,     /* the call would have to compile or load, and may not */
  SPLITKV_OUT_OF_MEMORY = 4,
  SPLITKV_COMPILE_FAILED = 5, /* message: log, options, where the source was saved */
  SPLITKV_LIBRARY_MISSING =
      6, /* message: every name tried for libcuda, libnvrtc or the CPU compiler */
  SPLITKV_DEVICE_ERROR = 7, /* message: the driver call and its error */
  SPLITKV_INTERNAL = 8
} splitkv_status;

/* Both thread-safe; texts of the library, always there. */
SPLITKV_API const char* splitkv_status_name(splitkv_status status); /* "invalid_argument", ... */
SPLITKV_API const char* splitkv_version(void);                      /* "0.1.0" */

/* A caller's buffer for a message. Always NUL-terminated when capacity > 0; `needed` is the full
 * length with its NUL, so a cut message shows as needed > capacity. */
typedef struct splitkv_message {
  size_t size;
  char* text;
  size_t capacity;
  size_t needed; /* out */
} splitkv_message;

#ifdef __cplusplus /* see splitkv::sized for one without a compiler's warnings */
#define SPLITKV_INIT(type) \
  { sizeof(type) }
#else
#define SPLITKV_INIT(type) \
  { .size = sizeof(type) }
#endif

/* ---- runtime --------------------------------------------------------------------------------- */

typedef struct splitkv_runtime splitkv_runtime;

typedef enum splitkv_log_level {
  SPLITKV_LOG_ERROR = 0,
  SPLITKV_LOG_WARNING = 1,
  SPLITKV_LOG_INFO = 2,
  SPLITKV_LOG_DEBUG = 3
} splitkv_log_level;

typedef enum splitkv_flags {
  SPLITKV_NO_JIT = 1,   /* never compile: splitkv_prepare gives SPLITKV_NOT_PREPARED on a miss */
  SPLITKV_NO_DISK = 2,  /* neither read nor keep compiled kernels on disk */
  SPLITKV_NO_TUNING = 4 /* leave the user's file of tuning records unread */
} splitkv_flags;

/* SPLITKV_NO_JIT=1, SPLITKV_NO_DISK=1 and SPLITKV_NO_TUNING=1 in the environment do the same. */
typedef struct splitkv_options {
  size_t size;
  uint32_t flags;
  /* Called for every log line, from any thread. NULL: the library is silent. */
  void (*log)(void* user, splitkv_log_level level, const char* line);
  void* log_user;
  /* CPU target: run body(context, i) for every i in [0, n), in any order, on any threads, and
   * return when all are done. NULL: a pool of the library's own with `threads` threads. */
  void (*parallel_for)(void* user, int64_t n, void (*body)(void* context, int64_t i),
                       void* context);
  void* parallel_for_user;
  int32_t threads; /* 0: as many as the process may use */
  /* The folder where compiled kernels are kept, and how many bytes of them. NULL and 0: what
   * SPLITKV_CACHE_DIR and SPLITKV_CACHE_LIMIT say, else splitkv/ in the user's cache folder and 1
   * GiB. Trouble with the folder goes to the log; kernels are then compiled in every process. */
  const char* cache_dir;
  uint64_t cache_limit_bytes;
  /* A file of `splitkv pack` to open with the runtime, see splitkv_deploy.h; NULL: what
   * SPLITKV_PACK names, if anything. A pack that is missing or damaged fails splitkv_open. */
  const char* pack;
} splitkv_options;

/* Thread-safe. options may be NULL. */
SPLITKV_API splitkv_status splitkv_open(const splitkv_options* options, splitkv_runtime** runtime,
                                        splitkv_message* message);
/* Ends the handle. Kernels outlive their runtime: each holds what it needs. NULL is allowed. */
SPLITKV_API void splitkv_close(splitkv_runtime* runtime);

/* Thread-safe. Microseconds; asks no device (a CPU target is held against this machine's own).
 * target: "cuda:sm_90a", "cpu", "cpu:x86-64-v3", ... SPLITKV_OK when the problem can be prepared
 * there; SPLITKV_UNSUPPORTED with rule, field, value, limit and what would fit in the message;
 * SPLITKV_INVALID_ARGUMENT when a text does not parse. */
SPLITKV_API splitkv_status splitkv_supports(const char* problem, const char* target,
                                            splitkv_message* message);

/* ---- kernel ---------------------------------------------------------------------------------- */

typedef struct splitkv_kernel splitkv_kernel;

/* Hints that choose a schedule, never limits. */
typedef struct splitkv_workload {
  size_t size;
  int64_t batch;  /* 0: 1 */
  int64_t kv_len; /* tokens of the longest row; 0: 4096 */
  /* Mean tokens of a row, where it is roughly known: it tells equal lengths from ragged ones, which
   * want different schedules. 0: not known, and the schedule suits both. */
  int64_t kv_len_mean;
} splitkv_workload;

/* Compiles (or finds in memory or on disk) and loads the kernels of `problem` on `device`: "cuda:0"
 * (an ordinal), "cpu", or "cpu:x86-64-v2", -v3, -v4 (":128" and the like after it override the
 * vector width). schedule: NULL for the library's choice, a full schedule text, or some of its
 * words ("splits=7"), the others being the library's choice. splits=N where that choice is flat
 * means partition=fixed; a partition named without its splits or blocks keeps about the grid of the
 * library's choice. The environment variable SPLITKV_SCHEDULE overrides when `schedule` is NULL.
 * Afterwards nothing is lazy: functions are loaded and attributes set. Thread-safe: threads that
 * ask for the same kernel wait for one compile. */
SPLITKV_API splitkv_status splitkv_prepare(splitkv_runtime* runtime, const char* device,
                                           const char* problem, const splitkv_workload* workload,
                                           const char* schedule, splitkv_kernel** kernel,
                                           splitkv_message* message);
/* Ends the handle; wait for its runs first. NULL is allowed. */
SPLITKV_API void splitkv_release(splitkv_kernel* kernel);

typedef struct splitkv_buffer_sizes {
  size_t size;
  size_t scratch_bytes; /* contents never matter; aligned to 16 bytes */
  size_t state_bytes;   /* zeroed once by splitkv_state_init, left at zero by every complete run */
  size_t module_bytes;  /* of compiled code */
} splitkv_buffer_sizes;

/* Thread-safe. Independent of KV length. Enough for every batch up to max_batch. */
SPLITKV_API splitkv_status splitkv_sizes(const splitkv_kernel* kernel, int64_t max_batch,
                                         splitkv_buffer_sizes* sizes, splitkv_message* message);

/* Thread-safe. Zeroes `state` on the stream (CUDA) or at once (CPU). One state per stream in
 * flight; again after a failed launch. state: aligned to 4 bytes; state_bytes: what splitkv_sizes
 * gives, or more by whole 4-byte counters; of 0 nothing is done. stream: a CUstream, NULL for the
 * default one. */
SPLITKV_API splitkv_status splitkv_state_init(const splitkv_kernel* kernel, void* state,
                                              size_t state_bytes, void* stream,
                                              splitkv_message* message);

/* ---- one layer's K and V --------------------------------------------------------------------- */

/* `block` is a batch row for contiguous layouts and a page for paged ones. */
typedef struct splitkv_tensors {
  size_t size;
  const void* k;
  const void* v;
  int64_t k_stride_block, k_stride_head, k_stride_token;
  int64_t v_stride_block, v_stride_head, v_stride_token; /* v_in_k=on: v is NULL, these are 0 */
  /* Scales, fp32 on the device, one for each ... tensor: [1]. head: [kv_heads]. token: token and kv
   * head, by these strides. inline: NULL, they lie in the rows. */
  const float* k_scale;
  const float* v_scale;
  int64_t k_scale_stride_block, k_scale_stride_head, k_scale_stride_token;
  int64_t v_scale_stride_block, v_scale_stride_head, v_scale_stride_token;
  const float* alibi_slopes; /* [q_heads], exactly when alibi=on */
  const float* sink;         /* [q_heads], exactly when sink=on */
  const float* params[8];    /* in the order of the problem's params=: [1], [q_heads] or [batch] */
} splitkv_tensors;

/* Thread-safe. Fills the strides of dense tensors in the problem's layout: bhtd and bthd with
 * `capacity` tokens a row; paged with pages dense in their order (capacity is not looked at). */
SPLITKV_API splitkv_status splitkv_dense_strides(const splitkv_kernel* kernel, int64_t capacity,
                                                 splitkv_tensors* tensors,
                                                 splitkv_message* message);

/* A plain value: copy it, keep one per layer, redo it when pointers change. Good for every kernel
 * of the same problem on the same device, whatever its schedule. */
typedef struct splitkv_binding {
  size_t size;
  splitkv_tensors tensors;
  uint64_t kernel_id; /* of the problem and device it was checked for */
} splitkv_binding;

/* Thread-safe. Refuses pointers and strides weaker than the problem's alignment class. */
SPLITKV_API splitkv_status splitkv_bind(const splitkv_kernel* kernel,
                                        const splitkv_tensors* tensors, splitkv_binding* binding,
                                        splitkv_message* message);

/* ---- one decode step ------------------------------------------------------------------------- */

typedef struct splitkv_args {
  size_t size;
  int64_t batch;
  const void* q;                         /* [batch, query_len, q_heads, dim_qk], or with q_offset
                                          * [query_rows, q_heads, dim_qk]; the problem's q type */
  int64_t q_stride_batch, q_stride_head; /* both 0: dense */
  void* out;                             /* like q with dim_v, of the problem's out type; fp32 where
                                          * out=partial */
  int64_t out_stride_batch, out_stride_head; /* both 0: dense */
  float* lse; /* like q without its last dimension; NULL exactly when lse=none. out=partial: S where
               * merge=lse, m where merge=mlo, never NULL */
  int64_t lse_stride_batch, lse_stride_head; /* both 0: dense */
  const void* kv_len; /* [batch] on the device, int32 (int64 where kv_len_is_int64); NULL: every row
                       * has kv_len_host keys */
  /* Paged: row r's page ids start at page_table + page_offset[r], or, with page_offset NULL, at
   * page_table + r * page_table_stride. Only ids of tokens that the row can see are read. */
  const int32_t* page_table;
  const int64_t* page_offset;
  int64_t page_table_stride; /* entries a row; looked at only when page_offset is NULL */
  void* scratch;             /* may be NULL when splitkv_sizes says 0 bytes */
  size_t scratch_bytes;
  void* state;
  size_t state_bytes;

  /* Strides of query tokens; looked at where query_len > 1 or q_offset is given. With q_offset the
   * batch strides are not looked at. 0: dense. */
  int64_t q_stride_query, out_stride_query, lse_stride_query;
  const void* q_rope; /* [batch, query_len, q_heads, dim_rope], exactly when dim_rope > 0 */
  int64_t q_rope_stride_batch, q_rope_stride_query, q_rope_stride_head; /* all 0: dense */
  /* Exactly when ragged=on: [batch + 1] on the device: row r has the query tokens [q_offset[r],
   * q_offset[r + 1]), at most query_len, none where an offset is -1 or both are equal. query_rows:
   * token rows that q, out and lse hold; those of out beyond the last query are zeroed, of lse set
   * to -inf. */
  const int32_t* q_offset;
  int64_t query_rows;
  float* partial_l; /* out=partial with merge=mlo: l, like lse; otherwise NULL */
  int32_t kv_len_is_int64;
  int32_t kv_len_host;
  const int32_t* kv_begin; /* [batch] on the device: keys before it are not there; NULL: 0 */
  /* positions=strided: key i of a row stands at pos0 + i * pos_step, of total_len[row] keys that
   * all shards hold; queries stand at the end of those. */
  const int32_t* total_len;
  int64_t pos0, pos_step;
  const int32_t* v_page_table; /* page_tables=separate: V's */
  const int64_t* v_page_offset;
  int64_t v_page_table_stride;
  const void* bias; /* [batch, q_heads, query, key] exactly when bias=; strides of 0 repeat */
  int64_t bias_stride_batch, bias_stride_head, bias_stride_query, bias_stride_key;
  /* mask=tree: [batch, query] rows of packed bits, lowest bit of the lowest byte first
   * (little-endian words of any width): bit j of query i lets it see key kv_len - queries + j.
   * Strides in bytes. */
  const uint8_t* tree;
  int64_t tree_stride_batch, tree_stride_query;
  int64_t page_count;  /* checked=on: ids lie in [0, page_count); 0: not checked */
  int64_t kv_capacity; /* checked=on: keys a row can hold; 0: not checked */
} splitkv_args;

/* Thread-safe. Launches on the stream and returns: never compiles, tunes, allocates or
 * synchronises. On the CPU it returns when the result is there; stream must be NULL. Every element
 * of out and lse is written: rows without keys get out = 0, lse = -inf. A kv_len below 0 counts as
 * 0. Trusted, not checked: kv_len within the allocation, page ids in range, finite keys inside a
 * row's interval. */
SPLITKV_API splitkv_status splitkv_run(const splitkv_kernel* kernel, const splitkv_binding* binding,
                                       const splitkv_args* args, void* stream,
                                       splitkv_message* message);

/* Thread-safe. CPU only: part `part` of `parts` of the same run, on the caller's thread. All parts
 * together make one run; they may run at once or in turn. Needs a schedule with reduce=last_block.
 */
SPLITKV_API splitkv_status splitkv_run_part(const splitkv_kernel* kernel,
                                            const splitkv_binding* binding,
                                            const splitkv_args* args, int64_t part, int64_t parts,
                                            splitkv_message* message);

/* What a kernel with checked=on, or a merger, found in device data since the last call, the first
 * fault only. */
typedef struct splitkv_fault {
  size_t size;
  int32_t code;  /* 0: none; 1: a page id outside [0, page_count); 2: a length above kv_capacity; 3:
                  * a row has more than query_len queries; 4: a merge was given a statistic that
                  * no partial has */
  int32_t row;   /* batch row; 4: query row */
  int32_t slot;  /* of the row's page list; 4: part */
  int64_t value; /* the bad id, length or count; 4: the 32 bits of the fp32 statistic */
} splitkv_fault;

/* Thread-safe. Reads and clears the kernel's error record; does not wait for the stream. SPLITKV_OK
 * with code 0 when nothing was found, SPLITKV_DEVICE_ERROR with row, slot and value in the message
 * otherwise.
 */
SPLITKV_API splitkv_status splitkv_poll_fault(splitkv_kernel* kernel, splitkv_fault* fault,
                                              splitkv_message* message);

/* ---- merging partials ------------------------------------------------------------------------ */

/* n partials of the same query rows, of one form and one base. */
typedef struct splitkv_merge_args {
  size_t size;
  int64_t parts; /* at least 1 */
  int64_t rows;  /* query rows (tokens times heads) */
  int64_t dim;   /* at most 4096 */
  /* Partial p, row r: o at o + p * o_stride_part + r * o_stride_row, normalised, fp32; its S (or m,
   * and l) likewise by the statistics' strides. An empty partial has S or m = -inf, and its o and l
   * are not looked at; of every other one S or m is finite, l finite and not negative. */
  const float* o;
  const float* s_or_m;
  const float* l; /* NULL: the form is (S, o) */
  int64_t o_stride_part, o_stride_row;
  int64_t statistics_stride_part, statistics_stride_row;
  /* out may be o of part 0 (in place); likewise the statistics. */
  float* out;
  float* out_s_or_m;
  float* out_l;
  int64_t out_stride_row, out_statistics_stride_row;
} splitkv_merge_args;

/* The merge of a form ("mlo" or "lse") and base ("natural" or "base2") on a device, compiled and
 * loaded; forms and bases do not mix because they belong to the merger. */
typedef struct splitkv_merger splitkv_merger;
/* Thread-safe. */
SPLITKV_API splitkv_status splitkv_prepare_merge(splitkv_runtime* runtime, const char* device,
                                                 const char* form, const char* base,
                                                 splitkv_merger** merger, splitkv_message* message);
/* Ends the handle. NULL is allowed. */
SPLITKV_API void splitkv_release_merger(splitkv_merger* merger);
/* Thread-safe. Launches only. Parts are joined in their order. A row of which any part has a
 * statistic that no partial has (S or m of +inf or NaN; l negative, +inf or NaN) becomes NaN, o and
 * statistics, and the fault is recorded for splitkv_poll_merge_fault; other rows are right. On the
 * CPU this call returns it as well, as SPLITKV_DEVICE_ERROR. Trusted, not checked: o. */
SPLITKV_API splitkv_status splitkv_merge(const splitkv_merger* merger,
                                         const splitkv_merge_args* args, void* stream,
                                         splitkv_message* message);
/* As splitkv_poll_fault, of what merges of this merger found. */
SPLITKV_API splitkv_status splitkv_poll_merge_fault(splitkv_merger* merger, splitkv_fault* fault,
                                                    splitkv_message* message);

/* ---- looking inside -------------------------------------------------------------------------- */

typedef struct splitkv_kernel_info {
  size_t size;
  /* Owned by the kernel, valid while it lives. */
  const char* problem;  /* canonical text */
  const char* schedule; /* canonical text */
  const char* target;   /* "cuda:sm_90a", "cpu:host:256" ... */
  const char* why;      /* why this schedule */
  const char* source;   /* emitted CUDA C++ or LLVM IR */
  const char* key;      /* digest of everything that changes the compiled bytes */
  int32_t from_memory;  /* 1: found in memory, nothing was compiled by this prepare */
  double compile_ms;    /* of the compile that made it */
  size_t module_bytes;
  int32_t registers_split, registers_reduce;     /* CUDA; 0 on the CPU */
  int32_t local_bytes_split, local_bytes_reduce; /* spills and stack, bytes a thread */
  int64_t smem_bytes;                            /* of a split block */
  int32_t kernels_per_run;                       /* launches: 1 or 2 */
  const char*
      origin;     /* where this prepare had the code from: "pack", "memory", "disk", "compiled" */
  double disk_ms; /* finding and verifying it on disk; 0 unless origin is "disk" */
  /* Who decided the schedule: "argument" and "environment" (words of the caller or of
   * SPLITKV_SCHEDULE, over what `why` says), "record exact", "record near", "record other device"
   * (tuning records of this workload; of one at most two steps away; of another device of the
   * architecture), "cost model", "decision" (splitkv_prepare_decided). */
  const char* decided_by;
  /* Names of the kernels in a profiler, "splitkv_split_bf16_h32x8_d128_0f3a9c12"; reduce_name is ""
   * where a run launches one. */
  const char* split_name;
  const char* reduce_name;
  const char* device; /* that it was prepared on: "cuda:0", "cpu" */
} splitkv_kernel_info;

/* Thread-safe. */
SPLITKV_API splitkv_status splitkv_get_kernel_info(const splitkv_kernel* kernel,
                                                   splitkv_kernel_info* info,
                                                   splitkv_message* message);

typedef struct splitkv_statistics {
  size_t size;
  uint64_t memory_hits;
  uint64_t compiles;
  uint64_t compile_failures;
  double compile_ms_total;
  uint64_t disk_hits;
  double disk_ms_total; /* of the disk hits: finding, reading and verifying */
  uint64_t pack_hits;   /* kernels loaded from packs */
  uint64_t misses;      /* lookups that found a kernel nowhere; it was then compiled, or refused */
  uint64_t evictions;   /* kernels removed from the disk, where it was full, by this runtime */
} splitkv_statistics;

/* Thread-safe. Counts from splitkv_open on; a merge counts as a kernel. */
SPLITKV_API splitkv_status splitkv_get_statistics(const splitkv_runtime* runtime,
                                                  splitkv_statistics* statistics,
                                                  splitkv_message* message);

/* Writes down all that is needed to repeat what a kernel does somewhere else, for a report: files
 * of the folder `folder`, which is made; files of these names in it are replaced:
 *
 *   repro.txt   versions, problem, schedule and who decided it, target, environment variables of
 *               names SPLITKV_* and CUDA_*, strides and alignments of `binding` and `args`, shapes
 *   run.sh      a command line of the program splitkv that runs the kernel on generated inputs of
 *               these shapes and checks the result
 *   kernel.cu   the emitted source; kernel.ll on the CPU
 *   key.txt     what changes the compiled bytes: compiler, its options, architecture
 *
 * No tensor's contents are read: lengths are those of kv_len_host, else the longest that strides or
 * kv_capacity let a row have. binding and args may be NULL. Thread-safe. SPLITKV_INVALID_ARGUMENT
 * with the path and why where a file cannot be written. */
SPLITKV_API splitkv_status splitkv_dump_repro(const splitkv_kernel* kernel,
                                              const splitkv_binding* binding,
                                              const splitkv_args* args, const char* folder,
                                              splitkv_message* message);
/* The same of a problem that splitkv_prepare is asked for likewise: compiles nothing, so that it
 * serves where the compile is what fails. Thread-safe. */
SPLITKV_API splitkv_status splitkv_dump_problem(splitkv_runtime* runtime, const char* device,
                                                const char* problem,
                                                const splitkv_workload* workload,
                                                const char* schedule, const char* folder,
                                                splitkv_message* message);

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_H */
