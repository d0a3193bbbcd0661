#include "runtime/splitkv.h"

#define SPLITKV_TEXT_OF(x) #x
#define SPLITKV_TEXT(x) SPLITKV_TEXT_OF(x)

extern "C" const char* splitkv_version(void) {
  return SPLITKV_TEXT(SPLITKV_VERSION_MAJOR) "." SPLITKV_TEXT(
      SPLITKV_VERSION_MINOR) "." SPLITKV_TEXT(SPLITKV_VERSION_PATCH);
}
