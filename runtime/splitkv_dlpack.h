/* Tensors of other libraries as arguments of SplitKV, by DLPack 1.x. Conventions as in splitkv.h.
 *
 * The structs have the layout of DLPack's own, whose header is not needed: cast pointers to
 * DLTensor to const splitkv_dl_tensor*, and to DLManagedTensorVersioned to const
 * splitkv_dl_managed_tensor*. Functions here look at tensors only while they run; nothing is kept,
 * deleted, copied or cast, and no element is read. Pointers and strides go into splitkv_tensors and
 * splitkv_args, so that the memory must stay until the runs that are given them are done.
 *
 * Streams: nothing here waits for a device. Whoever exports a tensor may wait or not, as its
 * __dlpack__(stream) is told: ask for the stream that splitkv_run will be given, or for -1 (no
 * waiting) where the work that makes the tensor is ordered before the run already, as it is on one
 * stream.
 *
 * Tensors have the shapes and types that are named below, any strides but those of the last
 * dimension of q, k, v, out and tree, which is dense (strides NULL: all dense), byte_offset
 * counted, on the kernel's device: cuda:N takes CUDA memory of device N and managed memory, cpu
 * takes memory of the host, pinned or not. e4m3 is DLPack's float8_e4m3fn, e5m2 its float8_e5m2;
 * both may also come as uint8, for libraries that cannot say so. Otherwise
 * SPLITKV_INVALID_ARGUMENT, with the field, its value and what would fit.
 */
#ifndef SPLITKV_DLPACK_H
#define SPLITKV_DLPACK_H

#include "splitkv.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct splitkv_dl_device {
  int32_t type; /* 1: host, 2: CUDA, 3: pinned host, 13: CUDA managed */
  int32_t id;
} splitkv_dl_device;

typedef struct splitkv_dl_dtype {
  uint8_t code; /* 0: int, 1: uint, 2: float, 4: bfloat, 10: float8_e4m3fn, 12: float8_e5m2 */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} splitkv_dl_dtype;

typedef struct splitkv_dl_tensor {
  void* data;
  splitkv_dl_device device;
  int32_t ndim;
  splitkv_dl_dtype dtype;
  const int64_t* shape;   /* [ndim] */
  const int64_t* strides; /* [ndim], in elements; NULL: dense, the last dimension innermost */
  uint64_t byte_offset;   /* from data to the first element */
} splitkv_dl_tensor;

typedef struct splitkv_dl_managed_tensor {
  uint32_t version_major, version_minor;
  void* manager_ctx;
  void (*deleter)(struct splitkv_dl_managed_tensor* self);
  uint64_t flags; /* bit 0: read only */
  splitkv_dl_tensor tensor;
} splitkv_dl_managed_tensor;

/* The tensor inside, which lives as long. Thread-safe. Refused: another major version of DLPack
 * than 1, and a tensor that is read only where `writable` is not 0 (out, lse and partial_l). */
SPLITKV_API splitkv_status splitkv_dl_view(const splitkv_dl_managed_tensor* managed,
                                           int32_t writable, const splitkv_dl_tensor** tensor,
                                           splitkv_message* message);

/* What splitkv_tensors holds; NULL where the problem has no such tensor. */
typedef struct splitkv_dl_cache {
  size_t size;
  /* By the problem's layout: bhtd [batch, kv_heads, tokens, dim], bthd [batch, tokens, kv_heads,
   * dim], paged nhd [pages, page_size, kv_heads, dim], hnd [pages, kv_heads, page_size, dim]. With
   * inline scales the last dimension may also be the whole row, scale included, or uint8 bytes. */
  const splitkv_dl_tensor* k;
  const splitkv_dl_tensor* v;
  const splitkv_dl_tensor*
      k_scale; /* fp32: [1] or [], [kv_heads], or k without its last dimension */
  const splitkv_dl_tensor* v_scale;
  const splitkv_dl_tensor* alibi_slopes; /* fp32 [q_heads] */
  const splitkv_dl_tensor* sink;         /* fp32 [q_heads] */
  const splitkv_dl_tensor* params[8];    /* fp32 [1], [q_heads] or [batch] */
} splitkv_dl_cache;

/* Fills all of `tensors`, ready for splitkv_bind. Thread-safe. */
SPLITKV_API splitkv_status splitkv_tensors_from_dlpack(const splitkv_kernel* kernel,
                                                       const splitkv_dl_cache* cache,
                                                       splitkv_tensors* tensors,
                                                       splitkv_message* message);

/* What splitkv_args holds; NULL where the problem, or the call, has no such tensor. */
typedef struct splitkv_dl_step {
  size_t size;
  /* [batch, query_len, q_heads, dim], with ragged=on [tokens, q_heads, dim]; where query_len is 1
   * also [batch, q_heads, dim]. lse and partial_l (fp32) likewise, without dim. */
  const splitkv_dl_tensor* q;
  const splitkv_dl_tensor* q_rope;
  const splitkv_dl_tensor* out;
  const splitkv_dl_tensor* lse;
  const splitkv_dl_tensor* partial_l;
  const splitkv_dl_tensor* kv_len; /* int32 or int64 [batch]; NULL: kv_len_host of args counts */
  /* int32 [batch, pages]; with page_offset (int64 [batch]) int32 [ids] of all rows */
  const splitkv_dl_tensor* page_table;
  const splitkv_dl_tensor* page_offset;
  const splitkv_dl_tensor* v_page_table;
  const splitkv_dl_tensor* v_page_offset;
  const splitkv_dl_tensor* q_offset;  /* int32 [batch + 1] */
  const splitkv_dl_tensor* kv_begin;  /* int32 [batch] */
  const splitkv_dl_tensor* total_len; /* int32 [batch] */
  const splitkv_dl_tensor* bias;      /* [batch, q_heads, query, key]; sizes of 1 repeat */
  const splitkv_dl_tensor* tree;      /* integers [batch, query, words]; batch of 1 repeats */
} splitkv_dl_step;

/* Fills those fields of `args` that tensors stand for, batch and query_rows too; the others
 * (scratch, state, kv_len_host, pos0, page_count ...) stay as they are. Thread-safe. */
SPLITKV_API splitkv_status splitkv_args_from_dlpack(const splitkv_kernel* kernel,
                                                    const splitkv_dl_step* step, splitkv_args* args,
                                                    splitkv_message* message);

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_DLPACK_H */
