/* Another LLVM in the same process: opened before SplitKV with its symbols for all, used before and
 * after. Its path is the argument. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "attention.h"

typedef void* (*context_create)(void);
typedef void* (*module_create)(const char* name, void* context);
typedef char* (*module_print)(void* module);
typedef void (*dispose)(void* what);

static void* symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) printf("%s is not there\n", name);
  return found;
}

/* The other LLVM prints a module of its own. */
static int other_llvm_works(void* library) {
  context_create create_context;
  module_create create_module;
  module_print print;
  dispose dispose_module, dispose_message, dispose_context;
  void *context, *module;
  char* text;
  int right;
  *(void**)&create_context = symbol(library, "LLVMContextCreate");
  *(void**)&create_module = symbol(library, "LLVMModuleCreateWithNameInContext");
  *(void**)&print = symbol(library, "LLVMPrintModuleToString");
  *(void**)&dispose_module = symbol(library, "LLVMDisposeModule");
  *(void**)&dispose_message = symbol(library, "LLVMDisposeMessage");
  *(void**)&dispose_context = symbol(library, "LLVMContextDispose");
  if (!create_context || !create_module || !print || !dispose_module || !dispose_message ||
      !dispose_context)
    return 0;
  context = create_context();
  module = create_module("beside", context);
  text = print(module);
  right = strstr(text, "ModuleID = 'beside'") != NULL;
  if (!right) printf("the other LLVM printed: %s\n", text);
  dispose_message(text);
  dispose_module(module);
  dispose_context(context);
  return right;
}

int main(int count, char** arguments) {
  void* other;
  if (count != 2) return 2;
  other = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
  if (other == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  if (!other_llvm_works(other) || attention_is_right() != 0 || !other_llvm_works(other)) return 1;
  printf("beside %s: right\n", arguments[1]);
  return 0;
}
