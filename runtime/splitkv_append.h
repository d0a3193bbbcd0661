/* Writing new keys and values into the cache of a problem, so that nobody else has to know how it
 * lays out, scales and rounds them.
 *
 *   splitkv_prepare_append  compile and load the writer of one problem on one device, now
 *   splitkv_append          one layer's new keys and values: launches, and nothing else
 *
 * The cache is what a kernel of the same problem reads: the same binding says where it lies. Write
 * before the run that is to see the new keys, on the same stream.
 *
 * What is stored: with v a new element and s its scale, v / s, rounded to fp32 and then to the
 * cache's type, to nearest with ties to even; without a scale v itself. Attention reads stored * s.
 *
 * A finite v is never stored as an infinity: what is beyond the type's finite numbers becomes the
 * nearest of them (448 of e4m3, 57344 of e5m2, -128 to 127 of int8, 65504 of fp16). Infinities stay
 * in fp32, fp16 and bf16 and saturate in the 8-bit types. NaN stays NaN; int8 has none and stores
 * 0.
 *
 * Scales of `tensor` and `head` are given, trusted to be finite and not 0. Those of `token` and
 * `inline` are made of the row (the elements of one token and kv head) and written: its largest |v|
 * divided by 448 (e4m3), 57344 (e5m2) or 127 (int8), at least 2^-126; 1 for a row of zeros.
 * Infinities and NaN do not take part; but a row of int8 that holds a NaN gets a scale of NaN, so
 * that attention shows it. Rows of fp32, fp16 and bf16 get a scale of 1.
 *
 * CPU and CUDA write the same bits, but for those of a NaN. Nothing else of the cache is touched.
 */
#ifndef SPLITKV_APPEND_H
#define SPLITKV_APPEND_H

#include "splitkv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The loaded writer of one problem. Any threads may use it at once. */
typedef struct splitkv_appender splitkv_appender;

/* Compiles (or finds in memory or on disk) and loads. device and problem: as for splitkv_prepare.
 * type: of new elements, "fp32", "fp16" or "bf16"; NULL: the problem's q type. places: how a call
 * says where a token goes, "slots" or "rows" (see splitkv_append_args). Problems whose caches lie
 * alike share the code. SPLITKV_UNSUPPORTED with rule, field, value, limit and what would fit where
 * the problem is refused, type is an 8-bit one, or places=rows meets positions=strided. */
SPLITKV_API splitkv_status splitkv_prepare_append(splitkv_runtime* runtime, const char* device,
                                                  const char* problem, const char* type,
                                                  const char* places, splitkv_appender** appender,
                                                  splitkv_message* message);
SPLITKV_API void splitkv_release_appender(splitkv_appender* appender); /* NULL is allowed */

typedef struct splitkv_append_args {
  size_t size;
  int64_t tokens; /* rows of k_new and v_new; 0: nothing is done */
  /* [1] on the device: tokens from this one on are left out, whatever their slots; NULL: all count.
   * Lets a captured graph of the largest batch write smaller ones. */
  const int32_t* token_count;
  const void* k_new; /* [tokens, kv_heads, dim_qk] of the appender's type */
  const void* v_new; /* [tokens, kv_heads, dim_v]; NULL exactly when v_in_k=on */
  /* Elements; both of a tensor 0: dense. */
  int64_t k_new_stride_token, k_new_stride_head;
  int64_t v_new_stride_token, v_new_stride_head;

  /* places=slots: [tokens] on the device. A token goes to page slot / P, place slot % P with pages
   * of P tokens; without pages to batch row slot / slots_a_row, position slot % slots_a_row. A
   * negative slot: nowhere. v_slots: V's, exactly when page_tables=separate. Of two tokens with one
   * slot either may be found there, or a mix. */
  const int64_t* slots;
  const int64_t* v_slots;
  int64_t slots_a_row; /* without pages: at least 1 */
  int64_t slot_count;  /* checked=on: slots lie below; 0: not checked */

  /* places=rows: token i of the n that batch row r brings stands at kv_len[r] - n + i, and in the
   * row's page of that position. Row r brings the tokens [q_offset[r], q_offset[r + 1]), none where
   * an offset is -1 or they do not rise, and not only query_len of them; with q_offset NULL
   * every row brings tokens / batch. Tokens of no row, at a negative position or in a page whose id
   * is negative go nowhere. */
  int64_t batch;
  const int32_t* q_offset; /* [batch + 1] on the device; or NULL */
  const void* kv_len;      /* [batch] on the device: lengths after the append, int32 (int64 where
                            * kv_len_is_int64); NULL: kv_len_host, at least 1, for every row */
  int32_t kv_len_is_int64;
  int32_t kv_len_host;
  const int32_t* page_table; /* page fields: as in splitkv_args */
  const int64_t* page_offset;
  int64_t page_table_stride;
  const int32_t* v_page_table;
  const int64_t* v_page_offset;
  int64_t v_page_table_stride;
  int64_t page_count;  /* checked=on: ids lie in [0, page_count); 0: not checked */
  int64_t kv_capacity; /* checked=on: keys a row can hold; 0: not checked */
} splitkv_append_args;

/* Launches on the stream and returns: never compiles, allocates or synchronises, and may be
 * captured in a graph. On the CPU it returns when all is written; stream must be NULL.
 *
 * binding: of a kernel of the same problem on the same device; its k, v and, where scales are of
 * tokens, k_scale and v_scale are written, so they must be memory that may be.
 *
 * With checked=on tokens whose slot, page or position is out of range are left out and the first is
 * recorded for splitkv_poll_append_fault (where page_count > 0 a negative page id too, as code 1);
 * on the CPU this call returns it as well, as SPLITKV_DEVICE_ERROR. Otherwise these are trusted. */
SPLITKV_API splitkv_status splitkv_append(const splitkv_appender* appender,
                                          const splitkv_binding* binding,
                                          const splitkv_append_args* args, void* stream,
                                          splitkv_message* message);

/* As splitkv_poll_fault, of what this appender found. code 1: a page id (row, slot of its list,
 * id); 2: a length above kv_capacity (row, length); 5: a slot outside [0, slot_count) (row: the
 * token; slot: 1 of v_slots, else 0; value: the slot). */
SPLITKV_API splitkv_status splitkv_poll_append_fault(splitkv_appender* appender,
                                                     splitkv_fault* fault,
                                                     splitkv_message* message);

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_APPEND_H */
