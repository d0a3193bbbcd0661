#include "attention.h"

#include <math.h>
#include <splitkv/splitkv.h>
#include <splitkv/splitkv_deploy.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 2, HEADS = 4, KV_HEADS = 2, DIM = 8, CAPACITY = 5 };

static const char* const problem = "attention q=fp32 heads=4/2 dim=8 lse=natural";
static const int32_t lengths[ROWS] = {5, 3};

/* Contiguous K and V: [row, kv head, token, dim]. */
static float q[ROWS * HEADS * DIM], k[ROWS * KV_HEADS * CAPACITY * DIM];
static float v[ROWS * KV_HEADS * CAPACITY * DIM], out[ROWS * HEADS * DIM], lse[ROWS * HEADS];

static void fill(float* to, int count, unsigned seed) {
  int i;
  for (i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    to[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* out and LSE of a row's query head, in double. */
static double expected(int row, int head, double* o) {
  const float* q_row = q + (row * HEADS + head) * DIM;
  const size_t first = (size_t)(row * KV_HEADS + head / (HEADS / KV_HEADS)) * CAPACITY * DIM;
  double scores[CAPACITY], sum = 0, highest = -INFINITY;
  int t, d;
  for (t = 0; t < lengths[row]; ++t) {
    scores[t] = 0;
    for (d = 0; d < DIM; ++d) scores[t] += (double)q_row[d] * k[first + (size_t)(t * DIM + d)];
    scores[t] /= sqrt(DIM);
    highest = fmax(highest, scores[t]);
  }
  for (t = 0; t < lengths[row]; ++t) sum += exp(scores[t] - highest);
  for (d = 0; d < DIM; ++d) {
    o[d] = 0;
    for (t = 0; t < lengths[row]; ++t)
      o[d] += exp(scores[t] - highest) / sum * v[first + (size_t)(t * DIM + d)];
  }
  return highest + log(sum);
}

static int compare(void) {
  int row, head, d, wrong = 0;
  for (row = 0; row < ROWS; ++row) {
    for (head = 0; head < HEADS; ++head) {
      const int at = row * HEADS + head;
      double o[DIM];
      const double s = expected(row, head, o);
      if (!(fabs(lse[at] - s) < 1e-5)) {
        printf("lse[%d, %d] = %g, not %g\n", row, head, (double)lse[at], s);
        ++wrong;
      }
      for (d = 0; d < DIM; ++d) {
        if (fabs(out[at * DIM + d] - o[d]) < 1e-5) continue;
        printf("out[%d, %d, %d] = %g, not %g\n", row, head, d, (double)out[at * DIM + d], o[d]);
        ++wrong;
      }
    }
  }
  return wrong;
}

static int failed(const char* call, splitkv_status status, const splitkv_message* message) {
  printf("%s: %s: %s\n", call, splitkv_status_name(status), message->text);
  return 1;
}

static int run(splitkv_runtime* runtime, splitkv_message* message) {
  splitkv_kernel* kernel = NULL;
  splitkv_tensors tensors = SPLITKV_INIT(splitkv_tensors);
  splitkv_binding layer = SPLITKV_INIT(splitkv_binding);
  splitkv_buffer_sizes sizes = SPLITKV_INIT(splitkv_buffer_sizes);
  splitkv_args args = SPLITKV_INIT(splitkv_args);
  splitkv_status status;
  int wrong = 1;

  status = splitkv_prepare(runtime, "cpu", problem, NULL, NULL, &kernel, message);
  if (status != SPLITKV_OK) return failed("splitkv_prepare", status, message);
  status = splitkv_dense_strides(kernel, CAPACITY, &tensors, message);
  tensors.k = k;
  tensors.v = v;
  if (status == SPLITKV_OK) status = splitkv_bind(kernel, &tensors, &layer, message);
  if (status == SPLITKV_OK) status = splitkv_sizes(kernel, ROWS, &sizes, message);
  args.batch = ROWS;
  args.q = q;
  args.out = out;
  args.lse = lse;
  args.kv_len = lengths;
  args.scratch_bytes = sizes.scratch_bytes;
  args.scratch = aligned_alloc(64, (sizes.scratch_bytes + 64) / 64 * 64);
  args.state_bytes = sizes.state_bytes;
  args.state = calloc(1, sizes.state_bytes + 1);
  if (status == SPLITKV_OK) status = splitkv_run(kernel, &layer, &args, NULL, message);
  wrong = status == SPLITKV_OK ? compare() : failed("splitkv_run", status, message);
  if (wrong == 0 && getenv("CONSUMER_REPRO") != NULL) {
    status = splitkv_dump_repro(kernel, &layer, &args, getenv("CONSUMER_REPRO"), message);
    if (status != SPLITKV_OK) wrong = failed("splitkv_dump_repro", status, message);
  }
  free(args.scratch);
  free(args.state);
  splitkv_release(kernel);
  return wrong;
}

int attention_is_right(void) {
  char text[4096];
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  splitkv_runtime* runtime = NULL;
  splitkv_status status;
  int wrong;
  message.text = text;
  message.capacity = sizeof(text);
  fill(q, ROWS * HEADS * DIM, 1);
  fill(k, ROWS * KV_HEADS * CAPACITY * DIM, 2);
  fill(v, ROWS * KV_HEADS * CAPACITY * DIM, 3);
  status = splitkv_open(NULL, &runtime, &message);
  if (status != SPLITKV_OK) return failed("splitkv_open", status, &message);
  wrong = run(runtime, &message);
  splitkv_close(runtime);
  return wrong;
}
