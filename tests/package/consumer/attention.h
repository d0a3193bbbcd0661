/* What the consumers run: a decode step of two rows with 5 and 3 keys, 4 query heads over 2 kv
 * heads of dim 8, on the CPU target, held against numbers computed here. */
#ifndef ATTENTION_H
#define ATTENTION_H

#ifdef __cplusplus
extern "C" {
#endif

/* 0 when every element of out and lse is right; otherwise what went wrong is printed. */
int attention_is_right(void);

#ifdef __cplusplus
}
#endif
#endif
