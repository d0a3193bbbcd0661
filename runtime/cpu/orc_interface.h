/* The C interface of libsplitkv_cpu, the one library that contains LLVM. It is opened with dlopen
 * on first use; nothing else of it is exported. */
#ifndef SPLITKV_ORC_INTERFACE_H
#define SPLITKV_ORC_INTERFACE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Goes up with every change of this file; both sides compare it. */
#define SPLITKV_ORC_VERSION 3

typedef struct splitkv_orc_request {
  const char* ir; /* textual LLVM IR of one module */
  size_t ir_bytes;
  const char* cpu; /* "host", or an LLVM cpu name of this architecture */
} splitkv_orc_request;

typedef struct splitkv_orc_object splitkv_orc_object; /* owns a relocatable object file */

/* An object file, from splitkv_orc_object_bytes or kept since; entries as in the module. */
typedef struct splitkv_orc_load_request {
  const char* object;
  size_t object_bytes;
  const char* cpu;
  const char* split_entry;  /* a function the object defines */
  const char* reduce_entry; /* another, or "" */
} splitkv_orc_load_request;

typedef struct splitkv_orc_code splitkv_orc_code; /* owns the machine code */

typedef struct splitkv_orc_result {
  splitkv_orc_code* code;
  void* split;  /* entry addresses, valid until the code is released */
  void* reduce; /* NULL without reduce_entry */
  size_t code_bytes;
} splitkv_orc_result;

typedef int splitkv_orc_version_function(void);

/* What besides the IR decides the machine code that a request with this `cpu` gets: four lines, of
 * LLVM's exact version, the LLVM name of the cpu, its features in alphabetical order, and the
 * passes that are run. The length of the text with its NUL; it is cut where `capacity` is less. */
typedef size_t splitkv_orc_describe_function(const char* cpu, char* text, size_t capacity);

/* Both: 0 on success. Otherwise nothing is owned and `message`, always NUL-terminated within
 * `capacity` (at least 1), says which line LLVM refused and why, or what is wrong with the object.
 * May be called from several threads. */
typedef int splitkv_orc_compile_function(const splitkv_orc_request* request,
                                         splitkv_orc_object** object, char* message,
                                         size_t capacity);
typedef int splitkv_orc_load_function(const splitkv_orc_load_request* request,
                                      splitkv_orc_result* result, char* message, size_t capacity);
/* The bytes of the file, valid until the object is released. */
typedef const char* splitkv_orc_object_bytes_function(const splitkv_orc_object* object,
                                                      size_t* bytes);
typedef void splitkv_orc_release_object_function(splitkv_orc_object* object);
typedef void splitkv_orc_release_function(splitkv_orc_code* code);

/* The exported names. */
#define SPLITKV_ORC_VERSION_NAME "splitkv_orc_version"
#define SPLITKV_ORC_DESCRIBE_NAME "splitkv_orc_describe"
#define SPLITKV_ORC_COMPILE_NAME "splitkv_orc_compile"
#define SPLITKV_ORC_LOAD_NAME "splitkv_orc_load"
#define SPLITKV_ORC_OBJECT_BYTES_NAME "splitkv_orc_object_bytes"
#define SPLITKV_ORC_RELEASE_OBJECT_NAME "splitkv_orc_release_object"
#define SPLITKV_ORC_RELEASE_NAME "splitkv_orc_release"

#ifdef __cplusplus
}
#endif
#endif /* SPLITKV_ORC_INTERFACE_H */
