/* SplitKV's C API for deployment: kernels that were compiled elsewhere, many kernels at once, and
 * one decision for many processes. Conventions as in splitkv.h, of which this is the second part.
 */
#ifndef SPLITKV_DEPLOY_H
#define SPLITKV_DEPLOY_H

#include "splitkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- packs ----------------------------------------------------------------------------------- */

/* Opens a pack that `splitkv pack` made. splitkv_prepare and splitkv_prepare_merge then take
 * kernels that it holds from there before they look anywhere else, without a compiler and without
 * the disk cache; its tuning records stand behind the user's and before the library's. The pack is
 * read whole and copied: file and memory may go afterwards. SPLITKV_INVALID_ARGUMENT, naming what
 * is wrong, for a pack that is missing, damaged or of another version of SplitKV; nothing of it is
 * taken then. Of a kernel that several packs hold the one opened first counts. */
SPLITKV_API splitkv_status splitkv_open_pack(splitkv_runtime* runtime, const char* path,
                                             splitkv_message* message);
SPLITKV_API splitkv_status splitkv_open_pack_memory(splitkv_runtime* runtime, const void* data,
                                                    size_t bytes, splitkv_message* message);

/* ---- many at once ---------------------------------------------------------------------------- */

/* One splitkv_prepare among many: what is asked for, then what came of it. */
typedef struct splitkv_prepare_item {
  size_t size; /* the same in all items of an array: the distance between them */
  const char* problem;
  const splitkv_workload* workload; /* as in splitkv_prepare; NULL is allowed */
  const char* schedule;             /* likewise */
  splitkv_message* message;         /* of this item; NULL is allowed */
  splitkv_kernel* kernel;           /* out: the caller's to release; NULL unless status is OK */
  splitkv_status status;            /* out */
} splitkv_prepare_item;

typedef struct splitkv_plan {
  size_t size;
  int64_t items;
  int64_t refused; /* items that cannot be prepared, whatever is done */
  int64_t kernels; /* distinct ones of the others: the sum of the next four */
  int64_t in_packs, in_memory, on_disk, to_compile;
  int32_t workers;       /* compiles at once */
  double seconds;        /* of the compiles; like the bytes an estimate */
  uint64_t memory_bytes; /* while they run */
  uint64_t kept_bytes;   /* that they will add to the disk cache */
} splitkv_plan;

typedef struct splitkv_progress {
  size_t size;
  int64_t done, items;
  double seconds_left; /* an estimate */
} splitkv_progress;

typedef struct splitkv_many_options {
  size_t size;
  int32_t workers;       /* at most; 0: as many as the process has cores */
  uint64_t memory_bytes; /* for all compiles at once; 0: half of what is free. A compile for CUDA
                          * counts as 300 MiB, one for the CPU as 150. */
  /* Before the first item and after each, from any thread, one call at a time. Not 0: no further
   * item is begun, and those not begun are SPLITKV_NOT_PREPARED. */
  int32_t (*progress)(void* user, const splitkv_progress* progress);
  void* user;
} splitkv_many_options;

/* What splitkv_prepare_many would do; neither compiles nor loads. Items are read only. options may
 * be NULL. */
SPLITKV_API splitkv_status splitkv_plan_many(splitkv_runtime* runtime, const char* device,
                                             const splitkv_prepare_item* items, size_t count,
                                             const splitkv_many_options* options,
                                             splitkv_plan* plan, splitkv_message* message);

/* Prepares all items, side by side. Each has the kernel, or the status and message, that
 * splitkv_prepare would give; items of the same kernel compile once. SPLITKV_OK when all are
 * prepared; otherwise the status of the first that is not, how many are not in the message, and the
 * kernels of the others are there. SPLITKV_INVALID_ARGUMENT about the call itself (a NULL, a wrong
 * size) leaves the items as they were. */
SPLITKV_API splitkv_status splitkv_prepare_many(splitkv_runtime* runtime, const char* device,
                                                splitkv_prepare_item* items, size_t count,
                                                const splitkv_many_options* options,
                                                splitkv_message* message);

/* ---- one decision for many processes --------------------------------------------------------- */

/* How a kernel was decided (its schedule, and why) as some hundred bytes of text, for other
 * processes. bytes: the length; where `capacity` is less nothing is written, and data may be NULL:
 * SPLITKV_OK all the same. */
SPLITKV_API splitkv_status splitkv_export_decision(const splitkv_kernel* kernel, void* data,
                                                   size_t capacity, size_t* bytes,
                                                   splitkv_message* message);

/* As splitkv_prepare, with the schedule of a decision in place of a choice: neither workload nor
 * SPLITKV_SCHEDULE nor tuning records nor the device's size are looked at.
 * SPLITKV_INVALID_ARGUMENT, naming both values, where the decision was made for another problem,
 * another architecture or by another version of SplitKV, and where the bytes are damaged. */
SPLITKV_API splitkv_status splitkv_prepare_decided(splitkv_runtime* runtime, const char* device,
                                                   const char* problem, const void* data,
                                                   size_t bytes, splitkv_kernel** kernel,
                                                   splitkv_message* message);

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_DEPLOY_H */
