/* splitkv.h and its further parts are C11. */
#include "runtime/splitkv.h"
#include "runtime/splitkv_append.h"
#include "runtime/splitkv_deploy.h"
#include "runtime/splitkv_dlpack.h"
#include "runtime/splitkv_tune.h"

int c_header_opens_a_runtime(void);

int c_header_opens_a_runtime(void) {
  splitkv_options options = SPLITKV_INIT(splitkv_options);
  splitkv_runtime* runtime = NULL;
  splitkv_statistics statistics = SPLITKV_INIT(splitkv_statistics);
  splitkv_prepare_item item = SPLITKV_INIT(splitkv_prepare_item);
  char text[256];
  splitkv_message message = SPLITKV_INIT(splitkv_message);
  message.text = text;
  message.capacity = sizeof(text);
  options.threads = 1;
  if (splitkv_open(&options, &runtime, &message) != SPLITKV_OK) return 0;
  if (splitkv_get_statistics(runtime, &statistics, &message) != SPLITKV_OK) return 0;
  splitkv_close(runtime);
  return statistics.compiles == 0 && item.size == sizeof(item) ? 1 : 0;
}
