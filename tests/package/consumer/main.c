/* C11 through splitkv.h. */
#include <splitkv/splitkv.h>
#include <stdio.h>
#include <string.h>

#include "attention.h"

int main(void) {
  char built_for[32];
  snprintf(built_for, sizeof(built_for), "%d.%d.%d", SPLITKV_VERSION_MAJOR, SPLITKV_VERSION_MINOR,
           SPLITKV_VERSION_PATCH);
  if (strcmp(splitkv_version(), built_for) != 0) {
    printf("the header is of %s, the library of %s\n", built_for, splitkv_version());
    return 1;
  }
  if (attention_is_right() != 0) return 1;
  printf("C: right\n");
  return 0;
}
